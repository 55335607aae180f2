// One writer and several readers; the thread sanitizer sees what the checks do not.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "model.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using namespace std::chrono_literals;
using testing::Boards;
using testing::Random;
using testing::Row;
using testing::Threads;
using Clock = std::chrono::steady_clock;

constexpr auto kRun = 2s;
// A reader should wait for a tenth of a millisecond; the rest is for a busy machine with two processors, a sanitizer
// and more threads than processors.
constexpr auto kWaitMost = 2500ms;
// What the writer may work while a reader waits. A millisecond is promised, and asserted on the optimised build by the
// Python tests; a sanitizer multiplies it, most of all where a region of memory is mapped.
constexpr std::chrono::nanoseconds kWorkMost = 100ms;
// Whoever waits for others gives up then, so that a lock that lets nobody in fails and does not hang.
constexpr auto kHangs = 60s;

const Rules kGrowing{Keep::best, {Order::desc, Ties::earliest}};
const Rules kChurning{Keep::latest, {Order::asc, Ties::value}};
const Boards kBoards{{"grows", kGrowing}, {"churns", kChurning}, {"rests", kGrowing}};
constexpr uint64_t kPlayers = 2'000;
constexpr uint64_t kResting = 300;

std::string player(uint64_t number) { return "p" + std::to_string(number); }

// In batch n, everybody of the growing board scores n thousand or a little more; the churning one comes and goes.
std::vector<Row> batch_rows(Random& random, int64_t batch) {
  std::vector<Row> rows;
  const uint64_t known = std::min<uint64_t>(kPlayers, 20 * static_cast<uint64_t>(batch));
  for (uint64_t i = 0; i < known; ++i) {
    rows.push_back({0, Op::apply, player(i), batch * 1'000 + random.between(0, 4), static_cast<uint64_t>(batch)});
  }
  if (batch % 7 == 0) rows.push_back({1, Op::clear});
  for (int i = 0; i < 600; ++i) {
    const Op op = batch % 3 == 2 && !random.once_in(10) ? Op::remove : Op::apply;
    rows.push_back({1, op, player(random.below(kPlayers)), random.between(-20, 20), random.below(3)});
  }
  random.shuffle(rows);
  return rows;
}

void check_lines(const Lines& lines, Direction direction, Ranking ranking) {
  for (size_t i = 1; i < lines.lines.size(); ++i) {
    const Line& above = lines.lines[i - 1];
    const Line& below = lines.lines[i];
    CHECK(testing::stands_before(direction, {std::string(lines.id(above)), above.kept},
                                 {std::string(lines.id(below)), below.kept}));
    const bool level = above.kept.score == below.kept.score;
    const uint64_t step = ranking == Ranking::ordinal || (ranking == Ranking::dense && !level) ? 1 : 0;
    if (ranking == Ranking::competition && !level) {
      CHECK(below.rank > above.rank);
    } else {
      CHECK_EQUAL(below.rank, above.rank + step);
    }
  }
}

// One turn of every read there is, of one instant.
void read_all(const Engine& engine, Random& random) {
  const std::string id = player(random.below(kPlayers));
  const Ids ids = testing::ids_of(engine, {id, player(random.below(kPlayers)), "nobody", id});
  const Ranking ranking = random.pick(testing::kRankings);
  for (const auto& [name, rules] : {kBoards[0], kBoards[1]}) {
    const std::shared_lock<TurnLock> reading(engine.lock());
    const Board* board = engine.read_board(name);
    const uint64_t total = board == nullptr ? 0 : board->size();
    const Lines page = engine.read_range(board, 1, 60, ranking);
    CHECK_EQUAL(page.total, total);
    CHECK_EQUAL(page.lines.size(), std::min<uint64_t>(60, total));
    check_lines(page, rules.direction, ranking);
    check_lines(engine.read_following(board, {random.between(-20, 20), 1}, id, 30, ranking), rules.direction, ranking);

    const Standing standing = engine.read_rank(board, id, ranking);
    const std::optional<Kept> kept = engine.read_score(board, id);
    CHECK_EQUAL(standing.present, kept.has_value());
    Standing middle;
    uint64_t above = 0;
    const Lines around = engine.read_around(board, id, 5, 5, ranking, middle, above);
    CHECK_EQUAL(middle.present, standing.present);
    if (standing.present) {
      CHECK(standing.kept == *kept);
      CHECK(standing.better < standing.total);
      CHECK_EQUAL(standing.total, total);
      CHECK(around.id(around.lines[above]) == id);
      check_lines(around, rules.direction, ranking);
      const uint64_t newcomer = engine.read_rank_of_score(board, *kept, Ranking::competition);
      CHECK_EQUAL(newcomer, standing.better + 1);
    }
    const std::vector<Standing> standings = engine.read_ranks(board, ids, ranking);
    CHECK(standings[0].present == standing.present && standings[0].rank == standing.rank);
    CHECK(!standings[2].present);
    CHECK(engine.read_scores(board, ids)[3] == kept);
    CHECK_EQUAL(engine.read_friends(board, ids, ranking).size(),
                (standing.present ? 1 : 0) + (ids[1] != id && standings[1].present ? 1 : 0));
    CHECK_EQUAL(engine.read_count(board, testing::kLowest, testing::kHighest), total);
    uint64_t counted = 0;
    for (const Bucket& bucket : engine.read_histogram(board, 8)) counted += bucket.count;
    CHECK_EQUAL(counted, total);
    const std::vector<int64_t> quantiles = engine.read_quantiles(board, {0, 500'000, 1'000'000});
    CHECK(std::is_sorted(quantiles.begin(), quantiles.end()));
    if (board != nullptr) CHECK(board->digest() != Digest{});
  }
}

// What was complete when the position was read is there.
void read_how_fresh(const Engine& engine, Random& random) {
  const uint64_t number = random.below(kPlayers);
  engine.lock().lock_shared();
  const uint64_t batch = engine.read_position(1).sequence;
  engine.lock().unlock_shared();
  const std::shared_lock<TurnLock> reading(engine.lock());
  const std::optional<Kept> kept = engine.read_score(engine.read_board("grows"), player(number));
  if (number < 20 * batch) CHECK(kept && kept->score >= static_cast<int64_t>(batch) * 1'000);
}

void read_what_rests(const Engine& engine, const Digest& digest, Random& random) {
  const std::shared_lock<TurnLock> reading(engine.lock());
  const Board* board = engine.read_board("rests");
  CHECK(board != nullptr && board->digest() == digest);
  const uint64_t number = random.below(kResting);
  CHECK_EQUAL(engine.read_rank(board, player(number), Ranking::ordinal).rank, kResting - number);
  std::vector<std::string> names;
  for (uint64_t cursor = 0; cursor != Engine::kNamesEnd;) {
    for (std::string& name : engine.read_names(cursor, 1)) names.push_back(std::move(name));
  }
  CHECK(std::find(names.begin(), names.end(), "rests") != names.end());
  const MemoryUse use = engine.read_memory();
  CHECK(use.players > 0 && use.boards > 0 && use.entries > 0);
}

Applied apply_at(Engine& engine, const std::vector<Row>& rows, uint64_t batch_number) {
  std::vector<int64_t> scores;
  std::vector<int64_t> ties;
  std::vector<uint32_t> boards;
  std::vector<uint8_t> ops;
  std::vector<std::string> players;
  for (const Row& row : rows) {
    scores.push_back(row.score);
    ties.push_back(static_cast<int64_t>(row.tie));
    boards.push_back(row.board);
    ops.push_back(static_cast<uint8_t>(row.op));
    players.push_back(row.player);
  }
  const Ids ids = testing::ids_of(engine, players);
  Batch batch;
  for (const auto& [name, rules] : kBoards) batch.instances.push_back({name, rules});
  batch.players = &ids;
  batch.rows = rows.size();
  batch.score = scores.data();
  batch.tie = ties.data();
  batch.instance = boards.data();
  batch.op = ops.data();
  batch.partition = 1;
  batch.after = batch_number - 1;
  batch.upto = batch_number;
  if (batch_number % 5 == 0) batch.ranks = Ranking::dense;
  return engine.apply(batch);
}

void save(Engine& engine) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  engine.write_save(engine.begin_save().number, fileno(file.get()));
}

TEST("every read beside a writer shows one instant") {
  Random start_random;
  Engine engine({start_random.bits(), start_random.bits()});
  std::vector<Row> resting;
  for (uint64_t i = 0; i < kResting; ++i) resting.push_back({2, Op::put, player(i), static_cast<int64_t>(i)});
  testing::apply(engine, kBoards, resting);
  const Digest digest = engine.read_board("rests")->digest();

  std::atomic<bool> over{false};
  std::atomic<int> rounds{0};
  Threads threads;
  threads.start([&] {
    Random random(1);
    uint64_t batch = 0;
    try {
      const auto began = Clock::now();
      // A machine with other work to do may need longer for the second batch.
      while (Clock::now() < began + kRun || (batch < 2 && Clock::now() < began + kHangs)) {
        ++batch;
        CHECK(apply_at(engine, batch_rows(random, static_cast<int64_t>(batch)), batch).verdict == Verdict::applied);
        if (batch % 11 == 0) engine.drop("churns");
        if (batch % 13 == 0) save(engine);
      }
    } catch (...) {
      over = true;
      throw;
    }
    over = true;
    CHECK(batch > 1);
  });
  for (uint64_t reader = 2; reader < 5; ++reader) {
    threads.start([&, reader] {
      Random random(reader);
      while (!over) {
        read_all(engine, random);
        read_how_fresh(engine, random);
        read_what_rests(engine, digest, random);
        ++rounds;
      }
    });
  }
  threads.join();
  CHECK(rounds > 0);
  CHECK_SOUND(engine);
}

TEST("writers in several threads take turns and lose nothing") {
  Engine engine({1, 2});
  constexpr uint64_t kWriters = 3;
  constexpr uint64_t kBatches = 60;
  const Rules sum{Keep::sum, {}};
  Threads threads;
  for (uint64_t writer = 0; writer < kWriters; ++writer) {
    threads.start([&, writer] {
      const Ids ids = testing::ids_of(engine, {"shared", "own" + std::to_string(writer)});
      const int64_t ones[] = {1, 1};
      for (uint64_t batch_number = 0; batch_number < kBatches; ++batch_number) {
        Batch batch;
        batch.instances = {{"board", sum}};
        batch.players = &ids;
        batch.rows = 2;
        batch.score = ones;
        batch.partition = writer;
        batch.after = batch_number;
        batch.upto = batch_number + 1;
        CHECK(engine.apply(batch).verdict == Verdict::applied);
      }
    });
  }
  threads.join();
  const Board* board = engine.read_board("board");
  CHECK_EQUAL(board->size(), kWriters + 1);
  CHECK_EQUAL(engine.read_score(board, "shared")->score, kWriters * kBatches);
  CHECK_EQUAL(engine.read_score(board, "own2")->score, kBatches);
  CHECK_SOUND(engine);
}

// The longest a reader waits while `write` is at work once.
Clock::duration longest_wait(Engine& engine, const std::function<void()>& write) {
  std::atomic<bool> over{false};
  Clock::duration longest{0};
  Threads threads;
  threads.start([&] {
    while (!over) {
      const auto asked = Clock::now();
      engine.lock().lock_shared();
      longest = std::max(longest, Clock::now() - asked);
      engine.lock().unlock_shared();
      std::this_thread::yield();
    }
  });
  write();
  over = true;
  threads.join();
  return longest;
}

TEST("no reader waits for the whole of a long write, whatever the rows are about") {
  constexpr uint64_t kRows = 120'000;
  Engine engine({1, 2});
  const Boards boards{{"board", kGrowing}};
  std::vector<Row> newcomers;
  std::vector<Row> strangers;
  std::vector<Row> every_other;
  for (uint64_t i = 0; i < kRows; ++i) {
    newcomers.push_back({0, Op::apply, player(i), static_cast<int64_t>(i * 7919 % kRows)});
    strangers.push_back({0, Op::remove, "stranger" + std::to_string(i)});
    every_other.push_back({0, Op::apply, (i % 2 == 0 ? "p" : "q") + std::to_string(i), 1});
  }
  const auto bounded = [&](const char* what, const std::function<void()>& write) {
    engine.lock().forget_waits();
    const auto waited = longest_wait(engine, write);
    const std::chrono::nanoseconds worked{engine.lock().longest_waits().work};
    if (waited < kWaitMost && worked < kWorkMost) return;
    const std::string ms = std::to_string(waited / 1ms) + " ms, " + std::to_string(worked / 1us) + " us of work";
    testing::fail(__FILE__, __LINE__, what + (" kept a reader waiting for " + ms));
  };
  bounded("newcomers", [&] { testing::apply(engine, boards, newcomers); });
  bounded("removals of strangers", [&] { testing::apply(engine, boards, strangers); });
  bounded("newcomers between players who are there", [&] { testing::apply(engine, boards, every_other); });
  bounded("a drop", [&] { engine.drop("board"); });
}

}  // namespace
}  // namespace rankd
