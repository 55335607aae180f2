#include "lane.hpp"

#include <algorithm>
#include <exception>

namespace rankd {

namespace {

constexpr size_t kMovesPerBreath = 8;
// Rows of a board that a lane takes at once: many enough to be worth the asking.
constexpr uint32_t kPartRows = 16 * kChunkRows;

}  // namespace

void LaneWork::add(uint32_t board, uint32_t begin, uint32_t end) {
  const std::lock_guard<std::mutex> guard(mutex_);
  left_.push({board, begin, end});
}

void LaneWork::join() {
  const std::lock_guard<std::mutex> guard(mutex_);
  ++lanes_;
}

bool LaneWork::may_leave() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (lanes_ < 2) return false;
  --lanes_;
  return true;
}

bool LaneWork::take(Part& part) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (left_.empty()) {
    --lanes_;
    return false;
  }
  part = left_.top();
  left_.pop();
  return true;
}

class Lane::Changing {
 public:
  explicit Changing(Lane& lane)
      : engine_(lane.engine_), work_(lane.work_), exceptions_(std::uncaught_exceptions()) {
    if (work_ == nullptr) {
      engine_.lock_.lock();
    } else {
      work_->turn.enter();
    }
    engine_.has_changed_.store(true, std::memory_order_relaxed);
  }
  ~Changing() {
    if (std::uncaught_exceptions() > exceptions_) engine_.broken_.store(true, std::memory_order_relaxed);
    if (work_ == nullptr) {
      engine_.lock_.unlock();
    } else {
      work_->turn.leave();
    }
  }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;

  void breathe() {
    if (work_ == nullptr) {
      engine_.lock_.breathe();
    } else {
      work_->turn.breathe();
    }
  }

 private:
  Engine& engine_;
  LaneWork* work_;
  int exceptions_;
};

void Lane::run(bool yields) {
  LaneWork::Part part{};
  work_->join();
  // What another lane broke need not be finished.
  while (!engine_.broken_.load(std::memory_order_relaxed) && work_->take(part)) {
    const uint32_t end = std::min(part.end, part.begin + kPartRows);
    apply(part.board, part.begin, end);
    if (end < part.end) work_->add(part.board, end, part.end);
    if (yields && engine_.are_lanes_in_the_way() && work_->may_leave()) return;
  }
}

void Lane::take_orphans(std::vector<uint32_t>& orphans) {
  orphans.insert(orphans.end(), orphans_.begin(), orphans_.end());
  orphans_.clear();
}

void Lane::apply(uint32_t number, uint32_t begin, uint32_t end) {
  Board& board = engine_.boards_.payload(number);
  while (begin < end) {
    const uint32_t chunk_end = std::min(end, begin + static_cast<uint32_t>(kChunkRows));
    fold(board, begin, chunk_end);
    apply_moves(number, board);
    begin = chunk_end;
  }
}

// Goes through the rows in order and finds what they come to for each player.
void Lane::fold(const Board& board, uint32_t begin, uint32_t end) {
  moves_.clear();
  std::fill(fold_.begin(), fold_.end(), uint16_t{0});
  locate_chunk(board, begin, end);
  for (uint32_t i = begin; i < end; ++i) {
    const uint32_t row = view_.rows[i];
    const uint32_t id = id_of(row);
    if (view_.players[id] == kNone) continue;  // a removal of somebody who is nowhere
    Move& move = move_of(board, spots_[i - begin], view_.players[id], id);
    uint8_t flags = 0;
    if (move.is_present) {
      flags |= kWasPresent;
      applied_.old_score[row] = move.kept.score;
    }
    if (op_of(row) == Op::remove) {
      flags |= move.is_present ? kSet : 0;
      move.was_removed = move.was_removed || move.is_present;
      move.is_present = false;
    } else {
      const Rules& rules = view_.batch.instances[instance_of(row)].rules;
      const Kept settled = op_of(row) == Op::put
                               ? Kept{view_.batch.score[row], rules.direction.ties == Ties::player ? 0 : tie_of(row)}
                               : settle(rules, move.is_present ? &move.kept : nullptr, view_.batch.score[row], tie_of(row));
      flags |= !move.is_present || settled != move.kept ? kSet : 0;
      flags |= kIsPresent;
      move.kept = settled;
      move.is_present = true;
      applied_.new_score[row] = settled.score;
    }
    applied_.flags[row] = flags;
  }
}

// Where the chunk's players are now.
void Lane::locate_chunk(const Board& board, uint32_t begin, uint32_t end) {
  const auto player_at = [&](size_t i) { return view_.players[id_of(view_.rows[begin + i])]; };
  if (const Tree* tree = board.tree(); tree == nullptr) {
    for (uint32_t i = 0; i < end - begin; ++i) {
      spots_[i] = player_at(i) == kNone ? Spot{} : board.locate(memory_, player_at(i));
    }
  } else {
    constexpr size_t kTogether = 8;
    const size_t count = end - begin;
    Together<kTogether> maps(count);
    Together<kTogether> leaves(count);
    Together<kTogether> parents(count);
    staggered<kTogether>(
        count, [&](size_t i) { maps.ask(player_at(i) == kNone ? nullptr : tree->map_line(player_at(i))); },
        [&](size_t i) {
          spots_[i] = player_at(i) == kNone ? Spot{} : tree->likely_spot(player_at(i));
          leaves.ask(tree->leaf_line(spots_[i]));
        },
        [&](size_t i) { tree->prefetch_entry(spots_[i]); },
        [&](size_t i) {
          if (spots_[i].leaf != kNone) spots_[i] = tree->locate(player_at(i));
          parents.ask(tree->parent_line(spots_[i]));
        },
        [&](size_t i) { tree->prefetch_count(spots_[i]); });
  }
}

Lane::Move& Lane::move_of(const Board& board, Spot spot, uint32_t player, uint32_t id) {
  uint32_t slot = (player * 0x9e3779b1u) >> 24;
  static_assert(kFoldSlots == 1u << 8);
  for (; fold_[slot] != 0; slot = (slot + 1) % kFoldSlots) {
    if (moves_[fold_[slot] - 1u].player == player) return moves_[fold_[slot] - 1u];
  }
  Move move{player, id, false, false, false, {}, {}};
  if (spot.leaf != kNone) {
    move.was_present = move.is_present = true;
    move.old_kept = move.kept = board.kept(memory_, spot);
  }
  moves_.push_back(move);
  fold_[slot] = static_cast<uint16_t>(moves_.size());
  return moves_.back();
}

void Lane::sort_moves(const Board& board) {
  sorted_.clear();
  for (const Move& move : moves_) {
    const bool loses_place = move.was_removed && board.is_captured();
    if (!move.was_present && !move.is_present) {
      orphans_.push_back(move.player);  // came and went within the chunk, or was never here
    } else if (move.was_present != move.is_present || move.kept != move.old_kept || loses_place) {
      const auto index = static_cast<uint32_t>(&move - moves_.data());
      sorted_.push_back({score_key(board.direction().order, move.kept.score), index});
    }
  }
  std::sort(sorted_.begin(), sorted_.end(), [](Sorted a, Sorted b) { return a.score_key < b.score_key; });
}

void Lane::apply_moves(uint32_t number, Board& board) {
  sort_moves(board);
  if (sorted_.empty()) return;
  engine_.regions_.prepare();
  Changing changing(*this);
  Capture* capture = board.is_captured() ? engine_.captures_.at(number).get() : nullptr;
  Saving* saving = engine_.saving_ != nullptr && engine_.saving_->wants(number) ? engine_.saving_.get() : nullptr;
  const Tree* tree = board.tree();  // until the board has another, or none
  constexpr size_t kTogether = 4;
  Together<kTogether> parents(sorted_.size());
  Together<kTogether> leaves(sorted_.size());
  staggered<kTogether>(
      sorted_.size(),
      [&](size_t i) { ways_[i] = tree == nullptr ? Way{} : tree->begin_way(sorted_[i].score_key); },
      [&](size_t i) {
        if (tree != nullptr) tree->prefetch_child(sorted_[i].score_key, ways_[i]);
      },
      [&](size_t i) { parents.ask(tree == nullptr ? nullptr : tree->find_parent(sorted_[i].score_key, ways_[i])); },
      [&](size_t i) {
        if (tree != nullptr) tree->prefetch_child(sorted_[i].score_key, ways_[i]);
      },
      [&](size_t i) { leaves.ask(tree == nullptr ? nullptr : tree->find_leaf(sorted_[i].score_key, ways_[i])); },
      [&](size_t i) {
        if (tree != nullptr) tree->prefetch_arrival(ways_[i]);
      },
      [&](size_t i) {
        const Move& move = moves_[sorted_[i].move];
        if (saving != nullptr) note(*saving, number, board, move, capture);
        if (capture != nullptr && move.was_removed) capture->forget(move.player);
        apply_move(board, move, tree == nullptr ? Way{} : ways_[i]);
        if (board.tree() != tree) tree = nullptr;
        if (i % kMovesPerBreath == 0) changing.breathe();
      });
}

void Lane::note(Saving& saving, uint32_t number, const Board& board, const Move& move, const Capture* capture) const {
  const Key old = key_of(board.direction(), move.old_kept);
  const Key fresh = key_of(board.direction(), move.kept);
  const auto held = work_ == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(work_->notes);
  saving.note(number, board.size(), move.player, (*view_.batch.players)[move.id], move.was_present ? &old : nullptr,
              move.is_present ? &fresh : nullptr, capture);
}

void Lane::apply_move(Board& board, const Move& move, const Way& way) {
  const std::string_view id = (*view_.batch.players)[move.id];
  const Spot spot = move.was_present ? board.locate(memory_, move.player) : Spot{};
  if (move.is_present) {
    board.put(memory_, spot, move.player, id, move.old_kept, move.kept, way);
    if (!move.was_present) engine_.players_.retain(move.player);
  } else {
    board.take(memory_, spot, id);
    if (engine_.players_.release(move.player)) orphans_.push_back(move.player);
  }
}

}  // namespace rankd
