// A counted B+ tree in standing order, with a map from players to leaves.
//
// Invariants (check() tests every one):
//   - leaves are linked in order; entries ascend strictly over all leaves by (score, tie, id);
//   - an inner node holds, for each child, the first key below it, the number of entries below it, and the number of
//     `repeats` among them: entries with the score of the entry before, over the whole tree. A prefix sum of counts is
//     a place; less the repeats, it is a dense rank. Where scores differ, repeats are never touched;
//   - a node stores its parent and a hint of its slot there: an insertion beside it moves the slot without writing to
//     the siblings, so a hint may be outdated; the next writer that uses it corrects it;
//   - the map leads from each player to its leaf and slot. A rank climbs from there without comparing keys, so a
//     million equal scores cost nothing extra;
//   - no leaf or inner node is empty, the root is an inner node (smaller boards are a single block, see board.hpp).
//
// Every operation touches O(log n) nodes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "block.hpp"
#include "interner.hpp"
#include "leaf.hpp"
#include "memory.hpp"
#include "node.hpp"
#include "tag_table.hpp"

namespace rankd {

using Players = Interner<Nothing>;

// A value of the tree's map: the player's leaf, and the slot in it.
inline constexpr uint32_t kSlotBits = 6;
inline constexpr uint32_t kLeavesMax = (uint32_t{1} << (32 - kSlotBits)) - 1;
static_assert(kLeafEntries < 1u << kSlotBits);
static_assert(kInnerChildren <= 256, "a leaf's hint of its slot is a byte");

// The memory that all trees share: the nodes of all boards, and the players' names.
struct TreeMemory {
  TreeMemory(Regions& regions, const Players& players)
      : regions(regions),
        players(players),
        leaves(regions, Purpose::entries, sizeof(Leaf), kLeavesMax, kRegionBytes),
        inners(regions, Purpose::entries, sizeof(Inner), kNone, kRegionBytes),
        segments(regions, Purpose::maps) {}

  Leaf& leaf(uint32_t id) const { return *reinterpret_cast<Leaf*>(leaves.at(id)); }
  Inner& inner(uint32_t id) const { return *reinterpret_cast<Inner*>(inners.at(id)); }

  Regions& regions;
  const Players& players;
  Pool leaves;
  Pool inners;
  SegmentPools segments;
};

// The location of an entry; nowhere when the leaf is kNone.
struct Spot {
  uint32_t leaf = kNone;
  uint32_t index = 0;  // its slot; in a small board's block, its place
};

// A prediction of the leaf that an entry will be inserted into; outdated once the tree has released a node.
struct InsertHint {
  uint32_t parent = kNone;  // before `find_parent`, possibly the node above the parent
  uint32_t leaf = kNone;
  uint32_t slot = 0;
  uint32_t nodes_gone = 0;  // the tree's count when the hint was begun
};

// How many entries stand before a place, and how many distinct scores they have.
struct Before {
  uint64_t entries = 0;
  uint64_t distinct = 0;
};

class Tree {
 public:
  explicit Tree(TreeMemory& memory) : memory_(memory), map_(memory.regions, memory.segments, Purpose::maps) {
    memory.regions.note_taken(sizeof(Tree), Purpose::boards);
  }
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  uint32_t size() const { return size_; }

  // Fills an empty tree: call append in standing order, at least kLeafEntries + 1 times, then finish. `players_end` is
  // above every player's number.
  void begin(uint32_t players_end, uint64_t entries);
  void append(const Key& key, uint32_t player);
  // Returns whether all players were different; if not, the tree must be discarded.
  bool finish();

  // `id` is the player's name; it decides among equal keys.
  void insert(const Key& key, uint32_t player, std::string_view id, const InsertHint& hint = {});
  void erase(Spot spot);
  // The same as erase and insert, with one change of the map.
  void move(Spot spot, const Key& key, std::string_view id, const InsertHint& hint = {});

  Spot locate(uint32_t player) const {
    const Spot spot = likely_spot(player);
    return spot.leaf != kNone && this->player(spot) == player ? spot : Spot{};  // the slot of another player
  }
  Key key(Spot spot) const { return memory_.leaf(spot.leaf).key(spot.index); }
  uint32_t player(Spot spot) const { return memory_.leaf(spot.leaf).player(spot.index); }
  Spot first() const { return first_of(first_leaf_); }
  Spot at(uint64_t place) const;
  // The next entry; nowhere at the end.
  Spot next(Spot spot) const {
    const Leaf& leaf = memory_.leaf(spot.leaf);
    const uint32_t at = leaf.place_of(spot.index) + 1;
    return at < leaf.size ? Spot{spot.leaf, leaf.order[at]} : first_of(leaf.next);
  }
  // Whether the entry before is in the same leaf and has another score.
  bool begins_score(Spot spot) const;

  // The entries of its leaf from there on, and where the leaf behind it begins.
  Run run(Spot spot) const {
    const Leaf& leaf = memory_.leaf(spot.leaf);
    return {leaf, leaf.place_of(spot.index)};
  }
  Spot next_leaf(Spot spot) const { return first_of(memory_.leaf(spot.leaf).next); }
  const TagTable<true>& map() const { return map_; }

  // The entries before an entry; here `distinct` counts its own score too, so it is the dense rank.
  Before before(Spot spot) const;
  uint64_t place(Spot spot) const;
  template <class Where>
  Before before(const Where& where) const;

  // Steps of many lookups, called in this order. Each returns the cache line to prefetch before the next step, null for
  // none, or prefetches lines on a page that is already translated.
  const void* map_line(uint32_t player) const { return map_.line(page_tag(player)); }
  // The spot of a present player; for an absent one, possibly the spot of another player.
  Spot likely_spot(uint32_t player) const {
    const uint32_t word = map_.likely(page_tag(player));
    return word == kNone ? Spot{} : Spot{word >> kSlotBits, word & ((1u << kSlotBits) - 1)};
  }
  const void* leaf_line(Spot spot) const { return spot.leaf == kNone ? nullptr : &memory_.leaf(spot.leaf); }
  void prefetch_entry(Spot spot) const;
  // From here on, the spot must be the player's own.
  const void* parent_line(Spot spot) const;
  void prefetch_place(Spot spot) const;
  void prefetch_count(Spot spot) const;
  // The same for the leaf that an entry with this score will go to; `prefetch_child` precedes `find_parent` and
  // `find_leaf`. With the hint, `insert` and `move` need no search.
  InsertHint begin_hint(uint64_t score_key) const;
  void prefetch_child(uint64_t score_key, const InsertHint& hint) const;
  const void* find_parent(uint64_t score_key, InsertHint& hint) const;
  const void* find_leaf(uint64_t score_key, InsertHint& hint) const;
  void prefetch_arrival(const InsertHint& hint) const;

  // Releases up to `most` leaves of an abandoned tree from the front; calls `gone(player)` for each of their entries.
  // Returns false when none were left.
  template <class Gone>
  bool dismantle(uint32_t most, Gone gone);

  // Throws what `fail(text)` throws when an invariant does not hold; adds up the nodes it saw.
  template <class Fail>
  void check(Fail fail, size_t& leaves, size_t& inners) const;

 private:
  struct Path {
    uint32_t node[kHeightMax];
    uint32_t slot[kHeightMax];
  };
  // The counts that a parent stores for a child.
  struct Below {
    uint64_t entries = 0;
    uint64_t repeats = 0;
  };

  static uint32_t word_of(Spot spot) { return spot.leaf << kSlotBits | spot.index; }
  Spot first_of(uint32_t leaf) const { return leaf == kNone ? Spot{} : Spot{leaf, memory_.leaf(leaf).order[0]}; }
  template <class Node>
  static uint32_t slot_of(const Inner& parent, const Node& node, uint32_t node_id) {
    return parent.slot_of(node_id, node.slot_hint);
  }
  template <class Node>
  static uint32_t corrected_slot(const Inner& parent, Node& node, uint32_t node_id) {
    const uint32_t slot = slot_of(parent, node, node_id);
    node.slot_hint = static_cast<decltype(node.slot_hint)>(slot);
    return slot;
  }
  // Calls visit(inner, slot) for each node above a leaf, from below.
  template <class Visit>
  void climb(uint32_t leaf_id, Visit visit) const {
    const Leaf& leaf = memory_.leaf(leaf_id);
    uint32_t node = leaf.parent;
    uint32_t slot = slot_of(memory_.inner(node), leaf, leaf_id);
    for (;;) {
      Inner& inner = memory_.inner(node);
      visit(inner, slot);
      if (inner.parent == kNone) return;
      slot = slot_of(memory_.inner(inner.parent), inner, node);
      node = inner.parent;
    }
  }
  template <class Where>
  uint32_t descend(const Where& where, Path& path) const;
  bool is_current(const InsertHint& hint) const { return hint.parent != kNone && hint.nodes_gone == nodes_gone_; }
  Spot attach(const Key& key, uint32_t player, std::string_view id, const InsertHint& hint);
  Spot attach_at_hint(const InsertHint& hint, const NewEntry<Players>& where, uint32_t player);
  void release_leaf(uint32_t leaf);
  void release_inner(uint32_t node);
  void detach(Spot spot);
  void add_along(uint32_t leaf, int32_t entries, int32_t repeats);
  void update_first_key(uint32_t leaf, const Key& key, uint32_t player);
  void split_leaf(uint32_t leaf, uint32_t keep);
  void make_room(uint32_t leaf, uint32_t at);
  void share(uint32_t parent, uint32_t left_slot, uint32_t keep);
  void place_entry(uint32_t leaf, uint32_t at, const Leaf& from, uint32_t from_at);
  void split_inner(uint32_t node);
  void insert_child(uint32_t node, uint32_t slot, uint32_t child, Below below);
  void erase_child(uint32_t node, uint32_t slot);
  void shrink_leaf(uint32_t leaf);
  void shrink_inner(uint32_t node);
  void join_leaves(uint32_t parent, uint32_t left_slot);
  void join_inners(uint32_t parent, uint32_t left_slot);
  void unlink(const Leaf& leaf);
  uint64_t last_score(uint32_t leaf) const;
  void set_parent(uint32_t level, uint32_t child, uint32_t parent, uint32_t slot);
  void copy_children(Inner& to, uint32_t at, const Inner& from, uint32_t from_at, uint32_t count);
  void adopt(uint32_t node, uint32_t from);
  static Below below(const Inner& node) { return {node.count_before(node.size), node.repeats_before(node.size)}; }
  bool fill_map();

  TreeMemory& memory_;
  TagTable<true> map_;
  uint32_t root_ = kNone;
  uint32_t height_ = 0;  // levels of inner nodes
  uint32_t first_leaf_ = kNone;
  uint32_t last_leaf_ = kNone;
  uint32_t size_ = 0;
  uint32_t nodes_gone_ = 0;
};

}  // namespace rankd

#include "tree_inline.hpp"
