// Prefetching in trees: each step reads what the step before it prefetched, and prefetches no more lines than the
// operation itself reads.
#include <algorithm>

#include "tree.hpp"

namespace rankd {

namespace {

constexpr uint32_t kSlotsBehind = 4;

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

// The hint ignores ties: `attach_at_hint` uses a leaf only if it has scores on both sides of the entry's.
InsertHint Tree::begin_hint(uint64_t score_key) const {
  InsertHint hint{root_, kNone, 0, nodes_gone_};
  for (uint32_t level = height_; level > 2; --level) {
    const Inner& inner = memory_.inner(hint.parent);
    hint.parent = inner.child(inner.count_less(score_key));
  }
  prefetch(&memory_.inner(hint.parent));
  return hint;
}

void Tree::prefetch_child(uint64_t score_key, const InsertHint& hint) const {
  if (!is_current(hint)) return;
  const Inner& parent = memory_.inner(hint.parent);
  const uint32_t before = parent.sampled_before(score_key);
  prefetch(&parent.score[before]);
  prefetch(&parent.link[before]);
}

const void* Tree::find_parent(uint64_t score_key, InsertHint& hint) const {
  if (!is_current(hint) || memory_.inner(hint.parent).level == 1) return nullptr;
  const Inner& inner = memory_.inner(hint.parent);
  hint.parent = inner.child(inner.count_less(score_key));
  return &memory_.inner(hint.parent);
}

const void* Tree::find_leaf(uint64_t score_key, InsertHint& hint) const {
  if (!is_current(hint)) return nullptr;
  const Inner& parent = memory_.inner(hint.parent);
  hint.slot = parent.count_less(score_key);
  hint.leaf = parent.child(hint.slot);
  return &memory_.leaf(hint.leaf);
}

void Tree::prefetch_arrival(const InsertHint& hint) const {
  if (hint.leaf == kNone || !is_current(hint)) return;
  const Leaf& leaf = memory_.leaf(hint.leaf);
  // Entries inserted while the leaf was fuller may be in slots a little further back.
  prefetch_lines(leaf.score, std::min(leaf.size + kSlotsBehind, kLeafEntries) * sizeof(uint64_t));
  if (leaf.size == kLeafEntries) return;
  const uint32_t slot = leaf.order[leaf.size];
  prefetch(&leaf.score[slot]);
  prefetch_lines(&leaf.rest[slot], sizeof(Leaf::Rest));
}

}  // namespace rankd
