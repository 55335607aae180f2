// An inner node of a tree: its children, by column.
//
// In a node that is not in the cache, each line that a search reads is a miss, so a search should read few. The node
// begins with a line of `samples`: the first key of every eighth child. They select the line of keys and the line of
// links that the search needs; it reads three of thirty-one lines.
#pragma once

#include <algorithm>
#include <cstdint>

#include "block.hpp"
#include "memory.hpp"

namespace rankd {

inline constexpr uint32_t kInnerChildren = 64;
inline constexpr uint32_t kHeightMax = 12;
inline constexpr uint32_t kSampled = 8;  // children to a sample: a line of keys, a line of links
inline constexpr uint32_t kSamples = 6;  // the children behind the last sample have up to two lines

struct Inner {
  uint32_t parent;
  uint32_t size;
  uint32_t level;  // 1 above the leaves
  uint32_t slot_hint;
  uint64_t sample[kSamples];  // score[8], score[16], …; the highest possible key where there is no such child
  uint64_t score[kInnerChildren];
  uint64_t link[kInnerChildren];  // the child (low 32 bits) and how many entries are below it, in one line of memory
  uint32_t repeats[kInnerChildren];
  uint32_t player[kInnerChildren];
  uint32_t tie_low[kInnerChildren];
  uint16_t tie_high[kInnerChildren];

  Block block() { return {score, player, tie_low, tie_high}; }
  uint32_t child(uint32_t slot) const { return static_cast<uint32_t>(link[slot]); }
  uint32_t count(uint32_t slot) const { return static_cast<uint32_t>(link[slot] >> 32); }
  void set_count(uint32_t slot, uint64_t count) { link[slot] = count << 32 | child(slot); }
  void add_count(uint32_t slot, int64_t entries) { link[slot] += static_cast<uint64_t>(entries) << 32; }
  uint64_t count_before(uint32_t slot) const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < slot; ++i) sum += link[i] >> 32;
    return sum;
  }
  uint64_t repeats_before(uint32_t slot) const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < slot; ++i) sum += repeats[i];
    return sum;
  }
  // The slot of a child, `size` if it is absent. The search begins at the hint, which is seldom far off.
  uint32_t slot_of(uint32_t wanted, uint32_t hint) const {
    if (hint < size && child(hint) == wanted) return hint;
    for (uint32_t away = 1; away < kInnerChildren; ++away) {
      if (hint + away < size && child(hint + away) == wanted) return hint + away;
      if (hint >= away && hint - away < size && child(hint - away) == wanted) return hint - away;
    }
    return size;
  }

  // Of the children behind the first, those up to this one have a score < bound; it is in the run of eight that begins
  // here, or in the last run.
  uint32_t sampled_before(uint64_t bound) const {
    uint32_t runs = 0;
    for (uint32_t i = 0; i < kSamples; ++i) runs += sample[i] < bound ? 1 : 0;
    return runs * kSampled;
  }
  // How many of the children behind the first have a score < bound: the child to enter.
  uint32_t count_less(uint64_t bound) const {
    const uint32_t before = sampled_before(bound);
    const uint32_t end = before == kSamples * kSampled ? size : std::min(size, before + kSampled);
    return before + rankd::count_less(score + before + 1, end - before - 1, bound);
  }

  // After any change of scores or size.
  void take_samples() {
    for (uint32_t i = 0; i < kSamples; ++i) {
      const uint32_t slot = (i + 1) * kSampled;
      sample[i] = slot < size ? score[slot] : ~uint64_t{0};
    }
  }
};
static_assert(sizeof(Inner) % 64 == 0 && sizeof(Inner) <= 2048, "whole lines of memory");

}  // namespace rankd
