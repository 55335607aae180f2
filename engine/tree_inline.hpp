// The parts of Tree that are templates; included by tree.hpp only.
#pragma once

namespace rankd {

// Counts the repeats among the first `end` entries of a leaf with `total` repeats. Whether the first entry is one
// follows from the total, without reading the leaf before.
inline uint32_t repeats_within(const Leaf& leaf, uint32_t end, uint32_t total) {
  if (end == 0 || total == 0) return 0;
  const uint32_t first = total - (leaf.size - 1u - score_changes(leaf, leaf.size));
  return first + (end - 1 - score_changes(leaf, end));
}

template <class Where>
uint32_t Tree::descend(const Where& where, Path& path) const {
  uint32_t node = root_;
  for (uint32_t level = height_; level > 0; --level) {
    Inner& inner = memory_.inner(node);
    // The search enters the last child whose first key is before the place, or else the first child.
    const uint32_t slot = position(inner.block().from(1), inner.size - 1, where, inner.count_less(where.key.score));
    path.node[level] = node;
    path.slot[level] = slot;
    node = inner.child(slot);
  }
  return node;
}

template <class Where>
Before Tree::before(const Where& where) const {
  Path path;
  Leaf& leaf = memory_.leaf(descend(where, path));
  const uint32_t at = position(leaf, leaf.size, where);
  uint64_t entries = at;
  uint64_t repeats = repeats_within(leaf, at, memory_.inner(path.node[1]).repeats[path.slot[1]]);
  for (uint32_t level = 1; level <= height_; ++level) {
    const Inner& inner = memory_.inner(path.node[level]);
    entries += inner.count_before(path.slot[level]);
    repeats += inner.repeats_before(path.slot[level]);
  }
  return {entries, entries - repeats};
}

template <class Gone>
bool Tree::dismantle(uint32_t most, Gone gone) {
  for (; most > 0 && first_leaf_ != kNone; --most) {
    const uint32_t gone_leaf = first_leaf_;
    const Leaf& leaf = memory_.leaf(gone_leaf);
    for (uint32_t i = 0; i < leaf.size; ++i) gone(leaf.player_at(i));
    first_leaf_ = leaf.next;
    // A node is released with the last of its children.
    uint32_t child = gone_leaf;
    for (uint32_t node = leaf.parent; node != kNone;) {
      const Inner& inner = memory_.inner(node);
      if (inner.child(inner.size - 1) != child) break;
      child = node;
      const uint32_t parent = inner.parent;
      memory_.inners.release(node);
      node = parent;
    }
    memory_.leaves.release(gone_leaf);
  }
  if (first_leaf_ != kNone || !map_.clear_some(most)) return true;
  root_ = last_leaf_ = kNone;
  height_ = size_ = 0;
  return false;
}

template <class Fail>
void Tree::check(Fail fail, size_t& leaves, size_t& inners) const {
  map_.check(fail);
  if (map_.size() != size_) fail("tree: the map and the tree differ in size");

  // Leaves in order: keys, links, the map, and repeats counted anew.
  uint64_t entries = 0;
  uint32_t previous = kNone;
  for (uint32_t id = first_leaf_; id != kNone; id = memory_.leaf(id).next) {
    Leaf& leaf = memory_.leaf(id);
    if (leaf.size == 0 || leaf.size > kLeafEntries) fail("tree: a leaf's size is out of bounds");
    uint64_t slots = 0;
    for (const uint8_t slot : leaf.order) slots |= slot < kLeafEntries ? uint64_t{1} << slot : 0;
    if (slots != (uint64_t{1} << kLeafEntries) - 1) fail("tree: a leaf's order is not one of all slots");
    if (leaf.previous != previous) fail("tree: the leaves' links differ");
    uint32_t repeats = 0;
    for (uint32_t i = 0; i < leaf.size; ++i) {
      const bool has_before = i > 0 || previous != kNone;
      const Leaf& other = i > 0 || !has_before ? leaf : memory_.leaf(previous);
      const uint32_t j = i > 0 ? i - 1 : has_before ? other.size - 1u : 0;
      const Key a = other.key_at(j);
      const Key b = leaf.key_at(i);
      const uint32_t player = leaf.player_at(i);
      repeats += has_before && a.score == b.score ? 1 : 0;
      const bool ascends = a.score != b.score ? a.score < b.score
                           : a.tie != b.tie   ? a.tie < b.tie
                                              : memory_.players.name(other.player_at(j)) < memory_.players.name(player);
      if (has_before && !ascends) fail("tree: entries are out of order");
      if (map_.find(page_tag(player)) != word_of({id, leaf.order[i]})) fail("tree: the map names another slot");
    }
    const Inner& parent = memory_.inner(leaf.parent);
    const uint32_t slot = slot_of(parent, leaf, id);
    if (slot == parent.size) fail("tree: a leaf's parent does not know it");
    if (parent.count(slot) != leaf.size) fail("tree: a leaf's count is wrong");
    if (parent.repeats[slot] != repeats) fail("tree: a leaf's repeats are wrong");
    if (leaf.has_repeats != (repeats > 0)) fail("tree: a leaf does not know whether it has repeats");
    entries += leaf.size;
    previous = id;
    ++leaves;
  }
  if (previous != last_leaf_) fail("tree: the last leaf is not last");
  if (entries != size_) fail("tree: the size is wrong");

  // Inner nodes from the root: sums, first keys, parents, levels.
  std::vector<uint32_t> level{root_};
  if (memory_.inner(root_).parent != kNone) fail("tree: the root has a parent");
  for (uint32_t height = height_; height > 0; --height) {
    std::vector<uint32_t> children;
    for (const uint32_t id : level) {
      Inner& inner = memory_.inner(id);
      ++inners;
      if (inner.level != height) fail("tree: a node is on the wrong level");
      if (inner.size == 0 || inner.size > kInnerChildren) fail("tree: a node's size is out of bounds");
      Inner sampled = inner;
      sampled.take_samples();
      if (!std::equal(inner.sample, inner.sample + kSamples, sampled.sample)) fail("tree: a node's samples are wrong");
      for (uint32_t slot = 0; slot < inner.size; ++slot) {
        const uint32_t child = inner.child(slot);
        children.push_back(child);
        const uint32_t parent = height > 1 ? memory_.inner(child).parent : memory_.leaf(child).parent;
        if (parent != id) fail("tree: a child names another parent");
        const Key first = height > 1 ? memory_.inner(child).block().key(0) : memory_.leaf(child).key_at(0);
        const uint32_t player = height > 1 ? memory_.inner(child).player[0] : memory_.leaf(child).player_at(0);
        if (inner.block().key(slot) != first || inner.player[slot] != player) {
          fail("tree: a separator is not the first key below it");
        }
        if (height == 1) continue;
        const Below sums = below(memory_.inner(child));
        if (inner.count(slot) != sums.entries) fail("tree: a node's count is wrong");
        if (inner.repeats[slot] != sums.repeats) fail("tree: a node's repeats are wrong");
      }
    }
    level = std::move(children);
  }
  uint32_t leaf = first_leaf_;
  for (const uint32_t id : level) {
    if (id != leaf) fail("tree: children and links differ");
    leaf = memory_.leaf(id).next;
  }
}

}  // namespace rankd
