// A map from the hash of an id to a number: a cache in front of a database, bounded by its memory.
//
// It stores 96 bits of a keyed hash in place of an id: among a hundred million players two share them with a
// probability of 1e-13, and no client can choose ids that do. A slot is 16 bytes; at most three quarters are taken.
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

  // The cache line at which a search begins.
  const void* line(const Name& name) const { return &slots_[name.low & mask()]; }

  // The number of a player, 0 for an unknown one.
  uint32_t find(const Name& name) const {
    for (size_t i = name.low & mask();; i = (i + 1) & mask()) {
      const Slot& slot = slots_[i];
      if (slot.number == 0) return 0;
      if (slot.low == name.low && slot.high == name.high) return slot.number;
    }
  }

  void put(const Name& name, uint32_t number) {
    reserve(1);
    Slot& slot = slot_for(name);
    if (slot.number == 0) ++size_;
    slot = {name.low, name.high, number};
  }

  // Makes room for as many more, so that they can be put without moving those that are there.
  void reserve(size_t more) {
    while ((size_ + more) * 4 > slots_.size() * 3) grow();
  }

  HashKey key() const { return key_; }

  template <class Visit>
  void each(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.number != 0) visit(Name{slot.low, slot.high});
    }
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
