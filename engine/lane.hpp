// The rows of a batch, applied board by board: folded to one move a player, sorted by key, moved.
//
// Everything is bound by memory latency, so each step asks for what the next one needs long before it needs it. Only
// the writer changes anything, hence deciding what to change needs no lock; changes are made under it, a chunk at a
// time, and every chunk leaves the boards whole.
//
// Two lanes may work at once, in two threads: a board belongs to one of them at a time, its rows are applied in their
// order, and what boards share (memory.hpp, references to players, records of a save) is locked or counted atomically.
// So the outcome is that of one lane.
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

inline constexpr size_t kChunkRows = 64;  // what they touch stays in the cache from the first step to the last

// What a lane reads of its batch.
struct LaneView {
  const Batch& batch;
  const std::vector<uint32_t>& players;  // number of each player, kNone when unknown
  const std::vector<uint32_t>& rows;     // sorted by board
};

// What is left to do, for the lanes that share it.
class LaneWork {
 public:
  explicit LaneWork(TurnLock& lock) : turn(lock) {}

  struct Part {
    uint32_t board;
    uint32_t begin;  // in the view's rows
    uint32_t end;
    bool operator<(const Part& other) const { return end - begin < other.end - other.begin; }
  };

  // Rows of a board that no lane is at. Whoever takes them adds those it leaves.
  void add(uint32_t board, uint32_t begin, uint32_t end);
  // Before the first take. A lane is here until it finds nothing to take, or may leave.
  void join();
  // All rows left of a board that no other lane is at; false when there are none.
  bool take(Part& part);
  // Whether another lane is here, who will find whatever was added.
  bool may_leave();

  SharedTurn turn;
  std::mutex notes;  // held by who notes something for a save

 private:
  std::mutex mutex_;
  std::priority_queue<Part> left_;
  uint32_t lanes_ = 0;
};

class Lane {
 public:
  // Alone when there is no `work` to share.
  Lane(Engine& engine, const LaneView& view, Applied& applied, LaneWork* work)
      : engine_(engine), view_(view), memory_(engine.memory_), applied_(applied), work_(work) {}

  // Applies what there is to share, as long as there is any. One that `yields` leaves the rest to another lane when
  // readers are kept waiting.
  void run(bool yields);
  // Applies rows of one board, none of which clears it.
  void apply(uint32_t board, uint32_t begin, uint32_t end);
  // Players who may stand nowhere any more.
  void take_orphans(std::vector<uint32_t>& orphans);

 private:
  static constexpr uint32_t kFoldSlots = 4 * kChunkRows;

  // What a chunk does to one player, its rows taken together.
  struct Move {
    uint32_t player;
    uint32_t id;  // index into the batch's players
    bool was_present;
    bool is_present;
    bool was_removed;  // for a while, or for good
    Kept old_kept;
    Kept kept;
  };
  struct Sorted {
    uint64_t score_key;
    uint32_t move;
  };

  // Keeps readers out, alone or together with other lanes; see Engine::Changing.
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
  void apply_moves(uint32_t number, Board& board);
  void note(Saving& saving, uint32_t number, const Board& board, const Move& move, const Capture* capture) const;
  void apply_move(Board& board, const Move& move, const Way& way);

  Engine& engine_;
  const LaneView view_;
  BoardMemory& memory_;
  Applied& applied_;
  LaneWork* const work_;
  std::array<Spot, kChunkRows> spots_;  // of a chunk's rows
  std::array<Way, kChunkRows> ways_;    // of sorted_
  std::vector<Move> moves_;
  std::vector<Sorted> sorted_;               // those of moves_ that change something
  std::array<uint16_t, kFoldSlots> fold_{};  // player → index in moves_ + 1
  std::vector<uint32_t> orphans_;
};

}  // namespace rankd
