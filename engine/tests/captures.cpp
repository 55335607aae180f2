// Places of an instant: what they are, when they go, what they cost.
#include "files.hpp"
#include "model.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using testing::Boards;
using testing::memory_of;
using testing::Pair;
using testing::Random;
using testing::Row;

const Boards kBoards{{"large", {Keep::latest, {Order::desc, Ties::earliest}}},
                     {"small", {Keep::latest, {Order::asc, Ties::value}}},
                     {"other", {Keep::sum, {Order::desc, Ties::player}}}};

std::string player(int64_t number) { return "player " + std::to_string(number); }

std::vector<Row> random_rows(Random& random, size_t count, uint64_t players) {
  std::vector<Row> rows;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t board = random.once_in(4) ? static_cast<uint32_t>(1 + random.below(2)) : 0;
    const Op op = random.once_in(5) ? Op::remove : random.once_in(3) ? Op::put : Op::apply;
    const uint64_t number = board == 1 ? random.below(100) : random.below(players);
    rows.push_back({board, op, player(number), random.between(-50, 50), random.below(5)});
  }
  return rows;
}

TEST("captured places stay while entries move, and go with the entry") {
  Random random;
  for (const uint64_t players : {40u, 400u, 4'000u}) {
    Pair pair(kBoards);
    pair.apply(random_rows(random, players * 2, players));
    for (int round = 0; round < 6; ++round) {
      for (size_t board = 0; board < kBoards.size(); ++board) {
        if (random.once_in(2)) pair.capture(board);
        if (random.once_in(6)) pair.forget_capture(board);
        if (random.once_in(8)) pair.drop(board);
      }
      std::vector<Row> rows = random_rows(random, random.below(players), players);
      if (random.once_in(4)) rows.insert(rows.begin(), {static_cast<uint32_t>(random.below(3)), Op::clear});
      pair.apply(rows);
      CHECK_SOUND(pair.engine);
      pair.compare(random);
    }
  }
}

TEST("who is taken out and put back as they were has no captured place") {
  Pair pair({{"board", Rules{}}});
  pair.apply({{0, Op::put, "ann", 5}, {0, Op::put, "bob", 4}});
  pair.capture(0);
  pair.apply({{0, Op::remove, "ann"}, {0, Op::put, "ann", 5}, {0, Op::put, "bob", 9}});
  CHECK_EQUAL(pair.engine.read_captured("board", "ann"), Capture::kNowhere);
  CHECK_EQUAL(pair.engine.read_captured("board", "bob"), 2);
  CHECK_SOUND(pair.engine);
}

TEST("a number that is used again shows nobody else's place") {
  Engine engine({1, 2});
  const Boards boards{{"board", Rules{}}};
  std::vector<Row> come;
  std::vector<Row> go;
  for (uint64_t i = 0; i < 1'000; ++i) {
    come.push_back({0, Op::put, player(i), static_cast<int64_t>(i)});
    if (i > 0) go.push_back({0, Op::remove, player(i)});
  }
  testing::apply(engine, boards, come);
  engine.capture("board");
  testing::apply(engine, boards, go);
  for (Row& row : come) row.player = "another " + row.player;
  testing::apply(engine, boards, come);
  for (const Row& row : come) CHECK_EQUAL(engine.read_captured("board", row.player), Capture::kNowhere);
  CHECK_EQUAL(engine.read_captured("board", player(0)), 1'000);
  CHECK_SOUND(engine);
}

TEST("a capture takes about four bytes a player of a full board, and gives them back") {
  Engine engine({1, 2});
  std::vector<Row> rows;
  for (int64_t i = 0; i < 20'480; ++i) rows.push_back({0, Op::put, player(i), i * 7919 % 20'480});
  testing::apply(engine, {{"board", Rules{}}}, rows);
  const MemoryUse before = memory_of(engine);
  CHECK_EQUAL(before.captures, 0);
  for (int round = 0; round < 3; ++round) {
    engine.capture("board");
    const size_t bytes = memory_of(engine).captures;
    CHECK(bytes >= 4 * rows.size() && bytes < 5 * rows.size());
  }
  engine.forget_capture("board");
  CHECK_EQUAL(memory_of(engine).captures, 0);
  engine.capture("board");
  engine.drop("board");
  CHECK_EQUAL(testing::bytes_held(engine), 0);
  engine.capture("board");
  engine.forget_capture("board");
  CHECK_EQUAL(testing::bytes_held(engine), 0);
}

TEST("captures are read back as they were saved") {
  Random random;
  Pair pair(kBoards);
  pair.apply(random_rows(random, 6'000, 3'000));
  pair.capture(0);
  pair.capture(1);
  pair.apply(random_rows(random, 1'000, 3'000));
  Engine loaded({3, 4});
  testing::load(loaded, testing::saved(pair.engine));
  CHECK_SOUND(loaded);
  testing::compare(loaded, kBoards, pair.state(), random);
  for (const auto& [name, rules] : kBoards) loaded.drop(name);
  CHECK_EQUAL(testing::bytes_held(loaded), 0);
}

}  // namespace
}  // namespace rankd
