#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace rankd {

namespace {

constexpr size_t kPageBytes = 4096;
// A chunk of a batch takes a piece or two from each of a few pools.
constexpr size_t kPiecesAhead = 16;

std::byte* map_region() {
  // Twice the size, then trimmed: a huge page must begin at a multiple of its size.
  void* raw = mmap(nullptr, 2 * kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + kRegionBytes - 1) & ~(kRegionBytes - 1);
  if (aligned > start) munmap(raw, aligned - start);
  const uintptr_t behind = aligned + kRegionBytes;
  const uintptr_t end = start + 2 * kRegionBytes;
  if (end > behind) munmap(reinterpret_cast<void*>(behind), end - behind);
#ifdef MADV_HUGEPAGE
  madvise(reinterpret_cast<void*>(aligned), kRegionBytes, MADV_HUGEPAGE);
#endif
  return reinterpret_cast<std::byte*>(aligned);
}

// A write to each page makes the system hand it over now.
std::byte* map_touched_region() {
  std::byte* region = map_region();
  for (size_t at = 0; at < kRegionBytes; at += kPageBytes) *reinterpret_cast<volatile std::byte*>(region + at) = {};
  return region;
}

}  // namespace

RegionSupply::RegionSupply() : thread_([this] { work(); }) {}

RegionSupply::~RegionSupply() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (std::byte* region : ready_) munmap(region, kRegionBytes);
}

std::byte* RegionSupply::take() {
  std::byte* region = nullptr;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (ready_.empty()) return nullptr;
    region = ready_.back();
    ready_.pop_back();
  }
  changed_.notify_all();
  return region;
}

void RegionSupply::work() {
  std::unique_lock<std::mutex> guard(mutex_);
  ready_.reserve(kReadyMost);
  for (;;) {
    changed_.wait(guard, [&] { return stopping_ || ready_.size() < kReadyMost; });
    if (stopping_) return;
    guard.unlock();
    std::byte* region = nullptr;
    try {
      region = map_touched_region();
    } catch (const std::bad_alloc&) {
      return;  // whoever needs the region finds out
    }
    guard.lock();
    ready_.push_back(region);
  }
}

void Regions::set_hurry(bool hurry) { supply_ = hurry && !kOneSlotPieces ? std::make_unique<RegionSupply>() : nullptr; }

void Regions::prepare() {
  is_short_ = !kOneSlotPieces && idle_pieces_ < kPiecesAhead && spare_.load() == nullptr;
  if (!is_short_) return;
  try {
    spare_.store(map_touched_region());
    is_short_ = false;
  } catch (const std::bad_alloc&) {
    // Whoever needs it finds out; what is left may be enough.
  }
}

Regions::~Regions() {
  if (std::byte* spare = spare_.load(); spare != nullptr) munmap(spare, kRegionBytes);
  for (const Region& region : regions_) munmap(region.memory, kRegionBytes);
}

std::byte* Regions::take_piece(Purpose purpose) {
  while (hint_ < regions_.size() && regions_[hint_].free == 0) ++hint_;
  if (hint_ == regions_.size()) {
    std::byte* ready = spare_.exchange(nullptr);
    if (ready == nullptr && supply_ != nullptr) ready = supply_->take();
    const Region fresh{ready == nullptr ? map_region() : ready, ~uint32_t{0}};
    const auto where = std::lower_bound(regions_.begin(), regions_.end(), fresh,
                                        [](const Region& a, const Region& b) { return a.memory < b.memory; });
    hint_ = static_cast<size_t>(where - regions_.begin());
    regions_.insert(where, fresh);
    idle_pieces_ += kPiecesPerRegion;
  }
  Region& region = regions_[hint_];
  const int piece = std::countr_zero(region.free);
  region.free &= region.free - 1;
  --idle_pieces_;
  bytes_[static_cast<size_t>(purpose)] += kPieceBytes;
  return region.memory + static_cast<size_t>(piece) * kPieceBytes;
}

void Regions::give_piece(std::byte* piece, Purpose purpose) {
  const auto behind = std::upper_bound(regions_.begin(), regions_.end(), piece,
                                       [](std::byte* address, const Region& region) { return address < region.memory; });
  const auto where = behind - 1;
  where->free |= uint32_t{1} << (static_cast<size_t>(piece - where->memory) / kPieceBytes);
  ++idle_pieces_;
  bytes_[static_cast<size_t>(purpose)] -= kPieceBytes;
  size_t index = static_cast<size_t>(where - regions_.begin());
  if (where->free == ~uint32_t{0}) {
    munmap(where->memory, kRegionBytes);
    regions_.erase(where);
    idle_pieces_ -= kPiecesPerRegion;
    // An engine that holds nothing keeps nothing.
    if (regions_.empty()) {
      if (std::byte* spare = spare_.exchange(nullptr); spare != nullptr) munmap(spare, kRegionBytes);
    }
  }
  hint_ = std::min(hint_, index);
}

std::byte* Regions::take_block(size_t bytes, Purpose purpose) {
  auto* block = static_cast<std::byte*>(::operator new(bytes));
  note_taken(bytes, purpose);
  return block;
}

void Regions::give_block(std::byte* block, size_t bytes, Purpose purpose) {
  ::operator delete(block);
  note_given(bytes, purpose);
}

Pool::Pool(Regions& regions, Purpose purpose, uint32_t slot_bytes)
    : regions_(regions),
      purpose_(purpose),
      slot_bytes_(slot_bytes),
      slots_per_piece_(kOneSlotPieces ? 1 : static_cast<uint32_t>(kPieceBytes / slot_bytes)),
      reciprocal_(~uint64_t{0} / slots_per_piece_ + 1) {}

Pool::~Pool() {
  for (std::byte* base : bases_) {
    if (base != nullptr) give_piece(base);
  }
}

std::byte* Pool::take_piece() {
  return kOneSlotPieces ? regions_.take_block(slot_bytes_, purpose_) : regions_.take_piece(purpose_);
}

void Pool::give_piece(std::byte* piece) {
  if (kOneSlotPieces) {
    regions_.give_block(piece, slot_bytes_, purpose_);
  } else {
    regions_.give_piece(piece, purpose_);
  }
}

uint32_t Pool::open_piece() {
  while (!open_.empty()) {
    const uint32_t index = open_.back();
    if (bases_[index] != nullptr && pieces_[index].used < slots_per_piece_) return index;
    pieces_[index].listed = false;
    open_.pop_back();
  }
  uint32_t index = static_cast<uint32_t>(bases_.size());
  if (vacant_.empty()) {
    if (static_cast<uint64_t>(index + 1) * slots_per_piece_ >= kNone) throw std::bad_alloc();
    pieces_.emplace_back();
    bases_.push_back(nullptr);
  } else {
    index = vacant_.back();
    vacant_.pop_back();
  }
  pieces_[index] = Piece{};
  try {
    bases_[index] = take_piece();
  } catch (...) {
    vacant_.push_back(index);
    throw;
  }
  pieces_[index].listed = true;
  open_.push_back(index);
  return index;
}

uint32_t Pool::allocate() {
  const uint32_t index = open_piece();
  Piece& piece = pieces_[index];
  uint32_t slot = piece.free;
  if (slot == kNone) {
    slot = piece.bump++;
  } else {
    std::memcpy(&piece.free, bases_[index] + static_cast<size_t>(slot) * slot_bytes_, sizeof(uint32_t));
  }
  ++piece.used;
  ++used_;
  return index * slots_per_piece_ + slot;
}

void Pool::release(uint32_t id) {
  const uint32_t index = piece_of(id);
  Piece& piece = pieces_[index];
  --used_;
  if (--piece.used == 0) {
    give_piece(bases_[index]);
    bases_[index] = nullptr;
    vacant_.push_back(index);
    return;
  }
  std::memcpy(at(id), &piece.free, sizeof(uint32_t));
  piece.free = id - index * slots_per_piece_;
  if (!piece.listed) {
    piece.listed = true;
    open_.push_back(index);
  }
}

bool Pool::clear_some(uint32_t most) {
  for (; most > 0 && !bases_.empty(); --most) {
    if (bases_.back() != nullptr) give_piece(bases_.back());
    bases_.pop_back();
    pieces_.pop_back();
  }
  if (!bases_.empty()) return false;
  open_.clear();
  vacant_.clear();
  used_ = 0;
  return true;
}

}  // namespace rankd
