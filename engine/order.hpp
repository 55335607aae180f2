// The standing order and the keep rules, as src/rankd/domain/order.py defines them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace rankd {

enum class Keep : uint8_t { best, latest, sum, first };
enum class Order : uint8_t { desc, asc };
enum class Ties : uint8_t { earliest, latest, value, player };
enum class Ranking : uint8_t { ordinal, competition, dense };

inline constexpr uint64_t kTieFieldMax = (uint64_t{1} << 48) - 1;

// The rules of an instance, fixed for its lifetime.
struct Direction {
  Order order = Order::desc;
  Ties ties = Ties::earliest;
  bool operator==(const Direction&) const = default;
};

struct Rules {
  Keep keep = Keep::best;
  Direction direction;
  int64_t score_min = std::numeric_limits<int64_t>::min();
  int64_t score_max = std::numeric_limits<int64_t>::max();
};

struct Kept {
  int64_t score = 0;
  uint64_t tie = 0;
  bool operator==(const Kept&) const = default;
};

// The sort key without the player: ascending (score, tie) is the standing order.
struct Key {
  uint64_t score = 0;
  uint64_t tie = 0;
  bool operator==(const Key&) const = default;
};

inline uint64_t score_key(Order order, int64_t score) {
  const uint64_t biased = static_cast<uint64_t>(score) ^ (uint64_t{1} << 63);
  return order == Order::desc ? ~biased : biased;
}

inline int64_t score_of_key(Order order, uint64_t key) {
  const uint64_t biased = order == Order::desc ? ~key : key;
  return static_cast<int64_t>(biased ^ (uint64_t{1} << 63));
}

// Its own inverse.
inline uint64_t tie_key(Ties ties, uint64_t tie) {
  switch (ties) {
    case Ties::earliest:
      return tie;
    case Ties::latest:
    case Ties::value:
      return kTieFieldMax - tie;
    case Ties::player:
      break;
  }
  return 0;
}

inline Key key_of(Direction direction, const Kept& kept) {
  return {score_key(direction.order, kept.score), tie_key(direction.ties, kept.tie)};
}

inline Kept kept_of(Direction direction, const Key& key) {
  return {score_of_key(direction.order, key.score), tie_key(direction.ties, key.tie)};
}

inline int64_t clamp_score(const Rules& rules, int64_t score) {
  return std::max(rules.score_min, std::min(rules.score_max, score));
}

inline int64_t clamped_sum(const Rules& rules, int64_t kept, int64_t score) {
  int64_t sum = 0;
  if (__builtin_add_overflow(kept, score, &sum)) {
    sum = score > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
  }
  return clamp_score(rules, sum);
}

// Returns the kept score after one event; it equals `kept` when the event changes nothing.
inline Kept settle(const Rules& rules, const Kept* kept, int64_t score, uint64_t tie) {
  const Ties ties = rules.direction.ties;
  if (ties == Ties::player) tie = 0;
  if (kept == nullptr) return {rules.keep == Keep::sum ? clamp_score(rules, score) : score, tie};
  Kept arrived{score, tie};
  switch (rules.keep) {
    case Keep::first:
      return *kept;
    case Keep::best: {
      const bool better = rules.direction.order == Order::desc ? score > kept->score : score < kept->score;
      const bool tied_better = score == kept->score && ties == Ties::value && tie > kept->tie;
      return better || tied_better ? arrived : *kept;
    }
    case Keep::latest:
      break;
    case Keep::sum:
      arrived.score = clamped_sum(rules, kept->score, score);
      break;
  }
  const bool changed = arrived.score != kept->score || (ties == Ties::value && arrived.tie != kept->tie);
  return changed ? arrived : *kept;
}

}  // namespace rankd
