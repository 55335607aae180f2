// What the players of each team have, for teams ranked by average: 33 to 40 bytes a team.
#pragma once

#include <compare>
#include <cstdint>

#include "named_slots.hpp"

namespace rankd {

#pragma pack(push, 4)
// The sum of the players' kept scores and their number. 2^32 scores of 64 bits need 96 bits.
class TeamTotal {
 public:
  uint32_t players() const { return players_; }
  bool is_none() const { return players_ == 0; }

  // A player's kept score changed; null is a player without one.
  void replace(const int64_t* before, const int64_t* after) {
    __int128 total = sum();
    if (before != nullptr) total -= *before;
    if (after != nullptr) total += *after;
    low_ = static_cast<uint64_t>(total);
    high_ = static_cast<int32_t>(total >> 64);
    players_ = players_ - (before != nullptr ? 1 : 0) + (after != nullptr ? 1 : 0);
  }

  // Rounded down. There must be a player.
  int64_t average() const {
    const __int128 total = sum();
    const __int128 quotient = total / players_;
    return static_cast<int64_t>(quotient - (total % players_ < 0 ? 1 : 0));
  }

  auto operator<=>(const TeamTotal&) const = default;

 private:
  __int128 sum() const { return static_cast<__int128>(static_cast<unsigned __int128>(static_cast<__int128>(high_)) << 64 | low_); }

  uint64_t low_ = 0;
  int32_t high_ = 0;
  uint32_t players_ = 0;
};
#pragma pack(pop)

using TeamTotals = NamedSlots<TeamTotal>;

}  // namespace rankd
