// A second thread for shared work, and the writer's turn that both threads share.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "lock.hpp"

namespace rankd {

// Sleeps until there is work; ends with its owner. Only one thread at a time may share work with it.
class SecondThread {
 public:
  using Work = std::function<void(size_t worker)>;

  SecondThread() = default;
  ~SecondThread();
  SecondThread(const SecondThread&) = delete;
  SecondThread& operator=(const SecondThread&) = delete;

  // Calls work(0) here and work(1) in the other thread, unless work(0) is done before that thread wakes. Returns when
  // both have ended; throws what either threw. The work must be complete if only one of them runs.
  void share(const Work& work);

 private:
  // Separate from its owner: a forked process has no second thread, and must not touch the state it held.
  struct Other {
    std::mutex mutex;
    std::condition_variable changed;
    const Work* work = nullptr;  // not yet taken
    bool is_busy = false;
    bool is_stopping = false;
    std::exception_ptr thrown;
    std::thread thread;

    void run();
  };

  bool start();

  std::unique_ptr<Other> other_;
  pid_t process_ = 0;
};

// A writer's turn (lock.hpp) that several workers share, each on other boards. The first to enter takes the lock, the
// last to leave releases it. When readers have waited for a turn, no worker enters before all have left.
class SharedTurn {
 public:
  explicit SharedTurn(TurnLock& lock) : lock_(lock) {}
  SharedTurn(const SharedTurn&) = delete;
  SharedTurn& operator=(const SharedTurn&) = delete;

  void enter() {
    std::unique_lock<std::mutex> guard(mutex_);
    // Sleeps rather than spins: a worker inside that was preempted may need this processor.
    left_.wait(guard, [&] { return inside_ == 0 || !lock_.is_turn_over(); });
    if (inside_ == 0) lock_.lock();
    ++inside_;
  }
  void leave() {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (--inside_ > 0) return;
    lock_.unlock();
    left_.notify_all();
  }
  // For a worker inside, between two changes.
  void yield_to_readers() {
    if (!lock_.is_turn_over()) return;
    leave();
    enter();
  }

 private:
  TurnLock& lock_;
  std::mutex mutex_;
  std::condition_variable left_;
  uint32_t inside_ = 0;
};

}  // namespace rankd
