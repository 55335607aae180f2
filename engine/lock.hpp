// Readers share, one writer excludes; nobody waits for more than one turn of the others.
//
// A writer with much to do calls breathe() between two events: it lets waiting readers in when they have waited for
// long enough to matter, and goes on when they are out. So a reader waits for `kTurn` at most, however long the batch.
// A writer who finds readers inside waits for a moment without any of them before it keeps new ones out: a long read
// does not make short ones wait behind the writer. After `kPatience` it no longer waits for the moment to come by itself.
//
// The lock keeps the longest waits, so that the promise can be checked where it is used. A wait holds three things: the
// rest of the writer's turn, the processor taken from the writer meanwhile, and the time until the reader runs again once
// it is let in. Only the first is the engine's own; the writer's processor time during the wait shows it.
#pragma once

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace rankd {

// The longest there was, each on its own, in ns.
struct Waits {
  int64_t reader;    // from a reader that is kept out to the same reader inside
  int64_t let_in;    // from the first reader kept out to the writer letting it in
  int64_t work;      // processor time the writer used between these two
};

class TurnLock {
 public:
  static constexpr std::chrono::microseconds kTurn{100};
  static constexpr std::chrono::milliseconds kPatience{10};
  static constexpr std::chrono::milliseconds kKeptLong{1};

  bool try_lock_shared() {
    if (!was_read_.load(std::memory_order_relaxed)) was_read_.store(true, std::memory_order_relaxed);
    return try_lock_aside();
  }

  void lock_shared() {
    if (try_lock_shared()) return;
    if (wait_for_turn() > kKeptLong) kept_long_.store(true, std::memory_order_relaxed);
  }

  // The same for whoever reads and has time, as a save has: it does not count as somebody who waits for an answer.
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
    // Those who waited for the last turn come first.
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

  // For readers who come again and again and have time: they let the writer in first.
  bool has_waiting_writer() const { return writer_waits_.load(std::memory_order_relaxed); }

  void unlock() {
    if (waiting_.load(std::memory_order_relaxed) != 0) measure_wait();
    state_.fetch_and(~kWriter, std::memory_order_release);
    state_.notify_all();
  }

  // For those inside a writer's turn: whether readers have waited for long enough to be let in.
  bool is_turn_over() const {
    return waiting_.load(std::memory_order_relaxed) != 0 && Clock::now() - since_ >= kTurn;
  }

  void breathe() {
    if (!is_turn_over()) return;
    unlock();
    lock();
  }

  // Since somebody forgot them: whether there were readers, and whether one was kept out for far longer than a turn.
  bool was_read() const { return was_read_.load(std::memory_order_relaxed); }
  bool has_kept_long() const { return kept_long_.load(std::memory_order_relaxed); }
  void forget_readers() {
    was_read_.store(false, std::memory_order_relaxed);
    kept_long_.store(false, std::memory_order_relaxed);
  }

  uint32_t readers_waiting() const { return waiting_.load(); }

  Waits longest_waits() const { return {longest_reader_.load(), longest_let_in_.load(), longest_work_.load()}; }

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
    const auto until = Clock::now() + kPatience;
    do {
      for (uint32_t i = 0; i < kTriesPerYield; ++i) {
        uint32_t nobody = 0;
        if (state_.compare_exchange_weak(nobody, kWriter, std::memory_order_acquire)) return true;
      }
      std::this_thread::yield();
    } while (Clock::now() < until);
    return false;
  }

  // Come in as a reader who is kept out for now, and return how long that took.
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

  // A reader's note for the writer: since when it waits, and what the writer had worked until then.
  void note_first_waiting(Clock::time_point began) {
    waiting_work_.store(writer_work());
    waiting_since_.store(began.time_since_epoch().count());
  }

  void measure_wait() {
    const Clock::time_point since{Clock::duration{waiting_since_.load()}};
    if (since < since_) return;  // a note of an earlier turn: this reader has not written its own yet
    raise(longest_let_in_, Clock::now() - since);
    raise(longest_work_, std::chrono::nanoseconds(writer_work() - waiting_work_.load()));
  }

  int64_t writer_work() const {
    timespec used{};
    if (clock_gettime(writer_clock_, &used) != 0) return 0;  // that thread has ended, so it keeps nobody out
    return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
  }

  static void raise(std::atomic<int64_t>& longest, std::chrono::nanoseconds wait) {
    int64_t before = longest.load(std::memory_order_relaxed);
    while (before < wait.count() && !longest.compare_exchange_weak(before, wait.count(), std::memory_order_relaxed)) {
    }
  }

  std::atomic<uint32_t> state_{0};    // kWriter when a writer is in or about to be; below it, readers inside
  std::atomic<uint32_t> waiting_{0};  // readers who were kept out
  std::atomic<bool> writer_waits_{false};
  std::atomic<bool> was_read_{false};
  std::atomic<bool> kept_long_{false};
  Clock::time_point since_;
  std::atomic<clockid_t> writer_clock_{CLOCK_MONOTONIC};
  std::atomic<int64_t> waiting_since_{0};
  std::atomic<int64_t> waiting_work_{0};
  std::atomic<int64_t> longest_reader_{0};
  std::atomic<int64_t> longest_let_in_{0};
  std::atomic<int64_t> longest_work_{0};
};

}  // namespace rankd
