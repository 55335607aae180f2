// Writes the engine to a file as of the beginning of the save, while batches and readers go on.
//
// The save works in slices: for some 20 µs it shares the lock with readers and copies entries, then it writes them
// without a lock. Batches run between two slices. The changes since the beginning are recorded by saving.hpp.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <queue>
#include <shared_mutex>
#include <system_error>
#include <thread>

#include "engine.hpp"
#include "snapshot_format.hpp"

namespace rankd {

namespace {

using namespace snapshot;

constexpr uint32_t kEntriesPerBlock = 32768;
// Under a sanitizer slices are short, so that in tests batches run between any two entries.
constexpr uint32_t kEntriesPerSlice = kOneSlotPieces ? 40 : 4096;
constexpr size_t kEntryBytes = 22;
static_assert((kEntriesPerBlock + kEntriesPerSlice) * kEntryBytes + 4 <= kPayloadBytesMax);
constexpr uint32_t kPlayersPerSlice = 256;
constexpr uint32_t kBoardsPerSlice = 64;
constexpr uint32_t kPiecesPerYield = 2;
constexpr size_t kUndoBytesLeast = size_t{256} << 20;

template <class Number>
void append(std::string& payload, Number number) {
  payload.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// A save's short hold of the lock. It lets a waiting writer go first and spins for the moment between two of the writer's
// turns, since a wake-up takes longer than a turn. If that does not come, it looks again every now and then: between two
// batches the lock is free for milliseconds. Only in the end does it wait like a reader, whom the writer lets in: on a
// busy machine that keeps the writer waiting until this thread gets a processor.
class Slice {
 public:
  Slice(const Engine& engine, const Saving& saving) {
    TurnLock& lock = engine.lock();
    const auto began = Clock::now();
    auto now = began;
    while (now - began < kMomentWaitMax && (lock.has_waiting_writer() || !lock.try_lock_aside())) {
      if (now - began > kWatched) std::this_thread::sleep_for(kBetweenLooks);
      now = Clock::now();
    }
    if (now - began >= kMomentWaitMax) lock.lock_aside();
    held_ = std::shared_lock<TurnLock>(lock, std::adopt_lock);
    until_ = now + kHeldMost;
    engine.refuse_if_broken();
    saving.refuse_if_interrupted();
  }

  // Asked after each step.
  bool is_over() {
    ++steps_;
    return steps_ >= kEntriesPerSlice || (steps_ % kStepsPerLook == 0 && Clock::now() >= until_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kHeldMost{20};
  static constexpr std::chrono::microseconds kWatched{100};
  static constexpr std::chrono::microseconds kBetweenLooks{100};
  static constexpr std::chrono::milliseconds kMomentWaitMax{50};
  static constexpr uint32_t kStepsPerLook = 16;

  std::shared_lock<TurnLock> held_;
  Clock::time_point until_;
  uint32_t steps_ = 0;
};

}  // namespace

class SnapshotWriter {
 public:
  SnapshotWriter(const Engine& engine, Saving& saving, int file, const std::function<void()>& pause)
      : engine_(engine), saving_(saving), file_(file), pause_(pause), owed_(StandsBehind{engine.players_}) {}

  void write() {
    buffer_.append(kMagic, sizeof(kMagic));
    append(buffer_, kVersion);
    append(payload_, uint64_t{saving_.players_count});
    append(payload_, uint64_t{saving_.boards_count});
    append(payload_, engine_.players_.key());
    finish_block(Type::begin);
    write_positions();
    write_players();
    write_boards();
    finish_block(Type::end);
    flush();
  }

 private:
  // For the first in standing order to be on top.
  struct StandsBehind {
    const Players& players;
    bool operator()(const OldEntry& a, const OldEntry& b) const {
      if (a.key.score != b.key.score) return a.key.score > b.key.score;
      if (a.key.tie != b.key.tie) return a.key.tie > b.key.tie;
      return players.name(a.player) > players.name(b.player);
    }
  };

  void finish_block(Type type) {
    const auto kind = static_cast<uint32_t>(type);
    const BlockHead head{kind, static_cast<uint32_t>(payload_.size()), checksum(kind, blocks_++, payload_)};
    append(buffer_, head);
    buffer_ += payload_;
    payload_.clear();
    if (buffer_.size() >= 4 * kPayloadBytesMax) flush();
  }

  void flush() {
    for (size_t done = 0; done < buffer_.size();) {
      const ssize_t wrote = ::write(file_, buffer_.data() + done, buffer_.size() - done);
      if (wrote >= 0) {
        done += static_cast<size_t>(wrote);
      } else if (errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "writing a snapshot");
      }
    }
    buffer_.clear();
    // Step by step: hundreds of megabytes that the disk takes at once would keep every commit waiting. What is no file
    // on a disk refuses it, and whoever opened the file syncs it at the end.
    ::fdatasync(file_);
  }

  void write_positions() {
    for (const auto& [partition, position] : saving_.positions) {
      append(payload_, partition);
      append(payload_, position.epoch);
      append(payload_, position.sequence);
      if (payload_.size() + 24 > kPayloadBytesMax) finish_block(Type::positions);
    }
    if (!payload_.empty()) finish_block(Type::positions);
  }

  // ------------------------------------------------------------------------------------------------------- players

  void write_players() {
    numbers_.assign(saving_.players_end, kNone);
    std::vector<uint32_t> found;
    for (uint64_t next = 0; next != Players::kEnd;) {
      {
        Slice slice(engine_, saving_);
        found.clear();
        next = engine_.players_.each_some(next, kPlayersPerSlice, [&](uint32_t player) {
          if (!saving_.is_born(player)) found.push_back(player);
        });
        copy_names(found);
      }
      number_players(found);
      if (pause_) pause_();
    }
    // Players that were removed before the walk reached them. Those removed from now on have a number in the file.
    for (size_t at = 0, end = 1; at < end;) {
      {
        Slice slice(engine_, saving_);
        found.clear();
        end = saving_.unlisted_players().size();
        for (; at < end && found.size() < kPlayersPerSlice && !slice.is_over(); ++at) {
          const uint32_t player = saving_.unlisted_players()[at];
          if (numbers_[player] == kNone) found.push_back(player);
        }
        copy_names(found);
      }
      number_players(found);
    }
    if (!lengths_.empty()) finish_players();
    if (players_written_ != saving_.players_count) throw std::logic_error("a save lost players");
  }

  void copy_names(const std::vector<uint32_t>& players) {
    constexpr size_t kGroupItems = 4;
    PrefetchGroup<kGroupItems> records(players.size());
    PrefetchGroup<kGroupItems> names(players.size());
    staggered<kGroupItems>(
        players.size(), [&](size_t i) { records.add(engine_.players_.record_line(players[i])); },
        [&](size_t i) { names.add(engine_.players_.name_line(players[i])); },
        [&](size_t i) {
          const std::string_view name = engine_.players_.name(players[i]);
          append(lengths_, static_cast<uint16_t>(name.size()));
          names_ += name;
        });
  }

  void number_players(const std::vector<uint32_t>& players) {
    for (const uint32_t player : players) numbers_[player] = players_written_++;
    // A segment of the index holds at most some hundred players of at most 128 bytes.
    if (lengths_.size() + names_.size() + kPayloadBytesMax / 4 > kPayloadBytesMax) finish_players();
  }

  void finish_players() {
    append(payload_, static_cast<uint32_t>(lengths_.size() / 2));
    payload_ += lengths_;
    payload_ += names_;
    lengths_.clear();
    names_.clear();
    finish_block(Type::players);
  }

  // -------------------------------------------------------------------------------------------------------- boards

  void write_boards() {
    std::vector<uint32_t> found;
    for (uint64_t next = 0; next != Interner<Board>::kEnd;) {
      {
        Slice slice(engine_, saving_);
        found.clear();
        next = engine_.boards_.each_some(next, kBoardsPerSlice, [&](uint32_t board) {
          if (!saving_.is_passed(board)) found.push_back(board);
        });
      }
      for (const uint32_t board : found) write_board(board);
    }
    for (size_t at = 0, end = 1; at < end;) {
      {
        Slice slice(engine_, saving_);
        found.clear();
        end = saving_.unlisted_boards().size();
        for (; at < end && found.size() < kBoardsPerSlice; ++at) {
          const uint32_t board = saving_.unlisted_boards()[at];
          if (!saving_.is_passed(board)) found.push_back(board);
        }
      }
      for (const uint32_t board : found) write_board(board);
    }
    if (boards_written_ != saving_.boards_count) throw std::logic_error("a save lost boards");
  }

  void write_board(uint32_t number) {
    uint32_t size = 0;
    uint32_t written = 0;
    for (bool is_first = true, is_complete = false; !is_complete; is_first = false) {
      {
        Slice slice(engine_, saving_);
        if (is_first) size = begin_board(number);
        is_complete = collect(number, slice);
        if (is_complete) saving_.pass_board();
      }
      if (is_first) finish_block(Type::board);
      if (scores_.size() >= kEntriesPerBlock || is_complete) written += finish_entries();
      if (pause_) pause_();
    }
    ++boards_written_;
    if (written != size) throw std::logic_error("a save lost entries");
  }

  uint32_t begin_board(uint32_t number) {
    saving_.begin_board(number);
    const Board& live = engine_.boards_.payload(number);
    const uint32_t size = saving_.size_of(number, live);
    const Direction direction = saving_.entries_of(number, live).direction();
    has_places_ = saving_.capture_of(number, engine_.capture_of(number)) != nullptr;
    append(payload_, size);
    append(payload_, static_cast<uint8_t>(direction.order));
    append(payload_, static_cast<uint8_t>(direction.ties));
    append(payload_, static_cast<uint8_t>(has_places_ ? 1 : 0));
    payload_ += engine_.boards_.name(number);
    return size;
  }

  // Continues with a board: writes unchanged entries, and the recorded old entries at their old places. Returns whether
  // it reached the end.
  bool collect(uint32_t number, Slice& slice) {
    // All records first: an old entry must be known before any entry behind it is written.
    while (saving_.take_record([&](const OldEntry& old) { owed_.push(old); })) {
      if (slice.is_over()) return false;
    }
    const Board& board = saving_.entries_of(number, engine_.boards_.payload(number));
    const Capture* capture = saving_.capture_of(number, engine_.capture_of(number));
    Spot behind;
    for (Spot spot = first_behind_cursor(board); spot.leaf != kNone; spot = behind) {
      const Run run = board.run(engine_.memory_, spot, behind);
      for (uint32_t i = 0; i < run.size(); ++i) {
        saving_.prefetch_changed(run.player(i));
        if (capture != nullptr) capture->prefetch_place(run.player(i));
      }
      for (uint32_t i = 0; i < run.size(); ++i) {
        const uint32_t player = run.player(i);
        const Key key = run.key(i);
        if (!saving_.has_changed(player)) {
          const OldEntry entry{key, player, capture == nullptr ? Capture::kNowhere : capture->place(player)};
          if (!write_owed_before(&entry, slice)) return false;
          write_entry(entry);
        }
        last_ = {key, player, 0};
        if (slice.is_over()) return stop();
      }
    }
    return write_owed_before(nullptr, slice);
  }

  Spot first_behind_cursor(const Board& board) const {
    if (board.size() == 0) return {};
    uint64_t place = 0;
    if (const auto cursor = saving_.cursor(); cursor) {
      place = board.before(engine_.memory_, BehindEntry<Players>{cursor->key, cursor->id, engine_.players_}).entries;
    }
    return place == board.size() ? Spot{} : board.at(place);
  }

  // Writes the recorded entries before an entry, or all of them. Returns false when the slice ended first.
  bool write_owed_before(const OldEntry* entry, Slice& slice) {
    while (!owed_.empty() && (entry == nullptr || StandsBehind{engine_.players_}(*entry, owed_.top()))) {
      last_ = owed_.top();
      write_entry(last_);
      owed_.pop();
      if (slice.is_over()) return stop();
    }
    return true;
  }

  // Records the end of the slice; the name is copied, since a new player may be removed.
  bool stop() {
    saving_.move_cursor(last_.key, engine_.players_.name(last_.player));
    return false;
  }

  void write_entry(const OldEntry& entry) {
    scores_.push_back(entry.key.score);
    ties_low_.push_back(static_cast<uint32_t>(entry.key.tie));
    ties_high_.push_back(static_cast<uint16_t>(entry.key.tie >> 32));
    players_.push_back(entry.player);
    if (has_places_) places_.push_back(entry.place);
  }

  uint32_t finish_entries() {
    const auto count = static_cast<uint32_t>(scores_.size());
    if (count == 0) return 0;
    for (uint32_t& player : players_) player = numbers_[player];
    const auto column = [&](auto& values) {
      payload_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
      values.clear();
    };
    append(payload_, count);
    column(scores_);
    column(ties_low_);
    column(ties_high_);
    column(players_);
    column(places_);
    finish_block(Type::entries);
    return count;
  }

  const Engine& engine_;
  Saving& saving_;
  int file_;
  const std::function<void()>& pause_;
  uint64_t blocks_ = 0;
  std::string payload_;
  std::string buffer_;

  std::vector<uint32_t> numbers_;  // player's number → number in the file
  uint32_t players_written_ = 0;
  std::string lengths_;
  std::string names_;

  uint32_t boards_written_ = 0;
  bool has_places_ = false;
  OldEntry last_{};  // the last entry visited
  std::priority_queue<OldEntry, std::vector<OldEntry>, StandsBehind> owed_;
  std::vector<uint64_t> scores_;
  std::vector<uint32_t> ties_low_;
  std::vector<uint16_t> ties_high_;
  std::vector<uint32_t> players_;
  std::vector<uint32_t> places_;
};

SaveBegun Engine::begin_save(std::optional<size_t> undo_bytes_max) {
  const std::lock_guard<std::mutex> writer(writer_);
  refuse_if_broken();
  if (saving_ != nullptr) throw SaveUnderWay();
  const size_t most = undo_bytes_max.value_or(std::max(kUndoBytesLeast, read_memory().total() / 4));
  SaveBegun begun{saves_begun_ + 1, positions_};
  auto saving = std::make_unique<Saving>(regions_, players_, boards_, positions_, begun.number, most);
  const Changing changing(*this);
  saving->attach();
  saving_ = std::move(saving);
  saves_begun_ = begun.number;
  return begun;
}

void Engine::write_save(uint64_t number, int file, const std::function<void()>& pause) {
  {
    const std::lock_guard<std::mutex> writer(writer_);
    refuse_if_broken();
    if (saving_ == nullptr || saving_->number != number) throw SaveInterrupted("this save has ended; begin another");
    if (saving_->is_being_written) throw SaveUnderWay();
    saving_->is_being_written = true;
  }
  try {
    SnapshotWriter(*this, *saving_, file, pause).write();
  } catch (...) {
    end_save();
    throw;
  }
  end_save();
}

void Engine::abandon_save(uint64_t number) {
  {
    const std::lock_guard<std::mutex> writer(writer_);
    if (saving_ == nullptr || saving_->number != number) return;
    saving_->interrupt("the save was abandoned");
    if (saving_->is_being_written) return;
    saving_->is_being_written = true;  // no other call ends it
  }
  end_save();
}

// Releases the records of the save; batches wait meanwhile, readers do not.
void Engine::end_save() {
  const std::lock_guard<std::mutex> writer(writer_);
  if (broken_.load(std::memory_order_relaxed)) return;  // a broken engine is discarded with its records
  std::vector<uint32_t> orphans;
  std::unique_ptr<Saving> over;
  {
    const Changing changing(*this);
    over = std::move(saving_);
    for (auto& [number, board] : over->sealed()) dismantle(board, orphans);
    for (auto& [number, capture] : over->sealed_captures()) dismantle(std::move(capture));
    for (const uint32_t board : over->unlisted_boards()) {
      boards_.bury(board);
      lock_.yield_to_readers();
    }
    for (const uint32_t player : over->unlisted_players()) {
      players_.bury(player);
      lock_.yield_to_readers();
    }
    while (!over->clear_some(kPiecesPerYield)) lock_.yield_to_readers();
  }
  forget({}, orphans);
}

}  // namespace rankd
