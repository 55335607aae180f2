// One instance's standings: a single sorted block while small, a tree when large.
//
// A block needs no map: its few players are found by a scan. So ten million boards of thirty players cost little more
// than their entries.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "block.hpp"
#include "families.hpp"
#include "hash.hpp"
#include "order.hpp"
#include "tree.hpp"

namespace rankd {

inline constexpr std::array<uint8_t, 12> kBlockCapacities{2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
inline constexpr uint32_t kBlockEntriesMax = kBlockCapacities.back();
inline constexpr uint32_t kTreeEntriesLeast = kBlockEntriesMax / 2;  // below this a tree becomes a block again
static_assert(kTreeEntriesLeast > kLeafEntries, "a tree has at least two leaves");

// The memory that all boards share.
struct BoardMemory {
  BoardMemory(Regions& regions, const Players& players) : players(players), trees(regions, players) {
    for (size_t i = 0; i < kBlockCapacities.size(); ++i) {
      blocks[i] = std::make_unique<Pool>(regions, Purpose::entries, block_bytes(kBlockCapacities[i]));
    }
  }
  const Players& players;
  TreeMemory trees;
  std::array<std::unique_ptr<Pool>, kBlockCapacities.size()> blocks;
};

struct LoadedEntry {
  Key key;
  uint32_t player;
  std::string_view id;
};

class Board {
 public:
  Board() = default;
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  uint32_t size() const { return size_; }
  Direction direction() const { return direction_; }
  const Digest& digest() const { return digest_; }
  const Tree* tree() const { return tree_.get(); }

  // Only while the board is empty.
  void set_direction(Direction direction) { direction_ = direction; }

  // The family of the board, null for none, and the board's index in it.
  Family* family() const { return family_; }
  uint32_t family_place() const { return family_place_; }
  void set_family(Family* family, uint32_t place) {
    family_ = family;
    family_place_ = place;
  }

  // Whether the engine has a capture of it.
  bool is_captured() const { return is_captured_; }
  void set_captured(bool is_captured) { is_captured_ = is_captured; }

  // Fetches what `locate` reads of a small board.
  void prefetch(const BoardMemory& memory) const;
  Spot locate(const BoardMemory& memory, uint32_t player) const;
  // Calls visit(index, spot) for each of the players that has an entry, overlapping the memory accesses.
  template <class Visit>
  void locate_many(const BoardMemory& memory, const std::vector<uint32_t>& players, Visit visit) const;
  Key key(const BoardMemory& memory, Spot spot) const;
  Kept kept(const BoardMemory& memory, Spot spot) const { return kept_of(direction_, key(memory, spot)); }
  uint32_t player(const BoardMemory& memory, Spot spot) const;
  Spot at(uint64_t place) const { return tree_ ? tree_->at(place) : Spot{0, static_cast<uint32_t>(place)}; }
  Spot next(Spot spot) const;
  uint64_t place(Spot spot) const { return tree_ ? tree_->place(spot) : spot.index; }
  // The run of entries from the spot on; `behind` becomes the start of the next run, nowhere at the end.
  Run run(const BoardMemory& memory, Spot spot, Spot& behind) const;

  // How many stand before, and how many distinct scores; for an entry's own spot, `distinct` is its dense rank.
  Before before(const BoardMemory& memory, Spot spot) const;
  template <class Where>
  Before before(const BoardMemory& memory, const Where& where) const;
  // How many have a strictly better score than the entry at this place.
  uint64_t better(const BoardMemory& memory, Spot spot, uint64_t place) const;
  uint64_t rank(const BoardMemory& memory, Spot spot, Ranking ranking) const;

  // Sets a player's entry. `spot` is the current entry, which has `old`, or nowhere; `hint` may say where the new one
  // goes.
  void put(BoardMemory& memory, Spot spot, uint32_t player, std::string_view id, const Kept& old, const Kept& kept,
           const InsertHint& hint = {});
  void take(BoardMemory& memory, Spot spot, std::string_view id);

  // Empties the board at once. Returns its tree, to be dismantled in small steps; without one, calls `gone(player)` for
  // each entry.
  template <class Gone>
  std::unique_ptr<Tree> clear(BoardMemory& memory, Gone gone);
  // Gives all entries to an empty board.
  void hand_over(Board& other);

  // Fills an empty board in standing order with `count` entries from next() -> LoadedEntry. Returns whether all players
  // were different; if not, the board must be discarded.
  template <class Next>
  bool load(BoardMemory& memory, uint32_t count, uint32_t players_end, Next next);

  // Throws what `fail(text)` throws when an invariant does not hold.
  template <class Fail>
  void check(const BoardMemory& memory, Fail fail, size_t& leaves, size_t& inners,
             std::array<size_t, kBlockCapacities.size()>& blocks) const;

 private:
  Block block(const BoardMemory& memory) const {
    return block_at(memory.blocks[block_kind_]->at(block_), kBlockCapacities[block_kind_]);
  }
  void resize_block(BoardMemory& memory, uint32_t kind);
  void free_block(BoardMemory& memory);
  void become_tree(BoardMemory& memory);
  void become_block(BoardMemory& memory);

  Digest digest_;
  std::unique_ptr<Tree> tree_;
  Family* family_ = nullptr;
  uint32_t block_ = kNone;
  uint32_t size_ = 0;
  uint32_t family_place_ = 0;
  Direction direction_;
  uint8_t block_kind_ = 0;
  bool is_captured_ = false;
};
static_assert(sizeof(Board) <= 48);

inline uint32_t block_kind_for(uint32_t entries) {
  uint32_t kind = 0;
  while (kBlockCapacities[kind] < entries) ++kind;
  return kind;
}

inline Before before_in_block(const Block& block, uint32_t end) {
  return {end, end == 0 ? 0 : 1 + uint64_t{score_changes(block, end)}};
}

inline void Board::prefetch(const BoardMemory& memory) const {
  constexpr uint32_t kPlayersPerLine = 64 / sizeof(uint32_t);
  if (block_ == kNone) return;
  const Block small = block(memory);
  for (uint32_t i = 0; i < size_; i += kPlayersPerLine) __builtin_prefetch(small.player + i);
}

template <class Visit>
void Board::locate_many(const BoardMemory& memory, const std::vector<uint32_t>& players, Visit visit) const {
  if (tree_ == nullptr) {
    for (size_t i = 0; i < players.size(); ++i) {
      const Spot spot = players[i] == kNone ? Spot{} : locate(memory, players[i]);
      if (spot.leaf != kNone) visit(i, spot);
    }
    return;
  }
  constexpr size_t kGroupItems = 8;
  const size_t count = players.size();
  std::vector<Spot> spots(count);
  PrefetchGroup<kGroupItems> maps(count);
  PrefetchGroup<kGroupItems> leaves(count);
  PrefetchGroup<kGroupItems> parents(count);
  staggered<kGroupItems>(
      count, [&](size_t i) { maps.add(players[i] == kNone ? nullptr : tree_->map_line(players[i])); },
      [&](size_t i) {
        if (players[i] != kNone) spots[i] = tree_->likely_spot(players[i]);
        leaves.add(tree_->leaf_line(spots[i]));
      },
      [&](size_t i) { tree_->prefetch_entry(spots[i]); },
      [&](size_t i) {
        if (spots[i].leaf != kNone) spots[i] = tree_->locate(players[i]);
        parents.add(tree_->parent_line(spots[i]));
      },
      [&](size_t i) { tree_->prefetch_place(spots[i]); },
      [&](size_t i) {
        if (spots[i].leaf != kNone) visit(i, spots[i]);
      });
}

template <class Where>
Before Board::before(const BoardMemory& memory, const Where& where) const {
  if (size_ == 0) return {};
  if (tree_) return tree_->before(where);
  return before_in_block(block(memory), position(block(memory), size_, where));
}

template <class Gone>
std::unique_ptr<Tree> Board::clear(BoardMemory& memory, Gone gone) {
  if (block_ != kNone) {
    for (uint32_t i = 0; i < size_; ++i) gone(block(memory).player[i]);
    free_block(memory);
  }
  size_ = 0;
  digest_ = {};
  return std::move(tree_);
}

template <class Next>
bool Board::load(BoardMemory& memory, uint32_t count, uint32_t players_end, Next next) {
  if (count > kBlockEntriesMax) {
    tree_ = std::make_unique<Tree>(memory.trees);
    tree_->begin(players_end, count);
  } else {
    resize_block(memory, block_kind_for(count));
  }
  for (; size_ < count; ++size_) {
    const auto [key, player, id] = next();
    const Kept kept = kept_of(direction_, key);
    digest_ += entry_digest(kept.score, kept.tie, id);
    if (tree_) {
      tree_->append(key, player);
    } else {
      if (index_of(block(memory).player, size_, player) < size_) return false;
      block(memory).set(size_, key, player);
    }
  }
  return tree_ == nullptr || tree_->finish();
}

template <class Fail>
void Board::check(const BoardMemory& memory, Fail fail, size_t& leaves, size_t& inners,
                  std::array<size_t, kBlockCapacities.size()>& blocks) const {
  if (size_ == 0) fail("board: an empty board is kept");
  if ((tree_ != nullptr) == (block_ != kNone)) fail("board: neither a block nor a tree, or both");
  if (tree_) {
    tree_->check(fail, leaves, inners);
    if (tree_->size() != size_) fail("board: the tree has another size");
  } else {
    ++blocks[block_kind_];
    if (size_ > kBlockCapacities[block_kind_]) fail("board: the block is too small");
  }
  Digest digest;
  uint64_t place = 0;
  std::string_view id_before;
  Key key_before;
  for (Spot spot = at(0); spot.leaf != kNone; spot = next(spot), ++place) {
    const Key key = this->key(memory, spot);
    const std::string_view id = memory.players.name(player(memory, spot));
    if (key.tie > kTieFieldMax) fail("board: a tie field is too large");
    const bool ascends = key_before.score != key.score ? key_before.score < key.score
                         : key_before.tie != key.tie   ? key_before.tie < key.tie
                                                       : id_before < id;
    if (place > 0 && !ascends) fail("board: entries are out of order");
    const Kept kept = kept_of(direction_, key);
    digest += entry_digest(kept.score, kept.tie, id);
    key_before = key;
    id_before = id;
  }
  if (place != size_) fail("board: the size is wrong");
  if (digest != digest_) fail("board: the digest is wrong");
}

}  // namespace rankd
