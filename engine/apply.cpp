// Applies one batch: checks it, sorts it by board, looks names up; then applies each board's rows (batch_worker.cpp),
// in two threads when there are many.
#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <unordered_map>

#include "engine.hpp"
#include "batch_worker.hpp"

namespace rankd {

namespace {

// A batch with fewer rows is applied before the second thread wakes.
constexpr size_t kSharedRowsLeast = 2048;
constexpr size_t kSharedIdsLeast = 4096;
constexpr size_t kIdsPerShare = 512;
// The number of batches applied by one worker after two workers delayed readers.
constexpr uint32_t kBatchesAlone = 64;
constexpr uint32_t kLeavesPerYield = 16;
constexpr size_t kLookupsPerYield = 64;
constexpr size_t kRowsPerTurn = 1024;

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
      if (engine_.are_workers_in_the_way()) engine_.batches_alone_ = kBatchesAlone;
      engine_.lock_.forget_readers();
      find_boards();
      find_players();
      sort_by_board();
      if (players_.size() == 1) engine_.ask_ahead(boards_, players_[0], batch_.score[0]);
      if (batch_.ranks) note_ranks(applied_.rank_before);
      if (engine_.batches_alone_ == 0 && is_worth_sharing()) {
        apply_in_workers();
      } else {
        apply_alone();
        if (engine_.batches_alone_ > 0) --engine_.batches_alone_;
      }
      if (batch_.ranks) note_ranks(applied_.rank_after);
    }
    finish();
    return std::move(applied_);
  }

 private:
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
      if (i % kLookupsPerYield == 0) engine_.lock_.yield_to_readers();
      if (!used[i] || boards_[i] != kNone) continue;
      const Batch::Instance& instance = batch_.instances[i];
      boards_[i] = engine_.boards_.find(hashes[i], instance.name);  // it may be in the table twice
      if (boards_[i] != kNone) continue;
      boards_[i] = engine_.boards_.add(hashes[i], instance.name);
      if (engine_.saving_ != nullptr) engine_.saving_->add_board(boards_[i]);
      engine_.boards_.payload(boards_[i]).set_direction(instance.rules.direction);
      engine_.join_family(boards_[i]);
    }
  }

  void find_players() {
    const Ids& ids = *batch_.players;
    players_.assign(ids.size(), kNone);
    if (ids.size() < kSharedIdsLeast || engine_.batches_alone_ > 0) {
      engine_.find_players(ids, 0, ids.size(), players_);
    } else {
      std::atomic<size_t> next{0};
      engine_.second_.share([&](size_t) {
        for (size_t begin = next.fetch_add(kIdsPerShare); begin < ids.size(); begin = next.fetch_add(kIdsPerShare)) {
          engine_.find_players(ids, begin, std::min(ids.size(), begin + kIdsPerShare), players_);
        }
      });
    }
    if (std::find(players_.begin(), players_.end(), kNone) == players_.end()) return;
    add_players();
    // Ids that occur twice: the first occurrence may have been added by a later row.
    for (size_t i = 0; i < ids.size(); ++i) {
      if (players_[i] == kNone) players_[i] = engine_.players_.find(ids.hash[i], ids[i]);
    }
  }

  void add_players() {
    for (size_t begin = 0; begin < batch_.rows; begin += kRowsPerTurn) {
      engine_.regions_.prepare();
      add_players(begin, std::min(batch_.rows, begin + kRowsPerTurn));
    }
  }

  void add_players(size_t begin, size_t end) {
    const Ids& ids = *batch_.players;
    const Engine::Changing changing(engine_);
    for (size_t row = begin; row < end; ++row) {
      if (row % kLookupsPerYield == 0) engine_.lock_.yield_to_readers();  // there may be many rows to skip
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
    std::unordered_map<uint32_t, uint32_t> by_board;
    by_board.reserve(boards_.size());
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
    for (const BoardRows& group : groups_) {
      if (group.begin < group.end && rows_[group.begin] >= batch_.ranked_rows) continue;  // its first row is its least
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

  bool is_worth_sharing() const {
    // Dismantling a board changes memory that the workers share.
    return batch_.rows >= kSharedRowsLeast && groups_.size() > 1 && !clears();
  }

  bool clears() const {
    const auto op = static_cast<uint8_t>(Op::clear);
    return batch_.op != nullptr && std::find(batch_.op, batch_.op + batch_.rows, op) != batch_.op + batch_.rows;
  }

  void apply_alone() {
    BatchWorker worker(engine_, view(), applied_, nullptr);
    if (!clears()) {
      worker.apply_boards(0, static_cast<uint32_t>(groups_.size()));
      worker.take_orphans(orphans_);
      return;
    }
    for (const BoardRows& group : groups_) {
      for (uint32_t begin = group.begin; begin < group.end;) {
        if (op_of(rows_[begin]) == Op::clear) {
          clear(group.board, rows_[begin]);
          ++begin;
          continue;
        }
        uint32_t end = begin;
        while (end < group.end && op_of(rows_[end]) != Op::clear) ++end;
        worker.apply(group.board, begin, end);
        begin = end;
      }
    }
    worker.take_orphans(orphans_);
  }

  // Two workers, each on one large board or some small ones at a time. The most remaining rows are next, so that both
  // end at about the same time; a board's rows stay in order.
  void apply_in_workers() {
    BatchWork work(engine_.lock_, groups_);
    std::array<std::vector<uint32_t>, 2> orphans;
    engine_.regions_.set_shared(true);
    try {
      engine_.second_.share([&](size_t number) {
        BatchWorker worker(engine_, view(), applied_, &work);
        worker.run(number > 0);
        worker.take_orphans(orphans[number]);
      });
    } catch (...) {
      engine_.regions_.set_shared(false);
      throw;
    }
    engine_.regions_.set_shared(false);
    for (const auto& some : orphans) orphans_.insert(orphans_.end(), some.begin(), some.end());
  }

  BatchView view() const { return {batch_, players_, rows_, groups_}; }

  void clear(uint32_t board, uint32_t row) {
    if (engine_.boards_.payload(board).size() == 0) return;
    applied_.flags[row] = kSet;
    engine_.empty(board, orphans_);
  }

  void finish() {
    std::vector<uint32_t> emptied;
    for (const BoardRows& group : groups_) {
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
  std::vector<BoardRows> groups_;
  std::vector<uint32_t> orphans_;  // players that may have no entry any more
};

Applied Engine::apply(const Batch& batch) {
  const std::lock_guard<std::mutex> writer(writer_);
  refuse_if_broken();
  has_changed_.store(false, std::memory_order_relaxed);
  try {
    return Application(*this, batch).run();
  } catch (...) {
    // After any error the rest of the batch is missing.
    if (has_changed_.load(std::memory_order_relaxed)) broken_.store(true, std::memory_order_relaxed);
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

Engine::Dropped Engine::drop_family(std::string_view prefix, uint32_t most) {
  const std::lock_guard<std::mutex> writer(writer_);
  refuse_if_broken();
  Dropped dropped;
  const Family* family = families_.find(prefix);
  if (family == nullptr) return dropped;
  const size_t count = std::min<size_t>(most, family->boards.size());
  const std::vector<uint32_t> boards(family->boards.end() - static_cast<ptrdiff_t>(count), family->boards.end());
  std::vector<uint32_t> orphans;
  for (const uint32_t board : boards) {
    dropped.entries += boards_.payload(board).size();
    empty(board, orphans);
  }
  forget(boards, orphans);
  dropped.boards = count;
  return dropped;
}

void Engine::join_family(uint32_t board) {
  Family* family = families_.join(boards_.name(board), board);
  if (family != nullptr) boards_.payload(board).set_family(family, static_cast<uint32_t>(family->boards.size()) - 1);
}

void Engine::leave_family(uint32_t board) {
  const Board& leaving = boards_.payload(board);
  if (leaving.family() == nullptr) return;
  const uint32_t moved = families_.leave(*leaving.family(), leaving.family_place());
  if (moved != kNone) boards_.payload(moved).set_family(leaving.family(), leaving.family_place());
}

// Empties a board at once, as readers see it. A save that needs the old entries takes them over.
void Engine::empty(uint32_t number, std::vector<uint32_t>& orphans) {
  const Changing changing(*this);
  Board& board = boards_.payload(number);
  std::unique_ptr<Capture> capture = take_capture(number);
  if (saving_ == nullptr || !saving_->seal(number, board, capture)) dismantle(board, orphans);
  dismantle(std::move(capture));
}

// Dismantles an abandoned tree in small steps.
void Engine::dismantle(Board& board, std::vector<uint32_t>& orphans) {
  const auto gone = [&](uint32_t player) {
    if (players_.release(player)) orphans.push_back(player);
  };
  const std::unique_ptr<Tree> tree = board.clear(memory_, gone);
  while (tree != nullptr && tree->dismantle(kLeavesPerYield, gone)) lock_.yield_to_readers();
}

// Forgets empty boards, and players without an entry.
void Engine::forget(const std::vector<uint32_t>& boards, std::vector<uint32_t>& orphans) {
  if (boards.empty() && orphans.empty()) return;
  std::sort(orphans.begin(), orphans.end());
  orphans.erase(std::unique(orphans.begin(), orphans.end()), orphans.end());
  const Changing changing(*this);
  for (const uint32_t board : boards) {
    std::unique_ptr<Capture> capture = take_capture(board);
    leave_family(board);
    if (saving_ != nullptr && saving_->keeps_board(board)) {
      if (capture != nullptr) saving_->seal_capture(board, capture);
      boards_.unlist(board);
    } else {
      boards_.forget(board);
    }
    dismantle(std::move(capture));
    lock_.yield_to_readers();
  }
  for (const uint32_t player : orphans) {
    if (players_.references(player) > 0) continue;
    if (saving_ != nullptr && saving_->keeps_player(player)) {
      players_.unlist(player);
    } else {
      players_.forget(player);
    }
    lock_.yield_to_readers();
  }
}

}  // namespace rankd
