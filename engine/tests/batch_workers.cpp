// Batches that two threads apply: the outcome is that of one, for readers and saves beside them too.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <shared_mutex>
#include <thread>

#include "files.hpp"
#include "batch_worker.hpp"
#include "model.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using namespace std::chrono_literals;
using testing::Boards;
using testing::OwnFile;
using testing::Pair;
using testing::Random;
using testing::Row;
using testing::Shortage;
using testing::Threads;
using Clock = std::chrono::steady_clock;

constexpr auto kHangs = 20s;
constexpr size_t kRows = 6'000;  // enough to be shared

const Boards kBoards{{"all time", {Keep::best, {Order::desc, Ties::earliest}}},
                     {"monthly", {Keep::latest, {Order::asc, Ties::value}}},
                     {"weekly", {Keep::sum, {Order::desc, Ties::player}}},
                     {"level", {Keep::latest, {Order::desc, Ties::latest}}},
                     {"small", {Keep::first, {Order::asc, Ties::earliest}}}};

std::string player(uint64_t number) { return "player " + std::to_string(number); }

// Everything but clearing: players come and go on boards that grow into trees and shrink again, most rows on one board.
std::vector<Row> random_rows(Random& random, uint64_t players, uint64_t round) {
  std::vector<Row> rows;
  const uint64_t removals = round % 3 == 2 ? 2 : 6;
  for (size_t i = 0; i < kRows; ++i) {
    const auto board = static_cast<uint32_t>(random.once_in(3) ? 0 : random.below(kBoards.size()));
    const Op op = random.once_in(removals) ? Op::remove : random.once_in(3) ? Op::put : Op::apply;
    const uint64_t number = round * players / 10 + random.below(board == 4 ? 150 : players);
    const int64_t score = board == 3 ? random.between(0, 2) : random.between(-5'000, 5'000);
    rows.push_back({board, op, player(number), score, random.below(4)});
  }
  return rows;
}

TEST("a batch that two threads apply comes to what its rows say, one after the other") {
  Random random;
  for (const uint64_t players : {100u, 3'000u}) {
    Pair pair(kBoards);
    for (uint64_t round = 0; round < testing::scaled(12); ++round) {
      const bool is_ranked = random.once_in(3);
      pair.apply(random_rows(random, players, round),
                 is_ranked ? std::optional(random.pick(testing::kRankings)) : std::nullopt);
      CHECK_SOUND(pair.engine);
      pair.compare(random);
      for (size_t board = 0; board < kBoards.size(); ++board) {
        if (random.once_in(3)) pair.capture(board);
      }
    }
  }
}

TEST("a batch that is shared and the same batch in small parts end with the same digests") {
  Random random;
  Engine whole({1, 2});
  Engine parts({1, 2});
  for (uint64_t round = 0; round < testing::scaled(12); ++round) {
    const std::vector<Row> rows = random_rows(random, 2'000, round);
    testing::apply(whole, kBoards, rows);
    for (size_t begin = 0; begin < rows.size(); begin += 1'000) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(begin);
      testing::apply(parts, kBoards, {first, first + 1'000});
    }
    for (const auto& [name, rules] : kBoards) {
      const Board* one = whole.read_board(name);
      const Board* other = parts.read_board(name);
      CHECK_EQUAL(one == nullptr, other == nullptr);
      if (one != nullptr) CHECK(one->digest() == other->digest() && one->size() == other->size());
    }
  }
  for (const auto& [name, rules] : kBoards) {
    whole.drop(name);
    CHECK_SOUND(whole);
  }
  CHECK_EQUAL(testing::bytes_held(whole), 0);
}

bool is_broken(const Engine& engine) {
  try {
    engine.refuse_if_broken();
    return false;
  } catch (const EngineBroken&) {
    return true;
  }
}

std::vector<Digest> digests(const Engine& engine) {
  std::vector<Digest> all;
  for (const auto& [name, rules] : kBoards) {
    const Board* board = engine.read_board(name);
    all.push_back(board == nullptr ? Digest{} : board->digest());
  }
  return all;
}

// Memory runs out somewhere within a batch that is shared; returns whether it did so within the given bounds.
bool runs_out(Random& random, Shortage::Where where, bool is_lasting) {
  Engine engine({1, 2});
  testing::apply(engine, kBoards, random_rows(random, 2'000, 0));
  const std::vector<Digest> before = digests(engine);
  const uint64_t sequence = engine.read_position(0).sequence;
  const testing::Columns columns(engine, kBoards, random_rows(random, 2'000, 1));
  bool is_refused = false;
  bool was_felt = false;
  {
    const Shortage shortage(where, static_cast<int64_t>(1 + random.below(300)), is_lasting);
    try {
      engine.apply(columns.batch);
    } catch (const std::bad_alloc&) {
      is_refused = true;
    }
    was_felt = shortage.was_felt();
  }
  CHECK_EQUAL(engine.read_position(0).sequence, is_refused ? sequence : sequence + kRows);
  if (!is_refused || !is_broken(engine)) {
    CHECK_SOUND(engine);
    CHECK(is_refused == (digests(engine) == before));
  }
  CHECK(was_felt || !is_refused);
  return is_refused && is_broken(engine);
}

TEST("memory that runs out in either thread breaks the engine for everybody, or leaves it as it was") {
  if (std::thread::hardware_concurrency() < 2) return;
  Random random;
  for (const auto where : {Shortage::Where::this_thread, Shortage::Where::other_thread}) {
    for (const bool is_lasting : {false, true}) {
      uint64_t broken = 0;
      for (const auto end = Clock::now() + kHangs; broken < testing::scaled(12) && Clock::now() < end;) {
        broken += runs_out(random, where, is_lasting) ? 1 : 0;
      }
      CHECK(broken > 0);
    }
  }
}

TEST("a save that began before batches that are shared shows the instant at which it began") {
  Random random;
  Pair pair(kBoards, HashKey{random.bits(), random.bits()});
  pair.apply(random_rows(random, 2'000, 0));
  pair.capture(0);
  pair.capture(3);
  const SaveBegun begun = pair.engine.begin_save();
  const testing::State state = pair.state();
  std::atomic<bool> is_written{false};
  const OwnFile file;
  Threads threads;
  threads.start([&] {
    pair.engine.write_save(begun.number, file.descriptor());
    is_written = true;
  });
  for (uint64_t round = 1; round < 4 || (!is_written && round < 100); ++round) {
    pair.apply(random_rows(random, 2'000, round % 5));
  }
  threads.join();
  CHECK_SOUND(pair.engine);
  Engine loaded({random.bits(), random.bits()});
  testing::load(loaded, file.read());
  CHECK_SOUND(loaded);
  testing::compare(loaded, kBoards, state, random);
}

TEST("readers beside two threads see one instant, and are let in") {
  Random start;
  Engine engine({start.bits(), start.bits()});
  testing::apply(engine, kBoards, random_rows(start, 2'000, 0));
  std::atomic<bool> over{false};
  std::atomic<uint64_t> reads{0};
  Threads threads;
  threads.start([&] {
    Random random(1);
    const auto end = Clock::now() + kHangs;
    for (uint64_t round = 0; (round < 8 || reads < 100) && Clock::now() < end; ++round) {
      testing::apply(engine, kBoards, random_rows(random, 2'000, round % 4));
    }
    over = true;
  });
  for (uint64_t reader = 2; reader < 4; ++reader) {
    threads.start([&, reader] {
      Random random(reader);
      while (!over) {
        const auto& [name, rules] = random.pick(kBoards);
        const std::shared_lock<TurnLock> reading(engine.lock());
        const Board* board = engine.read_board(name);
        const uint64_t total = board == nullptr ? 0 : board->size();
        const Lines page = engine.read_range(board, 1, 200, Ranking::ordinal);
        CHECK_EQUAL(page.lines.size(), std::min<uint64_t>(200, total));
        for (size_t i = 1; i < page.lines.size(); ++i) {
          const Line& above = page.lines[i - 1];
          const Line& below = page.lines[i];
          CHECK(testing::stands_before(rules.direction, {std::string(page.id(above)), above.kept},
                                       {std::string(page.id(below)), below.kept}));
        }
        CHECK_EQUAL(engine.read_count(board, testing::kLowest, testing::kHighest), total);
        const std::string id = player(random.below(2'000));
        CHECK_EQUAL(engine.read_rank(board, id, Ranking::dense).present, engine.read_score(board, id).has_value());
        CHECK(engine.read_memory().entries > 0);
        ++reads;
      }
    });
  }
  threads.join();
  CHECK(reads >= 100);
  CHECK_SOUND(engine);
}

// --------------------------------------------------------------------------------------------------- the two threads

TEST("work is done by two threads at once, and what either throws is thrown") {
  if (std::thread::hardware_concurrency() < 2) return;
  SecondThread second;
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> here{0};
    second.share([&](size_t) {
      ++here;
      for (const auto end = Clock::now() + kHangs; here < 2 && Clock::now() < end;) std::this_thread::yield();
    });
    CHECK_EQUAL(here.load(), 2);
  }
  for (const size_t thrower : {size_t{0}, size_t{1}}) {
    std::atomic<int> here{0};
    CHECK_THROWS(std::bad_alloc, second.share([&](size_t worker) {
      ++here;
      for (const auto end = Clock::now() + kHangs; here < 2 && Clock::now() < end;) std::this_thread::yield();
      if (worker == thrower) throw std::bad_alloc();
    }));
  }
}

size_t threads_here() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST("an engine has another thread only once it needs one, and takes it along when it goes") {
  if (std::thread::hardware_concurrency() < 2) return;
  Random random;
  const size_t before = threads_here();
  {
    Engine engine({1, 2});
    testing::apply(engine, kBoards, {{0, Op::apply, "somebody", 1}, {1, Op::apply, "somebody", 1}});
    CHECK_EQUAL(threads_here(), before);
    testing::apply(engine, kBoards, random_rows(random, 2'000, 0));
    testing::apply(engine, kBoards, random_rows(random, 2'000, 1));
    CHECK_EQUAL(threads_here(), before + 1);
  }
  // One that was joined is listed for a moment longer.
  for (const auto end = Clock::now() + kHangs; threads_here() > before && Clock::now() < end;) std::this_thread::yield();
  CHECK_EQUAL(threads_here(), before);
}

TEST("a worker leaves only while another is there for the rest") {
  TurnLock lock;
  BatchWork work(lock, {{7, 0, 10}, {8, 10, 2'000}});
  BatchWork::Part part{};
  work.join();
  CHECK(!work.may_leave());
  work.join();
  CHECK(work.take(part) && part.first == 1 && part.end_row - part.begin_row == 1'990);
  CHECK(work.take(part) && part.first == 0);
  CHECK(!work.take(part));  // one of the two has ended, the other may have rows to add
  CHECK(!work.may_leave());
  work.join();
  CHECK(work.may_leave());
}

TEST("small boards are handed out together, each of them once") {
  std::vector<BoardRows> boards;
  for (uint32_t i = 0, row = 0; i < 4'000; ++i) {
    const uint32_t rows = i % 1'000 == 500 ? 5'000 : 5;
    boards.push_back({i, row, row + rows});
    row += rows;
  }
  TurnLock lock;
  BatchWork work(lock, boards);
  work.join();
  std::vector<bool> is_taken(boards.size(), false);
  size_t parts = 0;
  for (BatchWork::Part part{}; work.take(part); ++parts) {
    CHECK_EQUAL(part.begin_row, boards[part.first].begin);
    CHECK_EQUAL(part.end_row, boards[part.end - 1].end);
    CHECK(part.end == part.first + 1 || part.end_row - part.begin_row <= 16 * kChunkRows);
    for (uint32_t i = part.first; i < part.end; ++i) {
      CHECK(!is_taken[i]);
      is_taken[i] = true;
    }
  }
  CHECK(std::find(is_taken.begin(), is_taken.end(), false) == is_taken.end());
  CHECK(parts < 60);
}

TEST("a batch of rows in many small boards, shared or not, ends with the same digests") {
  Boards boards = kBoards;
  for (int i = 0; i < 700; ++i) boards.emplace_back("small " + std::to_string(i), kBoards[static_cast<size_t>(i) % 5].second);
  Random random;
  Engine whole({1, 2});
  Engine parts({1, 2});
  for (uint64_t round = 0; round < testing::scaled(8); ++round) {
    std::vector<Row> rows;
    for (size_t i = 0; i < kRows; ++i) {
      const auto board = static_cast<uint32_t>(random.once_in(5) ? 0 : random.below(boards.size()));
      const Op op = random.once_in(round % 3 == 2 ? 2 : 6) ? Op::remove : Op::apply;
      rows.push_back({board, op, player(random.below(40)), random.between(-50, 50), random.below(4)});
    }
    testing::apply(whole, boards, rows);
    for (size_t begin = 0; begin < rows.size(); begin += 500) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(begin);
      testing::apply(parts, boards, {first, first + 500});
    }
    CHECK_SOUND(whole);
    for (const auto& [name, rules] : boards) {
      const Board* one = whole.read_board(name);
      const Board* other = parts.read_board(name);
      CHECK_EQUAL(one == nullptr, other == nullptr);
      if (one != nullptr) CHECK(one->digest() == other->digest() && one->size() == other->size());
    }
  }
}

TEST("workers take a turn together, and readers come in between") {
  TurnLock lock;
  SharedTurn turn(lock);
  uint64_t one = 0;  // not atomic: readers beside a worker are a race that the sanitizer reports
  uint64_t other = 0;
  std::atomic<int> reads{0};
  std::atomic<bool> over{false};
  Threads threads;
  for (uint64_t* own : {&one, &other}) {
    threads.start([&, own] {
      const auto end = Clock::now() + kHangs;
      while (!over && Clock::now() < end) {
        turn.enter();
        for (int i = 0; i < 2'000; ++i) {
          ++*own;
          turn.yield_to_readers();
        }
        turn.leave();
      }
    });
  }
  threads.start([&] {
    const auto end = Clock::now() + kHangs;
    bool both_work = false;  // a thread may be slow to begin
    for (uint64_t seen = 0; (reads < 200 || !both_work) && Clock::now() < end; ++reads) {
      const std::shared_lock<TurnLock> reading(lock);
      CHECK(one + other >= seen);
      seen = one + other;
      both_work = one > 0 && other > 0;
    }
    over = true;
  });
  threads.join();
  CHECK(reads.load() >= 200);
  CHECK(one > 0 && other > 0);
}

// The thread sanitizer allows no threads in a process that was forked off.
#ifndef __SANITIZE_THREAD__
TEST("a process that was forked off applies batches too") {
  Random random;
  Engine engine({1, 2});
  const std::vector<Row> rows = random_rows(random, 2'000, 0);
  testing::apply(engine, kBoards, rows);
  const pid_t child = fork();
  if (child == 0) {
    testing::apply(engine, kBoards, rows);
    _exit(engine.read_position(0).sequence == 2 * rows.size() ? 0 : 1);
  }
  int status = -1;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK_EQUAL(status, 0);
}
#endif

}  // namespace
}  // namespace rankd
