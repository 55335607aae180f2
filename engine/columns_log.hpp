// What the followers of a log ask of its events, many at once; included by columns.cpp only.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "columns_grouping.hpp"
#include "recent_keys.hpp"

namespace rankd {

// How far a search is begun before its turn comes.
inline constexpr size_t kKeysAhead = 16;

inline nb::object rising(nb::handle times, nb::handle instants, nb::handle sent, int64_t last) {
  const Column<int64_t> time(times);
  const Column<int64_t> at(instants);
  at.check_size(time.size());
  const int64_t* begin = time.data();
  if (time.size() == 0 || (begin[0] >= last && std::is_sorted(begin, begin + time.size()))) return nb::none();
  std::vector<uint8_t> is_sent(time.size(), 0);
  if (!sent.is_none()) {
    const Column<uint8_t> given(sent);
    given.check_size(time.size());
    std::copy(given.data(), given.data() + given.size(), is_sent.begin());
  }
  std::vector<int64_t> risen(begin, begin + time.size());
  std::vector<int64_t> own(at.data(), at.data() + at.size());
  for (size_t i = 0; i < risen.size(); ++i) {
    last = risen[i] = std::max(last, risen[i]);
    if (is_sent[i] == 0) own[i] = risen[i];
  }
  return nb::make_tuple(bytes_of(risen), bytes_of(own));
}

inline RecentKeys new_recent_keys(nb::bytes key, int64_t ttl_ms) {
  HashKey words{};
  if (key.size() != sizeof(words)) throw nb::value_error("a key has 16 bytes");
  std::memcpy(&words, key.c_str(), sizeof(words));
  return RecentKeys(words, ttl_ms);
}

// What becomes of each event: a RecentKeys::Verdict as a byte; None where all are fresh.
inline nb::object admit_keys(RecentKeys& recent, nb::handle keys, nb::handle times) {
  const Column<RecentKeys::Key> key(keys);
  const Column<int64_t> time(times);
  time.check_size(key.size());
  std::vector<RecentKeys::Name> names(key.size());
  std::vector<uint8_t> verdicts(key.size());
  for (size_t i = 0; i < key.size(); ++i) names[i] = recent.name(key[i]);
  bool are_fresh = true;
  for (size_t i = 0; i < key.size(); ++i) {
    if (i + kKeysAhead < key.size()) __builtin_prefetch(recent.line(names[i + kKeysAhead]), 1);
    if (key[i].is_none()) continue;
    verdicts[i] = static_cast<uint8_t>(recent.admit(names[i], key[i], time[i]));
    are_fresh = are_fresh && verdicts[i] == 0;
  }
  return are_fresh ? nb::none() : nb::object(bytes_of(verdicts));
}

class KeysSnapshot {
 public:
  explicit KeysSnapshot(const RecentKeys& recent)
      : key_(recent.key()), parts_(recent.snapshot()), time_(recent.time()), size_(recent.size()) {}

  nb::bytes key() const { return nb::bytes(&key_, sizeof(key_)); }
  int64_t time() const { return time_; }
  size_t size() const { return size_; }
  size_t part_count() const { return parts_.size(); }
  nb::bytes part(size_t index) const {
    if (index >= parts_.size()) throw nb::index_error("there are not as many parts");
    const std::string dumped = RecentKeys::dump(parts_[index].get());
    return nb::bytes(dumped.data(), dumped.size());
  }

 private:
  HashKey key_;
  RecentKeys::Parts parts_;
  int64_t time_;
  size_t size_;
};

}  // namespace rankd
