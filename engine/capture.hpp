// The places of a board's players at one instant.
//
// A place is dropped with its entry: a player who is removed and comes back has none. So a reused player number never
// shows the place of another player.
#pragma once

#include <cstdint>

#include "memory.hpp"
#include "segments.hpp"
#include "tag_table.hpp"

namespace rankd {

class Capture {
 public:
  static constexpr uint32_t kNowhere = 0;  // places count from 1

  Capture(Regions& regions, SegmentPools& segments)
      : regions_(regions), places_(regions, segments, Purpose::captures) {
    regions.note_taken(sizeof(Capture), Purpose::captures);
  }
  ~Capture() { regions_.note_given(sizeof(Capture), Purpose::captures); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  uint32_t size() const { return places_.size(); }
  uint32_t place(uint32_t player) const {
    const uint32_t place = places_.find(page_tag(player));
    return place == kNone ? kNowhere : place;
  }
  void prefetch_place(uint32_t player) const { places_.prefetch_tag(page_tag(player)); }

  // For players who have none yet.
  void add(uint32_t player, uint32_t place) { places_.insert(page_tag(player), place); }
  // For players who have one.
  void set(uint32_t player, uint32_t place) { places_.assign(page_tag(player), place); }
  void forget(uint32_t player) {
    const uint32_t place = places_.find(page_tag(player));
    if (place != kNone) places_.erase(page_tag(player), place);
  }

  // Adds some of a map's players, with places yet to be set; returns whether all were added.
  bool add_some(const TagTable<true>& map, uint32_t most) { return places_.copy_some(map, most); }
  // Releases memory in small steps; returns whether none is left.
  bool clear_some(uint32_t most) { return places_.clear_some(most); }

  // For loads of `entries` out of players below `players_end`: call add for each, then settle.
  void reserve(uint32_t players_end, uint32_t entries) {
    if (uint64_t{entries} * kPageSlots >= uint64_t{players_end} * kDenseLeast) places_.reserve_pages(players_end);
  }
  void settle() { places_.settle_pages(); }

  template <class Fail>
  void check(Fail fail) const {
    places_.check(fail);
  }

 private:
  Regions& regions_;
  TagTable<true> places_;
};

}  // namespace rankd
