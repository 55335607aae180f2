// Packs places and scores of one instant, to be searched in a file as they are; included by columns.cpp only.
//
//   hashes   ascending, in blocks of kPlacesBlock: the first of each, and distances from it in as few bits as they need
//   ranks    of these players, in as few bits as the last rank needs
//   scores   in standing order, in blocks likewise
//
// Bits are counted from the lowest of the first byte. src/rankd/seasons/places.py reads it, and says what a file holds.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "columns_grouping.hpp"

namespace rankd {

inline constexpr size_t kPlacesBlock = 128;

// Whole numbers of a fixed width, one behind the other.
class BitWriter {
 public:
  explicit BitWriter(std::vector<uint8_t>& bytes) : bytes_(bytes) {}

  void put(uint64_t value, int width) {
    held_ |= static_cast<unsigned __int128>(value) << bits_;
    bits_ += width;
    while (bits_ >= 8) {
      bytes_.push_back(static_cast<uint8_t>(held_));
      held_ >>= 8;
      bits_ -= 8;
    }
  }
  void finish() {
    if (bits_ > 0) bytes_.push_back(static_cast<uint8_t>(held_));
    held_ = 0;
    bits_ = 0;
  }

 private:
  std::vector<uint8_t>& bytes_;
  unsigned __int128 held_ = 0;
  int bits_ = 0;
};

// A column of blocks: the first value of each, and where its bits begin (in bytes) above their width (8 bits).
struct PlacesBlocks {
  std::vector<uint64_t> firsts;
  std::vector<uint64_t> begins;
  std::vector<uint8_t> bits;

  // `at(i)` rises or falls; distances are taken from the first value of a block.
  template <class At>
  void fill(size_t count, At at, bool is_falling) {
    for (size_t begin = 0; begin < count; begin += kPlacesBlock) {
      const size_t end = std::min(count, begin + kPlacesBlock);
      const uint64_t first = at(begin);
      const uint64_t last = at(end - 1);
      const int width = std::bit_width(is_falling ? first - last : last - first);
      firsts.push_back(first);
      begins.push_back(uint64_t{bits.size()} << 8 | static_cast<uint64_t>(width));
      BitWriter writer(bits);
      for (size_t i = begin; i < end; ++i) writer.put(is_falling ? first - at(i) : at(i) - first, width);
      writer.finish();
    }
  }
};

// Large enough that others would wait for a copy of them.
template <class Item>
nb::object large_bytes_of(const std::vector<Item>& items) {
  const size_t size = items.size() * sizeof(Item);
  nb::object bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!bytes.is_valid()) nb::raise_python_error();
  if (size > 0) {
    char* room = PyBytes_AS_STRING(bytes.ptr());
    const nb::gil_scoped_release others;  // no other thread has the object yet
    std::memcpy(room, items.data(), size);
  }
  return bytes;
}

// Players whose hashes are equal are left out if `leaves_out`; otherwise the answer is None, and a wider hash helps.
inline nb::object pack_places(nb::handle hashes, nb::handle scores, int hash_bits, bool leaves_out) {
  const Column<uint64_t> hash(hashes);
  const Column<int64_t> score(scores);
  score.check_size(hash.size());
  if (hash_bits < 1 || hash_bits > 64) throw nb::value_error("a hash has from 1 to 64 bits");
  if (hash.size() >= size_t{1} << 32) throw nb::value_error("more than 2^32 players");
  const size_t entries = hash.size();
  std::vector<std::pair<uint64_t, uint32_t>> sorted;
  PlacesBlocks hashed;
  PlacesBlocks scored;
  std::vector<uint8_t> ranks;
  size_t players = 0;
  bool has_equal = false;
  bool is_ordered = true;
  bool is_falling = false;
  {
    const nb::gil_scoped_release others;  // the columns pin their buffers
    sorted.resize(entries);
    for (size_t i = 0; i < entries; ++i) sorted[i] = {hash[i] >> (64 - hash_bits), static_cast<uint32_t>(i)};
    std::sort(sorted.begin(), sorted.end());
    const auto are_equal = [](const auto& a, const auto& b) { return a.first == b.first; };
    has_equal = std::adjacent_find(sorted.begin(), sorted.end(), are_equal) != sorted.end();
    if (has_equal && leaves_out) {
      std::vector<std::pair<uint64_t, uint32_t>> unique;
      for (size_t i = 0; i < entries; ++i) {
        const bool is_twin = (i > 0 && are_equal(sorted[i - 1], sorted[i])) ||
                             (i + 1 < entries && are_equal(sorted[i], sorted[i + 1]));
        if (!is_twin) unique.push_back(sorted[i]);
      }
      sorted.swap(unique);
    }
    is_falling = entries > 0 && score[entries - 1] < score[0];
    for (size_t i = 1; i < entries && is_ordered; ++i) {
      is_ordered = is_falling ? score[i] <= score[i - 1] : score[i] >= score[i - 1];
    }
    if (is_ordered && (!has_equal || leaves_out)) {
      hashed.fill(sorted.size(), [&](size_t i) { return sorted[i].first; }, false);
      scored.fill(entries, [&](size_t i) { return static_cast<uint64_t>(score[i]); }, is_falling);
      const int width = std::bit_width(entries == 0 ? uint64_t{0} : uint64_t{entries} - 1);
      BitWriter writer(ranks);
      for (const auto& [_, place] : sorted) writer.put(place, width);
      writer.finish();
      players = sorted.size();
    }
    std::vector<std::pair<uint64_t, uint32_t>>().swap(sorted);  // its memory is given back here, too
  }
  if (!is_ordered) throw nb::value_error("scores must rise or fall");
  if (has_equal && !leaves_out) return nb::none();
  return nb::make_tuple(players, is_falling, large_bytes_of(hashed.firsts), large_bytes_of(hashed.begins),
                        large_bytes_of(hashed.bits), large_bytes_of(ranks), large_bytes_of(scored.firsts),
                        large_bytes_of(scored.begins), large_bytes_of(scored.bits));
}

}  // namespace rankd
