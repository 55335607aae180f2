// The ranking engine: any number of boards over one set of players.
//
//   apply.cpp            applies batches
//   batch_worker.cpp     applies the rows of a batch, in one thread or two (second_thread.hpp)
//   read.cpp             reads ranks
//   captures.cpp         captures the places of an instant
//   snapshot_write.cpp   writes the whole engine to a file, while batches go on (saving.hpp)
//   snapshot_read.cpp    loads such a file
//
// Threads: any. One writer works at a time; it excludes readers for at most a turn (lock.hpp). Methods named
// `read_…` do not take the lock: the caller holds it, so that the bindings can choose how to wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "board.hpp"
#include "capture.hpp"
#include "interner.hpp"
#include "lock.hpp"
#include "order.hpp"
#include "saving.hpp"
#include "second_thread.hpp"

namespace rankd {

enum class Op : uint8_t { apply, put, remove, clear };
enum class Verdict : uint8_t { applied, dup, gap, fenced };

inline constexpr uint8_t kWasPresent = 1;
inline constexpr uint8_t kIsPresent = 2;
inline constexpr uint8_t kSet = 4;
inline constexpr int64_t kRankAbsent = -1;

inline constexpr size_t kPlayerBytesMax = 128;
inline constexpr size_t kBoardNameBytesMax = Interner<Board>::kLengthMax;

// An invalid batch; `row` is −1 when the error concerns the whole batch.
class MalformedBatch : public std::runtime_error {
 public:
  MalformedBatch(int64_t row, const std::string& problem) : std::runtime_error(problem), row(row) {}
  int64_t row;
};

// Memory ran out in the middle of a change, so the engine's state is inconsistent.
class EngineBroken : public std::runtime_error {
 public:
  EngineBroken() : std::runtime_error("memory ran out in the middle of a batch; load the last snapshot") {}
};

class SnapshotDamaged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SnapshotNewer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Player ids, one behind the other, with their hashes.
struct Ids {
  std::string text;
  std::vector<uint32_t> end;  // of each id in `text`
  std::vector<uint64_t> hash;

  size_t size() const { return end.size(); }
  std::string_view operator[](size_t i) const {
    const uint32_t begin = i == 0 ? 0 : end[i - 1];
    return {text.data() + begin, end[i] - begin};
  }
};

// Columns are borrowed; a null one has the default of src/rankd/projection/port.py.
struct Batch {
  struct Instance {
    std::string_view name;
    Rules rules;
  };
  std::vector<Instance> instances;
  const Ids* players = nullptr;
  size_t rows = 0;
  const int64_t* score = nullptr;
  const int64_t* tie = nullptr;
  const uint32_t* instance = nullptr;
  const uint32_t* player = nullptr;
  const uint8_t* op = nullptr;
  uint64_t partition = 0;
  uint64_t epoch = 0;
  uint64_t after = 0;
  uint64_t upto = 0;
  std::optional<Ranking> ranks;
  size_t ranked_rows = SIZE_MAX;  // the number of rows, from the first, whose ranks the caller wants
};

struct Applied {
  Verdict verdict = Verdict::applied;
  Position position;
  std::vector<uint8_t> flags;
  std::vector<int64_t> old_score;
  std::vector<int64_t> new_score;
  std::vector<int64_t> rank_before;
  std::vector<int64_t> rank_after;
};

// Answers are copied out of the engine, so that the lock is not held while the bindings make objects of them.
struct Line {
  uint64_t rank = 0;
  Kept kept;
  uint32_t id_begin = 0;
  uint32_t id_size = 0;
};

// Of the first players in standing order.
struct StandingColumns {
  std::vector<uint64_t> hashes;  // of their ids
  std::vector<int64_t> scores;
};

struct Lines {
  std::vector<Line> lines;
  std::string text;
  uint64_t total = 0;

  std::string_view id(const Line& line) const { return {text.data() + line.id_begin, line.id_size}; }
  void add(uint64_t rank, const Kept& kept, std::string_view id) {
    lines.push_back({rank, kept, static_cast<uint32_t>(text.size()), static_cast<uint32_t>(id.size())});
    text.append(id);
  }
};

struct Standing {
  bool present = false;
  uint64_t rank = 0;
  Kept kept;
  uint64_t better = 0;
  uint64_t total = 0;
};

struct FriendLine {
  uint32_t asked = 0;  // index into the ids
  uint64_t rank = 0;
  uint64_t global_rank = 0;
  Kept kept;
};

struct Bucket {
  int64_t low = 0;
  int64_t high = 0;
  uint64_t count = 0;
};

struct MemoryUse {
  size_t players = 0;
  size_t boards = 0;
  size_t entries = 0;
  size_t maps = 0;
  size_t captures = 0;
  size_t saving = 0;
  size_t idle = 0;

  size_t total() const { return players + boards + entries + maps + captures + saving + idle; }
};

// A begun save: it will contain the engine's state at its beginning.
struct SaveBegun {
  uint64_t number = 0;
  Positions positions;
};

class Engine {
 public:
  // The key should be random: see hash.hpp.
  explicit Engine(HashKey key);
  ~Engine();

  TurnLock& lock() const { return lock_; }
  // Throws EngineBroken after an interrupted change; every call begins with it.
  void refuse_if_broken() const {
    if (broken_.load(std::memory_order_relaxed)) throw EngineBroken();
  }
  // Marks the engine as broken: for a caller that could not get the answer to a change.
  void give_up() { broken_.store(true, std::memory_order_relaxed); }
  uint64_t hash(std::string_view id) const { return players_.hash(id); }

  // Writers; they take the lock themselves.
  Applied apply(const Batch& batch);
  bool drop(std::string_view name);
  // Drops up to `most` boards of a family; returns their number, 0 when none are left, and the number of their entries.
  struct Dropped {
    uint64_t boards = 0;
    uint64_t entries = 0;
  };
  Dropped drop_family(std::string_view prefix, uint32_t most);
  // These two exclude other writers only; readers go on.
  void capture(std::string_view name);
  // Throws std::logic_error naming the first invariant that does not hold.
  void check() const;
  void forget_capture(std::string_view name);

  // A save begins at an instant and is written later, or abandoned; other writers go on meanwhile. The records of their
  // changes take at most `undo_bytes_max`, by default a quarter of the engine's memory, or 256 MiB if that is more.
  // Throws SaveUnderWay when another has begun and not ended.
  SaveBegun begin_save(std::optional<size_t> undo_bytes_max = {});
  // Writes the save and ends it, also on failure. Throws SaveInterrupted when it cannot be finished, std::system_error
  // from the file. `pause` is called regularly while the save holds no lock.
  void write_save(uint64_t number, int file, const std::function<void()>& pause = {});
  // Makes a running write_save stop; does nothing if the save has ended.
  void abandon_save(uint64_t number);
  // Only into a new engine that no other thread uses.
  void load(int file);

  // Readers; the caller holds the lock. An empty answer is that of an empty board.
  const Board* read_board(std::string_view name) const;
  Position read_position(uint64_t partition) const;
  // Begin with cursor 0; at the end it is kNamesEnd.
  static constexpr uint64_t kNamesEnd = Interner<Board>::kEnd;
  std::vector<std::string> read_names(uint64_t& cursor, uint32_t most) const;
  // Visit up to `most` boards of a family from `place` on, and advance `place`, to kFamilyEnd at the end. Boards that
  // are added or removed between two calls change the places of others.
  static constexpr uint64_t kFamilyEnd = UINT64_MAX;
  // The scopes: the part of each board's name behind the prefix; of all boards, or of those with an entry of a player.
  std::vector<std::string> read_scopes(std::string_view prefix, const std::optional<std::string>& id, uint64_t& place,
                                       uint32_t most) const;
  struct FamilySum {
    uint64_t boards = 0;
    uint64_t entries = 0;
    Digest digest;  // the sum of theirs
  };
  FamilySum read_family(std::string_view prefix, uint64_t& place, uint32_t most) const;
  std::optional<Kept> read_score(const Board* board, std::string_view id) const;
  std::vector<std::optional<Kept>> read_scores(const Board* board, const Ids& ids) const;
  Standing read_rank(const Board* board, std::string_view id, Ranking ranking) const;
  std::vector<Standing> read_ranks(const Board* board, const Ids& ids, Ranking ranking) const;
  Lines read_range(const Board* board, uint64_t first, uint64_t last, Ranking ranking) const;
  Lines read_following(const Board* board, const Kept& after, std::string_view id, uint64_t limit,
                       Ranking ranking) const;
  // The lines of above, player and below; `above_count` of them are above.
  Lines read_around(const Board* board, std::string_view id, uint64_t above, uint64_t below, Ranking ranking,
                    Standing& standing, uint64_t& above_count) const;
  std::vector<FriendLine> read_friends(const Board* board, const Ids& ids, Ranking ranking) const;
  uint64_t read_rank_of_score(const Board* board, const Kept& kept, Ranking ranking) const;
  uint64_t read_count(const Board* board, int64_t low, int64_t high) const;
  std::vector<int64_t> read_quantiles(const Board* board, const std::vector<uint32_t>& ppm) const;
  std::vector<Bucket> read_histogram(const Board* board, uint32_t buckets) const;
  StandingColumns read_standing(const Board* board, uint64_t most, HashKey key) const;
  uint32_t read_captured(std::string_view name, std::string_view id) const;
  MemoryUse read_memory() const;

 private:
  // Excludes readers during a change. An exception during the change breaks the engine, before any reader can see the
  // incomplete change.
  class Changing {
   public:
    explicit Changing(Engine& engine) : engine_(engine), exceptions_(std::uncaught_exceptions()) {
      engine_.lock_.lock();
      engine_.has_changed_.store(true, std::memory_order_relaxed);
    }
    ~Changing() {
      if (std::uncaught_exceptions() > exceptions_) engine_.broken_.store(true, std::memory_order_relaxed);
      engine_.lock_.unlock();
    }
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;

   private:
    Engine& engine_;
    int exceptions_;
  };

  friend class Application;
  friend class BatchWorker;
  friend class SnapshotWriter;
  friend class SnapshotReader;

  std::vector<uint32_t> find_players(const Ids& ids) const;
  void ask_ahead(const std::vector<uint32_t>& boards, uint32_t player, int64_t score) const;
  void find_players(const Ids& ids, size_t begin, size_t end, std::vector<uint32_t>& numbers) const;
  Standing standing_at(const Board& board, Spot spot, Ranking ranking) const;
  void add_lines(const Board& board, uint64_t first_place, uint64_t count, Ranking ranking, Lines& lines) const;
  void empty(uint32_t number, std::vector<uint32_t>& orphans);
  void forget(const std::vector<uint32_t>& boards, std::vector<uint32_t>& orphans);
  void join_family(uint32_t board);
  void leave_family(uint32_t board);
  template <class Visit>
  void each_of_family(std::string_view prefix, uint64_t& place, uint32_t most, Visit visit) const;
  const Capture* capture_of(uint32_t number) const;
  void fill_capture(const Board& board, std::unique_ptr<Capture>& capture);
  void end_save();
  // Whether a second worker would take the processor that readers need. A worker that is preempted inside a turn
  // excludes readers until it runs again, and a fair scheduler may delay a woken reader by milliseconds. Under a
  // sanitizer batches are shared nevertheless, so that it sees both workers.
  bool are_workers_in_the_way() const {
    return !kOneSlotPieces && (lock_.has_kept_long() || (lock_.was_read() && processors_ <= kWorkers));
  }
  // While readers are excluded.
  std::unique_ptr<Capture> take_capture(uint32_t number);
  void dismantle(Board& board, std::vector<uint32_t>& orphans);
  void dismantle(std::unique_ptr<Capture> capture);

  mutable TurnLock lock_;
  std::atomic<bool> broken_{false};
  std::atomic<bool> has_changed_{false};  // since the present batch began
  mutable std::mutex writer_;
  Regions regions_;
  Players players_;
  BoardMemory memory_;
  Interner<Board> boards_;
  Families families_;
  Positions positions_;
  SegmentPools capture_segments_;
  std::map<uint32_t, std::unique_ptr<Capture>> captures_;  // by board
  std::unique_ptr<Saving> saving_;
  uint64_t saves_begun_ = 0;
  static constexpr unsigned kWorkers = 2;
  const unsigned processors_ = std::thread::hardware_concurrency();
  SecondThread second_;
  uint32_t batches_alone_ = 0;  // the number of next batches to apply without the second worker
};

}  // namespace rankd
