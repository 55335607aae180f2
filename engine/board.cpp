#include "board.hpp"

#include <utility>

namespace rankd {

Spot Board::locate(const BoardMemory& memory, uint32_t player) const {
  if (tree_) return tree_->locate(player);
  if (size_ == 0) return {};
  const uint32_t index = index_of(block(memory).player, size_, player);
  return index < size_ ? Spot{0, index} : Spot{};
}

Key Board::key(const BoardMemory& memory, Spot spot) const {
  return tree_ ? tree_->key(spot) : block(memory).key(spot.index);
}

uint32_t Board::player(const BoardMemory& memory, Spot spot) const {
  return tree_ ? tree_->player(spot) : block(memory).player[spot.index];
}

Spot Board::next(Spot spot) const {
  if (tree_) return tree_->next(spot);
  return spot.index + 1 < size_ ? Spot{0, spot.index + 1} : Spot{};
}

Before Board::before(const BoardMemory& memory, Spot spot) const {
  if (tree_) return tree_->before(spot);
  return {spot.index, before_in_block(block(memory), spot.index + 1).distinct};
}

uint64_t Board::better(const BoardMemory& memory, Spot spot, uint64_t place) const {
  if (place == 0) return 0;
  const uint64_t score = key(memory, spot).score;
  // Most entries differ from the one before them, which is nearly always in the same leaf.
  if (tree_ ? tree_->begins_score(spot) : block(memory).score[spot.index - 1] != score) return place;
  return before(memory, AtScore{{score, 0}}).entries;
}

uint64_t Board::rank(const BoardMemory& memory, Spot spot, Ranking ranking) const {
  switch (ranking) {
    case Ranking::ordinal:
      break;
    case Ranking::competition:
      return better(memory, spot, place(spot)) + 1;
    case Ranking::dense:
      return before(memory, spot).distinct;
  }
  return place(spot) + 1;
}

void Board::put(BoardMemory& memory, Spot spot, uint32_t player, std::string_view id, const Kept& old,
                const Kept& kept, const InsertHint& hint) {
  const Key key = key_of(direction_, kept);
  if (spot.leaf != kNone) digest_ -= entry_digest(old.score, old.tie, id);
  digest_ += entry_digest(kept.score, kept.tie, id);

  if (tree_) {
    if (spot.leaf == kNone) {
      tree_->insert(key, player, id, hint);
      ++size_;
    } else {
      tree_->move(spot, key, id, hint);
    }
    return;
  }
  if (spot.leaf != kNone) {
    block(memory).erase(size_--, spot.index);
  } else if (size_ == kBlockEntriesMax) {
    become_tree(memory);
    tree_->insert(key, player, id);
    ++size_;
    return;
  } else if (block_ == kNone || size_ == kBlockCapacities[block_kind_]) {
    resize_block(memory, block_kind_for(size_ + 1));
  }
  const uint32_t at = position(block(memory), size_, NewEntry<Players>{key, id, memory.players});
  block(memory).insert(size_++, at, key, player);
}

void Board::take(BoardMemory& memory, Spot spot, std::string_view id) {
  const Kept old = kept(memory, spot);
  digest_ -= entry_digest(old.score, old.tie, id);
  if (tree_) {
    tree_->erase(spot);
    if (--size_ == kTreeEntriesLeast) become_block(memory);
    return;
  }
  block(memory).erase(size_--, spot.index);
  if (size_ == 0) {
    free_block(memory);
  } else if (block_kind_ > 1 && size_ <= kBlockCapacities[block_kind_ - 2]) {
    resize_block(memory, block_kind_ - 1u);
  }
}

Run Board::run(const BoardMemory& memory, Spot spot, Spot& behind) const {
  if (tree_) {
    behind = tree_->next_leaf(spot);
    return tree_->run(spot);
  }
  behind = {};
  return {block(memory), spot.index, size_ - spot.index};
}

void Board::hand_over(Board& other) {
  other.digest_ = std::exchange(digest_, {});
  other.tree_ = std::move(tree_);
  other.block_ = std::exchange(block_, kNone);
  other.block_kind_ = std::exchange(block_kind_, uint8_t{0});
  other.size_ = std::exchange(size_, 0);
  other.direction_ = direction_;
}

void Board::resize_block(BoardMemory& memory, uint32_t kind) {
  const uint32_t fresh = memory.blocks[kind]->allocate();
  if (block_ != kNone) {
    block_at(memory.blocks[kind]->at(fresh), kBlockCapacities[kind]).copy(0, block(memory), 0, size_);
    memory.blocks[block_kind_]->release(block_);
  }
  block_ = fresh;
  block_kind_ = static_cast<uint8_t>(kind);
}

void Board::free_block(BoardMemory& memory) {
  memory.blocks[block_kind_]->release(block_);
  block_ = kNone;
  block_kind_ = 0;
}

void Board::become_tree(BoardMemory& memory) {
  auto tree = std::make_unique<Tree>(memory.trees);
  const Block entries = block(memory);
  for (uint32_t i = 0; i < size_; ++i) tree->append(entries.key(i), entries.player[i]);
  tree->finish();
  free_block(memory);
  tree_ = std::move(tree);
}

void Board::become_block(BoardMemory& memory) {
  const std::unique_ptr<Tree> tree = std::move(tree_);
  resize_block(memory, block_kind_for(size_));
  uint32_t i = 0;
  for (Spot spot = tree->first(); spot.leaf != kNone; spot = tree->next(spot)) {
    block(memory).set(i++, tree->key(spot), tree->player(spot));
  }
}

}  // namespace rankd
