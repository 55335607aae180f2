// Prefetching: the engine is bound by memory latency, so it requests cache lines long before it reads them.
#pragma once

#include <cstddef>

namespace rankd {

inline void prefetch(const void* address) { __builtin_prefetch(address, 0, 3); }

// Prefetches one cache line for each of `count` items, in groups of `kGroupItems`.
//
// The pages of these lines are not in the TLB. A processor runs at most a few hundred instructions past a prefetch
// whose page it is still translating, but it translates several pages at a time if their prefetches follow each other
// directly.
template <size_t kGroupItems>
class PrefetchGroup {
 public:
  explicit PrefetchGroup(size_t count) : left_(count) {}

  // Adds the line of the next item; null if the item needs none.
  void add(const void* line) {
    if (line != nullptr) lines_[held_++] = line;
    if (--left_ > 0 && held_ < kGroupItems) return;
    for (size_t i = 0; i < held_; ++i) prefetch(lines_[i]);
    held_ = 0;
  }

 private:
  const void* lines_[kGroupItems];
  size_t held_ = 0;
  size_t left_;
};

// Takes items 0 … count − 1 through several steps. Each step runs some items behind the step before it, so that a line
// prefetched by one step has arrived when the next step reads it. Running a whole step first would issue more
// prefetches than a processor can track, and it drops the excess.
template <size_t kGroupItems, class... Steps>
void staggered(size_t count, Steps... steps) {
  constexpr size_t kBehind = kGroupItems + 4;
  for (size_t now = 0; now < count + kBehind * (sizeof...(steps) - 1); ++now) {
    size_t behind = 0;
    const auto take = [&](auto& step) {
      if (now >= behind && now - behind < count) step(now - behind);
      behind += kBehind;
    };
    (take(steps), ...);
  }
}

}  // namespace rankd
