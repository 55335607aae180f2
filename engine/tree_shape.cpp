// Rebalancing: nodes that get too full share, split or grow a level; nodes that get too empty are joined.
#include "tree.hpp"

#include <cstring>

namespace rankd {

namespace {

constexpr uint32_t kLeafShares = kLeafEntries * 3 / 4;  // a leaf with more entries takes none from its full neighbour
constexpr uint32_t kLeafJoined = kLeafEntries * 3 / 4;
constexpr uint32_t kInnerLeast = kInnerChildren / 4;
constexpr uint32_t kInnerJoined = kInnerChildren * 3 / 4;
// At the ends of the order scores often arrive in order; an even split would leave half-full leaves behind.
constexpr uint32_t kEdgeEntries = 4;

}  // namespace

// ---------------------------------------------------------------------------------------------------- growing

void Tree::split_leaf(uint32_t left_id, uint32_t keep) {
  if (memory_.inner(memory_.leaf(left_id).parent).size == kInnerChildren) split_inner(memory_.leaf(left_id).parent);
  const uint32_t right_id = memory_.leaves.allocate();
  Leaf& left = memory_.leaf(left_id);
  Leaf& right = memory_.leaf(right_id);
  Inner& parent = memory_.inner(left.parent);
  const uint32_t slot = slot_of(parent, left, left_id);
  const uint32_t left_repeats = repeats_within(left, keep, parent.repeats[slot]);

  // Every entry gets a new slot, so that the slots in use lie in few cache lines.
  const Leaf whole = left;
  for (uint32_t i = 0; i < whole.size; ++i) map_.prefetch_tag(page_tag(whole.player_at(i)));
  left.empty();
  right.empty();
  for (uint32_t i = 0; i < keep; ++i) place_entry(left_id, i, whole, i);
  for (uint32_t i = keep; i < whole.size; ++i) place_entry(right_id, i - keep, whole, i);
  left.has_repeats = left_repeats > 0;
  right.has_repeats = parent.repeats[slot] > left_repeats;
  right.parent = left.parent;
  right.previous = left_id;
  right.next = left.next;
  (left.next == kNone ? last_leaf_ : memory_.leaf(left.next).previous) = right_id;
  left.next = right_id;

  const Below right_below{right.size, parent.repeats[slot] - left_repeats};
  parent.set_count(slot, keep);
  parent.repeats[slot] = left_repeats;
  insert_child(left.parent, slot + 1, right_id, right_below);
}

// Makes room in a full leaf for an entry at a place; the entry may belong to another leaf afterwards. A neighbour with
// room takes some entries: so leaves stay fuller than if each was split.
void Tree::make_room(uint32_t full_id, uint32_t at) {
  const Leaf& full = memory_.leaf(full_id);
  const Inner& parent = memory_.inner(full.parent);
  const uint32_t slot = slot_of(parent, full, full_id);
  if (slot + 1 < parent.size && parent.count(slot + 1) <= kLeafShares) {
    share(full.parent, slot, full.size - (full.size - parent.count(slot + 1)) / 2);
  } else if (slot > 0 && parent.count(slot - 1) <= kLeafShares) {
    share(full.parent, slot - 1, parent.count(slot - 1) + (full.size - parent.count(slot - 1)) / 2);
  } else {
    const bool at_front = full.previous == kNone && at == 0;
    const bool at_back = full.next == kNone && at == full.size;
    split_leaf(full_id, at_front ? kEdgeEntries : at_back ? kLeafEntries - kEdgeEntries : kLeafEntries / 2);
  }
}

// Moves entries between two neighbouring leaves until the left one has `keep`.
void Tree::share(uint32_t parent_id, uint32_t left_slot, uint32_t keep) {
  Inner& parent = memory_.inner(parent_id);
  const uint32_t left_id = parent.child(left_slot);
  const uint32_t right_id = parent.child(left_slot + 1);
  Leaf& left = memory_.leaf(left_id);
  Leaf& right = memory_.leaf(right_id);
  const uint32_t before = left.size;
  int32_t repeats = 0;  // gained by the left leaf
  if (before > keep) {
    for (uint32_t i = keep; i < before; ++i) map_.prefetch_tag(page_tag(left.player_at(i)));
    repeats = static_cast<int32_t>(repeats_within(left, keep, parent.repeats[left_slot]) - parent.repeats[left_slot]);
    while (left.size > keep) {
      place_entry(right_id, 0, left, left.size - 1u);
      left.erase(left.size - 1u);
    }
  } else {
    for (uint32_t i = 0; i < keep - before; ++i) map_.prefetch_tag(page_tag(right.player_at(i)));
    repeats = static_cast<int32_t>(repeats_within(right, keep - before, parent.repeats[left_slot + 1]));
    while (left.size < keep) {
      place_entry(left_id, left.size, right, 0);
      right.erase(0);
    }
  }
  parent.set_count(left_slot, left.size);
  parent.set_count(left_slot + 1, right.size);
  parent.repeats[left_slot] += static_cast<uint32_t>(repeats);
  parent.repeats[left_slot + 1] -= static_cast<uint32_t>(repeats);
  left.has_repeats = parent.repeats[left_slot] != 0;
  right.has_repeats = parent.repeats[left_slot + 1] != 0;
  parent.block().set(left_slot + 1, right.key_at(0), right.player_at(0));  // never the first: no node above changes
  parent.take_samples();
}

// Copies the entry at a place of another leaf into a leaf, and updates the map.
void Tree::place_entry(uint32_t leaf_id, uint32_t at, const Leaf& from, uint32_t from_at) {
  const uint32_t player = from.player_at(from_at);
  const uint32_t slot = memory_.leaf(leaf_id).insert(at, from.key_at(from_at), player);
  map_.assign(page_tag(player), word_of({leaf_id, slot}));
}

// Splits a full node; its parent is given room first, so that counts are right at every step.
void Tree::split_inner(uint32_t left_id) {
  if (left_id == root_) {
    const uint32_t root = memory_.inners.allocate();
    Inner& node = memory_.inner(root);
    node.parent = kNone;
    node.size = 0;
    node.level = ++height_;
    root_ = root;
    insert_child(root, 0, left_id, below(memory_.inner(left_id)));
  } else if (memory_.inner(memory_.inner(left_id).parent).size == kInnerChildren) {
    split_inner(memory_.inner(left_id).parent);
  }
  const uint32_t right_id = memory_.inners.allocate();
  Inner& left = memory_.inner(left_id);
  Inner& right = memory_.inner(right_id);
  right.parent = left.parent;
  right.level = left.level;
  right.size = left.size / 2;
  left.size -= right.size;
  copy_children(right, 0, left, left.size, right.size);
  left.take_samples();
  right.take_samples();
  adopt(right_id, 0);

  Inner& parent = memory_.inner(left.parent);
  const uint32_t slot = slot_of(parent, left, left_id);
  const Below left_below = below(left);
  parent.set_count(slot, left_below.entries);
  parent.repeats[slot] = static_cast<uint32_t>(left_below.repeats);
  insert_child(left.parent, slot + 1, right_id, below(right));
}

// The node must have room; its own count in its parent already includes the child.
void Tree::insert_child(uint32_t node_id, uint32_t slot, uint32_t child, Below below) {
  Inner& node = memory_.inner(node_id);
  copy_children(node, slot + 1, node, slot, node.size - slot);
  ++node.size;
  if (node.level > 1) {
    Inner& first = memory_.inner(child);
    node.block().set(slot, first.block().key(0), first.player[0]);
  } else {
    const Leaf& first = memory_.leaf(child);
    node.block().set(slot, first.key_at(0), first.player_at(0));
  }
  node.take_samples();
  node.link[slot] = below.entries << 32 | child;
  node.repeats[slot] = static_cast<uint32_t>(below.repeats);
  set_parent(node.level, child, node_id, slot);
}

// -------------------------------------------------------------------------------------------------- shrinking

void Tree::shrink_leaf(uint32_t leaf_id) {
  Leaf& leaf = memory_.leaf(leaf_id);
  const uint32_t parent_id = leaf.parent;
  const Inner& parent = memory_.inner(parent_id);
  const uint32_t slot = slot_of(parent, leaf, leaf_id);
  if (leaf.size == 0) {
    unlink(leaf);
    release_leaf(leaf_id);
    erase_child(parent_id, slot);
  } else if (slot + 1 < parent.size && leaf.size + parent.count(slot + 1) <= kLeafJoined) {
    join_leaves(parent_id, slot);
  } else if (slot > 0 && leaf.size + parent.count(slot - 1) <= kLeafJoined) {
    join_leaves(parent_id, slot - 1);
  }
}

void Tree::join_leaves(uint32_t parent_id, uint32_t left_slot) {
  Inner& parent = memory_.inner(parent_id);
  const uint32_t left_id = parent.child(left_slot);
  const uint32_t right_id = parent.child(left_slot + 1);
  Leaf& left = memory_.leaf(left_id);
  Leaf& right = memory_.leaf(right_id);
  for (uint32_t i = 0; i < right.size; ++i) map_.prefetch_tag(page_tag(right.player_at(i)));
  for (uint32_t i = 0; i < right.size; ++i) place_entry(left_id, left.size, right, i);
  left.has_repeats = left.has_repeats || right.has_repeats;
  parent.add_count(left_slot, parent.count(left_slot + 1));
  parent.repeats[left_slot] += parent.repeats[left_slot + 1];
  unlink(right);
  release_leaf(right_id);
  erase_child(parent_id, left_slot + 1);
}

void Tree::unlink(const Leaf& leaf) {
  (leaf.previous == kNone ? first_leaf_ : memory_.leaf(leaf.previous).next) = leaf.next;
  (leaf.next == kNone ? last_leaf_ : memory_.leaf(leaf.next).previous) = leaf.previous;
}

// The child's count is zero, or already counted in a sibling.
void Tree::erase_child(uint32_t node_id, uint32_t slot) {
  Inner& node = memory_.inner(node_id);
  copy_children(node, slot, node, slot + 1, node.size - slot - 1);
  --node.size;
  node.take_samples();
  if (node_id == root_) {
    if (node.size == 1 && node.level > 1) {
      root_ = node.child(0);
      --height_;
      memory_.inner(root_).parent = kNone;
      release_inner(node_id);
    }
    return;
  }
  if (slot == 0 && node.size > 0) {
    uint32_t leaf = node.child(0);
    for (uint32_t level = node.level; level > 1; --level) leaf = memory_.inner(leaf).child(0);
    update_first_key(leaf, node.block().key(0), node.player[0]);
  }
  if (node.size < kInnerLeast) shrink_inner(node_id);
}

void Tree::shrink_inner(uint32_t node_id) {
  const uint32_t parent_id = memory_.inner(node_id).parent;
  const Inner& parent = memory_.inner(parent_id);
  const uint32_t size = memory_.inner(node_id).size;
  const uint32_t slot = slot_of(parent, memory_.inner(node_id), node_id);
  const auto joined = [&](uint32_t neighbour) { return size + memory_.inner(parent.child(neighbour)).size; };
  if (size == 0) {
    release_inner(node_id);
    erase_child(parent_id, slot);
  } else if (slot + 1 < parent.size && joined(slot + 1) <= kInnerJoined) {
    join_inners(parent_id, slot);
  } else if (slot > 0 && joined(slot - 1) <= kInnerJoined) {
    join_inners(parent_id, slot - 1);
  }
}

void Tree::join_inners(uint32_t parent_id, uint32_t left_slot) {
  Inner& parent = memory_.inner(parent_id);
  const uint32_t left_id = parent.child(left_slot);
  const uint32_t right_id = parent.child(left_slot + 1);
  Inner& left = memory_.inner(left_id);
  const Inner& right = memory_.inner(right_id);
  const uint32_t joined_at = left.size;
  copy_children(left, left.size, right, 0, right.size);
  left.size += right.size;
  left.take_samples();
  adopt(left_id, joined_at);
  parent.add_count(left_slot, parent.count(left_slot + 1));
  parent.repeats[left_slot] += parent.repeats[left_slot + 1];
  release_inner(right_id);
  erase_child(parent_id, left_slot + 1);
}

// ------------------------------------------------------------------------------------------------------ nodes

void Tree::release_leaf(uint32_t leaf) {
  memory_.leaves.release(leaf);
  ++nodes_gone_;
}

void Tree::release_inner(uint32_t node) {
  memory_.inners.release(node);
  ++nodes_gone_;
}

void Tree::set_parent(uint32_t level, uint32_t child, uint32_t parent, uint32_t slot) {
  if (level > 1) {
    memory_.inner(child).parent = parent;
    memory_.inner(child).slot_hint = slot;
  } else {
    memory_.leaf(child).parent = parent;
    memory_.leaf(child).slot_hint = static_cast<uint8_t>(slot);
  }
}

void Tree::copy_children(Inner& to, uint32_t at, const Inner& from, uint32_t from_at, uint32_t count) {
  to.block().copy(at, const_cast<Inner&>(from).block(), from_at, count);
  std::memmove(to.link + at, from.link + from_at, count * sizeof(uint64_t));
  std::memmove(to.repeats + at, from.repeats + from_at, count * sizeof(uint32_t));
}

void Tree::adopt(uint32_t node_id, uint32_t from) {
  const Inner& node = memory_.inner(node_id);
  for (uint32_t i = from; i < node.size; ++i) set_parent(node.level, node.child(i), node_id, i);
}

}  // namespace rankd
