// A small test runner: sentences for names, file and line for failures, one seed that repeats a run.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace rankd::testing {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Registered {
  Registered(const char* sentence, void (*run)());
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& text) {
  throw Failure(std::string(file) + ":" + std::to_string(line) + ": " + text);
}

template <class Value>
std::string shown(const Value& value) {
  if constexpr (requires(std::ostream& out) { out << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else {
    return "something";
  }
}

template <class One, class Other>
void check_equal(const char* file, int line, const char* text, const One& one, const Other& other) {
  bool equal = false;
  if constexpr (std::is_integral_v<One> && std::is_integral_v<Other> && !std::is_same_v<One, bool>) {
    equal = std::cmp_equal(one, other);
  } else {
    equal = one == other;
  }
  if (!equal) fail(file, line, std::string(text) + ": " + shown(one) + " and " + shown(other));
}

// Where there is one thread, the thread sanitizer sees nothing that the others do not, and takes its time: a quarter of
// the work is enough.
constexpr uint64_t scaled(uint64_t count) {
#ifdef __SANITIZE_THREAD__
  return count / 4;
#else
  return count;
#endif
}

// The run's seed: given on the command line, or another one each time.
uint64_t seed();

class Random {
 public:
  explicit Random(uint64_t stream = 0) : bits_(seed() + stream * 0x9e3779b97f4a7c15ULL) {}

  uint64_t bits() { return bits_(); }
  uint64_t below(uint64_t bound) { return bits_() % bound; }
  bool once_in(uint64_t times) { return below(times) == 0; }
  // Both ends included; the whole range is allowed.
  int64_t between(int64_t low, int64_t high) {
    const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    const uint64_t step = span == ~uint64_t{0} ? bits() : below(span + 1);
    return static_cast<int64_t>(static_cast<uint64_t>(low) + step);
  }
  template <class Items>
  auto& pick(Items& items) {
    return items[below(std::size(items))];
  }
  template <class Items>
  void shuffle(Items& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::mt19937_64 bits_;
};

// Threads whose first exception is thrown again where they are joined.
class Threads {
 public:
  ~Threads() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  void start(std::function<void()> work) {
    threads_.emplace_back([this, work = std::move(work)] {
      try {
        work();
      } catch (...) {
        const std::lock_guard<std::mutex> guard(mutex_);
        if (first_ == nullptr) first_ = std::current_exception();
      }
    });
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
  std::vector<std::thread> threads_;
};

// While it is there, memory runs out: for whoever asks after `left` times, or only for those who do so in a thread that is
// not this one. Once, or until it goes.
class Shortage {
 public:
  enum class Where : uint8_t { anywhere, this_thread, other_thread };

  Shortage(Where where, int64_t left, bool is_lasting);
  ~Shortage();
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;

  bool was_felt() const;
};

}  // namespace rankd::testing

#define RANKD_JOINED_(one, other) one##other
#define RANKD_JOINED(one, other) RANKD_JOINED_(one, other)

#define TEST(sentence) RANKD_TEST(sentence, RANKD_JOINED(test_, __LINE__), RANKD_JOINED(registered_, __LINE__))
#define RANKD_TEST(sentence, test, registered)                          \
  static void test();                                                   \
  static const ::rankd::testing::Registered registered(sentence, test); \
  static void test()

#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) ::rankd::testing::fail(__FILE__, __LINE__, #condition);     \
  } while (false)

#define CHECK_EQUAL(one, other) \
  ::rankd::testing::check_equal(__FILE__, __LINE__, #one " is not " #other, one, other)

#define CHECK_THROWS(Error, expression)                                                        \
  do {                                                                                         \
    bool thrown_ = false;                                                                      \
    try {                                                                                      \
      expression;                                                                              \
    } catch (const Error&) {                                                                   \
      thrown_ = true;                                                                          \
    }                                                                                          \
    if (!thrown_) ::rankd::testing::fail(__FILE__, __LINE__, #expression " threw no " #Error); \
  } while (false)
