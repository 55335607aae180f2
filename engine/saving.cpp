#include "saving.hpp"

#include <cstdlib>
#include <new>

namespace rankd {

namespace {

constexpr const char* kTooMuchChanged =
    "more changed during the save than it may remember; try again, or allow it more undo_bytes_max";
constexpr const char* kMemoryRanOut = "memory ran out for what changed during the save; try again";

}  // namespace

Marks::Marks(uint32_t end) : end_(end), words_(static_cast<uint64_t*>(std::calloc(size_t{end} / 64 + 1, 8))) {
  if (words_ == nullptr) throw std::bad_alloc();
}

Saving::Saving(Regions& regions, const Players& players, const Interner<Board>& boards, Positions positions,
               uint64_t number, size_t undo_bytes_max)
    : number(number),
      players_count(players.size()),
      boards_count(boards.size()),
      players_end(players.numbers_end()),
      positions(std::move(positions)),
      regions_(regions),
      undo_bytes_max_(undo_bytes_max),
      born_players_(players_end),
      passed_boards_(boards.numbers_end()),
      segments_(regions, Purpose::saving),
      records_(regions, Purpose::saving, sizeof(Record)),
      heads_(regions, Purpose::saving, sizeof(Head)),
      changed_(regions, segments_, Purpose::saving),
      head_of_(regions, segments_, Purpose::saving) {}

// -------------------------------------------------------------------------------------------------- for the writer

bool Saving::is_behind_cursor(const Key& key, std::string_view id) const {
  if (key.score != cursor_key_.score) return key.score > cursor_key_.score;
  if (key.tie != cursor_key_.tie) return key.tie > cursor_key_.tie;
  return id > cursor_id_;
}

void Saving::note(uint32_t board, uint32_t size, uint32_t player, std::string_view id, const Key* old,
                  const Key* fresh, const Capture* capture) noexcept {
  if (is_interrupted()) return;
  const Key* owed = old;
  if (board == current_ && has_cursor_) {
    if (old != nullptr && !is_behind_cursor(*old, id)) owed = nullptr;  // the save has written it
    const bool will_be_seen = fresh != nullptr && is_behind_cursor(*fresh, id);
    if (owed == nullptr && !will_be_seen) return;
  }
  if (find(board, player) != kNone) return;
  if (regions_.bytes(Purpose::saving) > undo_bytes_max_) {
    interrupt(kTooMuchChanged);
    return;
  }
  if (regions_.is_short()) {
    interrupt(kMemoryRanOut);
    return;
  }
  const Capture* at_begin = capture_of(board, capture);
  try {
    add_record(board, size, player, owed, at_begin == nullptr ? Capture::kNowhere : at_begin->place(player));
  } catch (const std::bad_alloc&) {
    interrupt(kMemoryRanOut);
  }
}

void Saving::add_record(uint32_t board, uint32_t size, uint32_t player, const Key* owed, uint32_t place) {
  uint32_t head_id = head_of_.find(page_tag(board));
  if (head_id == kNone) {
    head_id = heads_.allocate();
    head(head_id) = {kNone, size};
    head_of_.insert(page_tag(board), head_id);
  }
  const uint32_t id = records_.allocate();
  const Key key = owed == nullptr ? Key{} : *owed;
  record(id) = {key.score, static_cast<uint32_t>(key.tie),
                static_cast<uint16_t>(key.tie >> 32), static_cast<uint16_t>(owed == nullptr ? 0 : 1),
                board, player, place, head(head_id).latest};
  changed_.insert(tag_of(board, player), id);
  head(head_id).latest = id;
}

bool Saving::seal(uint32_t board, Board& entries, std::unique_ptr<Capture>& capture) noexcept {
  if (!wants(board)) return false;
  try {
    Board& sealed = sealed_[board];
    sealed_captures_.try_emplace(board, std::move(capture));
    entries.hand_over(sealed);
    return true;
  } catch (const std::bad_alloc&) {
    interrupt(kMemoryRanOut);
    return false;
  }
}

bool Saving::seal_capture(uint32_t board, std::unique_ptr<Capture>& capture) noexcept {
  if (!wants(board)) return false;
  try {
    return sealed_captures_.try_emplace(board, std::move(capture)).second;
  } catch (const std::bad_alloc&) {
    interrupt(kMemoryRanOut);
    return false;
  }
}

bool Saving::keeps_player(uint32_t player) noexcept {
  if (is_interrupted() || born_players_.has(player)) return false;
  try {
    unlisted_players_.push_back(player);
    return true;
  } catch (const std::bad_alloc&) {
    interrupt(kMemoryRanOut);
    return false;
  }
}

bool Saving::keeps_board(uint32_t board) noexcept {
  if (is_interrupted() || passed_boards_.has(board)) return false;
  try {
    unlisted_boards_.push_back(board);
    return true;
  } catch (const std::bad_alloc&) {
    interrupt(kMemoryRanOut);
    return false;
  }
}

// ---------------------------------------------------------------------------------------------------- for the save

void Saving::begin_board(uint32_t board) {
  current_ = board;
  taking_ = kNone;
  has_cursor_ = false;
}

void Saving::pass_board() {
  passed_boards_.add(current_);
  current_ = kNone;
}

const Board& Saving::entries_of(uint32_t board, const Board& live) const {
  const auto found = sealed_.find(board);
  return found == sealed_.end() ? live : found->second;
}

const Capture* Saving::capture_of(uint32_t board, const Capture* live) const {
  if (sealed_captures_.empty()) return live;
  const auto found = sealed_captures_.find(board);
  return found == sealed_captures_.end() ? live : found->second.get();
}

uint32_t Saving::size_of(uint32_t board, const Board& live) const {
  const uint32_t id = head_of_.find(page_tag(board));
  return id == kNone ? entries_of(board, live).size() : head(id).size;
}

// ------------------------------------------------------------------------------------------------------ afterwards

bool Saving::clear_some(uint32_t most) {
  if (!changed_.clear_some(most) || !head_of_.clear_some(most)) return false;
  if (!records_.clear_some(most) || !heads_.clear_some(most)) return false;
  regions_.note_given(born_players_.bytes() + passed_boards_.bytes(), Purpose::saving);
  return true;
}

}  // namespace rankd
