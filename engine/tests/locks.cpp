// The lock between one writer and many readers; the thread sanitizer sees what the checks do not.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>

#include "lock.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using namespace std::chrono_literals;
using testing::Threads;
using Clock = std::chrono::steady_clock;

// A reader should wait for a tenth of a millisecond; the rest is for a busy machine with two processors, a sanitizer
// and more threads than processors.
constexpr auto kWaitMost = 2500ms;
// Whoever waits for others gives up then, so that a lock that lets nobody in fails and does not hang.
constexpr auto kHangs = 30s;

// The processor time of this thread.
std::chrono::nanoseconds worked_so_far() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

TEST("readers share the lock, a writer has it alone") {
  TurnLock lock;
  CHECK(lock.try_lock_shared());
  CHECK(lock.try_lock_shared());
  lock.unlock_shared();
  lock.unlock_shared();
  lock.lock();
  CHECK(!lock.try_lock_shared());
  lock.unlock();
  CHECK(lock.try_lock_shared());
  lock.unlock_shared();
}

TEST("nobody sees what a writer has begun and not finished") {
  TurnLock lock;
  // Not atomic: a reader beside a writer is a race that the sanitizer reports, and a difference besides.
  uint64_t one = 0;
  uint64_t other = 0;
  std::atomic<bool> over{false};
  std::atomic<uint64_t> reads{0};
  Threads threads;
  for (int reader = 0; reader < 3; ++reader) {
    threads.start([&] {
      while (!over) {
        lock.lock_shared();
        const bool equal = one == other;
        lock.unlock_shared();
        CHECK(equal);
        ++reads;
      }
    });
  }
  threads.start([&] {
    const auto end = Clock::now() + 500ms;
    while (Clock::now() < end) {
      lock.lock();
      for (int i = 0; i < 50; ++i) {
        ++one;
        ++other;
        lock.yield_to_readers();
      }
      lock.unlock();
    }
    over = true;
  });
  threads.join();
  CHECK(reads > 0);
  CHECK_EQUAL(one, other);
}

TEST("a reader waits for a turn at most while a writer never lets go but to yield_to_readers") {
  TurnLock lock;
  std::atomic<bool> over{false};
  Threads threads;
  threads.start([&] {
    lock.lock();
    for (const auto end = Clock::now() + kHangs; !over && Clock::now() < end;) lock.yield_to_readers();
    lock.unlock();
  });
  std::array<Clock::duration, 2> longest{};
  std::atomic<int> reads{0};
  for (size_t reader = 0; reader < longest.size(); ++reader) {
    threads.start([&, reader] {
      const auto end = Clock::now() + 700ms;
      while (Clock::now() < end) {
        const auto asked = Clock::now();
        lock.lock_shared();
        longest[reader] = std::max(longest[reader], Clock::now() - asked);
        lock.unlock_shared();
        ++reads;
      }
      over = true;
    });
  }
  threads.join();
  CHECK(reads > 100);
  CHECK(*std::max_element(longest.begin(), longest.end()) < kWaitMost);
}

TEST("the lock knows the longest wait, and how much of it the writer worked") {
  static constexpr auto kHeld = 20ms;
  TurnLock lock;
  const auto wait_once = [&](const std::function<void(Clock::time_point)>& hold) {
    lock.forget_waits();
    lock.lock();
    Threads threads;
    threads.start([&] {
      lock.lock_shared();
      lock.unlock_shared();
    });
    while (lock.readers_waiting() == 0) std::this_thread::yield();
    hold(Clock::now() + kHeld);
    lock.unlock();
    threads.join();
    return lock.longest_waits();
  };
  const ReaderWaits idle = wait_once([](auto until) {
    std::mutex mutex;
    std::unique_lock held(mutex);
    std::condition_variable never;
    while (never.wait_until(held, until) != std::cv_status::timeout) {
    }
  });
  // Busy by its own processor time: what the machine gives to others meanwhile is no work.
  const ReaderWaits busy = wait_once([](auto until) {
    const auto worked = worked_so_far() + kHeld;
    while (Clock::now() < until || worked_so_far() < worked) {
    }
  });
  constexpr int64_t kHeldNs = std::chrono::nanoseconds(kHeld).count();
  CHECK(idle.reader >= kHeldNs);
  CHECK(idle.let_in >= kHeldNs);
  CHECK(idle.work < kHeldNs / 2);
  CHECK(busy.let_in >= kHeldNs);
  CHECK(busy.work > kHeldNs / 4);
}

// Keep a reader waiting who is about to come.
void keep_out_for_long(const TurnLock& lock) {
  while (lock.readers_waiting() == 0) std::this_thread::yield();
  for (const auto until = Clock::now() + 2 * TurnLock::kKeptLong; Clock::now() < until;) {
  }
}

TEST("the lock knows whether it was read, and whether a reader was kept out for long") {
  TurnLock lock;
  CHECK(!lock.was_read());
  lock.lock_shared();
  lock.unlock_shared();
  CHECK(lock.was_read());
  CHECK(!lock.has_kept_long());
  lock.lock();
  Threads threads;
  threads.start([&] {
    lock.lock_shared();
    lock.unlock_shared();
  });
  keep_out_for_long(lock);
  lock.unlock();
  threads.join();
  CHECK(lock.has_kept_long());
  lock.forget_readers();
  CHECK(!lock.was_read());
  CHECK(!lock.has_kept_long());
}

TEST("what the thread that applies batches reads between them does not count") {
  TurnLock lock;
  lock.forget_readers();
  lock.lock_shared();
  lock.unlock_shared();
  CHECK(!lock.was_read());
  Threads threads;
  threads.start([&] {
    lock.lock_shared();
    lock.unlock_shared();
  });
  threads.join();
  CHECK(lock.was_read());
}

TEST("whoever reads and has time does not count as a reader, however long it is kept out") {
  TurnLock lock;
  lock.lock_aside();
  lock.unlock_shared();
  CHECK(lock.try_lock_aside());
  lock.unlock_shared();
  lock.lock();
  CHECK(!lock.try_lock_aside());
  Threads threads;
  threads.start([&] {
    lock.lock_aside();
    lock.unlock_shared();
  });
  keep_out_for_long(lock);
  lock.unlock();
  threads.join();
  CHECK(!lock.was_read());
  CHECK(!lock.has_kept_long());
}

TEST("a writer comes in although readers come one after the other") {
  TurnLock lock;
  std::atomic<bool> over{false};
  Threads threads;
  for (int reader = 0; reader < 3; ++reader) {
    threads.start([&] {
      for (const auto end = Clock::now() + kHangs; !over && Clock::now() < end;) {
        lock.lock_shared();
        // Long enough that there is always somebody inside.
        for (const auto out_at = Clock::now() + 50us; Clock::now() < out_at;) {
        }
        lock.unlock_shared();
      }
    });
  }
  threads.start([&] {
    Clock::duration longest{0};
    for (int turn = 0; turn < 60; ++turn) {
      const auto asked = Clock::now();
      lock.lock();
      longest = std::max(longest, Clock::now() - asked);
      lock.unlock();
    }
    over = true;
    CHECK(longest < kWaitMost);
  });
  threads.join();
}

}  // namespace
}  // namespace rankd
