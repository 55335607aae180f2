// The records by which a save writes the engine as of one instant, while batches go on.
//
// The save visits players and boards a slice at a time, sharing the lock with readers. Before each change, the writer
// records the old state here:
//
//   an entry     that the save has not visited: its kept score, in a record by board and player. The save skips entries
//                that have a record, and writes the recorded ones at their old places, so its output is in order
//   a board      that is emptied at once: the save takes over its entries
//   a capture    that is replaced or dropped: the save takes it over
//   a name       of a player or board without references: unlisted, and buried when the save ends, so that its
//                number is not reused before
//   a new player or board: marked, and skipped by the save
//
// Nothing here locks. The writer's methods run while readers are excluded, the save's while it shares the lock; other
// readers use none of it. The writer's methods do not throw: a save that cannot go on is interrupted.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "board.hpp"
#include "capture.hpp"
#include "interner.hpp"
#include "order.hpp"

namespace rankd {

// One save at a time: another has begun and not ended.
class SaveUnderWay : public std::runtime_error {
 public:
  SaveUnderWay() : std::runtime_error("another save is under way; wait for it, or abandon it") {}
};

// A save could not be finished; the engine is intact, and another save may begin.
class SaveInterrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Position {
  uint64_t epoch = 0;
  uint64_t sequence = 0;
  bool operator==(const Position&) const = default;
};

using Positions = std::map<uint64_t, Position>;  // by partition

// One bit for each number below an end; numbers from the end on count as marked.
class Marks {
 public:
  explicit Marks(uint32_t end);
  size_t bytes() const { return (size_t{end_} + 63) / 64 * 8; }
  bool has(uint32_t number) const { return number >= end_ || (words_[number / 64] >> (number % 64) & 1) != 0; }
  void add(uint32_t number) {
    if (number < end_) words_[number / 64] |= uint64_t{1} << (number % 64);
  }

 private:
  struct Free {
    void operator()(uint64_t* words) const { std::free(words); }
  };
  uint32_t end_;
  std::unique_ptr<uint64_t[], Free> words_;  // large ones come zeroed from the system, without a write
};

// An entry before its change.
struct OldEntry {
  Key key;
  uint32_t player;
  uint32_t place;  // in the capture of its board
};

class Saving {
 public:
  // `undo_bytes_max` limits the records; a save that needs more is interrupted.
  Saving(Regions& regions, const Players& players, const Interner<Board>& boards, Positions positions, uint64_t number,
         size_t undo_bytes_max);

  const uint64_t number;
  const uint32_t players_count;
  const uint32_t boards_count;
  const uint32_t players_end;
  const Positions positions;
  bool is_being_written = false;

  // From any thread. `why` must be a string literal.
  void interrupt(const char* why) { interrupted_.store(why, std::memory_order_relaxed); }
  bool is_interrupted() const { return interrupted_.load(std::memory_order_relaxed) != nullptr; }
  void refuse_if_interrupted() const {
    if (const char* why = interrupted_.load(std::memory_order_relaxed); why != nullptr) throw SaveInterrupted(why);
  }

  // ------------------------------------------------------------------------------------------------ for the writer

  // Called once, first.
  void attach() { regions_.note_taken(born_players_.bytes() + passed_boards_.bytes(), Purpose::saving); }
  void add_player(uint32_t player) { born_players_.add(player); }
  void add_board(uint32_t board) { passed_boards_.add(board); }

  // Whether changes of the board must be recorded; once false, it stays false.
  bool wants(uint32_t board) const {
    return !is_interrupted() && !passed_boards_.has(board) && (sealed_.empty() || !sealed_.contains(board));
  }
  // An entry is about to change from `old` to `fresh` (null: absent); the board has `size` entries until then.
  void note(uint32_t board, uint32_t size, uint32_t player, std::string_view id, const Key* old, const Key* fresh,
            const Capture* capture) noexcept;
  // Takes all entries of a board that is about to be emptied, and its capture. Returns whether it did; the board is
  // empty then.
  bool seal(uint32_t board, Board& entries, std::unique_ptr<Capture>& capture) noexcept;
  // Takes a capture (or none) that is about to be replaced. Returns whether it did.
  bool seal_capture(uint32_t board, std::unique_ptr<Capture>& capture) noexcept;
  // Whether a name that is about to be forgotten must be unlisted instead; records that it was.
  bool keeps_player(uint32_t player) noexcept;
  bool keeps_board(uint32_t board) noexcept;

  // -------------------------------------------------------------------------------------------------- for the save

  bool is_born(uint32_t player) const { return born_players_.has(player); }
  bool is_passed(uint32_t board) const { return passed_boards_.has(board); }
  const std::deque<uint32_t>& unlisted_players() const { return unlisted_players_; }
  const std::deque<uint32_t>& unlisted_boards() const { return unlisted_boards_; }

  // A board is visited from its first entry to its last; then it is marked as passed.
  void begin_board(uint32_t board);
  void pass_board();
  // All entries up to this one have been visited.
  void move_cursor(const Key& key, std::string_view id) {
    cursor_key_ = key;
    cursor_id_ = id;
    has_cursor_ = true;
  }
  struct Cursor {
    Key key;
    std::string_view id;
  };
  std::optional<Cursor> cursor() const {
    if (!has_cursor_) return {};
    return Cursor{cursor_key_, cursor_id_};
  }
  // What to visit: the board, or the entries it was emptied of.
  const Board& entries_of(uint32_t board, const Board& live) const;
  const Capture* capture_of(uint32_t board, const Capture* live) const;
  uint32_t size_of(uint32_t board, const Board& live) const;
  // Calls take(old entry) for the next record of the present board whose entry has yet to be written; false when there
  // is none.
  template <class Take>
  bool take_record(Take take);
  bool has_changed(uint32_t player) const { return changed_.size() > 0 && find(current_, player) != kNone; }
  void prefetch_changed(uint32_t player) const {
    if (changed_.size() > 0) changed_.prefetch_tag(tag_of(current_, player));
  }

  // ----------------------------------------------------------------------------------------------------- afterwards

  std::map<uint32_t, Board>& sealed() { return sealed_; }
  std::map<uint32_t, std::unique_ptr<Capture>>& sealed_captures() { return sealed_captures_; }
  // Releases memory in small steps; returns whether none is left.
  bool clear_some(uint32_t most);

 private:
  struct Record {
    uint64_t score;
    uint32_t tie_low;
    uint16_t tie_high;
    uint16_t is_owed;  // the old entry has yet to be written
    uint32_t board;
    uint32_t player;
    uint32_t place;
    uint32_t next;  // of the same board
  };
  static_assert(sizeof(Record) == 32);
  struct Head {
    uint32_t latest;  // record that the save has not taken
    uint32_t size;    // of the board before its first change
  };

  static uint32_t tag_of(uint32_t board, uint32_t player) {
    uint64_t mixed = (uint64_t{board} << 32 | player) * 0x9e3779b97f4a7c15ULL;
    mixed ^= mixed >> 29;
    return static_cast<uint32_t>((mixed * 0xbf58476d1ce4e5b9ULL) >> 32);
  }
  Record& record(uint32_t id) const { return *reinterpret_cast<Record*>(records_.at(id)); }
  Head& head(uint32_t id) const { return *reinterpret_cast<Head*>(heads_.at(id)); }
  uint32_t find(uint32_t board, uint32_t player) const {
    return changed_.find(tag_of(board, player), [&](uint32_t id) {
      return record(id).player == player && record(id).board == board;
    });
  }
  bool is_behind_cursor(const Key& key, std::string_view id) const;
  void add_record(uint32_t board, uint32_t size, uint32_t player, const Key* owed, uint32_t place);

  Regions& regions_;
  size_t undo_bytes_max_;
  std::atomic<const char*> interrupted_{nullptr};

  Marks born_players_;
  Marks passed_boards_;  // written, or younger than the save
  std::deque<uint32_t> unlisted_players_;
  std::deque<uint32_t> unlisted_boards_;
  std::map<uint32_t, Board> sealed_;
  std::map<uint32_t, std::unique_ptr<Capture>> sealed_captures_;  // null: there was none

  SegmentPools segments_;
  Pool records_;
  Pool heads_;
  TagTable<false> changed_;  // board and player → record
  TagTable<true> head_of_;   // board → head

  uint32_t current_ = kNone;  // the board the save is at
  uint32_t taking_ = kNone;   // record of it
  bool has_cursor_ = false;
  Key cursor_key_;
  std::string cursor_id_;
};

template <class Take>
bool Saving::take_record(Take take) {
  for (;;) {
    if (taking_ == kNone) {
      const uint32_t id = head_of_.find(page_tag(current_));
      if (id == kNone || head(id).latest == kNone) return false;
      taking_ = head(id).latest;
      head(id).latest = kNone;
    }
    const Record& taken = record(taking_);
    taking_ = taken.next;
    if (taken.is_owed == 0) continue;
    take(OldEntry{{taken.score, uint64_t{taken.tie_high} << 32 | taken.tie_low}, taken.player, taken.place});
    return true;
  }
}

}  // namespace rankd
