#include "tree.hpp"

#include <utility>

namespace rankd {

namespace {

constexpr uint32_t kLeafLeast = kLeafEntries / 4;
// A load leaves some room: full leaves would all split soon after it.
constexpr uint32_t kLeafLoaded = kLeafEntries * 9 / 10;
constexpr uint32_t kInnerLoaded = kInnerChildren * 9 / 10;

}  // namespace

Tree::~Tree() {
  while (first_leaf_ != kNone && dismantle(kNone, [](uint32_t) {})) {
  }
  memory_.regions.note_given(sizeof(Tree), Purpose::boards);
}

void Tree::insert(const Key& key, uint32_t player, std::string_view id, const InsertHint& hint) {
  map_.insert(page_tag(player), word_of(attach(key, player, id, hint)));
  ++size_;
}

void Tree::erase(Spot spot) {
  const uint32_t gone = player(spot);
  map_.erase(page_tag(gone), word_of(spot));
  detach(spot);
  --size_;
}

void Tree::move(Spot spot, const Key& key, std::string_view id, const InsertHint& hint) {
  const uint32_t moved = player(spot);
  detach(spot);
  map_.assign(page_tag(moved), word_of(attach(key, moved, id, hint)));
}

// Puts an entry into its leaf; the caller updates the map.
Spot Tree::attach(const Key& key, uint32_t player, std::string_view id, const InsertHint& hint) {
  const NewEntry<Players> where{key, id, memory_.players};
  if (const Spot spot = attach_at_hint(hint, where, player); spot.leaf != kNone) return spot;
  Path path;
  uint32_t leaf_id = kNone;
  uint32_t at = 0;
  for (;;) {
    leaf_id = descend(where, path);
    const Leaf& found = memory_.leaf(leaf_id);
    at = position(found, found.size, where);
    if (found.size < kLeafEntries) break;
    make_room(leaf_id, at);
  }

  Leaf& leaf = memory_.leaf(leaf_id);
  const bool has_before = at > 0 || leaf.previous != kNone;
  const uint64_t before = at > 0 ? leaf.score_at(at - 1) : has_before ? last_score(leaf.previous) : 0;
  int32_t repeats = 1;
  if (!has_before || before != key.score) {
    // If the next entry has the same score, it becomes a repeat.
    repeats = at < leaf.size && leaf.score_at(at) == key.score ? 1 : 0;
    if (at == leaf.size && leaf.next != kNone && memory_.leaf(leaf.next).score_at(0) == key.score) {
      add_along(leaf.next, 0, 1);
    }
  }
  const uint32_t slot = leaf.insert(at, key, player);
  leaf.has_repeats = leaf.has_repeats || repeats != 0;
  for (uint32_t level = 1; level <= height_; ++level) {
    Inner& inner = memory_.inner(path.node[level]);
    inner.add_count(path.slot[level], 1);
    if (repeats != 0) ++inner.repeats[path.slot[level]];
  }
  if (at == 0) update_first_key(leaf_id, key, player);
  return {leaf_id, slot};
}

// The same without a search, if the hint is current and its leaf has room and scores on both sides of the entry's;
// otherwise changes nothing and returns nowhere.
Spot Tree::attach_at_hint(const InsertHint& hint, const NewEntry<Players>& where, uint32_t player) {
  if (hint.leaf == kNone || !is_current(hint)) return {};
  Leaf& leaf = memory_.leaf(hint.leaf);
  const uint64_t score = where.key.score;
  if (leaf.size == kLeafEntries || score <= leaf.score_at(0) || score >= leaf.score_at(leaf.size - 1u)) return {};
  const uint32_t at = position(leaf, leaf.size, where);
  const bool repeats = leaf.score_at(at - 1) == score || leaf.score_at(at) == score;
  const uint32_t slot = leaf.insert(at, where.key, player);
  leaf.slot_hint = static_cast<uint8_t>(hint.slot);
  add_along(hint.leaf, 1, repeats ? 1 : 0);
  return {hint.leaf, slot};
}

// Takes an entry out of its leaf; the caller updates the map.
void Tree::detach(Spot spot) {
  Leaf& leaf = memory_.leaf(spot.leaf);
  const uint32_t at = leaf.place_of(spot.index);
  int32_t repeats = 0;
  if (leaf.has_repeats || at + 1 == leaf.size) {  // else neither this entry nor the next one is a repeat
    const uint64_t score = leaf.score[spot.index];
    const bool has_before = at > 0 || leaf.previous != kNone;
    const uint64_t before = at > 0 ? leaf.score_at(at - 1) : has_before ? last_score(leaf.previous) : 0;
    repeats = -1;
    if (!has_before || before != score) {
      // If the next entry has the same score, it is no longer a repeat.
      repeats = at + 1 < leaf.size && leaf.score_at(at + 1) == score ? -1 : 0;
      if (at + 1 == leaf.size && leaf.next != kNone && memory_.leaf(leaf.next).score_at(0) == score) {
        add_along(leaf.next, 0, -1);
      }
    }
  }
  leaf.erase(at);
  add_along(spot.leaf, -1, repeats);
  if (at == 0 && leaf.size > 0) update_first_key(spot.leaf, leaf.key_at(0), leaf.player_at(0));
  if (leaf.size < kLeafLeast) shrink_leaf(spot.leaf);
}

uint64_t Tree::last_score(uint32_t leaf_id) const {
  const Leaf& leaf = memory_.leaf(leaf_id);
  return leaf.score_at(leaf.size - 1u);
}

void Tree::add_along(uint32_t leaf_id, int32_t entries, int32_t repeats) {
  Leaf& leaf = memory_.leaf(leaf_id);
  uint32_t slot = corrected_slot(memory_.inner(leaf.parent), leaf, leaf_id);
  for (uint32_t node = leaf.parent;;) {
    Inner& inner = memory_.inner(node);
    inner.add_count(slot, entries);
    if (repeats != 0) {
      inner.repeats[slot] += static_cast<uint32_t>(repeats);
      if (inner.level == 1) leaf.has_repeats = inner.repeats[slot] != 0;
    }
    if (inner.parent == kNone) return;
    slot = corrected_slot(memory_.inner(inner.parent), inner, node);
    node = inner.parent;
  }
}

void Tree::update_first_key(uint32_t leaf_id, const Key& key, uint32_t player) {
  bool is_first = true;
  climb(leaf_id, [&](Inner& inner, uint32_t slot) {
    if (is_first) {
      inner.block().set(slot, key, player);
      inner.take_samples();
    }
    is_first = is_first && slot == 0;
  });
}

// ---------------------------------------------------------------------------------------------------- reading

Spot Tree::at(uint64_t place) const {
  uint32_t node = root_;
  for (uint32_t level = height_; level > 0; --level) {
    const Inner& inner = memory_.inner(node);
    uint32_t slot = 0;
    while (place >= inner.count(slot)) place -= inner.count(slot++);
    node = inner.child(slot);
  }
  return {node, memory_.leaf(node).order[place]};
}

bool Tree::begins_score(Spot spot) const {
  const Leaf& leaf = memory_.leaf(spot.leaf);
  const uint32_t at = leaf.place_of(spot.index);
  return at > 0 && (!leaf.has_repeats || leaf.score_at(at - 1) != leaf.score[spot.index]);
}

uint64_t Tree::place(Spot spot) const {
  uint64_t place = memory_.leaf(spot.leaf).place_of(spot.index);
  climb(spot.leaf, [&](const Inner& inner, uint32_t slot) { place += inner.count_before(slot); });
  return place;
}

Before Tree::before(Spot spot) const {
  const Leaf& leaf = memory_.leaf(spot.leaf);
  const uint32_t at = leaf.place_of(spot.index);
  uint64_t entries = at;
  uint64_t repeats = 0;
  climb(spot.leaf, [&](const Inner& inner, uint32_t slot) {
    entries += inner.count_before(slot);
    repeats += inner.repeats_before(slot);
    if (inner.level == 1) repeats += repeats_within(leaf, at + 1, inner.repeats[slot]);
  });
  return {entries, entries + 1 - repeats};
}

// ---------------------------------------------------------------------------------------------------- loading

void Tree::begin(uint32_t players_end, uint64_t entries) {
  // If most players have an entry, the map's dense pages are made at once.
  if (entries * kPageSlots >= uint64_t{players_end} * kDenseLeast) map_.reserve_pages(players_end);
}

void Tree::append(const Key& key, uint32_t player) {
  if (last_leaf_ == kNone || memory_.leaf(last_leaf_).size == kLeafLoaded) {
    const uint32_t id = memory_.leaves.allocate();
    Leaf& leaf = memory_.leaf(id);
    leaf.parent = leaf.next = kNone;
    leaf.previous = last_leaf_;
    leaf.empty();
    (last_leaf_ == kNone ? first_leaf_ : memory_.leaf(last_leaf_).next) = id;
    last_leaf_ = id;
  }
  Leaf& leaf = memory_.leaf(last_leaf_);
  leaf.insert(leaf.size, key, player);
  ++size_;
}

bool Tree::finish() {
  if (!fill_map()) return false;
  struct Child {
    uint32_t id;
    Below below;
  };
  std::vector<Child> children;
  for (uint32_t id = first_leaf_; id != kNone; id = memory_.leaf(id).next) {
    Leaf& leaf = memory_.leaf(id);
    const bool continues = leaf.previous != kNone && last_score(leaf.previous) == leaf.score_at(0);
    const uint32_t repeats = leaf.size - 1u - score_changes(leaf, leaf.size) + (continues ? 1 : 0);
    leaf.has_repeats = repeats > 0;
    children.push_back({id, {leaf.size, repeats}});
  }
  do {
    ++height_;
    std::vector<Child> nodes;
    for (size_t i = 0; i < children.size(); ++i) {
      if (i % kInnerLoaded == 0) {
        const uint32_t id = memory_.inners.allocate();
        Inner& node = memory_.inner(id);
        node.parent = kNone;
        node.size = 0;
        node.level = height_;
        nodes.push_back({id, {}});
      }
      insert_child(nodes.back().id, memory_.inner(nodes.back().id).size, children[i].id, children[i].below);
      nodes.back().below.entries += children[i].below.entries;
      nodes.back().below.repeats += children[i].below.repeats;
    }
    children = std::move(nodes);
  } while (children.size() > 1);
  root_ = children.front().id;
  return true;
}

bool Tree::fill_map() {
  const bool has_pages = map_.has_segments();
  for (uint32_t id = first_leaf_; id != kNone; id = memory_.leaf(id).next) {
    const Leaf& leaf = memory_.leaf(id);
    if (leaf.next != kNone) {
      const Leaf& ahead = memory_.leaf(leaf.next);
      for (uint32_t i = 0; i < ahead.size; ++i) map_.prefetch_tag(page_tag(ahead.player_at(i)));
    }
    for (uint32_t i = 0; i < leaf.size; ++i) {
      // With dense pages, `settle_pages` detects duplicates without a lookup for each player.
      if (!has_pages && map_.find(page_tag(leaf.player_at(i))) != kNone) return false;
      map_.insert(page_tag(leaf.player_at(i)), word_of({id, leaf.order[i]}));
    }
  }
  return !has_pages || map_.settle_pages();
}

}  // namespace rankd
