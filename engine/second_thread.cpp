#include "second_thread.hpp"

#include <signal.h>

#include <new>
#include <system_error>
#include <utility>

namespace rankd {

SecondThread::~SecondThread() {
  if (other_ == nullptr) return;
  if (process_ != getpid()) {
    static_cast<void>(other_.release());
    return;
  }
  {
    const std::lock_guard<std::mutex> guard(other_->mutex);
    other_->is_stopping = true;
  }
  other_->changed.notify_all();
  other_->thread.join();
}

// Returns whether there is a second thread: if none can be started, one thread does all the work.
bool SecondThread::start() {
  if (other_ != nullptr && process_ == getpid()) return true;
  static_cast<void>(other_.release());
  if (std::thread::hardware_concurrency() < 2) return false;
  // Signals are handled by the threads of the application.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    auto other = std::make_unique<Other>();
    other->thread = std::thread(&Other::run, other.get());
    other_ = std::move(other);
    process_ = getpid();
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return other_ != nullptr;
}

void SecondThread::share(const Work& work) {
  if (!start()) {
    work(0);
    return;
  }
  {
    const std::lock_guard<std::mutex> guard(other_->mutex);
    other_->work = &work;
  }
  other_->changed.notify_all();
  std::exception_ptr thrown;
  try {
    work(0);
  } catch (...) {
    thrown = std::current_exception();
  }
  std::unique_lock<std::mutex> guard(other_->mutex);
  other_->work = nullptr;
  other_->changed.wait(guard, [&] { return !other_->is_busy; });
  const std::exception_ptr other_thrown = std::exchange(other_->thrown, nullptr);
  guard.unlock();
  if (thrown != nullptr) std::rethrow_exception(thrown);
  if (other_thrown != nullptr) std::rethrow_exception(other_thrown);
}

void SecondThread::Other::run() {
  std::unique_lock<std::mutex> guard(mutex);
  for (;;) {
    changed.wait(guard, [&] { return is_stopping || work != nullptr; });
    if (is_stopping) return;
    const Work& taken = *std::exchange(work, nullptr);
    is_busy = true;
    guard.unlock();
    std::exception_ptr caught;
    try {
      taken(1);
    } catch (...) {
      caught = std::current_exception();
    }
    guard.lock();
    thrown = caught;
    is_busy = false;
    changed.notify_all();
  }
}

}  // namespace rankd
