// A map from 32-bit tags to 32-bit values without a pause for rehashing: extendible hashing.
//
//   directory   2^depth entries, chosen by the tag's top bits; several may share a segment
//   segment     at most 4 KiB; a full one is split in two by the next bit, the others stay as they are
//     sparse    open addressing over (tag, value) words, load ≤ 0.8, in steps of capacity
//     dense     the values of 1,024 consecutive tags, four bytes each (only where `kDense`)
//
// So the longest pause is one segment's split or one copy of the directory. With `kDense`, tags come from `page_tag`:
// the 1,024 numbers of a page share their top bits, and a segment that fills up with a single page becomes dense. A
// board that holds most players pays four bytes a player, a board that holds few pays about eleven.
//
// Without `kDense` equal tags may occur with different values (a hash); a predicate then decides.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "memory.hpp"
#include "segments.hpp"

namespace rankd {

template <bool kDense>
class TagTable {
 public:
  TagTable(Regions& regions, SegmentPools& pools, Purpose purpose)
      : regions_(&regions), pools_(&pools), purpose_(purpose) {}
  ~TagTable() { clear(); }
  TagTable(const TagTable&) = delete;
  TagTable& operator=(const TagTable&) = delete;

  uint32_t size() const { return size_; }
  bool has_segments() const { return depth_ > 0 || single_.segment() != nullptr; }

  // The cache line at which a search for the tag begins, or null.
  const void* line(uint32_t tag) const {
    const Entry entry = directory()[index_of(tag)];
    if (entry.segment() == nullptr) return nullptr;
    if (kDense && entry.is_dense()) return dense_value(entry.segment(), tag);
    return words(entry.segment()) + home(tag, capacity(entry));
  }
  void prefetch_tag(uint32_t tag) const {
    if (const void* found = line(tag); found != nullptr) prefetch(found);
  }

  template <class Match>
  uint32_t find(uint32_t tag, Match match) const {
    const Entry entry = directory()[index_of(tag)];
    if (entry.segment() == nullptr) return kNone;
    if (kDense && entry.is_dense()) {
      return page_of(entry.segment()) == tag >> kPageBits ? *dense_value(entry.segment(), tag) : kNone;
    }
    const uint64_t* slots = words(entry.segment());
    const uint32_t slot_count = capacity(entry);
    for (uint32_t i = home(tag, slot_count); slots[i] != kEmpty; i = next(i, slot_count)) {
      if (tag_of(slots[i]) == tag && match(value_of(slots[i]))) return value_of(slots[i]);
    }
    return kNone;
  }

  uint32_t find(uint32_t tag) const
    requires kDense
  {
    return find(tag, [](uint32_t) { return true; });
  }

  // The value of a present tag; for an absent one, possibly the value of another tag. It does not read the cache line
  // with the page of a dense segment, for callers that verify the result otherwise.
  uint32_t likely(uint32_t tag) const
    requires kDense
  {
    const Entry entry = directory()[index_of(tag)];
    if (entry.segment() == nullptr) return kNone;
    return entry.is_dense() ? *dense_value(entry.segment(), tag) : find(tag);
  }

  // Only for new tags (with `kDense`) or new values.
  void insert(uint32_t tag, uint32_t value) {
    for (;;) {
      const uint32_t index = index_of(tag);
      const Entry entry = directory()[index];
      if (entry.segment() == nullptr) {
        replace(index, entry.depth(), make_sparse(0, entry.depth()));
        continue;
      }
      Header& header = header_of(entry.segment());
      if (kDense && entry.is_dense()) {
        if (page_of(entry.segment()) != tag >> kPageBits) {
          split(tag);
          continue;
        }
        *dense_value(entry.segment(), tag) = value;
        ++header.count;
      } else {
        if ((header.count + 1) * 5 > capacity(entry) * 4) {
          make_room(tag);
          continue;
        }
        put(words(entry.segment()), capacity(entry), tag, value);
        ++header.count;
      }
      ++size_;
      return;
    }
  }

  // Changes the value of a present tag.
  void assign(uint32_t tag, uint32_t value)
    requires kDense
  {
    const Entry entry = directory()[index_of(tag)];
    if (entry.is_dense()) {
      *dense_value(entry.segment(), tag) = value;
      return;
    }
    uint64_t* slots = words(entry.segment());
    uint32_t i = home(tag, capacity(entry));
    while (tag_of(slots[i]) != tag || slots[i] == kEmpty) i = next(i, capacity(entry));
    slots[i] = word_of(tag, value);
  }

  // Removes a pair, which must be present.
  void erase(uint32_t tag, uint32_t value) {
    const uint32_t index = index_of(tag);
    const Entry entry = directory()[index];
    Header& header = header_of(entry.segment());
    --size_;
    --header.count;
    if (kDense && entry.is_dense()) {
      *dense_value(entry.segment(), tag) = kNone;
      if (header.count < kDenseLeast / 2) rebuild(index);
    } else {
      take_out(words(entry.segment()), capacity(entry), word_of(tag, value));
      if (header.count == 0) {
        replace(index, entry.depth(), Entry(nullptr, 0, entry.depth()));
        free_segment(entry);
      } else if (header.count * 4 < capacity(entry) && entry.kind() > 0) {
        rebuild(index);
      }
    }
    if (size_ == 0) clear();
  }

  // Makes segments for `count` evenly spread tags at once; the table must be empty. For loads.
  void reserve(uint32_t count) {
    constexpr uint32_t kPerSegment = 256;
    if (count <= kPerSegment) return;
    while ((count >> depth_) > kPerSegment) double_directory();
    for (uint32_t i = 0; i < (1u << depth_); ++i) directory()[i] = make_fitting(count >> depth_, depth_);
  }

  // Makes dense pages for the numbers 0 … count − 1 at once; the table must be empty. For loads.
  void reserve_pages(uint32_t count)
    requires kDense
  {
    const uint32_t pages = (count + kPageSlots - 1) >> kPageBits;
    while ((1u << depth_) < pages) double_directory();
    for (uint32_t page = 0; page < pages; ++page) {
      const uint32_t tag = page_tag(page << kPageBits);
      directory()[index_of(tag)] = make_dense(tag >> kPageBits, depth_);
    }
    for (uint32_t i = 0; i < (1u << depth_); ++i) {
      if (directory()[i].segment() == nullptr) directory()[i] = Entry(nullptr, 0, depth_);
    }
  }

  // Shrinks pages that `reserve_pages` made and few tags use. Returns whether each tag was inserted once: two inserts
  // of one tag leave a page with fewer values than it counted.
  bool settle_pages()
    requires kDense
  {
    for (uint32_t i = 0; i < (1u << depth_); ++i) {
      const Entry entry = directory()[i];
      if (entry.segment() == nullptr || !entry.is_dense()) continue;
      const uint32_t* values = dense_value(entry.segment(), 0);
      const auto used = kPageSlots - static_cast<uint32_t>(std::count(values, values + kPageSlots, kNone));
      if (used != header_of(entry.segment()).count) return false;
      if (used < kDenseLeast / 2) rebuild(i);
    }
    if (size_ == 0) clear();
    return true;
  }

  void clear() {
    const uint32_t entries = 1u << depth_;
    for (uint32_t i = 0; i < entries; i += span(i)) {
      if (directory()[i].segment() != nullptr) free_segment(directory()[i]);
    }
    if (depth_ > 0) regions_->give_block(reinterpret_cast<std::byte*>(many_), entries * sizeof(Entry), purpose_);
    depth_ = 0;
    single_ = Entry();
    size_ = 0;
    reached_ = 0;
  }

  // Frees up to `most` segments of an abandoned table; returns whether none are left.
  bool clear_some(uint32_t most) {
    for (; reached_ < (1u << depth_) && most > 0; reached_ += span(reached_)) {
      const Entry entry = directory()[reached_];
      if (entry.segment() == nullptr) continue;
      --most;
      free_segment(entry);
      replace(reached_, entry.depth(), Entry(nullptr, 0, entry.depth()));
    }
    if (reached_ < (1u << depth_)) return false;
    clear();
    return true;
  }

  // Copies up to `most` segments of `other`; returns whether all are copied.
  // Begins with an empty table; `other` must stay as it is until the end.
  bool copy_some(const TagTable& other, uint32_t most) {
    if (size_ == 0 && other.depth_ > depth_) {
      const uint32_t entries = 1u << other.depth_;
      auto* many = reinterpret_cast<Entry*>(regions_->take_block(entries * sizeof(Entry), purpose_));
      for (uint32_t i = 0; i < entries; ++i) many[i] = Entry(nullptr, 0, other.many_[i].depth());
      many_ = many;
      depth_ = other.depth_;
    }
    for (; size_ < other.size_ && most > 0; reached_ += span(reached_)) {
      const Entry from = other.directory()[reached_];
      if (from.segment() == nullptr) continue;
      --most;
      const bool dense = from.is_dense();
      const uint32_t depth = from.depth();
      const Entry to = dense ? make_dense(page_of(from.segment()), depth) : make_sparse(from.kind(), depth);
      const size_t bytes = dense ? kPageSlots * sizeof(uint32_t) : capacity(from) * sizeof(uint64_t);
      std::memcpy(words(to.segment()), words(from.segment()), bytes);
      header_of(to.segment()).count = header_of(from.segment()).count;
      replace(reached_, depth, to);
      size_ += header_of(from.segment()).count;
    }
    if (size_ < other.size_) return false;
    reached_ = 0;
    return true;
  }

  static constexpr uint64_t kTagsEnd = uint64_t{1} << 32;

  // Calls visit(tag, value) for the pairs with tags from `from` on, segment by segment, until `most` were seen; returns
  // the tag to continue from, or kTagsEnd. Segments are split but never joined, so a pair that stays is visited exactly
  // once, whatever is inserted or erased between two calls.
  template <class Visit>
  uint64_t visit_some(uint64_t from, uint32_t most, Visit visit) const {
    uint32_t seen = 0;
    while (from < kTagsEnd && seen < most) {
      const uint32_t index = index_of(static_cast<uint32_t>(from));
      const Entry entry = directory()[index];
      if (entry.segment() != nullptr) {
        each(entry, [&](uint32_t tag, uint32_t value) {
          if (tag < from) return;
          visit(tag, value);
          ++seen;
        });
      }
      const uint64_t width = kTagsEnd >> entry.depth();
      from = (from / width + 1) * width;
    }
    return from;
  }

  // Throws what `fail(text)` throws when an invariant does not hold.
  template <class Fail>
  void check(Fail fail) const {
    uint32_t total = 0;
    for (uint32_t i = 0; i < (1u << depth_); i += span(i)) {
      const Entry entry = directory()[i];
      if (entry.depth() > depth_ || i % span(i) != 0) fail("tag table: a segment is deeper than its directory");
      for (uint32_t j = i; j < i + span(i); ++j) {
        if (directory()[j].bits != entry.bits) fail("tag table: a segment's directory entries differ");
      }
      if (entry.segment() == nullptr) continue;
      uint32_t count = 0;
      each(entry, [&](uint32_t tag, uint32_t value) {
        ++count;
        if (index_of(tag) < i || index_of(tag) >= i + span(i)) fail("tag table: a tag is in a foreign segment");
        if (find(tag, [&](uint32_t other) { return other == value; }) != value) fail("tag table: a tag is unreachable");
      });
      if (count != header_of(entry.segment()).count) fail("tag table: a segment's count is wrong");
      if (!entry.is_dense() && count * 5 > capacity(entry) * 4) fail("tag table: a segment is too full");
      total += count;
    }
    if (total != size_) fail("tag table: the size is wrong");
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no value is kNone
  static constexpr uint32_t kDenseKind = 0xff;

  struct Header {
    uint32_t slot;   // in its pool
    uint32_t page;   // of a dense segment: the top bits that its tags share
    uint32_t count;
    uint32_t unused;
  };
  static_assert(sizeof(Header) == kSegmentHeaderBytes);

  // A segment's address, its kind (an index into kSparseCapacities, or dense) and the number of top bits its tags
  // share.
  struct Entry {
    uint64_t bits = 0;
    Entry() = default;
    Entry(std::byte* segment, uint32_t kind, uint32_t depth)
        : bits(reinterpret_cast<uint64_t>(segment) | uint64_t{kind} << 48 | uint64_t{depth} << 56) {}
    std::byte* segment() const { return reinterpret_cast<std::byte*>(bits & ((uint64_t{1} << 48) - 1)); }
    uint32_t kind() const { return static_cast<uint32_t>(bits >> 48) & 0xff; }
    bool is_dense() const { return kind() == kDenseKind; }
    uint32_t depth() const { return static_cast<uint32_t>(bits >> 56); }
  };

  static uint64_t word_of(uint32_t tag, uint32_t value) { return uint64_t{tag} << 32 | value; }
  static uint32_t tag_of(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
  static uint32_t value_of(uint64_t word) { return static_cast<uint32_t>(word); }
  static uint32_t next(uint32_t slot, uint32_t slot_count) { return slot + 1 == slot_count ? 0 : slot + 1; }
  static uint32_t home(uint32_t tag, uint32_t slot_count) {
    const uint32_t mixed = (tag ^ (tag >> 15)) * 0x9e3779b1u;
    return static_cast<uint32_t>((uint64_t{mixed} * slot_count) >> 32);
  }
  static uint32_t capacity(Entry entry) { return kSparseCapacities[entry.kind()]; }

  static Header& header_of(std::byte* segment) { return *reinterpret_cast<Header*>(segment); }
  static uint64_t* words(std::byte* segment) { return reinterpret_cast<uint64_t*>(segment + kSegmentHeaderBytes); }
  static uint32_t page_of(std::byte* segment) { return header_of(segment).page; }
  static uint32_t* dense_value(std::byte* segment, uint32_t tag) {
    return reinterpret_cast<uint32_t*>(segment + kSegmentHeaderBytes) + (tag & (kPageSlots - 1));
  }

  Entry* directory() { return depth_ == 0 ? &single_ : many_; }
  const Entry* directory() const { return depth_ == 0 ? &single_ : many_; }
  uint32_t index_of(uint32_t tag) const { return depth_ == 0 ? 0 : tag >> (32 - depth_); }
  uint32_t span(uint32_t index) const { return 1u << (depth_ - directory()[index].depth()); }

  Entry make_sparse(uint32_t kind, uint32_t depth) {
    Pool& pool = *pools_->sparse[kind];
    const uint32_t slot = pool.allocate();
    std::byte* segment = pool.at(slot);
    header_of(segment) = {slot, 0, 0, 0};
    std::fill_n(words(segment), kSparseCapacities[kind], kEmpty);
    return Entry(segment, kind, depth);
  }

  Entry make_dense(uint32_t page, uint32_t depth) {
    const uint32_t slot = pools_->dense.allocate();
    std::byte* segment = pools_->dense.at(slot);
    header_of(segment) = {slot, page, 0, 0};
    std::fill_n(dense_value(segment, 0), kPageSlots, kNone);
    return Entry(segment, kDenseKind, depth);
  }

  // A sparse segment with room for `count` pairs and some more; no segment for none.
  Entry make_fitting(uint32_t count, uint32_t depth) {
    if (count == 0) return Entry(nullptr, 0, depth);
    uint32_t kind = 0;
    while (kind + 1 < kSparseCapacities.size() && count * 3 > kSparseCapacities[kind] * 2u) ++kind;
    return make_sparse(kind, depth);
  }

  void free_segment(Entry entry) {
    Pool& pool = entry.is_dense() ? pools_->dense : *pools_->sparse[entry.kind()];
    pool.release(header_of(entry.segment()).slot);
  }

  // Sets all directory entries that share the segment of `index`.
  void replace(uint32_t index, uint32_t depth, Entry entry) {
    const uint32_t width = 1u << (depth_ - depth);
    std::fill_n(directory() + (index & ~(width - 1)), width, entry);
  }

  template <class Visit>
  static void each(Entry entry, Visit visit) {
    if (entry.is_dense()) {
      for (uint32_t i = 0; i < kPageSlots; ++i) {
        const uint32_t value = *dense_value(entry.segment(), i);
        if (value != kNone) visit(page_of(entry.segment()) << kPageBits | i, value);
      }
      return;
    }
    for (uint32_t i = 0; i < capacity(entry); ++i) {
      const uint64_t word = words(entry.segment())[i];
      if (word != kEmpty) visit(tag_of(word), value_of(word));
    }
  }

  static void put(uint64_t* slots, uint32_t slot_count, uint32_t tag, uint32_t value) {
    uint32_t i = home(tag, slot_count);
    while (slots[i] != kEmpty) i = next(i, slot_count);
    slots[i] = word_of(tag, value);
  }

  static void add(Entry entry, uint32_t tag, uint32_t value) {
    if (entry.is_dense()) {
      *dense_value(entry.segment(), tag) = value;
    } else {
      put(words(entry.segment()), capacity(entry), tag, value);
    }
    ++header_of(entry.segment()).count;
  }

  // Closes the hole: moves back the pairs behind it that would no longer be found.
  static void take_out(uint64_t* slots, uint32_t slot_count, uint64_t word) {
    uint32_t hole = home(tag_of(word), slot_count);
    while (slots[hole] != word) hole = next(hole, slot_count);
    for (uint32_t i = next(hole, slot_count); slots[i] != kEmpty; i = next(i, slot_count)) {
      const uint32_t wanted = home(tag_of(slots[i]), slot_count);
      const bool stays = hole <= i ? (wanted > hole && wanted <= i) : (wanted > hole || wanted <= i);
      if (stays) continue;
      slots[hole] = slots[i];
      hole = i;
    }
    slots[hole] = kEmpty;
  }

  void move_into(uint32_t index, Entry from, Entry to) {
    each(from, [&](uint32_t tag, uint32_t value) { add(to, tag, value); });
    replace(index, from.depth(), to);
    free_segment(from);
  }

  void rebuild(uint32_t index) {
    const Entry entry = directory()[index];
    move_into(index, entry, make_fitting(header_of(entry.segment()).count, entry.depth()));
  }

  void make_room(uint32_t tag) {
    const uint32_t index = index_of(tag);
    const Entry entry = directory()[index];
    if (entry.kind() + 1 < kSparseCapacities.size()) {
      move_into(index, entry, make_sparse(entry.kind() + 1, entry.depth()));
    } else if (kDense && is_one_page(entry, tag >> kPageBits)) {
      move_into(index, entry, make_dense(tag >> kPageBits, entry.depth()));
    } else {
      split(tag);
    }
  }

  static bool is_one_page(Entry entry, uint32_t page) {
    bool one = true;
    each(entry, [&](uint32_t tag, uint32_t) { one = one && tag >> kPageBits == page; });
    return one;
  }

  void split(uint32_t tag) {
    if (directory()[index_of(tag)].depth() == depth_) double_directory();
    const uint32_t index = index_of(tag);
    const Entry entry = directory()[index];
    const uint32_t depth = entry.depth() + 1;
    const uint32_t width = 1u << (depth_ - entry.depth());
    const uint32_t left = index & ~(width - 1);
    const uint32_t right = left + width / 2;
    const auto goes_right = [&](uint32_t some_tag) { return (some_tag >> (32 - depth) & 1) != 0; };
    if (entry.is_dense()) {
      const bool on_right = goes_right(page_of(entry.segment()) << kPageBits);
      replace(left, depth, Entry(on_right ? nullptr : entry.segment(), on_right ? 0 : kDenseKind, depth));
      replace(right, depth, Entry(on_right ? entry.segment() : nullptr, on_right ? kDenseKind : 0, depth));
      return;
    }
    uint32_t right_count = 0;
    each(entry, [&](uint32_t some_tag, uint32_t) { right_count += goes_right(some_tag) ? 1 : 0; });
    const Entry left_half = make_fitting(header_of(entry.segment()).count - right_count, depth);
    const Entry right_half = make_fitting(right_count, depth);
    each(entry, [&](uint32_t some_tag, uint32_t value) { add(goes_right(some_tag) ? right_half : left_half, some_tag, value); });
    replace(left, depth, left_half);
    replace(right, depth, right_half);
    free_segment(entry);
  }

  void double_directory() {
    const uint32_t entries = 1u << depth_;
    auto* twice = reinterpret_cast<Entry*>(regions_->take_block(2 * entries * sizeof(Entry), purpose_));
    for (uint32_t i = 0; i < entries; ++i) {
      twice[2 * i] = directory()[i];
      twice[2 * i + 1] = directory()[i];
    }
    if (depth_ > 0) regions_->give_block(reinterpret_cast<std::byte*>(many_), entries * sizeof(Entry), purpose_);
    many_ = twice;
    ++depth_;
  }

  Regions* regions_;
  SegmentPools* pools_;
  union {
    Entry* many_;
    Entry single_ = Entry();
  };
  uint32_t size_ = 0;
  uint32_t reached_ = 0;  // how far `clear_some` or `copy_some` came
  uint8_t depth_ = 0;
  Purpose purpose_;
};

}  // namespace rankd
