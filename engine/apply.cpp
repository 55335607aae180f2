// One batch: checked, sorted by board, looked up, folded, sorted by key, applied.
//
// Everything is bound by memory latency, so each step asks for what the next one needs long before it needs it. Only
// the writer changes anything, hence looking up and deciding need no lock; changes are made under it, a chunk at a
// time, and every chunk leaves the boards whole.
#include <algorithm>
#include <numeric>

#include "engine.hpp"

namespace rankd {

namespace {

constexpr size_t kChunkRows = 64;  // what they touch stays in the cache from the first step to the last
constexpr uint32_t kLeavesPerBreath = 16;
constexpr size_t kMovesPerBreath = 8;
constexpr size_t kLookupsPerBreath = 64;
constexpr size_t kNewcomersTogether = 1024;

constexpr uint32_t kFoldSlots = 4 * kChunkRows;

std::string text(uint64_t number) { return std::to_string(number); }

}  // namespace

class Application {
 public:
  Application(Engine& engine, const Batch& batch) : engine_(engine), batch_(batch), memory_(engine.memory_) {}

  Applied run() {
    check();
    const Position stored = engine_.read_position(batch_.partition);
    applied_.position = stored;
    if (batch_.epoch < stored.epoch) return refuse(Verdict::fenced);
    if (batch_.after < stored.sequence) return refuse(Verdict::dup);
    if (batch_.after > stored.sequence) return refuse(Verdict::gap);
    if (batch_.rows > 0) {
      applied_.flags.assign(batch_.rows, 0);
      applied_.old_score.assign(batch_.rows, 0);
      applied_.new_score.assign(batch_.rows, 0);
      find_boards();
      find_players();
      sort_by_board();
      if (batch_.ranks) note_ranks(applied_.rank_before);
      for (const Group& group : groups_) apply_group(group);
      if (batch_.ranks) note_ranks(applied_.rank_after);
    }
    finish();
    return std::move(applied_);
  }

 private:
  struct Group {
    uint32_t board;
    uint32_t begin;  // in rows_
    uint32_t end;
  };

  // What a chunk does to one player, its rows taken together.
  struct Move {
    uint32_t player;
    uint32_t id;  // index into the batch's players
    bool was_present;
    bool is_present;
    bool was_removed;  // for a while, or for good
    Spot spot;         // before the chunk
    Kept old_kept;
    Kept kept;
  };
  struct Sorted {
    uint64_t score_key;
    uint32_t move;
  };

  Applied refuse(Verdict verdict) {
    applied_.verdict = verdict;
    return std::move(applied_);
  }

  // ---------------------------------------------------------------------------------------------- before anything

  void check() const {
    if (batch_.upto < batch_.after) {
      throw MalformedBatch(-1, "upto " + text(batch_.upto) + " is before after " + text(batch_.after));
    }
    const size_t instances = batch_.instances.size();
    const size_t players = batch_.players->size();
    for (size_t row = 0; row < batch_.rows; ++row) {
      const auto fail = [&](const std::string& problem) { throw MalformedBatch(static_cast<int64_t>(row), problem); };
      if (instance_of(row) >= instances) {
        fail("instance " + text(instance_of(row)) + " is not one of the batch's " + text(instances) + " instances");
      }
      const uint8_t op = batch_.op == nullptr ? 0 : batch_.op[row];
      if (op > static_cast<uint8_t>(Op::clear)) fail("op " + text(op) + " is none of 0 … 3");
      if (op == static_cast<uint8_t>(Op::clear)) continue;
      if (player_of(row) >= players) {
        fail("player " + text(player_of(row)) + " is not one of the batch's " + text(players) + " players");
      }
      if (op == static_cast<uint8_t>(Op::remove) || batch_.tie == nullptr) continue;
      if (batch_.tie[row] < 0 || static_cast<uint64_t>(batch_.tie[row]) > kTieFieldMax) {
        fail("tie " + std::to_string(batch_.tie[row]) + " is outside 0 … 2^48 - 1");
      }
    }
  }

  uint32_t instance_of(size_t row) const { return batch_.instance == nullptr ? 0 : batch_.instance[row]; }
  uint32_t player_of(size_t row) const {
    return batch_.player == nullptr ? static_cast<uint32_t>(row) : batch_.player[row];
  }
  Op op_of(size_t row) const { return batch_.op == nullptr ? Op::apply : static_cast<Op>(batch_.op[row]); }
  uint64_t tie_of(size_t row) const { return batch_.tie == nullptr ? 0 : static_cast<uint64_t>(batch_.tie[row]); }

  // ------------------------------------------------------------------------------------------------- looking up

  void find_boards() {
    const size_t count = batch_.instances.size();
    std::vector<bool> used(count, batch_.instance == nullptr);
    if (batch_.instance == nullptr) std::fill(used.begin() + 1, used.end(), false);
    if (batch_.instance != nullptr) {
      for (size_t row = 0; row < batch_.rows; ++row) used[batch_.instance[row]] = true;
    }
    boards_.assign(count, kNone);
    std::vector<uint64_t> hashes(count);
    std::map<std::string_view, Direction> fresh;
    for (size_t i = 0; i < count; ++i) {
      if (!used[i]) continue;
      const Batch::Instance& instance = batch_.instances[i];
      hashes[i] = engine_.boards_.hash(instance.name);
      boards_[i] = engine_.boards_.find(hashes[i], instance.name);
      Direction direction = instance.rules.direction;
      if (boards_[i] != kNone) {
        direction = engine_.boards_.payload(boards_[i]).direction();
      } else {
        direction = fresh.emplace(instance.name, direction).first->second;
      }
      if (direction != instance.rules.direction) {
        throw MalformedBatch(-1, "instances[" + text(i) + "]: " + std::string(instance.name) +
                                     " stands in another order; use a new board, or drop it first");
      }
    }
    if (fresh.empty()) return;
    engine_.regions_.prepare();
    const Engine::Changing changing(engine_);
    for (size_t i = 0; i < count; ++i) {
      if (i % kLookupsPerBreath == 0) engine_.lock_.breathe();
      if (!used[i] || boards_[i] != kNone) continue;
      const Batch::Instance& instance = batch_.instances[i];
      boards_[i] = engine_.boards_.find(hashes[i], instance.name);  // it may be in the table twice
      if (boards_[i] != kNone) continue;
      boards_[i] = engine_.boards_.add(hashes[i], instance.name);
      if (engine_.saving_ != nullptr) engine_.saving_->add_board(boards_[i]);
      engine_.boards_.payload(boards_[i]).set_direction(instance.rules.direction);
    }
  }

  void find_players() {
    const Ids& ids = *batch_.players;
    players_ = engine_.find_players(ids);
    if (std::find(players_.begin(), players_.end(), kNone) == players_.end()) return;
    add_players();
    // An id that only later rows of a twin added.
    for (size_t i = 0; i < ids.size(); ++i) {
      if (players_[i] == kNone) players_[i] = engine_.players_.find(ids.hash[i], ids[i]);
    }
  }

  void add_players() {
    for (size_t begin = 0; begin < batch_.rows; begin += kNewcomersTogether) {
      engine_.regions_.prepare();
      add_players(begin, std::min(batch_.rows, begin + kNewcomersTogether));
    }
  }

  void add_players(size_t begin, size_t end) {
    const Ids& ids = *batch_.players;
    const Engine::Changing changing(engine_);
    for (size_t row = begin; row < end; ++row) {
      if (row % kLookupsPerBreath == 0) engine_.lock_.breathe();  // there may be many rows to skip
      const Op op = op_of(row);
      if (op != Op::apply && op != Op::put) continue;
      const uint32_t i = player_of(row);
      if (players_[i] != kNone) continue;
      players_[i] = engine_.players_.find(ids.hash[i], ids[i]);  // it may be in the table twice
      if (players_[i] != kNone) continue;
      players_[i] = engine_.players_.add(ids.hash[i], ids[i]);
      if (engine_.saving_ != nullptr) engine_.saving_->add_player(players_[i]);
    }
  }

  // A counting sort by board, stable: within a board, rows stay in their order.
  void sort_by_board() {
    rows_.resize(batch_.rows);
    if (batch_.instance == nullptr) {
      std::iota(rows_.begin(), rows_.end(), 0);
      groups_.push_back({boards_[0], 0, static_cast<uint32_t>(batch_.rows)});
      return;
    }
    std::vector<uint32_t> group_of(boards_.size(), kNone);
    std::map<uint32_t, uint32_t> by_board;
    std::vector<uint32_t> sizes;
    for (size_t i = 0; i < boards_.size(); ++i) {
      if (boards_[i] == kNone) continue;
      const auto [found, is_new] = by_board.emplace(boards_[i], static_cast<uint32_t>(sizes.size()));
      group_of[i] = found->second;
      if (!is_new) continue;
      sizes.push_back(0);
      groups_.push_back({boards_[i], 0, 0});
    }
    for (size_t row = 0; row < batch_.rows; ++row) ++sizes[group_of[batch_.instance[row]]];
    uint32_t begin = 0;
    for (size_t i = 0; i < groups_.size(); ++i) {
      groups_[i].begin = groups_[i].end = begin;
      begin += sizes[i];
    }
    for (size_t row = 0; row < batch_.rows; ++row) {
      rows_[groups_[group_of[batch_.instance[row]]].end++] = static_cast<uint32_t>(row);
    }
  }

  void note_ranks(std::vector<int64_t>& ranks) const {
    ranks.assign(batch_.rows, kRankAbsent);
    std::vector<uint32_t> players;
    for (const Group& group : groups_) {
      const Board& board = engine_.boards_.payload(group.board);
      players.clear();
      for (uint32_t i = group.begin; i < group.end; ++i) {
        players.push_back(op_of(rows_[i]) == Op::clear ? kNone : players_[player_of(rows_[i])]);
      }
      board.locate_many(memory_, players, [&](size_t i, Spot spot) {
        ranks[rows_[group.begin + i]] = static_cast<int64_t>(board.rank(memory_, spot, *batch_.ranks));
      });
    }
  }

  // ---------------------------------------------------------------------------------------------------- applying

  void apply_group(const Group& group) {
    Board& board = engine_.boards_.payload(group.board);
    for (uint32_t begin = group.begin; begin < group.end;) {
      if (op_of(rows_[begin]) == Op::clear) {
        clear(group.board, rows_[begin]);
        ++begin;
        continue;
      }
      uint32_t end = begin;
      while (end < group.end && end - begin < kChunkRows && op_of(rows_[end]) != Op::clear) ++end;
      fold(board, begin, end);
      apply_moves(group.board, board);
      begin = end;
    }
  }

  void clear(uint32_t board, uint32_t row) {
    if (engine_.boards_.payload(board).size() == 0) return;
    applied_.flags[row] = kSet;
    engine_.empty(board, orphans_);
  }

  // Goes through the rows in order and finds what they come to for each player.
  void fold(const Board& board, uint32_t begin, uint32_t end) {
    moves_.clear();
    std::fill(fold_.begin(), fold_.end(), uint16_t{0});
    locate_chunk(board, begin, end);
    for (uint32_t i = begin; i < end; ++i) {
      const uint32_t row = rows_[i];
      const uint32_t id = player_of(row);
      if (players_[id] == kNone) continue;  // a removal of somebody who is nowhere
      Move& move = move_of(board, spots_[i - begin], players_[id], id);
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
        const Rules& rules = batch_.instances[instance_of(row)].rules;
        const Kept settled = op_of(row) == Op::put
                                 ? Kept{batch_.score[row], rules.direction.ties == Ties::player ? 0 : tie_of(row)}
                                 : settle(rules, move.is_present ? &move.kept : nullptr, batch_.score[row], tie_of(row));
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
  void locate_chunk(const Board& board, uint32_t begin, uint32_t end) {
    const auto player_at = [&](size_t i) { return players_[player_of(rows_[begin + i])]; };
    if (const Tree* tree = board.tree(); tree == nullptr) {
      for (uint32_t i = 0; i < end - begin; ++i) {
        spots_[i] = player_at(i) == kNone ? Spot{} : board.locate(memory_, player_at(i));
      }
    } else {
      staggered(
          end - begin,
          [&](size_t i) {
            if (player_at(i) != kNone) tree->prefetch_map(player_at(i));
          },
          [&](size_t i) {
            if (player_at(i) != kNone) tree->prefetch_players(player_at(i));
          },
          [&](size_t i) {
            spots_[i] = player_at(i) == kNone ? Spot{} : tree->locate(player_at(i));
            if (spots_[i].leaf != kNone) tree->prefetch_move(spots_[i]);
          });
    }
  }

  Move& move_of(const Board& board, Spot spot, uint32_t player, uint32_t id) {
    uint32_t slot = (player * 0x9e3779b1u) >> 24;
    static_assert(kFoldSlots == 1u << 8);
    for (; fold_[slot] != 0; slot = (slot + 1) % kFoldSlots) {
      if (moves_[fold_[slot] - 1u].player == player) return moves_[fold_[slot] - 1u];
    }
    Move move{player, id, false, false, false, spot, {}, {}};
    if (spot.leaf != kNone) {
      move.was_present = move.is_present = true;
      move.old_kept = move.kept = board.kept(memory_, spot);
    }
    moves_.push_back(move);
    fold_[slot] = static_cast<uint16_t>(moves_.size());
    return moves_.back();
  }

  void apply_moves(uint32_t number, Board& board) {
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
    if (sorted_.empty()) return;
    engine_.regions_.prepare();
    std::sort(sorted_.begin(), sorted_.end(), [](Sorted a, Sorted b) { return a.score_key < b.score_key; });
    const Engine::Changing changing(engine_);
    Capture* capture = board.is_captured() ? engine_.captures_.at(number).get() : nullptr;
    Saving* saving = engine_.saving_ != nullptr && engine_.saving_->wants(number) ? engine_.saving_.get() : nullptr;
    const Tree* tree = board.tree();  // until the board has another, or none
    staggered(
        sorted_.size(),
        [&](size_t i) { ways_[i] = tree == nullptr ? Way{} : tree->begin_way(sorted_[i].score_key); },
        [&](size_t i) {
          if (tree != nullptr) tree->prefetch_child(sorted_[i].score_key, ways_[i]);
        },
        [&](size_t i) {
          if (tree != nullptr) tree->find_leaf(sorted_[i].score_key, ways_[i]);
        },
        [&](size_t i) {
          if (tree != nullptr) tree->prefetch_gap(sorted_[i].score_key, ways_[i]);
        },
        [&](size_t i) {
          const Move& move = moves_[sorted_[i].move];
          if (saving != nullptr) note(*saving, number, board, move, capture);
          if (capture != nullptr && move.was_removed) capture->forget(move.player);
          apply_move(board, move, tree == nullptr ? Way{} : ways_[i]);
          if (board.tree() != tree) tree = nullptr;
          if (i % kMovesPerBreath == 0) engine_.lock_.breathe();
        });
  }

  void note(Saving& saving, uint32_t number, const Board& board, const Move& move, const Capture* capture) const {
    const Key old = key_of(board.direction(), move.old_kept);
    const Key fresh = key_of(board.direction(), move.kept);
    saving.note(number, board.size(), move.player, (*batch_.players)[move.id], move.was_present ? &old : nullptr,
                move.is_present ? &fresh : nullptr, capture);
  }

  void apply_move(Board& board, const Move& move, const Way& way) {
    const std::string_view id = (*batch_.players)[move.id];
    const Spot spot = move.was_present ? board.locate(memory_, move.player, move.spot) : Spot{};
    if (move.is_present) {
      board.put(memory_, spot, move.player, id, move.old_kept, move.kept, way);
      if (!move.was_present) engine_.players_.retain(move.player);
    } else {
      board.take(memory_, spot, id);
      if (engine_.players_.release(move.player)) orphans_.push_back(move.player);
    }
  }

  void finish() {
    std::vector<uint32_t> emptied;
    for (const Group& group : groups_) {
      if (engine_.boards_.payload(group.board).size() == 0) emptied.push_back(group.board);
    }
    engine_.forget(emptied, orphans_);
    const Engine::Changing changing(engine_);
    Position& position = engine_.positions_[batch_.partition];
    position = {std::max(position.epoch, batch_.epoch), batch_.upto};
    applied_.position = position;
  }

  Engine& engine_;
  const Batch& batch_;
  BoardMemory& memory_;
  Applied applied_;
  std::vector<uint32_t> boards_;   // number of each instance's board, kNone when no row is about it
  std::vector<uint32_t> players_;  // number of each player, kNone when unknown
  std::vector<uint32_t> rows_;     // sorted by board
  std::vector<Group> groups_;
  std::array<Spot, kChunkRows> spots_;  // of a chunk's rows
  std::vector<Move> moves_;
  std::array<Way, kChunkRows> ways_;    // of sorted_
  std::vector<Sorted> sorted_;  // those of moves_ that change something
  std::array<uint16_t, kFoldSlots> fold_{};  // player → index in moves_ + 1
  std::vector<uint32_t> orphans_;            // players who may stand nowhere any more
};

Applied Engine::apply(const Batch& batch) {
  const std::lock_guard<std::mutex> writer(writer_);
  refuse_if_broken();
  has_changed_ = false;
  try {
    return Application(*this, batch).run();
  } catch (...) {
    // Whatever it was, the rest of the batch is missing.
    if (has_changed_) broken_.store(true, std::memory_order_relaxed);
    throw;
  }
}

bool Engine::drop(std::string_view name) {
  const std::lock_guard<std::mutex> writer(writer_);
  refuse_if_broken();
  const uint32_t number = boards_.find(boards_.hash(name), name);
  if (number == kNone) return false;
  std::vector<uint32_t> orphans;
  empty(number, orphans);
  forget({number}, orphans);
  return true;
}

// Takes everybody out at once for readers. What is left over goes to a save that needs it.
void Engine::empty(uint32_t number, std::vector<uint32_t>& orphans) {
  const Changing changing(*this);
  Board& board = boards_.payload(number);
  std::unique_ptr<Capture> capture = take_capture(number);
  if (saving_ == nullptr || !saving_->seal(number, board, capture)) dismantle(board, orphans);
  dismantle(std::move(capture));
}

// A little at a time, though nobody sees it any more.
void Engine::dismantle(Board& board, std::vector<uint32_t>& orphans) {
  const auto gone = [&](uint32_t player) {
    if (players_.release(player)) orphans.push_back(player);
  };
  const std::unique_ptr<Tree> tree = board.clear(memory_, gone);
  while (tree != nullptr && tree->dismantle(kLeavesPerBreath, gone)) lock_.breathe();
}

// Forgets boards that are empty, and those of the players who stand nowhere.
void Engine::forget(const std::vector<uint32_t>& boards, std::vector<uint32_t>& orphans) {
  if (boards.empty() && orphans.empty()) return;
  std::sort(orphans.begin(), orphans.end());
  orphans.erase(std::unique(orphans.begin(), orphans.end()), orphans.end());
  const Changing changing(*this);
  for (const uint32_t board : boards) {
    std::unique_ptr<Capture> capture = take_capture(board);
    if (saving_ != nullptr && saving_->keeps_board(board)) {
      if (capture != nullptr) saving_->seal_capture(board, capture);
      boards_.unlist(board);
    } else {
      boards_.forget(board);
    }
    dismantle(std::move(capture));
    lock_.breathe();
  }
  for (const uint32_t player : orphans) {
    if (players_.references(player) > 0) continue;
    if (saving_ != nullptr && saving_->keeps_player(player)) {
      players_.unlist(player);
    } else {
      players_.forget(player);
    }
    lock_.breathe();
  }
}

}  // namespace rankd
