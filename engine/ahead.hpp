// Asking for memory long before it is needed: everything here is bound by how long it takes to come.
#pragma once

#include <cstddef>

namespace rankd {

inline void prefetch(const void* address) { __builtin_prefetch(address, 0, 3); }

// Lines of memory on pages that nobody touched lately, one for each of `count` items, asked for several at once.
//
// A processor that asks for a line looks its page up first, and gets at most a few hundred instructions further until it
// has found it. It looks several up at a time, if they are asked for with nothing in between.
template <size_t kTogether>
class Together {
 public:
  explicit Together(size_t count) : left_(count) {}

  // Of the next item; null where it wants nothing.
  void ask(const void* line) {
    if (line != nullptr) lines_[held_++] = line;
    if (--left_ > 0 && held_ < kTogether) return;
    for (size_t i = 0; i < held_; ++i) prefetch(lines_[i]);
    held_ = 0;
  }

 private:
  const void* lines_[kTogether];
  size_t held_ = 0;
  size_t left_;
};

// Takes items 0 … count − 1 through several steps, each some items behind the one before it: what a step asks of memory,
// up to `kTogether` items at once, has time to arrive until the next step looks at it. All of one step first would ask
// for more at once than processors keep track of; they drop the rest.
template <size_t kTogether, class... Steps>
void staggered(size_t count, Steps... steps) {
  constexpr size_t kBehind = kTogether + 4;
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
