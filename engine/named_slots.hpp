// A map from names to values of a few bytes each, without the names.
//
// It stores 96 bits of a keyed hash in place of a name, as number_table.hpp does. 70 to 85 % of the slots are in use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "hash.hpp"

namespace rankd {

// A Value says by `is_none()` that it stands for no entry, as Value{} does.
template <class Value>
class NamedSlots {
 public:
  struct Name {
    uint64_t low;
    uint32_t high;
  };

  explicit NamedSlots(HashKey key) : key_(key), slots_(kSlotsMin) {}

  // Loads the bytes that `dump` returned.
  explicit NamedSlots(std::string_view dumped) : slots_(kSlotsMin) {
    if (dumped.size() < sizeof(key_) || (dumped.size() - sizeof(key_)) % sizeof(Slot) != 0) {
      throw std::invalid_argument("this is no dump of a table");
    }
    std::memcpy(&key_, dumped.data(), sizeof(key_));
    // A dump is in the order of the hashes: put into a table that grows, they would all crowd at its beginning.
    const size_t count = (dumped.size() - sizeof(key_)) / sizeof(Slot);
    slots_.resize(std::max(kSlotsMin, count + count / 4));
    for (size_t at = sizeof(key_); at < dumped.size(); at += sizeof(Slot)) {
      Slot slot;
      std::memcpy(&slot, dumped.data() + at, sizeof(slot));
      put({slot.low, slot.high}, slot.value);
    }
  }

  static Name name(const HashKey& key, std::string_view id) {
    SipHash13 hash(key, true);
    hash.absorb_tail(id.data(), id.size(), id.size());
    const Digest digest = hash.finish_wide();
    return {digest.low, static_cast<uint32_t>(digest.high)};
  }
  const HashKey& key() const { return key_; }

  Value find(const Name& name) const { return slots_[place_of(name)].value; }

  // A value that stands for no entry removes the entry.
  void put(const Name& name, const Value& value) {
    if (value.is_none()) {
      remove(name);
      return;
    }
    if ((size_ + 1) * 20 > slots_.size() * 17) grow();
    Slot& slot = slots_[place_of(name)];
    if (slot.value.is_none()) ++size_;
    slot = {name.low, name.high, value};
  }

  void remove(const Name& name) {
    size_t hole = place_of(name);
    if (slots_[hole].value.is_none()) return;
    --size_;
    // Entries behind the hole move up, unless that puts them before the slot at which their search begins.
    for (size_t i = next(hole); !slots_[i].value.is_none(); i = next(i)) {
      const size_t home = home_of(slots_[i].low);
      const bool stays = hole < i ? hole < home && home <= i : hole < home || home <= i;
      if (stays) continue;
      slots_[hole] = slots_[i];
      hole = i;
    }
    slots_[hole] = Slot{};
  }

  // Whether both have the same values, whatever their keys are. A value must be ordered.
  bool holds_the_values_of(const NamedSlots& other) const { return sorted_values() == other.sorted_values(); }

  size_t size() const { return size_; }
  size_t bytes() const { return slots_.size() * sizeof(Slot); }

  std::string dump() const {
    std::string dumped(reinterpret_cast<const char*>(&key_), sizeof(key_));
    dumped.reserve(dumped.size() + size_ * sizeof(Slot));
    for (const Slot& slot : slots_) {
      if (!slot.value.is_none()) dumped.append(reinterpret_cast<const char*>(&slot), sizeof(slot));
    }
    return dumped;
  }

 private:
#pragma pack(push, 4)
  struct Slot {
    uint64_t low = 0;
    uint32_t high = 0;
    Value value;
  };
#pragma pack(pop)
  static_assert(sizeof(Slot) == sizeof(uint64_t) + sizeof(uint32_t) + sizeof(Value));
  static constexpr size_t kSlotsMin = 16;

  size_t home_of(uint64_t low) const { return static_cast<size_t>(static_cast<unsigned __int128>(low) * slots_.size() >> 64); }
  size_t next(size_t i) const { return i + 1 == slots_.size() ? 0 : i + 1; }

  std::vector<Value> sorted_values() const {
    std::vector<Value> values;
    for (const Slot& slot : slots_) {
      if (!slot.value.is_none()) values.push_back(slot.value);
    }
    std::sort(values.begin(), values.end());
    return values;
  }

  // The slot of a name, or the free slot that it would take.
  size_t place_of(const Name& name) const {
    for (size_t i = home_of(name.low);; i = next(i)) {
      const Slot& slot = slots_[i];
      if (slot.value.is_none() || (slot.low == name.low && slot.high == name.high)) return i;
    }
  }

  // By little, for memory's sake: slots are in the order of the hashes, so that growing is one pass over both tables.
  void grow() {
    std::vector<Slot> before(slots_.size() + std::max<size_t>(slots_.size() / 5, kSlotsMin / 2));
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (!slot.value.is_none()) slots_[place_of({slot.low, slot.high})] = slot;
    }
  }

  HashKey key_{};
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace rankd
