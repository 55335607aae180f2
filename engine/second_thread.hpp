// A second thread for work that can be shared, and the turn that those who share it take together.
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

// Sleeps until there is something to do; ends with its owner. Only one thread at a time may share work with it.
class SecondThread {
 public:
  using Work = std::function<void(size_t lane)>;

  SecondThread() = default;
  ~SecondThread();
  SecondThread(const SecondThread&) = delete;
  SecondThread& operator=(const SecondThread&) = delete;

  // Calls work(0) here and work(1) in the other thread, unless that one comes so late that work(0) is done. Returns when
  // nobody is at work any more; throws what either threw. Whatever is to be done must be there for whoever takes it.
  void share(const Work& work);

 private:
  // Apart from its owner: in a process that was forked off there is no other thread, and nobody may touch what it held.
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

// A writer's turn (lock.hpp) that several lanes take together, each at other boards. The first who comes takes the lock
// and the last who leaves gives it back; when readers have waited for a turn, nobody comes before all have left.
class SharedTurn {
 public:
  explicit SharedTurn(TurnLock& lock) : lock_(lock) {}
  SharedTurn(const SharedTurn&) = delete;
  SharedTurn& operator=(const SharedTurn&) = delete;

  void enter() {
    std::unique_lock<std::mutex> guard(mutex_);
    // Asleep, though those inside look every few changes: one that lost its processor may need this one's.
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
  // For those inside, between two changes.
  void breathe() {
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
