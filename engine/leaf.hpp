// A leaf of a tree: entries in fixed slots, and the order in which they stand.
//
// The most frequent operation moves an entry to a leaf that is not in the cache: each cache line it reads is a miss,
// and each line it writes costs another transfer. So an entry keeps its slot while others are inserted and erased: the
// tree's map knows each player's slot, and an insertion writes the entry's own lines and one line of `order`. A search
// reads scores only; the other fields of an entry lie together.
#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>

#include "block.hpp"

namespace rankd {

inline constexpr uint32_t kLeafEntries = 52;

struct Leaf {
  struct __attribute__((packed)) Rest {
    uint32_t player;
    uint32_t tie_low;
    uint16_t tie_high;
  };

  uint32_t parent;
  uint32_t previous;
  uint32_t next;
  uint8_t size;
  uint8_t slot_hint;            // the slot in the parent when last seen
  bool has_repeats;             // whether the parent counts any here
  uint8_t order[kLeafEntries];  // slots in standing order; the free ones from `size` on
  uint64_t score[kLeafEntries];
  Rest rest[kLeafEntries];
  uint8_t unused[16];

  // By slot.
  uint32_t player(uint32_t slot) const { return rest[slot].player; }
  uint64_t tie(uint32_t slot) const { return uint64_t{rest[slot].tie_high} << 32 | rest[slot].tie_low; }
  Key key(uint32_t slot) const { return {score[slot], tie(slot)}; }
  // By place in the standing order.
  uint64_t score_at(uint32_t at) const { return score[order[at]]; }
  uint64_t tie_at(uint32_t at) const { return tie(order[at]); }
  uint32_t player_at(uint32_t at) const { return player(order[at]); }
  Key key_at(uint32_t at) const { return key(order[at]); }

  // The place of a slot's entry.
  uint32_t place_of(uint32_t slot) const { return index_of(order, size, static_cast<uint8_t>(slot)); }

  void empty() {
    size = 0;
    has_repeats = false;
    std::iota(order, order + kLeafEntries, uint8_t{0});
  }
  // Returns the slot.
  uint32_t insert(uint32_t at, const Key& key, uint32_t number) {
    const uint8_t slot = order[size];
    std::memmove(order + at + 1, order + at, size - at);
    order[at] = slot;
    ++size;
    score[slot] = key.score;
    rest[slot] = {number, static_cast<uint32_t>(key.tie), static_cast<uint16_t>(key.tie >> 32)};
    return slot;
  }
  void erase(uint32_t at) {
    const uint8_t slot = order[at];
    --size;
    std::memmove(order + at, order + at + 1, size - at);
    order[size] = slot;  // the next insertion takes it: its lines are in the cache
  }
};
static_assert(sizeof(Leaf) == 1024, "no leaf lies on two pages of memory");

inline uint32_t count_less(const Leaf& leaf, uint32_t from, uint32_t count, uint64_t bound) {
  uint32_t low = from;
  while (count > 1) {
    const uint32_t half = count / 2;
    low += half * static_cast<uint32_t>(leaf.score_at(low + half - 1) < bound);
    count -= half;
  }
  return low - from + static_cast<uint32_t>(count == 1 && leaf.score_at(low) < bound);
}

// Consecutive entries of a leaf or of a small board's block.
class Run {
 public:
  Run(const Leaf& leaf, uint32_t first) : leaf_(&leaf), block_{}, first_(first), size_(leaf.size - first) {}
  Run(const Block& block, uint32_t first, uint32_t size) : leaf_(nullptr), block_(block), first_(first), size_(size) {}

  uint32_t size() const { return size_; }
  uint32_t player(uint32_t i) const {
    return leaf_ != nullptr ? leaf_->player_at(first_ + i) : block_.player[first_ + i];
  }
  Key key(uint32_t i) const { return leaf_ != nullptr ? leaf_->key_at(first_ + i) : block_.key(first_ + i); }

 private:
  const Leaf* leaf_;
  Block block_;
  uint32_t first_;
  uint32_t size_;
};

}  // namespace rankd
