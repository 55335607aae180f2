// Boards, small and large, against a map: every rule, every shape, every way to grow and to shrink.
#include <array>
#include <functional>
#include <set>

#include "model.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using testing::Boards;
using testing::kHighest;
using testing::kLowest;
using testing::Pair;
using testing::Random;
using testing::Row;

constexpr Order kOrders[] = {Order::desc, Order::asc};
constexpr Ties kTies[] = {Ties::earliest, Ties::latest, Ties::value, Ties::player};
constexpr Keep kKeeps[] = {Keep::best, Keep::latest, Keep::sum, Keep::first};

Rules rules_of(Keep keep, Order order = Order::desc, Ties ties = Ties::earliest, int64_t least = kLowest,
               int64_t most = kHighest) {
  return {keep, {order, ties}, least, most};
}

// Names whose bytewise order is not that of their numbers.
std::string player_named(uint64_t number) {
  return std::string(1, static_cast<char>('a' + number * 7 % 26)) + std::to_string(number);
}

Pair pair_of(Rules rules) { return Pair(Boards{{"board", rules}}); }

struct Shares {
  uint64_t puts = 5;
  uint64_t removes = 15;  // per cent
};

std::vector<Row> random_rows(Random& random, size_t count, uint64_t players, const std::function<int64_t()>& score,
                             Shares shares = {}) {
  std::vector<Row> rows;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t dice = random.below(100);
    const Op op = dice < shares.puts ? Op::put : dice < shares.puts + shares.removes ? Op::remove : Op::apply;
    // Both halves of the tie field take part.
    const uint64_t tie = random.once_in(4) ? random.below(kTieFieldMax + 1) : random.below(3) << 31;
    rows.push_back({0, op, player_named(random.below(players)), score(), tie});
  }
  return rows;
}

TEST("every keep rule, order and way to break ties gives what a map gives") {
  Random random;
  for (const Keep keep : kKeeps) {
    for (const Order order : kOrders) {
      for (const Ties ties : kTies) {
        Pair pair = pair_of(rules_of(keep, order, ties, -40, 40));
        const auto few_scores = [&] { return random.between(-25, 25); };
        for (int batch = 0; batch < 14; ++batch) {
          // Up and down through every size of block and into a tree and out again.
          const uint64_t players = batch % 7 < 4 ? 300 : 12;
          const Shares shares = batch % 7 < 4 ? Shares{5, 10} : Shares{5, 60};
          std::vector<Row> rows = random_rows(random, 1 + random.below(200), players, few_scores, shares);
          if (batch % 7 == 6) random.pick(rows).op = Op::clear;
          std::optional<Ranking> ranks;
          if (random.once_in(2)) ranks = testing::kRankings[random.below(3)];
          pair.apply(rows, ranks);
          CHECK_SOUND(pair.engine);
          if (batch % 3 == 0) pair.compare(random);
        }
      }
    }
  }
}

TEST("scores of every distribution stand in order in a large board") {
  Random random;
  const std::array ends{kLowest, kLowest + 1, int64_t{-1}, int64_t{0}, kHighest - 1, kHighest};
  int64_t clock = 0;
  const std::vector<std::function<int64_t()>> distributions{
      [&] { return random.between(kLowest, kHighest); },
      [&] { return random.between(0, 2); },
      [&] { return random.once_in(20) ? random.between(-1'000, 1'000) : int64_t{7}; },
      [&] { return random.pick(ends); },
      [&] { return int64_t{1} << random.below(62); },
      [&] { return ++clock; },
      [&] { return --clock; },
  };
  for (const auto& distribution : distributions) {
    for (const Order order : kOrders) {
      Pair pair = pair_of(rules_of(Keep::latest, order, random.once_in(2) ? Ties::value : Ties::latest));
      for (int batch = 0; batch < 4; ++batch) {
        pair.apply(random_rows(random, testing::scaled(1'300), 3'000, distribution, {2, batch < 3 ? 5u : 50u}));
        CHECK_SOUND(pair.engine);
      }
      pair.compare(random);
      pair.apply(random_rows(random, testing::scaled(4'000), 3'000, distribution, {0, 90}));
      CHECK_SOUND(pair.engine);
      pair.compare(random);
    }
  }
}

TEST("sums stop at their bounds, also where those are the ends of 64 bits") {
  Random random;
  const std::array ends{kLowest, kLowest + 1, int64_t{-1}, int64_t{0}, int64_t{1}, kHighest - 1, kHighest};
  const std::pair<int64_t, int64_t> all_bounds[] = {{kLowest, kHighest}, {-5, kHighest}, {kLowest, 5}};
  for (const auto& [least, most] : all_bounds) {
    Pair pair = pair_of(rules_of(Keep::sum, Order::desc, Ties::value, least, most));
    for (int batch = 0; batch < 3; ++batch) {
      pair.apply(random_rows(random, 600, 40, [&] { return random.pick(ends); }));
      CHECK_SOUND(pair.engine);
    }
    pair.compare(random);
  }
}

constexpr uint64_t kCrowd = testing::scaled(20'000);

TEST("twenty thousand players share one score") {
  Random random;
  for (const Ties ties : {Ties::player, Ties::value}) {
    Pair pair = pair_of(rules_of(Keep::latest, Order::desc, ties));
    std::vector<Row> rows;
    for (uint64_t i = 0; i < kCrowd; ++i) rows.push_back({0, Op::apply, player_named(i), 42, 5});
    random.shuffle(rows);
    pair.apply(rows);
    CHECK_SOUND(pair.engine);
    pair.compare(random);

    // Some leave the crowd and come back, at both of its ends and in it.
    for (int batch = 0; batch < 4; ++batch) {
      std::vector<Row> changes;
      for (int i = 0; i < 1'500; ++i) {
        const int64_t score = random.once_in(2) ? 42 : random.between(41, 43);
        const Op op = random.once_in(4) ? Op::remove : Op::apply;
        changes.push_back({0, op, player_named(random.below(kCrowd)), score, 5});
      }
      pair.apply(changes);
      CHECK_SOUND(pair.engine);
    }
    pair.compare(random);

    // From the front, so that the first keys of whole subtrees move.
    const std::vector<testing::Entry> entries = pair.model().standings();
    rows.clear();
    for (size_t i = 0; i + 100 < entries.size(); ++i) rows.push_back({0, Op::remove, entries[i].player});
    pair.apply(rows);
    CHECK_SOUND(pair.engine);
    pair.compare(random);
  }
}

std::vector<Row> part(const std::vector<Row>& rows, size_t begin, size_t count) {
  return {rows.begin() + static_cast<long>(begin), rows.begin() + static_cast<long>(begin + count)};
}

// Three levels of inner nodes.
constexpr uint64_t kTall = testing::scaled(60'000);

TEST("a board that grows in order at one end shrinks from the other end and from the middle") {
  for (const Order order : kOrders) {
    Engine engine({1, 2});
    const Boards boards{{"board", rules_of(Keep::latest, order)}};
    std::vector<Row> rows;
    for (uint64_t i = 0; i < kTall; ++i) rows.push_back({0, Op::apply, player_named(i), static_cast<int64_t>(i / 3)});
    // In parts, since a batch is sorted and scores must arrive in order.
    for (size_t begin = 0; begin < rows.size(); begin += 500) {
      testing::apply(engine, boards, part(rows, begin, 500));
    }
    CHECK_SOUND(engine);
    CHECK_EQUAL(engine.read_board("board")->size(), kTall);
    for (Row& row : rows) row.op = Op::remove;
    if (order == Order::asc) std::rotate(rows.begin(), rows.begin() + kTall / 3, rows.end());
    for (size_t begin = 0; begin < rows.size(); begin += 3'000) {
      testing::apply(engine, boards, part(rows, begin, 3'000));
      if (begin % 12'000 == 0) CHECK_SOUND(engine);
    }
    CHECK(engine.read_board("board") == nullptr);
    CHECK_SOUND(engine);
    CHECK_EQUAL(testing::bytes_held(engine), 0);
  }
}

TEST("players of a tall board move anywhere and the counts follow") {
  Random random;
  Engine engine({1, 2});
  const Boards boards{{"board", rules_of(Keep::latest)}};
  std::map<std::string, int64_t> expected;
  const auto write = [&](const std::vector<Row>& rows) {
    testing::apply(engine, boards, rows);
    for (const Row& row : rows) {
      if (row.op == Op::remove) {
        expected.erase(row.player);
      } else {
        expected[row.player] = row.score;
      }
    }
  };
  std::vector<Row> rows;
  for (uint64_t i = 0; i < kTall; ++i) rows.push_back({0, Op::apply, player_named(i), random.between(0, 1 << 20)});
  write(rows);
  for (int batch = 0; batch < 8; ++batch) {
    // Into a narrow part, out of it, or far away: nodes fill up here and run empty there.
    const int64_t middle = random.between(0, 1 << 20);
    rows = random_rows(random, testing::scaled(5'000), kTall, [&] {
      return batch % 2 == 0 ? middle + random.between(-10, 10) : random.between(-(1 << 20), 1 << 21);
    }, {0, 20});
    write(rows);
    CHECK_SOUND(engine);
  }
  std::vector<int64_t> scores;
  for (const auto& [player, score] : expected) scores.push_back(score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  const Board* board = engine.read_board("board");
  CHECK_EQUAL(board->size(), expected.size());
  for (int i = 0; i < 2'000; ++i) {
    const auto& [player, score] = *std::next(expected.begin(), static_cast<long>(random.below(200)));
    const auto better = std::lower_bound(scores.begin(), scores.end(), score, std::greater<>()) - scores.begin();
    CHECK_EQUAL(engine.read_rank(board, player, Ranking::competition).rank, better + 1);
    expected.erase(player);
    if (expected.size() < 1'000) break;
  }
}

TEST("a board grows from a block to a tree and back one player at a time") {
  Random random;
  for (const bool few_scores : {false, true}) {
    Pair pair = pair_of(rules_of(Keep::latest, Order::asc, Ties::player));
    std::vector<std::string> present;
    const auto step = [&](bool grows) {
      if (grows) {
        present.push_back(player_named(present.size()));
        pair.apply({{0, Op::apply, present.back(), few_scores ? random.between(0, 3) : random.between(-1'000, 1'000)}});
      } else {
        std::swap(random.pick(present), present.back());
        pair.apply({{0, Op::remove, present.back()}});
        present.pop_back();
      }
      CHECK_SOUND(pair.engine);
      // Somebody who is there moves too.
      if (!present.empty()) pair.apply({{0, Op::put, random.pick(present), random.between(0, 3)}});
    };
    for (int i = 0; i < 300; ++i) step(true);
    pair.compare(random);
    while (present.size() > 40) step(false);
    // Back and forth over the border, where it should not matter what the board is.
    for (int i = 0; i < 4; ++i) {
      while (present.size() < 130) step(true);
      pair.compare(random);
      while (present.size() > 60) step(false);
      pair.compare(random);
    }
    while (!present.empty()) step(false);
    CHECK_EQUAL(testing::bytes_held(pair.engine), 0);
  }
}

TEST("a batch comes to what its rows come to one after the other") {
  Random random;
  for (uint64_t round = 0; round < testing::scaled(12); ++round) {
    const Rules rules = rules_of(random.pick(kKeeps), random.pick(kOrders), random.pick(kTies), -500, 500);
    Boards boards{{"one", rules}, {"two", rules_of(random.pick(kKeeps))}, {"one", rules}};
    // The same board by another rule and bounds: they belong to the row.
    boards[2].second.keep = random.pick(kKeeps);
    boards[2].second.score_max = 100;
    Engine whole({1, 2});
    Engine by_row({3, 4});
    for (int batch = 0; batch < 5; ++batch) {
      // Few players, so that each comes up many times, within a chunk and over several.
      const auto score = [&] { return random.between(-300, 300); };
      std::vector<Row> rows = random_rows(random, 1'200, batch == 0 ? 1'000 : 30, score);
      for (Row& row : rows) row.board = static_cast<uint32_t>(random.below(3));
      for (int i = 0; i < 3; ++i) random.pick(rows).op = Op::clear;
      const Applied applied = testing::apply(whole, boards, rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        const Applied one = testing::apply(by_row, boards, {rows[i]});
        CHECK_EQUAL(int{applied.flags[i]}, int{one.flags[0]});
        if (one.flags[0] & kWasPresent) CHECK_EQUAL(applied.old_score[i], one.old_score[0]);
        if (one.flags[0] & kIsPresent) CHECK_EQUAL(applied.new_score[i], one.new_score[0]);
      }
      CHECK_SOUND(whole);
      CHECK_SOUND(by_row);
      for (const char* name : {"one", "two"}) {
        const Board* a = whole.read_board(name);
        const Board* b = by_row.read_board(name);
        CHECK_EQUAL(a == nullptr, b == nullptr);
        if (a != nullptr) CHECK(a->digest() == b->digest());
      }
    }
  }
}

TEST("a player listed twice in a batch's table is one player") {
  Engine engine({1, 2});
  const Ids ids = testing::ids_of(engine, {"ann", "bob", "ann", "eve"});
  const int64_t scores[] = {1, 2, 3, 4, 5, 6};
  const uint32_t players[] = {0, 1, 2, 2, 0, 3};
  const uint8_t ops[] = {0, 0, 0, 2, 0, 2};
  Batch batch;
  batch.instances = {{"board", rules_of(Keep::sum)}};
  batch.players = &ids;
  batch.rows = 6;
  batch.score = scores;
  batch.player = players;
  batch.op = ops;
  const Applied applied = engine.apply(batch);
  CHECK_EQUAL(applied.new_score[2], 4);  // 1 + 3
  CHECK_EQUAL(applied.old_score[3], 4);
  CHECK_EQUAL(applied.new_score[4], 5);  // taken out before
  CHECK_EQUAL(int{applied.flags[5]}, 0);
  CHECK_EQUAL(engine.read_board("board")->size(), 2);
  CHECK_SOUND(engine);
}

TEST("a malformed batch changes nothing, not even who is known") {
  Engine engine({1, 2});
  const Boards boards{{"board", rules_of(Keep::best)}};
  testing::apply(engine, boards, {{0, Op::apply, "ann", 1}});
  const size_t bytes = testing::bytes_held(engine);
  const Ids ids = testing::ids_of(engine, {"bob"});
  const int64_t scores[] = {1, 2};
  const uint32_t no_such_player[] = {0, 1};
  const uint32_t no_such_board[] = {0, 9};
  const uint8_t no_such_op[] = {0, 9};
  const int64_t no_such_tie[] = {0, -1};
  const uint32_t players[] = {0, 0};
  const auto refused = [&](auto spoil) {
    Batch batch;
    batch.instances = {{"other", rules_of(Keep::best)}};
    batch.players = &ids;
    batch.rows = 2;
    batch.score = scores;
    batch.player = players;
    batch.after = engine.read_position(0).sequence;
    batch.upto = batch.after + 2;
    spoil(batch);
    try {
      engine.apply(batch);
    } catch (const MalformedBatch& error) {
      CHECK_EQUAL(testing::bytes_held(engine), bytes);
      CHECK(engine.read_board("other") == nullptr);
      CHECK_EQUAL(engine.read_position(0).sequence, 1);
      CHECK_SOUND(engine);
      return error.row;
    }
    testing::fail(__FILE__, __LINE__, "a malformed batch was applied");
  };
  CHECK_EQUAL(refused([&](Batch& batch) { batch.player = no_such_player; }), 1);
  CHECK_EQUAL(refused([&](Batch& batch) { batch.instance = no_such_board; }), 1);
  CHECK_EQUAL(refused([&](Batch& batch) { batch.op = no_such_op; }), 1);
  CHECK_EQUAL(refused([&](Batch& batch) { batch.tie = no_such_tie; }), 1);
  CHECK_EQUAL(refused([&](Batch& batch) { batch.upto = 0; }), -1);
  CHECK_EQUAL(refused([&](Batch& batch) { batch.instances = {{"board", rules_of(Keep::best, Order::asc)}}; }), -1);
}

TEST("positions move with their batch, and old, early and fenced ones change nothing") {
  Engine engine({1, 2});
  const Ids ids = testing::ids_of(engine, {"ann"});
  const int64_t one = 1;
  const auto send = [&](uint64_t epoch, uint64_t after, uint64_t upto) {
    Batch batch;
    batch.instances = {{"board", rules_of(Keep::sum)}};
    batch.players = &ids;
    batch.rows = 1;
    batch.score = &one;
    batch.partition = 7;
    batch.epoch = epoch;
    batch.after = after;
    batch.upto = upto;
    return engine.apply(batch).verdict;
  };
  CHECK(send(3, 0, 10) == Verdict::applied);
  CHECK(send(3, 0, 10) == Verdict::dup);
  CHECK(send(3, 11, 12) == Verdict::gap);
  CHECK(send(2, 10, 11) == Verdict::fenced);
  CHECK(send(4, 10, 10) == Verdict::applied);
  CHECK(send(3, 10, 11) == Verdict::fenced);
  CHECK(engine.read_position(7) == (Position{4, 10}));
  CHECK(engine.read_position(0) == Position{});
  CHECK_EQUAL(engine.read_score(engine.read_board("board"), "ann")->score, 2);
}

TEST("many small boards share players and come and go") {
  Random random;
  Engine engine({random.bits(), random.bits()});
  std::map<std::string, testing::Model> models;
  const Rules rules = rules_of(Keep::best);
  for (int batch = 0; batch < 12; ++batch) {
    Boards boards;
    std::vector<Row> rows;
    for (uint32_t i = 0; i < 250; ++i) {
      boards.emplace_back("board " + std::to_string(random.below(1'500)), rules);
      const uint64_t entries = random.once_in(30) ? 200 : 1 + random.below(40);
      const bool leaves = batch > 6 && random.once_in(2);
      for (uint64_t entry = 0; entry < entries; ++entry) {
        rows.push_back({i, leaves ? Op::remove : Op::apply, player_named(random.below(600)), random.between(0, 50)});
      }
    }
    random.shuffle(rows);
    const Applied applied = testing::apply(engine, boards, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      auto& model = models.try_emplace(boards[rows[i].board].first, rules).first->second;
      CHECK_EQUAL(int{applied.flags[i]}, int{model.apply(rows[i]).flags});
    }
    for (int i = 0; i < 40; ++i) {
      const std::string name = "board " + std::to_string(random.below(1'500));
      const auto found = models.find(name);
      CHECK_EQUAL(engine.drop(name), found != models.end() && found->second.size() > 0);
      if (found != models.end()) models.erase(found);
    }
    CHECK_SOUND(engine);
  }
  std::set<std::string> names;
  for (uint64_t cursor = 0; cursor != Engine::kNamesEnd;) {
    for (std::string& name : engine.read_names(cursor, 100)) CHECK(names.insert(std::move(name)).second);
  }
  size_t with_players = 0;
  for (const auto& [name, model] : models) {
    with_players += model.size() > 0 ? 1 : 0;
    CHECK_EQUAL(names.contains(name), model.size() > 0);
    if (random.once_in(20)) compare(engine, name, model, random);
  }
  CHECK_EQUAL(names.size(), with_players);
  for (const std::string& name : names) CHECK(engine.drop(name));
  CHECK_EQUAL(testing::bytes_held(engine), 0);
}

TEST("lone scores on several large boards, parts of which have gone, come to what a map says") {
  constexpr uint64_t kPlayers = 6'000;
  Random random;
  Pair pair(Boards{{"all time", rules_of(Keep::latest)}, {"weekly", rules_of(Keep::latest)}});
  std::vector<Row> joining;
  std::vector<Row> leaving;
  for (uint64_t number = 0; number < kPlayers; ++number) {
    for (const uint32_t board : {0u, 1u}) {
      const auto score = static_cast<int64_t>(number);
      joining.push_back({board, Op::apply, player_named(number), score});
      if (number < kPlayers / 3) leaving.push_back({board, Op::remove, player_named(number), 0});
    }
  }
  pair.apply(joining);
  pair.apply(leaving);  // of neighbours, whose leaves go
  for (size_t i = 0; i < testing::scaled(300); ++i) {
    const std::string player = player_named(random.below(kPlayers));
    const int64_t score = random.between(0, kPlayers);
    pair.apply({{0, Op::apply, player, score}, {1, Op::apply, player, score}});
  }
  CHECK_SOUND(pair.engine);
  pair.compare(random);
}

TEST("players stand under ids of every length, compared byte by byte") {
  Random random;
  Pair pair = pair_of(rules_of(Keep::latest, Order::desc, Ties::player));
  std::vector<Row> rows;
  for (size_t length = 1; length <= kPlayerBytesMax; ++length) {
    for (const char byte : {'a', '\x01', '\xff', '\x80'}) rows.push_back({0, Op::apply, std::string(length, byte), 1});
  }
  random.shuffle(rows);
  pair.apply(rows);
  CHECK_SOUND(pair.engine);
  pair.compare(random);
}

}  // namespace
}  // namespace rankd
