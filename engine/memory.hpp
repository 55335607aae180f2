// Where the engine's memory comes from, and how much there is of it.
//
//   Regions   2 MiB, from the operating system, asked to be huge pages: random access over gigabytes is bound by
//             address translation otherwise. Cut into pieces of 64 KiB.
//   Pool      slots of one size, numbered; takes pieces as it grows and gives a piece back when its last slot goes. One
//             that will be much larger than all others takes whole regions: the list of what it has, which every access
//             begins with, then stays in the nearest cache.
//
// What grows with players and boards is accounted for by purpose, to the byte; the lists of pieces themselves, some 32
// bytes for each, are not. Writers exclude readers (see lock.hpp). Lanes of one batch (lane.hpp) take and give slots at
// the same time: only then does anything here lock, and slots that are in use stay where they are.
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

#include "ahead.hpp"

namespace rankd {

enum class Purpose : uint8_t { players, boards, entries, maps, captures, saving };
inline constexpr size_t kPurposes = 6;
inline constexpr uint32_t kNone = 0xffffffffu;

inline constexpr size_t kRegionBytes = size_t{2} << 20;
inline constexpr size_t kPieceBytes = size_t{64} << 10;
inline constexpr uint32_t kPiecesPerRegion = kRegionBytes / kPieceBytes;

// Under a sanitizer a pool asks for each slot separately: then an access outside a slot, or after it was given back,
// is seen.
#ifdef RANKD_SANITIZE
inline constexpr bool kOneSlotPieces = true;
#else
inline constexpr bool kOneSlotPieces = false;
#endif

// Regions mapped ahead of their use by a thread of its own: fresh memory takes the system as long as a load takes to
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

  // While several threads take and give.
  void set_shared(bool is_shared) { is_shared_ = is_shared; }
  bool is_shared() const { return is_shared_; }
  // Held by a pool for each of the calls below up to `prepare`; the others hold it themselves.
  std::unique_lock<std::mutex> guard() {
    return is_shared_ ? std::unique_lock<std::mutex>(mutex_) : std::unique_lock<std::mutex>();
  }
  std::byte* take_piece(Purpose purpose);
  void give_piece(std::byte* piece, Purpose purpose);
  // Whole regions are idle but for what their pool says it uses of them.
  std::byte* take_region();
  void give_region(std::byte* region);
  void note_use(Purpose purpose, size_t before, size_t now) {
    bytes_[static_cast<size_t>(purpose)] += now - before;
    whole_used_bytes_ += now - before;
  }
  // Somebody will soon take one.
  void expect_region() { is_region_expected_ = true; }
  std::byte* take_slot(size_t bytes, Purpose purpose);
  void give_slot(std::byte* slot, size_t bytes, Purpose purpose);

  // Has a region ready if one may be needed soon. For the writer, before it keeps readers out: the system may take
  // milliseconds to hand over two megabytes.
  void prepare();
  // Whether the system had nothing when it was last asked. Who can do without memory should leave what there is.
  bool is_short() const { return is_short_.load(std::memory_order_relaxed); }

  // Until they are told otherwise, have regions ready before they are asked for.
  void set_hurry(bool hurry);

  // Plain memory for what must be contiguous and grows by doubling, such as directories.
  std::byte* take_block(size_t bytes, Purpose purpose);
  void give_block(std::byte* block, size_t bytes, Purpose purpose);

  // For what is allocated elsewhere and belongs to the account, such as the head of a tree.
  void note_taken(size_t bytes, Purpose purpose) {
    const auto held = guard();
    bytes_[static_cast<size_t>(purpose)] += bytes;
  }
  void note_given(size_t bytes, Purpose purpose) {
    const auto held = guard();
    bytes_[static_cast<size_t>(purpose)] -= bytes;
  }

  size_t bytes(Purpose purpose) const { return bytes_[static_cast<size_t>(purpose)]; }
  // Mapped, and used by nobody now.
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
  std::vector<Region> regions_;  // those in pieces, sorted by address
  size_t whole_ = 0;             // how many others were taken whole
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
  // Above every id there is now.
  uint32_t ids_end() const { return static_cast<uint32_t>(pieces_.size()) * slots_per_piece_; }
  // Gives up to `most` pieces back, whoever uses their slots; returns whether that was all.
  bool clear_some(uint32_t most);
  uint32_t slot_bytes() const { return slot_bytes_; }

 private:
  struct Piece {
    uint32_t used = 0;
    uint32_t bump = 0;      // slots from here on were never handed out
    uint32_t free = kNone;  // first of the slots that were given back, linked through their first bytes
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
  // Where each piece is. Whoever shares the pool may still read the list that a larger one took the place of.
  std::atomic<std::byte**> bases_{nullptr};
  std::vector<std::unique_ptr<std::byte*[]>> lists_;  // the last one is `bases_`
  size_t bases_capacity_ = 0;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> open_;    // pieces with room
  std::vector<uint32_t> vacant_;  // numbers of pieces that were given back
  size_t used_ = 0;
  size_t noted_bytes_ = 0;  // of whole regions
};

}  // namespace rankd
