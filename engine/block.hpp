// A run of entries in standing order, stored by column, and searches in it: for inner nodes and small boards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "order.hpp"

#ifdef __SSE2__  // part of every x86-64
#include <emmintrin.h>
#endif

namespace rankd {

struct Block {
  uint64_t* score;
  uint32_t* player;
  uint32_t* tie_low;
  uint16_t* tie_high;

  uint64_t tie(uint32_t i) const { return uint64_t{tie_high[i]} << 32 | tie_low[i]; }
  Key key(uint32_t i) const { return {score[i], tie(i)}; }
  // Leaves have the same accessors.
  uint64_t score_at(uint32_t i) const { return score[i]; }
  uint64_t tie_at(uint32_t i) const { return tie(i); }
  uint32_t player_at(uint32_t i) const { return player[i]; }

  void set(uint32_t i, const Key& key, uint32_t number) const {
    score[i] = key.score;
    player[i] = number;
    tie_low[i] = static_cast<uint32_t>(key.tie);
    tie_high[i] = static_cast<uint16_t>(key.tie >> 32);
  }
  void copy(uint32_t to, const Block& other, uint32_t from, uint32_t count) const {
    std::memmove(score + to, other.score + from, count * sizeof(*score));
    std::memmove(player + to, other.player + from, count * sizeof(*player));
    std::memmove(tie_low + to, other.tie_low + from, count * sizeof(*tie_low));
    std::memmove(tie_high + to, other.tie_high + from, count * sizeof(*tie_high));
  }
  void insert(uint32_t size, uint32_t at, const Key& key, uint32_t number) const {
    copy(at + 1, *this, at, size - at);
    set(at, key, number);
  }
  void erase(uint32_t size, uint32_t at) const { copy(at, *this, at + 1, size - at - 1); }
  Block from(uint32_t i) const { return {score + i, player + i, tie_low + i, tie_high + i}; }
};

// Bytes of a block with room for `capacity` entries that is laid out by `block_at`.
inline constexpr uint32_t block_bytes(uint32_t capacity) { return (capacity * 18 + 7) / 8 * 8; }

inline Block block_at(std::byte* memory, uint32_t capacity) {
  auto* score = reinterpret_cast<uint64_t*>(memory);
  auto* player = reinterpret_cast<uint32_t*>(score + capacity);
  auto* tie_low = player + capacity;
  return {score, player, tie_low, reinterpret_cast<uint16_t*>(tie_low + capacity)};
}

// How many of `count` ascending words are < bound. Each comparison is unpredictable, so this uses arithmetic in place
// of branches; compilers would turn a conditional expression back into a branch.
inline uint32_t count_less(const uint64_t* words, uint32_t count, uint64_t bound) {
  const uint64_t* base = words;
  while (count > 1) {
    const uint32_t half = count / 2;
    base += size_t{half} * static_cast<size_t>(base[half - 1] < bound);
    count -= half;
  }
  return static_cast<uint32_t>(base - words) + static_cast<uint32_t>(count == 1 && *base < bound);
}

inline uint32_t count_less(const Block& block, uint32_t from, uint32_t count, uint64_t bound) {
  return count_less(block.score + from, count, bound);
}

// How many entries from `from` on have this score, given that none of them has a better one.
template <class Entries>
uint32_t count_equal(const Entries& entries, uint32_t from, uint32_t count, uint64_t score) {
  return score == ~uint64_t{0} ? count : count_less(entries, from, count, score + 1);
}

// The index of `wanted` among `count` numbers; `count` if it is absent.
inline uint32_t index_of(const uint32_t* numbers, uint32_t count, uint32_t wanted) {
  uint32_t i = 0;
#ifdef __SSE2__
  const __m128i pattern = _mm_set1_epi32(static_cast<int>(wanted));
  const auto equal = [&](uint32_t at) {
    return _mm_cmpeq_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers + at)), pattern);
  };
  for (; i + 16 <= count; i += 16) {
    const __m128i bytes = _mm_packs_epi16(_mm_packs_epi32(equal(i), equal(i + 4)),
                                          _mm_packs_epi32(equal(i + 8), equal(i + 12)));
    const auto found = static_cast<uint32_t>(_mm_movemask_epi8(bytes));
    if (found != 0) return i + static_cast<uint32_t>(__builtin_ctz(found));
  }
#endif
  for (; i < count; ++i) {
    if (numbers[i] == wanted) return i;
  }
  return count;
}

inline uint32_t index_of(const uint8_t* numbers, uint32_t count, uint8_t wanted) {
  const void* found = std::memchr(numbers, wanted, count);
  return found == nullptr ? count : static_cast<uint32_t>(static_cast<const uint8_t*>(found) - numbers);
}

// A position in the standing order, whether or not an entry is there. Entries with an equal score and tie stand before
// it if `stands_before(player)` says so; entries with an equal score only, if `tie` is used.
//
//   NewEntry    before a player's own place, by id: where to insert
//   BehindEntry behind it: where a read continues
//   BehindTies  behind all with this score and tie: the place of a new player, last by id
//   AtScore     before all with this score
template <class Names>
struct NewEntry {
  static constexpr bool kUsesTie = true;
  Key key;
  std::string_view id;
  const Names& names;
  bool stands_before(uint32_t player) const { return names.name(player) < id; }
};

template <class Names>
struct BehindEntry {
  static constexpr bool kUsesTie = true;
  Key key;
  std::string_view id;
  const Names& names;
  bool stands_before(uint32_t player) const { return names.name(player) <= id; }
};

struct BehindTies {
  static constexpr bool kUsesTie = true;
  Key key;
  bool stands_before(uint32_t) const { return true; }
};

struct AtScore {
  static constexpr bool kUsesTie = false;
  Key key;
  bool stands_before(uint32_t) const { return false; }
};

// How many of the entries stand before the place, of which `low` have a score before its own.
template <class Entries, class Where>
uint32_t position(const Entries& entries, uint32_t size, const Where& where, uint32_t low) {
  if (!Where::kUsesTie || low == size || entries.score_at(low) != where.key.score) return low;
  uint32_t high = low + count_equal(entries, low, size - low, where.key.score);
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    const uint64_t tie = entries.tie_at(middle);
    const bool before = tie != where.key.tie ? tie < where.key.tie : where.stands_before(entries.player_at(middle));
    if (before) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

template <class Entries, class Where>
uint32_t position(const Entries& entries, uint32_t size, const Where& where) {
  return position(entries, size, where, count_less(entries, 0, size, where.key.score));
}

// Entries 1 … end − 1 whose score differs from the one before.
template <class Entries>
uint32_t score_changes(const Entries& entries, uint32_t end) {
  uint32_t changes = 0;
  for (uint32_t i = 1; i < end; ++i) changes += entries.score_at(i) != entries.score_at(i - 1) ? 1 : 0;
  return changes;
}

}  // namespace rankd
