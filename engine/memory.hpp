// The engine's memory, and its accounting.
//
//   Regions   2 MiB each, mapped as huge pages where possible: random access over gigabytes is bound by address
//             translation otherwise. Cut into pieces of 64 KiB.
//   Pool      numbered slots of one size; it takes pieces as it grows, and releases a piece with its last slot. A very
//             large pool takes whole regions: its list of pieces, which every access reads first, then fits in the
//             first-level cache.
//
// Memory that grows with players and boards is accounted by purpose, to the byte; the lists of pieces, some 32 bytes
// for each, are not. Writers exclude readers (see lock.hpp). The workers of a batch (batch_worker.hpp) allocate and
// release slots concurrently: only then are locks used here. A slot in use never moves.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "prefetch.hpp"

namespace rankd {

enum class Purpose : uint8_t { players, boards, entries, maps, captures, saving };
inline constexpr size_t kPurposes = 6;
inline constexpr uint32_t kNone = 0xffffffffu;

inline constexpr size_t kRegionBytes = size_t{2} << 20;
inline constexpr size_t kPieceBytes = size_t{64} << 10;
inline constexpr uint32_t kPiecesPerRegion = kRegionBytes / kPieceBytes;

// Under a sanitizer a pool allocates each slot separately, so that an access outside of a slot or after its release is
// detected.
#ifdef RANKD_SANITIZE
inline constexpr bool kOneSlotPieces = true;
#else
inline constexpr bool kOneSlotPieces = false;
#endif

// Maps regions ahead of their use in its own thread: mapping new memory takes the system as long as a load takes to
// fill it.
class RegionSupply {
 public:
  RegionSupply();
  ~RegionSupply();
  RegionSupply(const RegionSupply&) = delete;
  RegionSupply& operator=(const RegionSupply&) = delete;

  // A region, or null when none is ready.
  std::byte* take();

 private:
  static constexpr size_t kReadyMost = 16;
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte*> ready_;
  bool stopping_ = false;
  std::thread thread_;
};

class Regions {
 public:
  Regions() = default;
  ~Regions();
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  // While several threads allocate and release.
  void set_shared(bool is_shared) { is_shared_ = is_shared; }
  bool is_shared() const { return is_shared_; }
  // A pool holds it during the calls below up to `prepare`; the other methods take it themselves.
  std::unique_lock<std::mutex> guard() {
    return is_shared_ ? std::unique_lock<std::mutex>(mutex_) : std::unique_lock<std::mutex>();
  }
  std::byte* take_piece(Purpose purpose);
  void give_piece(std::byte* piece, Purpose purpose);
  // A whole region counts as idle, except for the bytes that its pool reports as used.
  std::byte* take_region();
  void give_region(std::byte* region);
  void note_use(Purpose purpose, size_t before, size_t now) {
    bytes_[static_cast<size_t>(purpose)] += now - before;
    whole_used_bytes_ += now - before;
  }
  // A region will be needed soon.
  void expect_region() { is_region_expected_ = true; }
  std::byte* take_slot(size_t bytes, Purpose purpose);
  void give_slot(std::byte* slot, size_t bytes, Purpose purpose);

  // Maps a region if one may be needed soon. The writer calls it before it excludes readers: the system may take
  // milliseconds to map two megabytes.
  void prepare();
  // Whether the last mapping failed. Optional allocations should then be skipped.
  bool is_short() const { return is_short_.load(std::memory_order_relaxed); }

  // Starts or stops mapping regions ahead of their use; for loads.
  void set_hurry(bool hurry);

  // Plain memory for what must be contiguous and grows by doubling, such as directories.
  std::byte* take_block(size_t bytes, Purpose purpose);
  void give_block(std::byte* block, size_t bytes, Purpose purpose);

  // Accounts for memory that was allocated otherwise, such as a Tree object.
  void note_taken(size_t bytes, Purpose purpose) {
    const auto held = guard();
    bytes_[static_cast<size_t>(purpose)] += bytes;
  }
  void note_given(size_t bytes, Purpose purpose) {
    const auto held = guard();
    bytes_[static_cast<size_t>(purpose)] -= bytes;
  }

  size_t bytes(Purpose purpose) const { return bytes_[static_cast<size_t>(purpose)]; }
  // Mapped and unused.
  size_t idle_bytes() const {
    const size_t spare = spare_.load() == nullptr ? 0 : 1;
    return idle_pieces_ * kPieceBytes + (whole_ + spare) * kRegionBytes - whole_used_bytes_;
  }

 private:
  std::byte* fresh_region();
  void forget_spare_if_empty();

  struct Region {
    std::byte* memory = nullptr;
    uint32_t free = 0;  // one bit a piece
  };
  std::vector<Region> regions_;  // regions cut into pieces, sorted by address
  size_t whole_ = 0;             // the number of regions taken whole
  size_t whole_used_bytes_ = 0;  // of these
  std::unique_ptr<RegionSupply> supply_;
  std::atomic<std::byte*> spare_{nullptr};
  std::atomic<bool> is_short_{false};
  bool is_shared_ = false;
  bool is_region_expected_ = false;
  std::mutex mutex_;
  size_t idle_pieces_ = 0;
  size_t hint_ = 0;  // regions before it have no free piece
  std::array<size_t, kPurposes> bytes_{};
};

class Pool {
 public:
  // Ids are below `ids_max`. A piece is `piece_bytes`: kPieceBytes or kRegionBytes.
  Pool(Regions& regions, Purpose purpose, uint32_t slot_bytes, uint32_t ids_max = kNone,
       size_t piece_bytes = kPieceBytes);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  uint32_t allocate();
  void release(uint32_t id);  // never fails

  std::byte* at(uint32_t id) const {
    const uint32_t piece = piece_of(id);
    return bases_.load(std::memory_order_acquire)[piece] +
           static_cast<size_t>(id - piece * slots_per_piece_) * slot_bytes_;
  }
  size_t used() const { return used_; }
  // One above the largest id in use.
  uint32_t ids_end() const { return static_cast<uint32_t>(pieces_.size()) * slots_per_piece_; }
  // Releases up to `most` pieces with all their slots; returns whether none are left.
  bool clear_some(uint32_t most);
  uint32_t slot_bytes() const { return slot_bytes_; }

 private:
  struct Piece {
    uint32_t used = 0;
    uint32_t bump = 0;      // slots from here on were never allocated
    uint32_t free = kNone;  // first of the released slots, linked through their first bytes
    bool listed = false;    // is in open_
  };

  uint32_t piece_of(uint32_t id) const {
    if (kOneSlotPieces) return id;
    return static_cast<uint32_t>((static_cast<unsigned __int128>(reciprocal_) * id) >> 64);
  }
  uint32_t open_piece();
  void add_piece();
  std::byte* take_piece();
  void give_piece(std::byte* piece);
  void note_use();

  Regions& regions_;
  Purpose purpose_;
  uint32_t slot_bytes_;
  bool has_regions_;  // for pieces
  uint32_t slots_per_piece_;
  uint32_t ids_max_;
  uint64_t reciprocal_;  // ceil(2^64 / slots_per_piece): division by multiplication, exact for 32-bit ids
  // The addresses of the pieces. Replaced lists are kept: another worker may still read one.
  std::atomic<std::byte**> bases_{nullptr};
  std::vector<std::unique_ptr<std::byte*[]>> lists_;  // the last one is `bases_`
  size_t bases_capacity_ = 0;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> open_;    // pieces with room
  std::vector<uint32_t> vacant_;  // numbers of released pieces
  size_t used_ = 0;
  size_t noted_bytes_ = 0;  // of whole regions
};

}  // namespace rankd
