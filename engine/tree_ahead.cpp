// Asking for memory before it is needed: each step reads what the step before it asked for, and no more lines than the
// work itself will read.
#include <algorithm>

#include "tree.hpp"

namespace rankd {

namespace {

constexpr uint32_t kSeatsBehind = 4;

void prefetch_lines(const void* begin, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(begin) & ~uintptr_t{63};
  for (uintptr_t line = first; line < reinterpret_cast<uintptr_t>(begin) + bytes; line += 64) {
    prefetch(reinterpret_cast<const void*>(line));
  }
}

}  // namespace

void Tree::prefetch_entry(Spot spot) const {
  if (spot.leaf == kNone) return;
  const Leaf& leaf = memory_.leaf(spot.leaf);
  prefetch(&leaf.score[spot.index]);
  prefetch_lines(&leaf.rest[spot.index], sizeof(Leaf::Rest));
}

const void* Tree::parent_line(Spot spot) const {
  return spot.leaf == kNone ? nullptr : &memory_.inner(memory_.leaf(spot.leaf).parent);
}

void Tree::prefetch_place(Spot spot) const {
  if (spot.leaf == kNone) return;
  const Leaf& leaf = memory_.leaf(spot.leaf);
  prefetch_lines(memory_.inner(leaf.parent).link, (leaf.slot_hint + size_t{1}) * sizeof(uint64_t));
}

void Tree::prefetch_count(Spot spot) const {
  if (spot.leaf == kNone) return;
  const Leaf& leaf = memory_.leaf(spot.leaf);
  prefetch(&memory_.inner(leaf.parent).link[leaf.slot_hint]);
}

// Ties are left aside: a leaf whose scores do not surround the entry's is not used.
Way Tree::begin_way(uint64_t score_key) const {
  Way way{root_, kNone, 0, nodes_gone_};
  for (uint32_t level = height_; level > 2; --level) {
    const Inner& inner = memory_.inner(way.parent);
    way.parent = inner.child(inner.count_less(score_key));
  }
  prefetch(&memory_.inner(way.parent));
  return way;
}

void Tree::prefetch_child(uint64_t score_key, const Way& way) const {
  if (!holds(way)) return;
  const Inner& parent = memory_.inner(way.parent);
  const uint32_t before = parent.sampled_before(score_key);
  prefetch(&parent.score[before]);
  prefetch(&parent.link[before]);
}

const void* Tree::find_parent(uint64_t score_key, Way& way) const {
  if (!holds(way) || memory_.inner(way.parent).level == 1) return nullptr;
  const Inner& inner = memory_.inner(way.parent);
  way.parent = inner.child(inner.count_less(score_key));
  return &memory_.inner(way.parent);
}

const void* Tree::find_leaf(uint64_t score_key, Way& way) const {
  if (!holds(way)) return nullptr;
  const Inner& parent = memory_.inner(way.parent);
  way.slot = parent.count_less(score_key);
  way.leaf = parent.child(way.slot);
  return &memory_.leaf(way.leaf);
}

void Tree::prefetch_arrival(const Way& way) const {
  if (way.leaf == kNone || !holds(way)) return;
  const Leaf& leaf = memory_.leaf(way.leaf);
  // Those who came while the leaf was fuller may sit a little further back.
  prefetch_lines(leaf.score, std::min(leaf.size + kSeatsBehind, kLeafEntries) * sizeof(uint64_t));
  if (leaf.size == kLeafEntries) return;
  const uint32_t seat = leaf.order[leaf.size];
  prefetch(&leaf.score[seat]);
  prefetch_lines(&leaf.rest[seat], sizeof(Leaf::Rest));
}

}  // namespace rankd
