// From the hash of an id to a number: a cache in front of a database, for as many players as memory is given.
//
// It holds no ids. 96 bits of a keyed hash stand for one: among a hundred million players two share them with a
// probability of 1e-13, and nobody can choose ids that do. A slot is 16 bytes; at most three quarters are taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "hash.hpp"

namespace rankd {

class NumberTable {
 public:
  explicit NumberTable(HashKey key) : key_(key), slots_(kSlotsMin) {}

  struct Name {
    uint64_t low;
    uint32_t high;
  };

  Name name(std::string_view id) const {
    SipHash13 hash(key_, true);
    hash.absorb_tail(id.data(), id.size(), id.size());
    const Digest digest = hash.finish_wide();
    return {digest.low, static_cast<uint32_t>(digest.high)};
  }

  // The line of memory that a search begins with.
  const void* line(const Name& name) const { return &slots_[name.low & mask()]; }

  // The number of a player, 0 for one who is not known here.
  uint32_t find(const Name& name) const {
    for (size_t i = name.low & mask();; i = (i + 1) & mask()) {
      const Slot& slot = slots_[i];
      if (slot.number == 0) return 0;
      if (slot.low == name.low && slot.high == name.high) return slot.number;
    }
  }

  void put(const Name& name, uint32_t number) {
    if ((size_ + 1) * 4 > slots_.size() * 3) grow();
    Slot& slot = slot_for(name);
    if (slot.number == 0) ++size_;
    slot = {name.low, name.high, number};
  }

  void clear() {
    size_ = 0;
    slots_.assign(kSlotsMin, Slot{});
    slots_.shrink_to_fit();
  }

  size_t size() const { return size_; }
  size_t bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    uint64_t low = 0;
    uint32_t high = 0;
    uint32_t number = 0;  // 0: free
  };
  static_assert(sizeof(Slot) == 16);
  static constexpr size_t kSlotsMin = 1024;

  size_t mask() const { return slots_.size() - 1; }

  Slot& slot_for(const Name& name) {
    for (size_t i = name.low & mask();; i = (i + 1) & mask()) {
      Slot& slot = slots_[i];
      if (slot.number == 0 || (slot.low == name.low && slot.high == name.high)) return slot;
    }
  }

  void grow() {
    std::vector<Slot> before(slots_.size() * 2);
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.number != 0) slot_for({slot.low, slot.high}) = slot;
    }
  }

  HashKey key_;
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace rankd
