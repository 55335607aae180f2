// A leaf of a tree: entries that stay where they were put, and the order in which they stand.
//
// What happens most is that an entry moves, from one leaf to another that nobody touched lately: every line of memory
// that it reads is a wait, and one that it changes is two. So an entry keeps its seat while others come and go. The map
// of the tree knows the seat of each player; who leaves or comes changes a line of `order` and what is theirs. A search
// reads scores only; what else an entry has lies together, for whoever wants all of it.
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
  uint8_t slot_hint;            // where the parent had this child last time
  bool has_repeats;             // whether the parent counts any here
  uint8_t order[kLeafEntries];  // seats as their entries stand; from `size` on, those that are free
  uint64_t score[kLeafEntries];
  Rest rest[kLeafEntries];
  uint8_t unused[16];

  // By seat.
  uint32_t player(uint32_t seat) const { return rest[seat].player; }
  uint64_t tie(uint32_t seat) const { return uint64_t{rest[seat].tie_high} << 32 | rest[seat].tie_low; }
  Key key(uint32_t seat) const { return {score[seat], tie(seat)}; }
  // As they stand.
  uint64_t score_at(uint32_t at) const { return score[order[at]]; }
  uint64_t tie_at(uint32_t at) const { return tie(order[at]); }
  uint32_t player_at(uint32_t at) const { return player(order[at]); }
  Key key_at(uint32_t at) const { return key(order[at]); }

  // Where the entry of a seat stands.
  uint32_t place_of(uint32_t seat) const { return index_of(order, size, static_cast<uint8_t>(seat)); }

  void empty() {
    size = 0;
    has_repeats = false;
    std::iota(order, order + kLeafEntries, uint8_t{0});
  }
  // Returns the seat.
  uint32_t insert(uint32_t at, const Key& key, uint32_t number) {
    const uint8_t seat = order[size];
    std::memmove(order + at + 1, order + at, size - at);
    order[at] = seat;
    ++size;
    score[seat] = key.score;
    rest[seat] = {number, static_cast<uint32_t>(key.tie), static_cast<uint16_t>(key.tie >> 32)};
    return seat;
  }
  void erase(uint32_t at) {
    const uint8_t seat = order[at];
    --size;
    std::memmove(order + at, order + at + 1, size - at);
    order[size] = seat;  // whoever comes next has it: its lines are at hand
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

// Entries that stand one behind the other, of a leaf or of a small board's block.
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
