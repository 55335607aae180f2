// Readers share, one writer excludes; nobody waits for more than one turn of the others.
//
// A writer with much to do calls breathe() between two events: it lets waiting readers in when they have waited for
// long enough to matter, and goes on when they are out. So a reader waits for `kTurn` at most, however long the batch.
// A writer who finds readers inside waits for a moment without any of them before it keeps new ones out: a long read
// does not make short ones wait behind the writer. After `kPatience` it no longer waits for the moment to come by itself.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace rankd {

class TurnLock {
 public:
  static constexpr std::chrono::microseconds kTurn{100};
  static constexpr std::chrono::milliseconds kPatience{10};

  bool try_lock_shared() {
    uint32_t state = state_.load(std::memory_order_relaxed);
    while ((state & kWriter) == 0) {
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void lock_shared() {
    if (try_lock_shared()) return;
    waiting_.fetch_add(1);
    while (!try_lock_shared()) {
      const uint32_t state = state_.load();
      if ((state & kWriter) != 0) state_.wait(state);
    }
    if (waiting_.fetch_sub(1) == 1) waiting_.notify_all();
  }

  void unlock_shared() {
    if (state_.fetch_sub(1, std::memory_order_release) == (kWriter | 1)) state_.notify_all();
  }

  // Only one thread at a time may call lock: the engine's writer.
  void lock() {
    // Those who waited for the last turn come first.
    for (uint32_t waiting = waiting_.load(); waiting != 0; waiting = waiting_.load()) waiting_.wait(waiting);
    if (!enter_between_readers()) {
      uint32_t state = state_.fetch_or(kWriter, std::memory_order_acquire) | kWriter;
      while (state != kWriter) {
        state_.wait(state);
        state = state_.load(std::memory_order_acquire);
      }
    }
    since_ = std::chrono::steady_clock::now();
  }

  void unlock() {
    state_.fetch_and(~kWriter, std::memory_order_release);
    state_.notify_all();
  }

  void breathe() {
    if (waiting_.load(std::memory_order_relaxed) == 0) return;
    if (std::chrono::steady_clock::now() - since_ < kTurn) return;
    unlock();
    lock();
  }

 private:
  static constexpr uint32_t kWriter = 1u << 31;
  static constexpr uint32_t kTriesPerYield = 64;

  bool enter_between_readers() {
    uint32_t nobody = 0;
    if (state_.compare_exchange_strong(nobody, kWriter, std::memory_order_acquire)) return true;
    const auto until = std::chrono::steady_clock::now() + kPatience;
    do {
      for (uint32_t i = 0; i < kTriesPerYield; ++i) {
        nobody = 0;
        if (state_.compare_exchange_weak(nobody, kWriter, std::memory_order_acquire)) return true;
      }
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < until);
    return false;
  }

  std::atomic<uint32_t> state_{0};    // kWriter when a writer is in or about to be; below it, readers inside
  std::atomic<uint32_t> waiting_{0};  // readers who were kept out
  std::chrono::steady_clock::time_point since_;
};

}  // namespace rankd
