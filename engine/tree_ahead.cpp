// Asking for memory before it is needed: each step reads what the step before it asked for, and no more lines than the
// work itself will read.
#include <algorithm>
#include <cstddef>

#include "tree.hpp"

namespace rankd {

namespace {

void prefetch_lines(const void* begin, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(begin) & ~uintptr_t{63};
  for (uintptr_t line = first; line < reinterpret_cast<uintptr_t>(begin) + bytes; line += 64) {
    prefetch(reinterpret_cast<const void*>(line));
  }
}

}  // namespace

void Tree::prefetch_players(uint32_t player) const {
  const uint32_t leaf = map_.likely(page_tag(player));
  if (leaf != kNone) prefetch_lines(&memory_.leaf(leaf), offsetof(Leaf, score));
}

void Tree::prefetch_place(Spot spot) const {
  const Leaf& leaf = memory_.leaf(spot.leaf);
  const Inner& parent = memory_.inner(leaf.parent);
  prefetch(&leaf.score[spot.index]);
  prefetch(&leaf.tie_low[spot.index]);
  prefetch(&leaf.tie_high[spot.index]);
  prefetch(&parent);
  prefetch_lines(parent.link, (leaf.slot_hint + size_t{1}) * sizeof(uint64_t));
}

void Tree::prefetch_move(Spot spot) const {
  const Leaf& leaf = memory_.leaf(spot.leaf);
  const Inner& parent = memory_.inner(leaf.parent);
  prefetch_lines(&leaf.score[spot.index], (leaf.size - spot.index) * sizeof(uint64_t));
  prefetch_lines(&leaf.tie_low[spot.index], (leaf.size - spot.index) * sizeof(uint32_t));
  prefetch_lines(&leaf.tie_high[spot.index], (leaf.size - spot.index) * sizeof(uint16_t));
  prefetch(&parent);
  prefetch(&parent.link[leaf.slot_hint]);
}

// Ties are left aside: a leaf whose scores do not surround the entry's is not used.
Way Tree::begin_way(uint64_t score_key) const {
  Way way{root_, kNone, 0, nodes_gone_};
  for (uint32_t level = height_; level > 1; --level) {
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

void Tree::find_leaf(uint64_t score_key, Way& way) const {
  if (!holds(way)) return;
  const Inner& parent = memory_.inner(way.parent);
  way.slot = parent.count_less(score_key);
  way.leaf = parent.child(way.slot);
  const Leaf& leaf = memory_.leaf(way.leaf);
  prefetch(&leaf);
  prefetch_lines(leaf.score, parent.count(way.slot) * sizeof(uint64_t));
}

void Tree::prefetch_gap(uint64_t score_key, const Way& way) const {
  if (way.leaf == kNone || !holds(way)) return;
  const Leaf& leaf = memory_.leaf(way.leaf);
  const uint32_t at = count_less(leaf.score, leaf.size, score_key);
  const uint32_t moved = leaf.size - at + 1u;
  prefetch_lines(&leaf.player[at], moved * sizeof(uint32_t));
  prefetch_lines(&leaf.tie_low[at], moved * sizeof(uint32_t));
  prefetch_lines(&leaf.tie_high[at], moved * sizeof(uint16_t));
}

}  // namespace rankd
