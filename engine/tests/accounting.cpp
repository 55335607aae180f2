// The engine's account of its memory against what the allocator handed out: under a sanitizer every slot is an
// allocation of its own, so that nothing hides in a larger piece.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>

#include "model.hpp"
#include "testing.hpp"

namespace {

using rankd::testing::Shortage;

std::atomic<int64_t> live_bytes{0};

constexpr int64_t kPlenty = std::numeric_limits<int64_t>::max();
std::atomic<int64_t> takes_left{kPlenty};
std::atomic<bool> is_shortage_lasting{false};
std::atomic<bool> was_shortage_felt{false};
std::atomic<Shortage::Where> shortage_is{Shortage::Where::anywhere};
thread_local bool made_shortage = false;

bool is_short() {
  if (takes_left.load() == kPlenty) return false;
  const Shortage::Where where = shortage_is;
  if (where != Shortage::Where::anywhere && (where == Shortage::Where::this_thread) != made_shortage) return false;
  const int64_t left = takes_left.fetch_sub(1);
  if (left > 1 || (left < 1 && !is_shortage_lasting)) return false;
  was_shortage_felt = true;
  return true;
}

void* take(size_t bytes) {
  if (is_short()) throw std::bad_alloc();
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}

void give(void* memory) {
  if (memory == nullptr) return;
  live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return take(bytes); }
void* operator new[](size_t bytes) { return take(bytes); }
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, size_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t) noexcept { give(memory); }

namespace rankd::testing {

Shortage::Shortage(Where where, int64_t left, bool is_lasting) {
  made_shortage = true;
  was_shortage_felt = false;
  shortage_is = where;
  is_shortage_lasting = is_lasting;
  takes_left = left;
}

Shortage::~Shortage() {
  takes_left = kPlenty;
  made_shortage = false;
}

bool Shortage::was_felt() const { return was_shortage_felt; }

}  // namespace rankd::testing

namespace rankd {
namespace {

using testing::Boards;
using testing::bytes_held;
using testing::memory_of;
using testing::Random;
using testing::Row;

std::vector<Row> filled(Random& random, uint32_t boards, uint64_t rows, uint64_t players) {
  std::vector<Row> all;
  for (uint64_t i = 0; i < rows; ++i) {
    const auto board = static_cast<uint32_t>(random.below(boards));
    all.push_back({board, Op::apply, "player " + std::to_string(random.below(players)), random.between(0, 5'000)});
  }
  return all;
}

Boards boards_named(uint32_t count) {
  Boards boards;
  for (uint32_t i = 0; i < count; ++i) boards.emplace_back("board " + std::to_string(i), Rules{});
  return boards;
}

TEST("what the engine says it holds is what was allocated, but for the lists of its pools") {
  Random random;
  // What a pool remembers of a slot that is a piece of its own: an address, a Piece, a place in a list of open or
  // vacant ones; lists grow by doubling. Outside of this build there are hundreds of slots in a piece.
  constexpr size_t kRememberedBytesMost = 2 * (sizeof(void*) + 16 + 2 * sizeof(uint32_t));
  constexpr size_t kSlotBytesLeast = 8;
  for (const uint32_t boards_count : {1u, 30u, 400u}) {
    const int64_t before = live_bytes;
    {
      Engine engine({1, 2});
      const Boards boards = boards_named(boards_count);
      testing::apply(engine, boards, {{0, Op::apply, "player 1", 1}});
      const int64_t start = live_bytes - static_cast<int64_t>(bytes_held(engine));
      size_t peak = 0;
      for (int batch = 0; batch < 4; ++batch) {
        testing::apply(engine, boards, filled(random, boards_count, 8'000, 3'000));
        const auto said = static_cast<int64_t>(bytes_held(engine));
        peak = std::max(peak, static_cast<size_t>(said));
        const int64_t beside = live_bytes - start - said;
        CHECK(beside >= 0);
        CHECK(beside <= static_cast<int64_t>(peak / kSlotBytesLeast * kRememberedBytesMost));
      }
    }
    CHECK_EQUAL(live_bytes.load(), before);
  }
}

TEST("a tree accounts for its own head, its nodes and its map") {
  Regions regions;
  {
    Players players(regions, Purpose::players, {1, 2});
    TreeMemory memory(regions, players);
    const int64_t before = live_bytes;
    auto tree = std::make_unique<Tree>(memory);
    CHECK_EQUAL(live_bytes - before, regions.bytes(Purpose::boards));
    for (uint64_t i = 0; i < 2 * kLeafEntries; ++i) {
      const std::string id = std::to_string(1'000 + i);
      tree->append({i, 0}, players.add(players.hash(id), id));
    }
    CHECK(tree->finish());
    const size_t nodes = memory.leaves.used() * sizeof(Leaf) + memory.inners.used() * sizeof(Inner);
    CHECK_EQUAL(regions.bytes(Purpose::entries), nodes);
    CHECK(regions.bytes(Purpose::maps) > 0);
    tree.reset();
    for (const Purpose purpose : {Purpose::boards, Purpose::entries, Purpose::maps}) {
      CHECK_EQUAL(regions.bytes(purpose), 0);
    }
  }
  CHECK_EQUAL(regions.bytes(Purpose::players), 0);
}

TEST("an engine that is emptied holds nothing, however it is emptied") {
  Random random;
  const Boards boards = boards_named(40);
  const auto empty_in = [&](auto empty) {
    Engine engine({1, 2});
    CHECK_EQUAL(bytes_held(engine), 0);
    for (int round = 0; round < 2; ++round) {
      const std::vector<Row> rows = filled(random, 40, 12'000, 2'000);
      testing::apply(engine, boards, rows);
      const MemoryUse use = memory_of(engine);
      CHECK(use.players > 0 && use.boards > 0 && use.entries > 0 && use.maps > 0);
      empty(engine, rows);
      CHECK_SOUND(engine);
      const MemoryUse left = memory_of(engine);
      CHECK_EQUAL(left.players, 0);
      CHECK_EQUAL(left.boards, 0);
      CHECK_EQUAL(left.entries, 0);
      CHECK_EQUAL(left.maps, 0);
      CHECK_EQUAL(left.idle, 0);
    }
  };
  empty_in([&](Engine& engine, const std::vector<Row>&) {
    for (const auto& [name, rules] : boards) CHECK(engine.drop(name));
  });
  empty_in([&](Engine& engine, const std::vector<Row>&) {
    std::vector<Row> rows;
    for (uint32_t i = 0; i < boards.size(); ++i) rows.push_back({i, Op::clear});
    testing::apply(engine, boards, rows);
  });
  empty_in([&](Engine& engine, std::vector<Row> rows) {
    for (Row& row : rows) row.op = Op::remove;
    random.shuffle(rows);
    testing::apply(engine, boards, rows);
  });
}

TEST("players who come and go within a batch, and removals of nobody, leave nothing behind") {
  Engine engine({1, 2});
  const Boards boards{{"board", Rules{}}};
  std::vector<Row> rows;
  for (uint64_t i = 0; i < 1'000; ++i) rows.push_back({0, Op::apply, "player " + std::to_string(i), 5});
  for (uint64_t i = 0; i < 2'000; ++i) rows.push_back({0, Op::remove, "player " + std::to_string(i)});
  testing::apply(engine, boards, rows);
  CHECK_SOUND(engine);
  CHECK_EQUAL(bytes_held(engine), 0);
  testing::apply(engine, boards, {{0, Op::remove, "nobody"}, {0, Op::clear}});
  CHECK_SOUND(engine);
  CHECK_EQUAL(bytes_held(engine), 0);
}

TEST("a board that loses nine players of ten keeps less than a third of its memory") {
  Random random;
  Engine engine({1, 2});
  const Boards boards{{"board", Rules{}}};
  std::vector<Row> rows;
  for (uint64_t i = 0; i < 20'000; ++i) {
    rows.push_back({0, Op::apply, "player " + std::to_string(i), random.between(0, 1 << 20)});
  }
  testing::apply(engine, boards, rows);
  const size_t bytes = bytes_held(engine);
  random.shuffle(rows);
  rows.resize(rows.size() * 9 / 10);
  for (Row& row : rows) row.op = Op::remove;
  testing::apply(engine, boards, rows);
  CHECK_SOUND(engine);
  CHECK(bytes_held(engine) * 3 < bytes);
}

}  // namespace
}  // namespace rankd
