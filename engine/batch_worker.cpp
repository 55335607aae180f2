#include "batch_worker.hpp"

#include <algorithm>
#include <exception>

namespace rankd {

namespace {

constexpr size_t kMovesPerYield = 8;
// Rows of a board that a worker takes at once: enough to outweigh the cost of taking them.
constexpr uint32_t kPartRows = 16 * kChunkRows;

}  // namespace

BatchWork::BatchWork(TurnLock& lock, const std::vector<BoardRows>& boards) : turn(lock) {
  for (uint32_t first = 0; first < boards.size();) {
    uint32_t end = first + 1;
    while (end < boards.size() && boards[end].end - boards[first].begin <= kPartRows) ++end;
    left_.push({first, end, boards[first].begin, boards[end - 1].end});
    first = end;
  }
}

void BatchWork::add(const Part& part) {
  const std::lock_guard<std::mutex> guard(mutex_);
  left_.push(part);
}

void BatchWork::join() {
  const std::lock_guard<std::mutex> guard(mutex_);
  ++workers_;
}

bool BatchWork::may_leave() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (workers_ < 2) return false;
  --workers_;
  return true;
}

bool BatchWork::take(Part& part) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (left_.empty()) {
    --workers_;
    return false;
  }
  part = left_.top();
  left_.pop();
  return true;
}

class BatchWorker::Changing {
 public:
  explicit Changing(BatchWorker& worker)
      : engine_(worker.engine_), work_(worker.work_), exceptions_(std::uncaught_exceptions()) {
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

  void yield_to_readers() {
    if (work_ == nullptr) {
      engine_.lock_.yield_to_readers();
    } else {
      work_->turn.yield_to_readers();
    }
  }

 private:
  Engine& engine_;
  BatchWork* work_;
  int exceptions_;
};

void BatchWorker::run(bool yields) {
  BatchWork::Part part{};
  work_->join();
  // Another worker broke the engine: there is nothing to finish.
  while (!engine_.broken_.load(std::memory_order_relaxed) && work_->take(part)) {
    if (part.end - part.first > 1) {
      apply_boards(part.first, part.end);
    } else {
      const uint32_t end = std::min(part.end_row, part.begin_row + kPartRows);
      apply(view_.boards[part.first].board, part.begin_row, end);
      if (end < part.end_row) work_->add({part.first, part.end, end, part.end_row});
    }
    if (yields && engine_.are_workers_in_the_way() && work_->may_leave()) return;
  }
}

void BatchWorker::take_orphans(std::vector<uint32_t>& orphans) {
  orphans.insert(orphans.end(), orphans_.begin(), orphans_.end());
  orphans_.clear();
}

void BatchWorker::apply(uint32_t number, uint32_t begin, uint32_t end) {
  Board& board = engine_.boards_.payload(number);
  while (begin < end) {
    const uint32_t chunk_end = std::min(end, begin + static_cast<uint32_t>(kChunkRows));
    fold(board, begin, chunk_end);
    sort_moves(board);
    if (!sorted_.empty()) {
      engine_.regions_.prepare();
      Changing changing(*this);
      apply_moves(number, board, changing);
    }
    begin = chunk_end;
  }
}

void BatchWorker::apply_boards(uint32_t first, uint32_t end) {
  while (first < end) {
    const uint32_t few = few_boards(first, end);
    if (few > first + 1) {
      apply_few(first, few);
    } else {
      apply(view_.boards[first].board, view_.boards[first].begin, view_.boards[first].end);
    }
    first = few;
  }
}

// Returns the end of the boards that together have a chunk of rows at most, from `first` on.
uint32_t BatchWorker::few_boards(uint32_t first, uint32_t end) const {
  uint32_t few = first + 1;
  while (few < end && view_.boards[few].end - view_.boards[first].begin <= kChunkRows) ++few;
  return few;
}

// Boards with a few rows each share a turn, and the next one's memory is fetched meanwhile.
void BatchWorker::apply_few(uint32_t first, uint32_t end) {
  engine_.regions_.prepare();
  Changing changing(*this);
  for (uint32_t i = first; i < end; ++i) {
    if (i + 1 < end) engine_.boards_.payload(view_.boards[i + 1].board).prefetch(memory_);
    const BoardRows& rows = view_.boards[i];
    Board& board = engine_.boards_.payload(rows.board);
    fold(board, rows.begin, rows.end);
    sort_moves(board);
    if (!sorted_.empty()) apply_moves(rows.board, board, changing);
    changing.yield_to_readers();
  }
}

// Computes the combined effect of the rows on each player, in row order.
void BatchWorker::fold(const Board& board, uint32_t begin, uint32_t end) {
  moves_.clear();
  std::fill(fold_.begin(), fold_.end(), uint16_t{0});
  locate_chunk(board, begin, end);
  for (uint32_t i = begin; i < end; ++i) {
    const uint32_t row = view_.rows[i];
    const uint32_t id = id_of(row);
    if (view_.players[id] == kNone) continue;  // a removal of an unknown player
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

// Finds the current entries of the chunk's players.
void BatchWorker::locate_chunk(const Board& board, uint32_t begin, uint32_t end) {
  const auto player_at = [&](size_t i) { return view_.players[id_of(view_.rows[begin + i])]; };
  if (const Tree* tree = board.tree(); tree == nullptr) {
    for (uint32_t i = 0; i < end - begin; ++i) {
      spots_[i] = player_at(i) == kNone ? Spot{} : board.locate(memory_, player_at(i));
    }
  } else {
    constexpr size_t kGroupItems = 8;
    const size_t count = end - begin;
    PrefetchGroup<kGroupItems> maps(count);
    PrefetchGroup<kGroupItems> leaves(count);
    PrefetchGroup<kGroupItems> parents(count);
    staggered<kGroupItems>(
        count, [&](size_t i) { maps.add(player_at(i) == kNone ? nullptr : tree->map_line(player_at(i))); },
        [&](size_t i) {
          spots_[i] = player_at(i) == kNone ? Spot{} : tree->likely_spot(player_at(i));
          leaves.add(tree->leaf_line(spots_[i]));
        },
        [&](size_t i) { tree->prefetch_entry(spots_[i]); },
        [&](size_t i) {
          if (spots_[i].leaf != kNone) spots_[i] = tree->locate(player_at(i));
          parents.add(tree->parent_line(spots_[i]));
        },
        [&](size_t i) { tree->prefetch_count(spots_[i]); });
  }
}

BatchWorker::Move& BatchWorker::move_of(const Board& board, Spot spot, uint32_t player, uint32_t id) {
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

void BatchWorker::sort_moves(const Board& board) {
  sorted_.clear();
  for (const Move& move : moves_) {
    const bool loses_place = move.was_removed && board.is_captured();
    if (!move.was_present && !move.is_present) {
      orphans_.push_back(move.player);  // added and removed within the chunk, or never present
    } else if (move.was_present != move.is_present || move.kept != move.old_kept || loses_place) {
      const auto index = static_cast<uint32_t>(&move - moves_.data());
      sorted_.push_back({score_key(board.direction().order, move.kept.score), index});
    }
  }
  std::sort(sorted_.begin(), sorted_.end(), [](Sorted a, Sorted b) { return a.score_key < b.score_key; });
}

// There must be moves.
void BatchWorker::apply_moves(uint32_t number, Board& board, Changing& changing) {
  Capture* capture = board.is_captured() ? engine_.captures_.at(number).get() : nullptr;
  Saving* saving = engine_.saving_ != nullptr && engine_.saving_->wants(number) ? engine_.saving_.get() : nullptr;
  const Tree* tree = board.tree();  // set to null once the board replaces it
  constexpr size_t kGroupItems = 4;
  PrefetchGroup<kGroupItems> parents(sorted_.size());
  PrefetchGroup<kGroupItems> leaves(sorted_.size());
  staggered<kGroupItems>(
      sorted_.size(),
      [&](size_t i) { hints_[i] = tree == nullptr ? InsertHint{} : tree->begin_hint(sorted_[i].score_key); },
      [&](size_t i) {
        if (tree != nullptr) tree->prefetch_child(sorted_[i].score_key, hints_[i]);
      },
      [&](size_t i) { parents.add(tree == nullptr ? nullptr : tree->find_parent(sorted_[i].score_key, hints_[i])); },
      [&](size_t i) {
        if (tree != nullptr) tree->prefetch_child(sorted_[i].score_key, hints_[i]);
      },
      [&](size_t i) { leaves.add(tree == nullptr ? nullptr : tree->find_leaf(sorted_[i].score_key, hints_[i])); },
      [&](size_t i) {
        if (tree != nullptr) tree->prefetch_arrival(hints_[i]);
      },
      [&](size_t i) {
        const Move& move = moves_[sorted_[i].move];
        if (saving != nullptr) note(*saving, number, board, move, capture);
        if (capture != nullptr && move.was_removed) capture->forget(move.player);
        apply_move(board, move, tree == nullptr ? InsertHint{} : hints_[i]);
        if (board.tree() != tree) tree = nullptr;
        if (i % kMovesPerYield == 0) changing.yield_to_readers();
      });
}

void BatchWorker::note(Saving& saving, uint32_t number, const Board& board, const Move& move, const Capture* capture) const {
  const Key old = key_of(board.direction(), move.old_kept);
  const Key fresh = key_of(board.direction(), move.kept);
  const auto held = work_ == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(work_->notes);
  saving.note(number, board.size(), move.player, (*view_.batch.players)[move.id], move.was_present ? &old : nullptr,
              move.is_present ? &fresh : nullptr, capture);
}

void BatchWorker::apply_move(Board& board, const Move& move, const InsertHint& hint) {
  const std::string_view id = (*view_.batch.players)[move.id];
  const Spot spot = move.was_present ? board.locate(memory_, move.player) : Spot{};
  if (move.is_present) {
    board.put(memory_, spot, move.player, id, move.old_kept, move.kept, hint);
    if (!move.was_present) engine_.players_.retain(move.player);
  } else {
    board.take(memory_, spot, id);
    if (engine_.players_.release(move.player)) orphans_.push_back(move.player);
  }
}

}  // namespace rankd
