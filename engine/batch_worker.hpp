// Applies the rows of a batch board by board: folds them to one move per player, sorts the moves by key, makes them.
//
// Memory latency dominates, so each step prefetches what the next one reads. Only the writer changes anything, so it
// decides what to change without the lock. It makes the changes under the lock, a chunk at a time; the boards are
// consistent after every chunk.
//
// Two workers may run at once, in two threads. A board belongs to one of them at a time, and its rows are applied in
// order. What boards share (memory.hpp, references to players, records of a save) is locked or counted atomically. So
// the result equals that of one worker.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <queue>
#include <vector>

#include "engine.hpp"
#include "second_thread.hpp"

namespace rankd {

inline constexpr size_t kChunkRows = 64;  // few enough for their lines to stay in the cache

// The rows of one board, `begin` … `end` of the rows sorted by board.
struct BoardRows {
  uint32_t board;
  uint32_t begin;
  uint32_t end;
};

// The parts of a batch that a worker reads.
struct BatchView {
  const Batch& batch;
  const std::vector<uint32_t>& players;  // number of each player, kNone when unknown
  const std::vector<uint32_t>& rows;     // sorted by board
  const std::vector<BoardRows>& boards;
};

// The remaining rows of a batch, shared by its workers.
class BatchWork {
 public:
  // Hands out the rows of these boards: a large board for itself, small ones together.
  BatchWork(TurnLock& lock, const std::vector<BoardRows>& boards);

  // Boards `first` … `end` of the view. A single one may have fewer rows left than the view says.
  struct Part {
    uint32_t first;
    uint32_t end;
    uint32_t begin_row;
    uint32_t end_row;
    bool operator<(const Part& other) const { return end_row - begin_row < other.end_row - other.begin_row; }
  };

  // Adds what is left of a board's rows, for a worker that applied only some of them.
  void add(const Part& part);
  // Registers a worker, before its first `take`. A `take` that returns false unregisters it.
  void join();
  // Takes all remaining rows of boards that no other worker has; false when there are none.
  bool take(Part& part);
  // Unregisters the worker if another one is registered, which will take the remaining rows; returns whether it did.
  bool may_leave();

  SharedTurn turn;
  std::mutex notes;  // held while recording a change for a save

 private:
  std::mutex mutex_;
  std::priority_queue<Part> left_;
  uint32_t workers_ = 0;
};

class BatchWorker {
 public:
  // `work` is null for a worker that runs alone.
  BatchWorker(Engine& engine, const BatchView& view, Applied& applied, BatchWork* work)
      : engine_(engine), view_(view), memory_(engine.memory_), applied_(applied), work_(work) {}

  // Applies shared rows until none are left. A worker that `yields` leaves the rest to another one when readers wait.
  void run(bool yields);
  // Applies rows of one board, none of which clears it.
  void apply(uint32_t board, uint32_t begin, uint32_t end);
  // Applies all rows of boards `first` … `end` of the view, none of which clears one.
  void apply_boards(uint32_t first, uint32_t end);
  // Moves out the players that may have no entry any more.
  void take_orphans(std::vector<uint32_t>& orphans);

 private:
  static constexpr uint32_t kFoldSlots = 4 * kChunkRows;

  // The combined effect of a chunk's rows on one player.
  struct Move {
    uint32_t player;
    uint32_t id;  // index into the batch's players
    bool was_present;
    bool is_present;
    bool was_removed;  // by a row of the chunk, even if a later row put it back
    Kept old_kept;
    Kept kept;
  };
  struct Sorted {
    uint64_t score_key;
    uint32_t move;
  };

  // Excludes readers, alone or in a turn shared with other workers; see Engine::Changing.
  class Changing;

  uint32_t instance_of(size_t row) const { return view_.batch.instance == nullptr ? 0 : view_.batch.instance[row]; }
  uint32_t id_of(size_t row) const {
    return view_.batch.player == nullptr ? static_cast<uint32_t>(row) : view_.batch.player[row];
  }
  Op op_of(size_t row) const {
    return view_.batch.op == nullptr ? Op::apply : static_cast<Op>(view_.batch.op[row]);
  }
  uint64_t tie_of(size_t row) const {
    return view_.batch.tie == nullptr ? 0 : static_cast<uint64_t>(view_.batch.tie[row]);
  }

  void fold(const Board& board, uint32_t begin, uint32_t end);
  void locate_chunk(const Board& board, uint32_t begin, uint32_t end);
  Move& move_of(const Board& board, Spot spot, uint32_t player, uint32_t id);
  void sort_moves(const Board& board);
  uint32_t few_boards(uint32_t first, uint32_t end) const;
  void apply_few(uint32_t first, uint32_t end);
  void apply_moves(uint32_t number, Board& board, Changing& changing);
  void note(Saving& saving, uint32_t number, const Board& board, const Move& move, const Capture* capture) const;
  void apply_move(Board& board, const Move& move, const InsertHint& hint);

  Engine& engine_;
  const BatchView view_;
  BoardMemory& memory_;
  Applied& applied_;
  BatchWork* const work_;
  std::array<Spot, kChunkRows> spots_;  // of a chunk's rows
  std::array<InsertHint, kChunkRows> hints_;    // of sorted_
  std::vector<Move> moves_;
  std::vector<Sorted> sorted_;               // the moves that change something
  std::array<uint16_t, kFoldSlots> fold_{};  // player → index in moves_ + 1
  std::vector<uint32_t> orphans_;
};

}  // namespace rankd
