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
// More than a chunk of a batch takes.
constexpr size_t kSlotsAhead = 128;

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

// A write to each page makes the system map it now.
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
      return;  // the allocation that needs the region reports it
    }
    guard.lock();
    ready_.push_back(region);
  }
}

void Regions::set_hurry(bool hurry) { supply_ = hurry && !kOneSlotPieces ? std::make_unique<RegionSupply>() : nullptr; }

void Regions::prepare() {
  bool needs_more = false;
  {
    const auto held = guard();
    const bool is_low = idle_pieces_ < kPiecesAhead || is_region_expected_;
    needs_more = !kOneSlotPieces && is_low && spare_.load() == nullptr;
  }
  bool is_short = false;
  if (needs_more) {
    try {
      std::byte* region = map_touched_region();
      std::byte* nothing = nullptr;
      if (!spare_.compare_exchange_strong(nothing, region)) munmap(region, kRegionBytes);  // another worker was quicker
    } catch (const std::bad_alloc&) {
      is_short = true;  // the allocation that needs it reports it; the remaining memory may be enough
    }
  }
  // Set after the mapping: while this worker maps a region, the other one may check.
  is_short_.store(is_short, std::memory_order_relaxed);
}

Regions::~Regions() {
  if (std::byte* spare = spare_.load(); spare != nullptr) munmap(spare, kRegionBytes);
  for (const Region& region : regions_) munmap(region.memory, kRegionBytes);
}

// Returns the spare region, if there is one.
std::byte* Regions::fresh_region() {
  std::byte* ready = spare_.exchange(nullptr);
  if (ready == nullptr && supply_ != nullptr) ready = supply_->take();
  return ready == nullptr ? map_region() : ready;
}

std::byte* Regions::take_region() {
  std::byte* region = fresh_region();
  is_region_expected_ = false;
  ++whole_;
  return region;
}

void Regions::give_region(std::byte* region) {
  munmap(region, kRegionBytes);
  --whole_;
  forget_spare_if_empty();
}

// An empty engine releases all its memory.
void Regions::forget_spare_if_empty() {
  if (whole_ > 0 || !regions_.empty()) return;
  if (std::byte* spare = spare_.exchange(nullptr); spare != nullptr) munmap(spare, kRegionBytes);
}

std::byte* Regions::take_piece(Purpose purpose) {
  while (hint_ < regions_.size() && regions_[hint_].free == 0) ++hint_;
  if (hint_ == regions_.size()) {
    const Region fresh{fresh_region(), ~uint32_t{0}};
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
    forget_spare_if_empty();
  }
  hint_ = std::min(hint_, index);
}

std::byte* Regions::take_slot(size_t bytes, Purpose purpose) {
  auto* slot = static_cast<std::byte*>(::operator new(bytes));
  bytes_[static_cast<size_t>(purpose)] += bytes;
  return slot;
}

void Regions::give_slot(std::byte* slot, size_t bytes, Purpose purpose) {
  ::operator delete(slot);
  bytes_[static_cast<size_t>(purpose)] -= bytes;
}

std::byte* Regions::take_block(size_t bytes, Purpose purpose) {
  const auto held = guard();
  return take_slot(bytes, purpose);
}

void Regions::give_block(std::byte* block, size_t bytes, Purpose purpose) {
  const auto held = guard();
  give_slot(block, bytes, purpose);
}

Pool::Pool(Regions& regions, Purpose purpose, uint32_t slot_bytes, uint32_t ids_max, size_t piece_bytes)
    : regions_(regions),
      purpose_(purpose),
      slot_bytes_(slot_bytes),
      has_regions_(!kOneSlotPieces && piece_bytes == kRegionBytes),
      slots_per_piece_(kOneSlotPieces ? 1 : static_cast<uint32_t>(piece_bytes / slot_bytes)),
      ids_max_(ids_max),
      reciprocal_(~uint64_t{0} / slots_per_piece_ + 1) {}

Pool::~Pool() {
  const auto held = regions_.guard();
  used_ = 0;
  note_use();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (bases_.load()[i] != nullptr) give_piece(bases_.load()[i]);
  }
}

std::byte* Pool::take_piece() {
  if (kOneSlotPieces) return regions_.take_slot(slot_bytes_, purpose_);
  return has_regions_ ? regions_.take_region() : regions_.take_piece(purpose_);
}

void Pool::give_piece(std::byte* piece) {
  if (kOneSlotPieces) {
    regions_.give_slot(piece, slot_bytes_, purpose_);
  } else if (has_regions_) {
    regions_.give_region(piece);
  } else {
    regions_.give_piece(piece, purpose_);
  }
}

// As many bytes as its slots would take in pieces of the usual size.
void Pool::note_use() {
  if (!has_regions_) return;
  const size_t slots = kPieceBytes / slot_bytes_;
  const size_t bytes = (used_ + slots - 1) / slots * kPieceBytes;
  if (bytes != noted_bytes_) regions_.note_use(purpose_, noted_bytes_, bytes);
  noted_bytes_ = bytes;
}

// Makes room for one more number, without a piece yet.
void Pool::add_piece() {
  if (static_cast<uint64_t>(pieces_.size() + 1) * slots_per_piece_ >= ids_max_) throw std::bad_alloc();
  if (pieces_.size() == bases_capacity_) {
    const size_t capacity = std::max<size_t>(4, 2 * bases_capacity_);
    auto list = std::make_unique<std::byte*[]>(capacity);
    // Reserve room for every piece: releasing a slot must not allocate, since it happens when memory has run out.
    pieces_.reserve(capacity);
    open_.reserve(capacity);
    vacant_.reserve(capacity);
    std::copy_n(bases_.load(), pieces_.size(), list.get());
    if (!regions_.is_shared()) lists_.clear();
    lists_.push_back(std::move(list));
    bases_.store(lists_.back().get(), std::memory_order_release);
    bases_capacity_ = capacity;
  }
  pieces_.emplace_back();
}

uint32_t Pool::open_piece() {
  std::byte** bases = bases_.load();
  while (!open_.empty()) {
    const uint32_t index = open_.back();
    if (bases[index] != nullptr && pieces_[index].used < slots_per_piece_) return index;
    pieces_[index].listed = false;
    open_.pop_back();
  }
  uint32_t index = static_cast<uint32_t>(pieces_.size());
  if (vacant_.empty()) {
    add_piece();
  } else {
    index = vacant_.back();
    vacant_.pop_back();
  }
  pieces_[index] = Piece{};
  bases = bases_.load();
  try {
    bases[index] = take_piece();
  } catch (...) {
    vacant_.push_back(index);
    throw;
  }
  pieces_[index].listed = true;
  open_.push_back(index);
  return index;
}

uint32_t Pool::allocate() {
  const auto held = regions_.guard();
  const uint32_t index = open_piece();
  Piece& piece = pieces_[index];
  uint32_t slot = piece.free;
  if (slot == kNone) {
    slot = piece.bump++;
  } else {
    std::memcpy(&piece.free, bases_.load()[index] + static_cast<size_t>(slot) * slot_bytes_, sizeof(uint32_t));
  }
  ++piece.used;
  ++used_;
  note_use();
  if (has_regions_ && used_ + kSlotsAhead > (pieces_.size() - vacant_.size()) * slots_per_piece_) {
    regions_.expect_region();
  }
  return index * slots_per_piece_ + slot;
}

void Pool::release(uint32_t id) {
  const auto held = regions_.guard();
  const uint32_t index = piece_of(id);
  Piece& piece = pieces_[index];
  --used_;
  note_use();
  if (--piece.used == 0) {
    give_piece(bases_.load()[index]);
    bases_.load()[index] = nullptr;
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
  const auto held = regions_.guard();
  for (; most > 0 && !pieces_.empty(); --most) {
    std::byte*& last = bases_.load()[pieces_.size() - 1];
    if (last != nullptr) give_piece(last);
    last = nullptr;
    pieces_.pop_back();
  }
  if (!pieces_.empty()) return false;
  open_.clear();
  vacant_.clear();
  used_ = 0;
  note_use();
  return true;
}

}  // namespace rankd
