// Regions and pools as they are outside of tests, with many slots in a piece. The rest of this program is built with a
// piece a slot, so they are compiled here once more, under another name.
#include "testing.hpp"

#undef RANKD_SANITIZE
#define rankd rankd_with_shared_pieces
#include "memory.cpp"
#undef rankd

#include <algorithm>
#include <map>
#include <set>

namespace {

using rankd::testing::Random;
using namespace rankd_with_shared_pieces;

void fill(std::byte* memory, size_t bytes, uint32_t number) {
  for (size_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::byte>((number * 31 + i) & 0xff);
}

bool is_filled(const std::byte* memory, size_t bytes, uint32_t number) {
  for (size_t i = 0; i < bytes; ++i) {
    if (memory[i] != static_cast<std::byte>((number * 31 + i) & 0xff)) return false;
  }
  return true;
}

TEST("pieces do not overlap, and an empty region goes back to the system") {
  Random random;
  Regions regions;
  std::vector<std::pair<std::byte*, Purpose>> held;
  const auto held_bytes = [&](Purpose purpose) {
    size_t bytes = 0;
    for (const auto& [piece, its_purpose] : held) bytes += its_purpose == purpose ? kPieceBytes : 0;
    return bytes;
  };
  for (int round = 0; round < 3'000; ++round) {
    const bool grows = round < 1'000 || (round < 2'000 && random.once_in(2));
    if (held.empty() || grows) {
      const auto purpose = static_cast<Purpose>(random.below(kPurposes));
      held.emplace_back(regions.take_piece(purpose), purpose);
      CHECK_EQUAL(reinterpret_cast<uintptr_t>(held.back().first) % kPieceBytes, 0);
      fill(held.back().first, 64, static_cast<uint32_t>(reinterpret_cast<uintptr_t>(held.back().first) >> 16));
    } else {
      std::swap(random.pick(held), held.back());
      const auto [piece, purpose] = held.back();
      CHECK(is_filled(piece, 64, static_cast<uint32_t>(reinterpret_cast<uintptr_t>(piece) >> 16)));
      regions.give_piece(piece, purpose);
      held.pop_back();
    }
    if (round % 50 != 0) continue;
    std::set<uintptr_t> starts;
    std::set<uintptr_t> regions_in_use;
    for (const auto& [piece, purpose] : held) {
      starts.insert(reinterpret_cast<uintptr_t>(piece));
      regions_in_use.insert(reinterpret_cast<uintptr_t>(piece) / kRegionBytes);
    }
    CHECK_EQUAL(starts.size(), held.size());
    size_t bytes = 0;
    for (size_t purpose = 0; purpose < kPurposes; ++purpose) {
      CHECK_EQUAL(regions.bytes(static_cast<Purpose>(purpose)), held_bytes(static_cast<Purpose>(purpose)));
      bytes += regions.bytes(static_cast<Purpose>(purpose));
    }
    CHECK_EQUAL(bytes + regions.idle_bytes(), regions_in_use.size() * kRegionBytes);
  }
  while (!held.empty()) {
    regions.give_piece(held.back().first, held.back().second);
    held.pop_back();
  }
  for (size_t purpose = 0; purpose < kPurposes; ++purpose) CHECK_EQUAL(regions.bytes(static_cast<Purpose>(purpose)), 0);
  CHECK_EQUAL(regions.idle_bytes(), 0);
}

TEST("free pieces are used up before another region is asked for") {
  Regions regions;
  std::vector<std::byte*> held(4 * kPiecesPerRegion);
  for (std::byte*& piece : held) piece = regions.take_piece(Purpose::players);
  CHECK_EQUAL(regions.idle_bytes(), 0);
  std::sort(held.begin(), held.end());
  // An early one, then a late one.
  for (const size_t given : {size_t{3}, held.size() - 2}) regions.give_piece(held[given], Purpose::players);
  CHECK_EQUAL(regions.idle_bytes(), 2 * kPieceBytes);
  for (const size_t taken : {size_t{3}, held.size() - 2}) held[taken] = regions.take_piece(Purpose::players);
  CHECK_EQUAL(regions.idle_bytes(), 0);
  for (std::byte* piece : held) regions.give_piece(piece, Purpose::players);
}

TEST("blocks are accounted for by purpose, byte by byte") {
  Regions regions;
  std::byte* one = regions.take_block(100, Purpose::maps);
  std::byte* two = regions.take_block(1, Purpose::boards);
  CHECK_EQUAL(regions.bytes(Purpose::maps), 100);
  CHECK_EQUAL(regions.bytes(Purpose::boards), 1);
  regions.give_block(one, 100, Purpose::maps);
  CHECK_EQUAL(regions.bytes(Purpose::maps), 0);
  regions.give_block(two, 1, Purpose::boards);
  CHECK_EQUAL(regions.bytes(Purpose::boards), 0);
}

TEST("slots of a pool keep their bytes while others come and go") {
  Random random;
  // Sizes that divide a piece and sizes that do not, down to two slots a piece.
  for (const uint32_t slot_bytes : {4u, 8u, 24u, 40u, 1000u, 1024u, 4112u, 20'000u, 32'768u}) {
    Regions regions;
    Pool pool(regions, Purpose::players, slot_bytes);
    const uint32_t slots_per_piece = static_cast<uint32_t>(kPieceBytes / slot_bytes);
    const size_t most = std::min<size_t>(20'000, 3u * slots_per_piece + 40);
    std::map<uint32_t, uint32_t> held;  // number → what its bytes were filled with
    std::vector<uint32_t> numbers;
    uint32_t fills = 0;
    const auto give = [&](size_t index) {
      std::swap(numbers[index], numbers.back());
      const uint32_t number = numbers.back();
      CHECK(is_filled(pool.at(number), std::min(slot_bytes, 64u), held[number]));
      held.erase(number);
      numbers.pop_back();
      pool.release(number);
    };
    for (int wave = 0; wave < 3; ++wave) {
      while (held.size() < most) {
        const uint32_t number = pool.allocate();
        CHECK(number != kNone);
        CHECK(held.emplace(number, ++fills).second);
        numbers.push_back(number);
        fill(pool.at(number), std::min(slot_bytes, 64u), fills);
        if (random.once_in(3)) give(random.below(numbers.size()));
      }
      CHECK_EQUAL(pool.used(), held.size());
      // At least full, and no emptier than the waves can leave it.
      CHECK(regions.bytes(Purpose::players) >= (held.size() + slots_per_piece - 1) / slots_per_piece * kPieceBytes);
      const size_t left = wave == 2 ? 0 : random.below(most / 2);
      while (numbers.size() > left) give(random.below(numbers.size()));
    }
    CHECK_EQUAL(pool.used(), 0);
    CHECK_EQUAL(regions.bytes(Purpose::players), 0);
    CHECK_EQUAL(regions.idle_bytes(), 0);
  }
}

TEST("a pool of whole regions uses some of them, is idle for the rest, and gives them back") {
  Regions regions;
  Pool pool(regions, Purpose::entries, 1024, kNone, kRegionBytes);
  constexpr size_t kSlots = kRegionBytes / 1024;
  std::vector<uint32_t> numbers;
  const auto check = [&](size_t mapped) {
    CHECK_EQUAL(regions.bytes(Purpose::entries), (numbers.size() * 1024 + kPieceBytes - 1) / kPieceBytes * kPieceBytes);
    CHECK_EQUAL(regions.bytes(Purpose::entries) + regions.idle_bytes(), mapped * kRegionBytes);
  };
  for (size_t i = 0; i < 2 * kSlots + 1; ++i) {
    numbers.push_back(pool.allocate());
    fill(pool.at(numbers.back()), 1024, numbers.back());
    check(i / kSlots + 1);
  }
  // A piece for another purpose is none of the pool's.
  std::byte* piece = regions.take_piece(Purpose::maps);
  CHECK_EQUAL(regions.bytes(Purpose::maps), kPieceBytes);
  fill(piece, kPieceBytes, 1);
  for (const uint32_t number : numbers) CHECK(is_filled(pool.at(number), 1024, number));
  regions.give_piece(piece, Purpose::maps);
  Random random;
  random.shuffle(numbers);
  while (!numbers.empty()) {
    pool.release(numbers.back());
    numbers.pop_back();
  }
  check(0);
}

TEST("a region is ready before a pool of whole regions needs it, and goes when nothing is left") {
  Regions regions;
  Pool pool(regions, Purpose::entries, 1024, kNone, kRegionBytes);
  constexpr size_t kSlots = kRegionBytes / 1024;
  std::vector<uint32_t> numbers;
  const auto mapped = [&] { return (regions.bytes(Purpose::entries) + regions.idle_bytes()) / kRegionBytes; };
  std::byte* piece = regions.take_piece(Purpose::maps);  // enough are left of its region
  for (size_t i = 0; i < kSlots / 2; ++i) numbers.push_back(pool.allocate());
  regions.prepare();
  const size_t at_first = mapped();
  while (numbers.size() < kSlots) numbers.push_back(pool.allocate());
  CHECK_EQUAL(mapped(), at_first);
  regions.prepare();
  CHECK_EQUAL(mapped(), at_first + 1);
  numbers.push_back(pool.allocate());
  CHECK_EQUAL(mapped(), at_first + 1);
  regions.give_piece(piece, Purpose::maps);
  for (const uint32_t number : numbers) pool.release(number);
  CHECK_EQUAL(regions.idle_bytes(), 0);
}

TEST("a pool fills what was given back before it takes another piece") {
  Regions regions;
  Pool pool(regions, Purpose::players, 64);
  std::vector<uint32_t> numbers(4 * kPieceBytes / 64);
  for (uint32_t& number : numbers) number = pool.allocate();
  const size_t bytes = regions.bytes(Purpose::players);
  CHECK_EQUAL(bytes, 4 * kPieceBytes);
  Random random;
  random.shuffle(numbers);
  for (size_t i = 0; i < numbers.size() / 2; ++i) pool.release(numbers[i]);
  for (size_t i = 0; i < numbers.size() / 2; ++i) numbers[i] = pool.allocate();
  CHECK_EQUAL(regions.bytes(Purpose::players), bytes);
  CHECK_EQUAL(std::set<uint32_t>(numbers.begin(), numbers.end()).size(), numbers.size());
  for (const uint32_t number : numbers) pool.release(number);
  CHECK_EQUAL(regions.bytes(Purpose::players), 0);
}

TEST("numbers stay small: a pool that is emptied and filled again uses them anew") {
  Regions regions;
  Pool pool(regions, Purpose::players, 1024);
  uint32_t highest = 0;
  for (int wave = 0; wave < 20; ++wave) {
    std::vector<uint32_t> numbers(1'000);
    for (uint32_t& number : numbers) number = pool.allocate();
    highest = std::max(highest, *std::max_element(numbers.begin(), numbers.end()));
    for (const uint32_t number : numbers) pool.release(number);
  }
  CHECK(highest < 1'024);
}

TEST("a pool gives its pieces back when it goes") {
  Regions regions;
  {
    Pool pool(regions, Purpose::players, 100);
    for (int i = 0; i < 5'000; ++i) pool.allocate();
    CHECK(regions.bytes(Purpose::players) > 0);
  }
  CHECK_EQUAL(regions.bytes(Purpose::players), 0);
  CHECK_EQUAL(regions.idle_bytes(), 0);
}

}  // namespace
