// A readers-writer lock: no thread waits longer than one turn of the others.
//
// A writer with a long batch calls yield_to_readers() between two events. It lets readers in that have waited for a
// turn, and goes on when they have left. So a reader waits for `kTurn` at most, however long the batch is. A writer
// that finds readers inside first waits for a moment without readers, before it excludes new ones: short reads do not
// queue behind the writer because of one long read. After `kMomentWaitMax` it excludes new readers at once.
//
// The lock records the longest waits, so that the promise can be checked in production. A wait has three parts: the
// rest of the writer's turn, the time for which the writer was preempted, and the reader's own wake-up. Only the first
// is caused by the engine; the writer's processor time during the wait measures it.
#pragma once

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace rankd {

// The longest waits, each measured separately, in ns.
struct ReaderWaits {
  int64_t reader;    // from a reader's arrival to its entry
  int64_t let_in;    // from the first blocked reader to the writer's release
  int64_t work;      // processor time the writer used between these two
};

class TurnLock {
 public:
  static constexpr std::chrono::microseconds kTurn{100};
  static constexpr std::chrono::milliseconds kMomentWaitMax{10};
  static constexpr std::chrono::milliseconds kKeptLong{1};

  bool try_lock_shared() {
    if (!was_read_.load(std::memory_order_relaxed) && applier_.load(std::memory_order_relaxed) != this_thread()) {
      was_read_.store(true, std::memory_order_relaxed);
    }
    return try_lock_aside();
  }

  void lock_shared() {
    if (try_lock_shared()) return;
    if (wait_for_turn() > kKeptLong) kept_long_.store(true, std::memory_order_relaxed);
  }

  // The same for a save: it does not count as a waiting reader.
  bool try_lock_aside() {
    uint32_t state = state_.load(std::memory_order_relaxed);
    while ((state & kWriter) == 0) {
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void lock_aside() {
    if (!try_lock_aside()) wait_for_turn();
  }

  void unlock_shared() {
    if (state_.fetch_sub(1, std::memory_order_release) == (kWriter | 1)) state_.notify_all();
  }

  // Only one thread at a time may call lock: the engine's writer.
  void lock() {
    // Readers that waited during the last turn enter first.
    for (uint32_t waiting = waiting_.load(); waiting != 0; waiting = waiting_.load()) waiting_.wait(waiting);
    clockid_t clock{};
    if (pthread_getcpuclockid(pthread_self(), &clock) == 0) writer_clock_ = clock;
    uint32_t nobody = 0;
    if (!state_.compare_exchange_strong(nobody, kWriter, std::memory_order_acquire)) {
      writer_waits_.store(true, std::memory_order_relaxed);
      if (!enter_between_readers()) {
        uint32_t state = state_.fetch_or(kWriter, std::memory_order_acquire) | kWriter;
        while (state != kWriter) {
          state_.wait(state);
          state = state_.load(std::memory_order_acquire);
        }
      }
      writer_waits_.store(false, std::memory_order_relaxed);
    }
    since_ = Clock::now();
  }

  // For a save, which reads repeatedly: a waiting writer enters first.
  bool has_waiting_writer() const { return writer_waits_.load(std::memory_order_relaxed); }

  void unlock() {
    if (waiting_.load(std::memory_order_relaxed) != 0) measure_wait();
    state_.fetch_and(~kWriter, std::memory_order_release);
    state_.notify_all();
  }

  // For a worker inside a writer's turn: whether readers have waited for a whole turn.
  bool is_turn_over() const {
    return waiting_.load(std::memory_order_relaxed) != 0 && Clock::now() - since_ >= kTurn;
  }

  void yield_to_readers() {
    if (!is_turn_over()) return;
    unlock();
    lock();
  }

  // Since the last `forget_readers`: whether there were readers, and whether one waited far longer than a turn. The thread
  // that applies batches calls it before each; what it reads between two of them delays nobody, and does not count.
  bool was_read() const { return was_read_.load(std::memory_order_relaxed); }
  bool has_kept_long() const { return kept_long_.load(std::memory_order_relaxed); }
  void forget_readers() {
    was_read_.store(false, std::memory_order_relaxed);
    kept_long_.store(false, std::memory_order_relaxed);
    applier_.store(this_thread(), std::memory_order_relaxed);
  }

  uint32_t readers_waiting() const { return waiting_.load(); }

  ReaderWaits longest_waits() const { return {longest_reader_.load(), longest_let_in_.load(), longest_work_.load()}; }

  void forget_waits() {
    longest_reader_ = 0;
    longest_let_in_ = 0;
    longest_work_ = 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kWriter = 1u << 31;
  static constexpr uint32_t kTriesPerYield = 64;

  bool enter_between_readers() {
    const auto until = Clock::now() + kMomentWaitMax;
    do {
      for (uint32_t i = 0; i < kTriesPerYield; ++i) {
        uint32_t nobody = 0;
        if (state_.compare_exchange_weak(nobody, kWriter, std::memory_order_acquire)) return true;
      }
      std::this_thread::yield();
    } while (Clock::now() < until);
    return false;
  }

  // Waits as a blocked reader, enters, and returns the waiting time.
  std::chrono::nanoseconds wait_for_turn() {
    const auto began = Clock::now();
    if (waiting_.fetch_add(1) == 0) note_first_waiting(began);
    while (!try_lock_aside()) {
      const uint32_t state = state_.load();
      if ((state & kWriter) != 0) state_.wait(state);
    }
    if (waiting_.fetch_sub(1) == 1) waiting_.notify_all();
    const auto waited = Clock::now() - began;
    raise(longest_reader_, waited);
    return waited;
  }

  // The first blocked reader records its arrival, and the writer's processor time by then.
  void note_first_waiting(Clock::time_point began) {
    waiting_work_.store(writer_work());
    waiting_since_.store(began.time_since_epoch().count());
  }

  void measure_wait() {
    const Clock::time_point since{Clock::duration{waiting_since_.load()}};
    if (since < since_) return;  // recorded in an earlier turn: this reader has not recorded its own arrival yet
    raise(longest_let_in_, Clock::now() - since);
    raise(longest_work_, std::chrono::nanoseconds(writer_work() - waiting_work_.load()));
  }

  int64_t writer_work() const {
    timespec used{};
    if (clock_gettime(writer_clock_, &used) != 0) return 0;  // that thread has ended, so it blocks no reader
    return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
  }

  static const void* this_thread() {
    static thread_local char address;
    return &address;
  }

  static void raise(std::atomic<int64_t>& longest, std::chrono::nanoseconds wait) {
    int64_t before = longest.load(std::memory_order_relaxed);
    while (before < wait.count() && !longest.compare_exchange_weak(before, wait.count(), std::memory_order_relaxed)) {
    }
  }

  std::atomic<uint32_t> state_{0};    // kWriter: a writer is inside or enters; below it, readers inside
  std::atomic<uint32_t> waiting_{0};  // blocked readers
  std::atomic<bool> writer_waits_{false};
  std::atomic<bool> was_read_{false};
  std::atomic<bool> kept_long_{false};
  std::atomic<const void*> applier_{nullptr};
  Clock::time_point since_;
  std::atomic<clockid_t> writer_clock_{CLOCK_MONOTONIC};
  std::atomic<int64_t> waiting_since_{0};
  std::atomic<int64_t> waiting_work_{0};
  std::atomic<int64_t> longest_reader_{0};
  std::atomic<int64_t> longest_let_in_{0};
  std::atomic<int64_t> longest_work_{0};
};

}  // namespace rankd
