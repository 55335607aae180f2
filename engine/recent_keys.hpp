// The keys of requests that one partition of a log has seen within a time to live: 24 to 29 bytes a key, once there are
// some thousands.
//
// It stores 96 bits of a keyed hash in place of a key, as number_table.hpp does, and 31 bits of the request's
// fingerprint. Whether a key has expired is decided by its time alone, to the millisecond; what has expired is taken out
// some parts of the table at a time, within an hour of the log's time. So answers depend on what was asked before, and
// never on when the table was swept, grew or was saved.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "hash.hpp"

namespace rankd {

class RecentKeys {
 public:
  enum class Verdict : uint8_t { kFresh = 0, kRepeat = 1, kReused = 2 };  // reused: with another fingerprint

  struct Name {
    uint64_t low;
    uint32_t high;
  };

  // As an event carries it: 16 bytes of a digest and the fingerprint of the request; all zero without a key.
  struct Key {
    uint64_t digest[2];
    uint64_t fingerprint[2];
    bool is_none() const { return (digest[0] | digest[1]) == 0; }
  };
  static_assert(sizeof(Key) == 32);

#pragma pack(push, 4)
  struct Slot {
    uint64_t low = 0;
    uint32_t high = 0;
    uint32_t time = 0;  // the low bits of the log's time in ms
    uint32_t check = 0;  // of the fingerprint; 0: free
  };
#pragma pack(pop)
  static_assert(sizeof(Slot) == 20);

  // A stretch of the hashes. Shared with the snapshots that began since it changed.
  struct Part {
    std::vector<Slot> slots;
    uint32_t size = 0;
  };
  using Parts = std::vector<std::shared_ptr<Part>>;

  static constexpr int64_t kSweepMs = 3'600'000;
  static constexpr int64_t kTtlMsMax = int64_t{1} << 30;  // twelve days: ages must fit in 32 bits, late sweeps included

  RecentKeys(HashKey key, int64_t ttl_ms) : key_(key), ttl_ms_(ttl_ms), parts_(1) {
    if (ttl_ms < 1 || ttl_ms > kTtlMsMax) throw std::invalid_argument("keys are remembered from 1 ms to twelve days");
  }

  Name name(const Key& key) const {
    SipHash13 hash(key_, true);
    hash.absorb(key.digest[0]);
    hash.absorb(key.digest[1]);
    const Digest digest = hash.finish_wide();
    return {digest.low, static_cast<uint32_t>(digest.high)};
  }

  // Where a search begins; null in an empty part.
  const void* line(const Name& name) const {
    const Part* part = parts_[index_of(name.low)].get();
    return part == nullptr || part->slots.empty() ? nullptr : &part->slots[home_of(name.low, part->slots.size())];
  }

  // Judges a key at the log's time, and remembers it where it is fresh. Times never go back.
  Verdict admit(const Name& name, const Key& key, int64_t time) {
    move_to(time);
    const uint32_t check = static_cast<uint32_t>(key.fingerprint[0]) | 1;
    Slot* slot = find(name);
    if (slot != nullptr) {
      if (age(*slot) < ttl_ms_) return slot->check == check ? Verdict::kRepeat : Verdict::kReused;
      slot = find_to_write(name);
      slot->time = static_cast<uint32_t>(time);
      slot->check = check;
      return Verdict::kFresh;
    }
    put({name.low, name.high, static_cast<uint32_t>(time), check});
    return Verdict::kFresh;
  }

  // Makes room for `count` keys of a snapshot; the table must be empty.
  void reserve(size_t count) {
    while (parts_.size() < kPartsMax && count > parts_.size() * kPartKeys) parts_.resize(parts_.size() * 2);
    const size_t each = count / parts_.size() + 1;
    for (auto& part : parts_) {
      part = std::make_shared<Part>();
      part->slots.resize(std::max(kSlotsMin, each + each / 4));
    }
  }

  // Takes what `dump` returned of another table with the same hash key, as of a time.
  void restore(std::string_view dumped, int64_t time) {
    if (dumped.size() % sizeof(Slot) != 0) throw std::invalid_argument("this is no dump of keys");
    time_ = time;
    swept_ = std::max(swept_, time);
    for (size_t at = 0; at < dumped.size(); at += sizeof(Slot)) {
      Slot slot;
      std::memcpy(&slot, dumped.data() + at, sizeof(slot));
      if (slot.check == 0 || find({slot.low, slot.high}) != nullptr) {
        throw std::invalid_argument("this is no dump of keys");
      }
      put(slot);
    }
  }

  // The parts as they are now; they stay so.
  Parts snapshot() const { return parts_; }

  static std::string dump(const Part* part) {
    std::string dumped;
    if (part == nullptr) return dumped;
    dumped.reserve(part->size * sizeof(Slot));
    for (const Slot& slot : part->slots) {
      if (slot.check != 0) dumped.append(reinterpret_cast<const char*>(&slot), sizeof(slot));
    }
    return dumped;
  }

  const HashKey& key() const { return key_; }
  int64_t time() const { return time_; }
  int64_t ttl_ms() const { return ttl_ms_; }
  size_t size() const { return size_; }  // with those that have expired and were not swept yet

  size_t bytes() const {
    size_t bytes = sizeof(*this) + parts_.capacity() * sizeof(parts_[0]);
    for (const auto& part : parts_) {
      if (part != nullptr) bytes += kPartBytes + part->slots.capacity() * sizeof(Slot);
    }
    return bytes;
  }

  // Throws where an invariant does not hold.
  void check() const {
    size_t total = 0;
    for (size_t index = 0; index < parts_.size(); ++index) {
      if (parts_[index] == nullptr) continue;
      const Part& part = *parts_[index];
      size_t taken = 0;
      for (const Slot& slot : part.slots) {
        if (slot.check == 0) continue;
        ++taken;
        if (index_of(slot.low) != index) throw std::logic_error("recent keys: a key is in a foreign part");
        if (find({slot.low, slot.high}) != &slot) throw std::logic_error("recent keys: a key is unreachable");
      }
      if (taken != part.size) throw std::logic_error("recent keys: a part's size is wrong");
      if (taken * 20 > part.slots.size() * 17) throw std::logic_error("recent keys: a part is too full");
      total += taken;
    }
    if (total != size_) throw std::logic_error("recent keys: the size is wrong");
  }

 private:
  static constexpr size_t kPartsMax = 1024;
  static constexpr size_t kPartKeys = 4096;  // on average, from which on there are more parts
  static constexpr size_t kSlotsMin = 16;
  static constexpr size_t kPartBytes = sizeof(Part) + 4 * sizeof(void*);  // with what the allocator adds

  // Without a division: there are always 2^n parts.
  size_t index_of(uint64_t low) const { return parts_.size() == 1 ? 0 : low >> (64 - __builtin_ctzll(parts_.size())); }
  size_t home_of(uint64_t low, size_t slot_count) const {
    const uint64_t within = low << __builtin_ctzll(parts_.size());
    return static_cast<size_t>(static_cast<unsigned __int128>(within) * slot_count >> 64);
  }
  static size_t next(size_t i, size_t slot_count) { return i + 1 == slot_count ? 0 : i + 1; }
  int64_t age(const Slot& slot) const { return static_cast<uint32_t>(static_cast<uint32_t>(time_) - slot.time); }

  // The slot of a name, or the free slot that it would take. A part has free slots.
  size_t place_of(const Part& part, const Name& name) const {
    const size_t count = part.slots.size();
    for (size_t i = home_of(name.low, count);; i = next(i, count)) {
      const Slot& slot = part.slots[i];
      if (slot.check == 0 || (slot.low == name.low && slot.high == name.high)) return i;
    }
  }

  Slot* find(const Name& name) const {
    Part* part = parts_[index_of(name.low)].get();
    if (part == nullptr) return nullptr;
    Slot& slot = part->slots[place_of(*part, name)];
    return slot.check == 0 ? nullptr : &slot;
  }

  Slot* find_to_write(const Name& name) {
    own(index_of(name.low));
    return find(name);
  }

  // A snapshot may hold the part: it keeps what it has.
  Part& own(size_t index) {
    auto& part = parts_[index];
    if (part.use_count() > 1) part = std::make_shared<Part>(*part);
    return *part;
  }

  void put(const Slot& slot) {
    if (size_ >= parts_.size() * kPartKeys && parts_.size() < kPartsMax) split();
    const size_t index = index_of(slot.low);
    if (parts_[index] == nullptr) {
      parts_[index] = std::make_shared<Part>();
      parts_[index]->slots.resize(kSlotsMin);
    }
    Part* part = parts_[index].get();
    if ((part->size + size_t{1}) * 20 > part->slots.size() * 17) {
      // By little, for memory's sake.
      rebuild(index, part->slots.size() + std::max(part->slots.size() / 5, kSlotsMin / 2), [](const Slot&) { return true; });
    } else {
      own(index);
    }
    part = parts_[index].get();
    part->slots[place_of(*part, {slot.low, slot.high})] = slot;
    ++part->size;
    ++size_;
  }

  template <class Stays>
  void rebuild(size_t index, size_t slot_count, Stays stays) {
    auto rebuilt = std::make_shared<Part>();
    rebuilt->slots.resize(slot_count);
    for (const Slot& slot : parts_[index]->slots) {
      if (slot.check == 0 || !stays(slot)) continue;
      rebuilt->slots[place_of(*rebuilt, {slot.low, slot.high})] = slot;
      ++rebuilt->size;
    }
    parts_[index] = std::move(rebuilt);
  }

  void split() {
    const Parts before = std::move(parts_);
    parts_ = Parts(before.size() * 2);
    size_ = 0;
    for (const auto& part : before) {
      if (part == nullptr) continue;
      const size_t first = 2 * static_cast<size_t>(&part - before.data());
      for (size_t half = first; half < first + 2; ++half) {
        parts_[half] = std::make_shared<Part>();
        parts_[half]->slots.resize(std::max(kSlotsMin, size_t{part->size} * 2 / 3));
      }
      for (const Slot& slot : part->slots) {
        if (slot.check != 0) put(slot);
      }
    }
  }

  // Takes out what has expired, in as many parts as the time that went by asks for.
  void move_to(int64_t time) {
    if (time < time_) throw std::invalid_argument("the time of a log never goes back");
    const int64_t passed = time - time_;
    time_ = time;
    if (size_ == 0 || passed >= ttl_ms_) {
      if (size_ != 0) {
        parts_ = Parts(1);
        size_ = 0;
      }
      swept_ = time;
      return;
    }
    const auto count = static_cast<int64_t>(parts_.size());
    if ((time - swept_) * count < kSweepMs) return;
    const int64_t due = (time - swept_) * count / kSweepMs;
    for (int64_t i = 0; i < std::min(count, due); ++i) sweep(hand_++ % parts_.size());
    swept_ += due * kSweepMs / count;
  }

  void sweep(size_t index) {
    if (parts_[index] == nullptr) return;
    const Part& part = *parts_[index];
    size_t live = 0;
    for (const Slot& slot : part.slots) live += slot.check != 0 && age(slot) < ttl_ms_ ? 1 : 0;
    if (live == part.size) return;
    size_ -= part.size - live;
    if (live == 0) {
      parts_[index] = nullptr;
      return;
    }
    rebuild(index, std::max(kSlotsMin, live + live / 3), [&](const Slot& slot) { return age(slot) < ttl_ms_; });
  }

  HashKey key_;
  int64_t ttl_ms_;
  Parts parts_;  // by the top bits of the hashes
  size_t size_ = 0;
  int64_t time_ = 0;  // of the last key judged
  int64_t swept_ = 0;  // when some parts were swept last
  size_t hand_ = 0;  // the part to sweep next
};

}  // namespace rankd
