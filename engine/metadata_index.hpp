// A map of one instance, from players to the events whose metadata belongs to their kept scores: 24 to 29 bytes an entry.
#pragma once

#include <compare>
#include <cstdint>

#include "named_slots.hpp"

namespace rankd {

// The number of an event, 0 for none.
class EventNumber {
 public:
  EventNumber() = default;
  explicit EventNumber(uint64_t number)
      : high_(static_cast<uint32_t>(number >> 32)), low_(static_cast<uint32_t>(number)) {}

  uint64_t number() const { return uint64_t{high_} << 32 | low_; }
  bool is_none() const { return high_ == 0 && low_ == 0; }
  auto operator<=>(const EventNumber&) const = default;

 private:
  uint32_t high_ = 0;
  uint32_t low_ = 0;
};

using MetadataIndex = NamedSlots<EventNumber>;

}  // namespace rankd
