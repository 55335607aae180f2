// Saves beside a writer: the file shows the instant at which the save began, whatever happens until it is written.
#include <atomic>
#include <system_error>

#include "files.hpp"
#include "model.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using testing::Boards;
using testing::OwnFile;
using testing::Pair;
using testing::Random;
using testing::Row;
using testing::save;
using testing::Threads;

std::string player(uint64_t number) { return "player " + std::to_string(number); }

// Two large boards, some small ones, and names for boards that are yet to come.
Boards some_boards() {
  Boards boards{{"large", {Keep::latest, {Order::desc, Ties::earliest}}},
                {"level", {Keep::latest, {Order::asc, Ties::player}}}};
  for (int i = 0; i < 10; ++i) {
    boards.emplace_back("small " + std::to_string(i), Rules{Keep::sum, {Order::desc, Ties::value}});
  }
  return boards;
}

// Players of one round differ from those of the next, so that some leave and some are new.
std::vector<Row> random_rows(Random& random, size_t count, uint64_t players, uint64_t round) {
  std::vector<Row> rows;
  for (size_t i = 0; i < count; ++i) {
    const auto board = static_cast<uint32_t>(random.once_in(3) ? 2 + random.below(10) : random.below(2));
    const uint64_t number = round * players / 8 + random.below(board < 2 ? players : 60);
    const Op op = random.once_in(3) ? Op::remove : random.once_in(3) ? Op::put : Op::apply;
    // On one board all have one of a few scores, so that only their ids tell them apart.
    const int64_t score = board == 1 ? random.between(0, 2) : random.between(-1'000, 1'000);
    rows.push_back({board, op, player(number), score, random.below(4)});
  }
  if (random.once_in(40)) rows.push_back({static_cast<uint32_t>(random.below(12)), Op::clear});
  random.shuffle(rows);
  return rows;
}

void change_something(Pair& pair, Random& random, size_t rows, uint64_t players, uint64_t round) {
  pair.apply(random_rows(random, 1 + random.below(rows), players, round));
  const size_t board = random.below(pair.boards().size());
  if (random.once_in(20)) {
    std::vector<Row> everybody;
    for (const auto& [id, kept] : pair.model(board).kept()) {
      everybody.push_back({static_cast<uint32_t>(board), Op::remove, id});
    }
    if (everybody.size() < 200 || random.once_in(5)) pair.apply(everybody);
  }
  if (random.once_in(12)) pair.capture(board);
  if (random.once_in(25)) pair.forget_capture(board);
  if (random.once_in(60)) pair.drop(board);
}

std::unique_ptr<Pair> filled_pair(Random& random, uint64_t players) {
  auto pair = std::make_unique<Pair>(some_boards(), HashKey{random.bits(), random.bits()});
  std::vector<Row> rows;
  for (uint64_t i = 0; i < players; ++i) {
    rows.push_back({0, Op::put, player(i), random.between(-1'000, 1'000), random.below(4)});
    rows.push_back({1, Op::put, player(i), random.between(0, 2)});
  }
  for (uint64_t i = 0; i < 300; ++i) {
    rows.push_back({static_cast<uint32_t>(2 + random.below(6)), Op::put, player(random.below(60)), 1});
  }
  pair->apply(rows);
  pair->capture(0);
  pair->capture(3);
  return pair;
}

void check_file(const OwnFile& file, const Boards& boards, const testing::State& state, Position position,
                Random& random) {
  Engine loaded({random.bits(), random.bits()});
  testing::load(loaded, file.read());
  CHECK_SOUND(loaded);
  testing::compare(loaded, boards, state, random);
  CHECK(loaded.read_position(0) == position);
  size_t boards_held = 0;
  for (const testing::Model& model : state.models) boards_held += model.size() > 0 ? 1 : 0;
  uint64_t cursor = 0;
  CHECK_EQUAL(loaded.read_names(cursor, kNone).size(), boards_held);
}

void check_nothing_kept(Pair& pair) {
  CHECK_SOUND(pair.engine);
  CHECK_EQUAL(testing::memory_of(pair.engine).saving, 0);
  for (const auto& [name, rules] : pair.boards()) pair.engine.drop(name);
  CHECK_EQUAL(testing::bytes_held(pair.engine), 0);
}

TEST("a save that is written after many batches shows the instant at which it began") {
  Random random;
  for (const uint64_t players : {30u, 300u, 3'000u}) {
    const std::unique_ptr<Pair> pair = filled_pair(random, players);
    const SaveBegun begun = pair->engine.begin_save();
    const testing::State state = pair->state();
    const Position position = pair->engine.read_position(0);
    CHECK(begun.positions.at(0) == position);
    for (uint64_t batch = 0; batch < 60; ++batch) {
      change_something(*pair, random, players, players, batch / 6);
      if (batch % 10 == 0) CHECK_SOUND(pair->engine);
    }
    const OwnFile file;
    pair->engine.write_save(begun.number, file.descriptor());
    check_file(file, pair->boards(), state, position, random);
    pair->compare(random);
    check_nothing_kept(*pair);
  }
}

TEST("a save with a batch between any two slices shows the instant at which it began") {
  Random random;
  uint64_t pauses = 0;
  for (const uint64_t players : {30u, 100u, 300u, 2'000u}) {
    for (int save = 0; save < 4; ++save) {
      const std::unique_ptr<Pair> pair = filled_pair(random, players);
      for (int batch = 0; batch < 3; ++batch) change_something(*pair, random, players, players, 0);
      const SaveBegun begun = pair->engine.begin_save();
      const testing::State state = pair->state();
      const Position position = pair->engine.read_position(0);
      const OwnFile file;
      pair->engine.write_save(begun.number, file.descriptor(), [&] {
        change_something(*pair, random, random.once_in(10) ? 100 : 8, players, ++pauses / 10 % 9);
        if (random.once_in(30)) CHECK_SOUND(pair->engine);
      });
      check_file(file, pair->boards(), state, position, random);
      pair->compare(random);
      check_nothing_kept(*pair);
    }
  }
  CHECK(pauses > 200);
}

TEST("a save beside batches shows the instant at which it began") {
  Random random;
  uint64_t batches = 0;
  for (uint64_t round = 0; round < 8; ++round) {
    const uint64_t players = round % 2 == 0 ? 12'000 : 1'000;
    const std::unique_ptr<Pair> pair = filled_pair(random, players);
    for (int save = 0; save < 3; ++save) {
      const SaveBegun begun = pair->engine.begin_save();
      const testing::State state = pair->state();
      const Position position = pair->engine.read_position(0);
      const OwnFile file;
      std::atomic<bool> over{false};
      Threads threads;
      threads.start([&] {
        try {
          pair->engine.write_save(begun.number, file.descriptor());
        } catch (...) {
          over = true;
          throw;
        }
        over = true;
      });
      for (uint64_t batch = 0; !over; ++batch, ++batches) {
        change_something(*pair, random, random.once_in(8) ? 400 : 6, players, batch / 20 % 9);
      }
      threads.join();
      check_file(file, pair->boards(), state, position, random);
      CHECK_SOUND(pair->engine);
    }
    pair->compare(random);
    check_nothing_kept(*pair);
  }
  CHECK(batches > 24);
}

TEST("one save at a time") {
  Random random;
  const std::unique_ptr<Pair> pair = filled_pair(random, 100);
  const SaveBegun begun = pair->engine.begin_save();
  CHECK_THROWS(SaveUnderWay, pair->engine.begin_save());
  const OwnFile file;
  pair->engine.write_save(begun.number, file.descriptor());
  CHECK_THROWS(SaveInterrupted, pair->engine.write_save(begun.number, file.descriptor()));
  const SaveBegun another = pair->engine.begin_save();
  pair->engine.abandon_save(begun.number);  // not this one
  pair->engine.abandon_save(another.number);
  CHECK_THROWS(SaveInterrupted, pair->engine.write_save(another.number, file.descriptor()));
  check_nothing_kept(*pair);
}

TEST("an abandoned save leaves nothing behind") {
  Random random;
  const std::unique_ptr<Pair> pair = filled_pair(random, 2'000);
  for (int round = 0; round < 3; ++round) {
    const SaveBegun begun = pair->engine.begin_save();
    for (uint64_t batch = 0; batch < 20; ++batch) change_something(*pair, random, 500, 2'000, batch / 3);
    pair->drop(0);
    CHECK(testing::memory_of(pair->engine).saving > 0);
    pair->engine.abandon_save(begun.number);
    CHECK_SOUND(pair->engine);
    CHECK_EQUAL(testing::memory_of(pair->engine).saving, 0);
    pair->compare(random);
  }
  check_nothing_kept(*pair);
}

TEST("a save that may not remember enough is interrupted, and batches are none the wiser") {
  Random random;
  const std::unique_ptr<Pair> pair = filled_pair(random, 2'000);
  const SaveBegun begun = pair->engine.begin_save(1);
  for (uint64_t batch = 0; batch < 20; ++batch) change_something(*pair, random, 500, 2'000, batch / 3);
  const OwnFile file;
  CHECK_THROWS(SaveInterrupted, pair->engine.write_save(begun.number, file.descriptor()));
  pair->compare(random);
  const OwnFile again;
  save(pair->engine, again.descriptor());
  check_file(again, pair->boards(), pair->state(), pair->engine.read_position(0), random);
  check_nothing_kept(*pair);
}

TEST("a save whose file cannot be written is over, and another may begin") {
  Random random;
  const std::unique_ptr<Pair> pair = filled_pair(random, 500);
  const SaveBegun begun = pair->engine.begin_save();
  pair->drop(1);
  CHECK_THROWS(std::system_error, pair->engine.write_save(begun.number, -1));
  const OwnFile file;
  save(pair->engine, file.descriptor());
  check_file(file, pair->boards(), pair->state(), pair->engine.read_position(0), random);
  check_nothing_kept(*pair);
}

TEST("an engine may end while a save has begun") {
  Random random;
  const std::unique_ptr<Pair> pair = filled_pair(random, 500);
  pair->engine.begin_save();
  for (uint64_t batch = 0; batch < 10; ++batch) change_something(*pair, random, 500, 500, batch / 3);
  pair->drop(1);
}

}  // namespace
}  // namespace rankd
