// Strings, each stored once and numbered: players, and the names of boards.
//
//   find: hash → TagTable → number → record → bytes. A record packs the address of the bytes and a reference count. A
//   string without references can be forgotten, and its number is reused. An unlisted string is no longer found, but
//   keeps its number and its bytes until it is buried: for a save that has yet to write it.
//
// `Payload` is stored beside the record: the boards are payloads of their names.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "hash.hpp"
#include "memory.hpp"
#include "tag_table.hpp"

namespace rankd {

struct Nothing {};

template <class Payload>
class Interner {
 public:
  static constexpr uint32_t kLengthMax = 510;
  static constexpr uint32_t kReferencesMax = (1u << 25) - 1;

  Interner(Regions& regions, Purpose purpose, HashKey key)
      : regions_(regions),
        purpose_(purpose),
        key_(key),
        segments_(regions, purpose),
        index_(regions, segments_, purpose),
        records_(regions, purpose, sizeof(Record)) {}

  ~Interner() {
    each([&](uint32_t number) { record(number).~Record(); });
  }
  Interner(const Interner&) = delete;
  Interner& operator=(const Interner&) = delete;

  uint64_t hash(std::string_view name) const { return hash_bytes(key_, name); }
  HashKey key() const { return key_; }
  // Only while the interner is empty.
  void set_key(HashKey key) { key_ = key; }
  uint32_t size() const { return index_.size(); }
  // One above the largest number in use.
  uint32_t numbers_end() const { return records_.ids_end(); }

  uint32_t find(uint64_t hash, std::string_view name) const {
    return index_.find(tag_of(hash), [&](uint32_t number) { return this->name(number) == name; });
  }

  // `name` must be new. It starts with no reference.
  uint32_t add(uint64_t hash, std::string_view name) {
    const uint32_t number = records_.allocate();
    const uint32_t units = static_cast<uint32_t>((name.size() + sizeof(Length) + 7) / 8);
    Pool& pool = strings(units);
    const uint32_t slot = pool.allocate();
    std::byte* bytes = pool.at(slot);
    const auto length = static_cast<Length>(name.size());
    std::memcpy(bytes, &length, sizeof(length));
    std::memcpy(bytes + sizeof(length), name.data(), name.size());
    new (&record(number)) Record{uint64_t{slot} << 32 | uint64_t{units} << kReferenceBits, Payload{}};
    index_.insert(tag_of(hash), number);
    return number;
  }

  // Makes room for `count` names in an empty interner, so that adding them does not grow it step by step.
  void reserve(uint32_t count) { index_.reserve(count); }

  void forget(uint32_t number) {
    unlist(number);
    bury(number);
  }
  void unlist(uint32_t number) {
    index_.erase(tag_of(hash(name(number))), number);
    ++unlisted_;
  }
  void bury(uint32_t number) {
    --unlisted_;
    const uint64_t place = place_of(number);
    strings(units_of(place)).release(slot_of(place));
    record(number).~Record();
    records_.release(number);
  }

  std::string_view name(uint32_t number) const {
    const uint64_t place = place_of(number);
    const std::byte* bytes = strings_[units_of(place)]->at(slot_of(place));
    Length length = 0;
    std::memcpy(&length, bytes, sizeof(length));
    return {reinterpret_cast<const char*>(bytes) + sizeof(length), length};
  }

  Payload& payload(uint32_t number) { return record(number).payload; }
  const Payload& payload(uint32_t number) const { return record(number).payload; }

  // A count that reached its maximum stays there: such a player is never forgotten.
  // Returns whether it is the first reference.
  bool retain(uint32_t number) { return count_reference(number, 1) == 1; }
  // Returns whether it was the last reference.
  bool release(uint32_t number) { return count_reference(number, -1) == 0; }
  uint32_t references(uint32_t number) const { return static_cast<uint32_t>(place_of(number) & kReferenceMask); }

  // The three steps of a lookup, each reading the line of memory that the one before it named.
  const void* index_line(uint64_t hash) const { return index_.line(tag_of(hash)); }
  uint32_t likely_number(uint64_t hash) const {
    return index_.find(tag_of(hash), [](uint32_t) { return true; });
  }
  const void* record_line(uint32_t number) const { return &record(number); }
  const void* name_line(uint32_t number) const {
    const uint64_t place = place_of(number);
    return strings_[units_of(place)]->at(slot_of(place));
  }

  template <class Visit>
  void each(Visit visit) const {
    for (uint64_t next = 0; next != kEnd;) next = each_some(next, kNone, visit);
  }
  // Visits some numbers and returns the next cursor; begin at 0, end at kEnd. See TagTable::visit_some.
  static constexpr uint64_t kEnd = TagTable<false>::kTagsEnd;
  template <class Visit>
  uint64_t each_some(uint64_t from, uint32_t most, Visit visit) const {
    return index_.visit_some(from, most, [&](uint32_t, uint32_t number) { visit(number); });
  }

  template <class Fail>
  void check(Fail fail) const {
    index_.check(fail);
    if (records_.used() != size() + unlisted_) fail("interner: records and index differ in number");
    size_t stored = 0;
    for (const auto& pool : strings_) stored += pool == nullptr ? 0 : pool->used();
    if (stored != size() + unlisted_) fail("interner: strings and index differ in number");
    each([&](uint32_t number) {
      if (find(hash(name(number)), name(number)) != number) fail("interner: a name is found under another number");
    });
  }

 private:
  using Length = uint16_t;
  struct Record {
    // Slot (32 bits), units of eight bytes (7 bits), references (25 bits). Workers of a batch count references to the
    // same player.
    std::atomic<uint64_t> place;
    [[no_unique_address]] Payload payload;
  };
  static constexpr uint32_t kReferenceBits = 25;
  static constexpr uint64_t kReferenceMask = kReferencesMax;
  static_assert(kReferencesMax == (1u << kReferenceBits) - 1);

  static uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  static uint32_t slot_of(uint64_t place) { return static_cast<uint32_t>(place >> 32); }
  static uint32_t units_of(uint64_t place) { return static_cast<uint32_t>(place >> kReferenceBits) & 0x7f; }

  uint64_t place_of(uint32_t number) const { return record(number).place.load(std::memory_order_relaxed); }
  // Returns the new count.
  uint64_t count_reference(uint32_t number, int64_t more) {
    std::atomic<uint64_t>& place = record(number).place;
    uint64_t before = place.load(std::memory_order_relaxed);
    uint64_t after = before;
    do {
      after = (before & kReferenceMask) == kReferenceMask ? before : before + static_cast<uint64_t>(more);
    } while (!place.compare_exchange_weak(before, after, std::memory_order_relaxed));
    return after & kReferenceMask;
  }

  Record& record(uint32_t number) { return *reinterpret_cast<Record*>(records_.at(number)); }
  const Record& record(uint32_t number) const { return *reinterpret_cast<const Record*>(records_.at(number)); }

  Pool& strings(uint32_t units) {
    if (strings_[units] == nullptr) strings_[units] = std::make_unique<Pool>(regions_, purpose_, units * 8);
    return *strings_[units];
  }

  Regions& regions_;
  Purpose purpose_;
  HashKey key_;
  SegmentPools segments_;
  TagTable<false> index_;
  Pool records_;
  uint32_t unlisted_ = 0;
  std::array<std::unique_ptr<Pool>, 65> strings_;  // by units of eight bytes
};

}  // namespace rankd
