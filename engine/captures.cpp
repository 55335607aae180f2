// Captures: the places of one instant are stored, read and dropped.
#include <new>

#include "engine.hpp"

namespace rankd {

namespace {

constexpr uint32_t kSegmentsPerTurn = 16;
constexpr uint32_t kSegmentsPerYield = 8;

}  // namespace

const Capture* Engine::capture_of(uint32_t number) const {
  const auto found = captures_.find(number);
  return found == captures_.end() ? nullptr : found->second.get();
}

uint32_t Engine::read_captured(std::string_view name, std::string_view id) const {
  const uint32_t number = boards_.find(boards_.hash(name), name);
  if (number == kNone || !boards_.payload(number).is_captured()) return Capture::kNowhere;
  const uint32_t player = players_.find(players_.hash(id), id);
  return player == kNone ? Capture::kNowhere : capture_of(number)->place(player);
}

void Engine::capture(std::string_view name) {
  const std::lock_guard<std::mutex> writer(writer_);
  refuse_if_broken();
  const uint32_t number = boards_.find(boards_.hash(name), name);
  if (number == kNone) return;
  Board& board = boards_.payload(number);
  decltype(captures_) made;
  std::unique_ptr<Capture>& fresh = made[number];
  try {
    fill_capture(board, fresh);
  } catch (...) {
    {
      const Changing changing(*this);
      fresh.reset();
    }
    throw;
  }
  const Changing changing(*this);
  std::unique_ptr<Capture> old = take_capture(number);
  captures_.insert(made.extract(number));
  board.set_captured(true);
  if (saving_ != nullptr) saving_->seal_capture(number, old);
  dismantle(std::move(old));
}

void Engine::forget_capture(std::string_view name) {
  const std::lock_guard<std::mutex> writer(writer_);
  refuse_if_broken();
  const uint32_t number = boards_.find(boards_.hash(name), name);
  if (number == kNone || !boards_.payload(number).is_captured()) return;
  const Changing changing(*this);
  std::unique_ptr<Capture> old = take_capture(number);
  if (saving_ != nullptr) saving_->seal_capture(number, old);
  dismantle(std::move(old));
}

// Memory is allocated in small steps while readers are excluded; only the writer accesses it until it is complete.
void Engine::fill_capture(const Board& board, std::unique_ptr<Capture>& capture) {
  // Running out of memory here interrupts no change: nothing has changed yet.
  const auto take_memory = [&](auto take) {
    bool is_out = false;
    regions_.prepare();
    {
      const Changing changing(*this);
      try {
        take();
      } catch (const std::bad_alloc&) {
        is_out = true;
      }
    }
    if (is_out) throw std::bad_alloc();
  };
  take_memory([&] { capture = std::make_unique<Capture>(regions_, capture_segments_); });
  uint32_t place = 0;
  Spot behind;
  const Tree* tree = board.tree();
  if (tree == nullptr) {
    const Run run = board.run(memory_, board.at(0), behind);
    take_memory([&] {
      for (uint32_t i = 0; i < run.size(); ++i) capture->add(run.player(i), ++place);
    });
    return;
  }
  for (bool is_complete = false; !is_complete;) {
    take_memory([&] { is_complete = capture->add_some(tree->map(), kSegmentsPerTurn); });
  }
  for (Spot spot = tree->first(); spot.leaf != kNone; spot = behind) {
    const Run run = board.run(memory_, spot, behind);
    if (behind.leaf != kNone) {
      const Run ahead = tree->run(behind);
      for (uint32_t i = 0; i < ahead.size(); ++i) capture->prefetch_place(ahead.player(i));
    }
    for (uint32_t i = 0; i < run.size(); ++i) capture->set(run.player(i), ++place);
  }
}

std::unique_ptr<Capture> Engine::take_capture(uint32_t number) {
  Board& board = boards_.payload(number);
  if (!board.is_captured()) return nullptr;
  board.set_captured(false);
  const auto found = captures_.find(number);
  std::unique_ptr<Capture> taken = std::move(found->second);
  captures_.erase(found);
  return taken;
}

void Engine::dismantle(std::unique_ptr<Capture> capture) {
  while (capture != nullptr && !capture->clear_some(kSegmentsPerYield)) lock_.yield_to_readers();
}

}  // namespace rankd
