// Loads an engine from a file. It checks everything that a later operation relies on, and recomputes the digests.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "engine.hpp"
#include "snapshot_format.hpp"

namespace rankd {

namespace {

using namespace snapshot;

constexpr uint32_t kGroupItems = 64;

// Ids and names become Python text later, so invalid UTF-8 is refused here.
bool is_utf8(std::string_view text) {
  const char* at = text.data();
  const char* end = at + text.size();
  const auto byte = [&](int i) { return static_cast<unsigned char>(at[i]); };
  while (at < end) {
    if (end - at >= 8 && (SipHash13::load(at) & 0x8080808080808080ULL) == 0) {
      at += 8;
      continue;
    }
    const unsigned char first = byte(0);
    if (first < 0x80) {
      ++at;
      continue;
    }
    const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc2 || first > 0xf4 || end - at <= more) return false;
    // The second byte rules out longer forms than needed, surrogates, and what is above U+10FFFF.
    const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (byte(1) < low || byte(1) > high) return false;
    for (int i = 2; i <= more; ++i) {
      if ((byte(i) & 0xc0) != 0x80) return false;
    }
    at += more + 1;
  }
  return true;
}

}  // namespace

class SnapshotReader {
 public:
  SnapshotReader(Engine& engine, int file) : engine_(engine), file_(file) {}

  void read() {
    char magic[8];
    uint32_t version = 0;
    take_bytes(magic, sizeof(magic));
    if (std::memcmp(magic, kMagic, sizeof(magic)) != 0) throw SnapshotDamaged("the file does not begin as a snapshot; name one that rankd saved");
    take_bytes(&version, sizeof(version));
    if (version > kVersion) {
      throw SnapshotNewer("the file has format " + std::to_string(version) + ", this version of rankd reads up to " +
                          std::to_string(kVersion) + "; upgrade rankd, or use an older snapshot");
    }
    if (version == 0) damaged("there is no format 0");
    if (version < kVersion) {
      throw SnapshotDamaged("the file has format " + std::to_string(version) + " from before the first release, this " +
                            "version of rankd reads " + std::to_string(kVersion) + "; save it anew from the ledger");
    }
    if (next_block() != Type::begin) damaged("the file does not say what is in it");
    read_begin();
    for (;;) {
      const Type type = next_block();
      switch (type) {
        case Type::positions:
          read_positions();
          break;
        case Type::players:
          read_players();
          break;
        case Type::board:
          read_board();
          break;
        case Type::end:
          read_end();
          return;
        case Type::begin:
        case Type::entries:
          damaged("a block is out of its place");
      }
    }
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    throw SnapshotDamaged("block " + std::to_string(blocks_) + ": " + what + "; use an older snapshot");
  }

  // Reads ahead: small boards would need a system call per block otherwise.
  void take_bytes(void* into, size_t count) {
    if (!try_take_bytes(into, count)) damaged("the file ends early");
  }

  bool try_take_bytes(void* into, size_t count) {
    auto* out = static_cast<char*>(into);
    while (count > 0) {
      if (buffer_at_ == buffer_.size()) {
        buffer_.resize(4 * kPayloadBytesMax);
        ssize_t got = 0;
        do {
          got = ::read(file_, buffer_.data(), buffer_.size());
        } while (got < 0 && errno == EINTR);
        if (got < 0) throw std::system_error(errno, std::generic_category(), "reading a snapshot");
        buffer_.resize(static_cast<size_t>(got));
        buffer_at_ = 0;
        if (got == 0) return false;
      }
      const size_t part = std::min(count, buffer_.size() - buffer_at_);
      std::memcpy(out, buffer_.data() + buffer_at_, part);
      buffer_at_ += part;
      out += part;
      count -= part;
    }
    return true;
  }

  Type next_block() {
    BlockHead head{};
    take_bytes(&head, sizeof(head));
    if (head.length > kPayloadBytesMax) damaged("its length is out of bounds");
    payload_.resize(head.length);
    take_bytes(payload_.data(), payload_.size());
    if (checksum(head.type, blocks_, payload_) != head.checksum) damaged("its checksum does not hold");
    if (head.type < 1 || head.type > static_cast<uint32_t>(Type::end)) damaged("its type is unknown");
    ++blocks_;
    at_ = 0;
    return static_cast<Type>(head.type);
  }

  template <class Number>
  Number take() {
    Number number;
    std::memcpy(&number, take_span(sizeof(number)), sizeof(number));
    return number;
  }

  const char* take_span(size_t bytes) {
    if (payload_.size() - at_ < bytes) damaged("it is too short for what it holds");
    at_ += bytes;
    return payload_.data() + at_ - bytes;
  }

  void all_taken() const {
    if (at_ != payload_.size()) damaged("it is longer than what it holds");
  }

  void read_positions() {
    while (at_ < payload_.size()) {
      const auto partition = take<uint64_t>();
      const auto epoch = take<uint64_t>();
      engine_.positions_[partition] = {epoch, take<uint64_t>()};
    }
  }

  void read_begin() {
    players_count_ = take<uint64_t>();
    boards_count_ = take<uint64_t>();
    const auto key = take<HashKey>();
    all_taken();
    if (players_count_ >= kNone || boards_count_ >= kNone) damaged("it holds more than an engine can");
    // The count of players is checked against the file's size before memory is allocated.
    struct stat status {};
    if (fstat(file_, &status) == 0 && S_ISREG(status.st_mode) &&
        players_count_ > static_cast<uint64_t>(status.st_size)) {
      damaged("it promises more players than it has room for");
    }
    engine_.players_.set_key(key);
    engine_.boards_.set_key(key);
    engine_.players_.reserve(static_cast<uint32_t>(players_count_));
  }

  void read_players() {
    const auto count = take<uint32_t>();
    const char* lengths = take_span(size_t{count} * 2);
    if (count > players_count_ - players_read_) damaged("there are more players than it says");
    std::vector<std::string_view> names(count);
    std::vector<uint64_t> hashes(count);
    for (uint32_t i = 0; i < count; ++i) {
      uint16_t length = 0;
      std::memcpy(&length, lengths + size_t{i} * 2, 2);
      if (length == 0 || length > kPlayerBytesMax) damaged("a player's id has a length that is out of bounds");
      names[i] = {take_span(length), length};
      if (!is_utf8(names[i])) damaged("a player's id is not UTF-8");
      hashes[i] = engine_.players_.hash(names[i]);
    }
    all_taken();
    for (uint32_t i = 0; i < count; ++i) {
      if (engine_.players_.find(hashes[i], names[i]) != kNone) damaged("a player occurs twice");
      // An empty engine numbers its players as they come, so a number in the file is a number here.
      if (engine_.players_.add(hashes[i], names[i]) != players_read_++) {
        throw std::logic_error("a snapshot was loaded into an engine that was not empty");
      }
    }
  }

  void read_board() {
    const auto count = take<uint32_t>();
    const auto order = take<uint8_t>();
    const auto ties = take<uint8_t>();
    const auto captured = take<uint8_t>();
    const std::string name(payload_, at_);
    if (order > static_cast<uint8_t>(Order::asc) || ties > static_cast<uint8_t>(Ties::player)) {
      damaged("a board's order is unknown");
    }
    if (captured > 1) damaged("a board is captured or it is not");
    if (count == 0 || count > players_read_) damaged("a board's size is out of bounds");
    if (name.size() > kBoardNameBytesMax || !is_utf8(name)) damaged("a board's name is too long, or not UTF-8");
    const uint64_t hash = engine_.boards_.hash(name);
    if (engine_.boards_.find(hash, name) != kNone) damaged("a board occurs twice");
    const uint32_t number = engine_.boards_.add(hash, name);
    engine_.join_family(number);
    Board& board = engine_.boards_.payload(number);
    board.set_direction({static_cast<Order>(order), static_cast<Ties>(ties)});

    capture_ = nullptr;
    if (captured != 0) {
      auto& capture = engine_.captures_[number];
      capture = std::make_unique<Capture>(engine_.regions_, engine_.capture_segments_);
      capture->reserve(players_read_, count);
      capture_ = capture.get();
      board.set_captured(true);
    }
    has_ties_ = board.direction().ties != Ties::player;
    column_size_ = column_at_ = 0;
    has_before_ = false;
    const bool all_differ = board.load(engine_.memory_, count, players_read_, [&] {
      if (column_at_ == column_size_) next_entries();
      return next_entry();
    });
    if (!all_differ) damaged("a player stands twice in a board");
    if (column_at_ != column_size_) damaged("a board has more entries than it says");
    if (capture_ != nullptr) capture_->settle();
  }

  void next_entries() {
    if (next_block() != Type::entries) damaged("a board has fewer entries than it says");
    column_size_ = take<uint32_t>();
    column_at_ = 0;
    if (column_size_ == 0) damaged("it holds no entry");
    scores_ = take_span(size_t{column_size_} * 8);
    ties_low_ = take_span(size_t{column_size_} * 4);
    ties_high_ = take_span(size_t{column_size_} * 2);
    players_ = take_span(size_t{column_size_} * 4);
    if (capture_ != nullptr) places_ = take_span(size_t{column_size_} * 4);
    all_taken();
    for (uint32_t i = 0; i < column_size_; ++i) {
      if (entry<uint32_t>(players_, i) >= players_read_) damaged("an entry's player is unknown");
      if (capture_ != nullptr && entry<uint32_t>(places_, i) == kNone) damaged("a captured place is out of bounds");
    }
  }

  template <class Number>
  static Number entry(const char* column, uint32_t i) {
    Number number;
    std::memcpy(&number, column + size_t{i} * sizeof(number), sizeof(number));
    return number;
  }

  // Players are looked up in groups, step by step, with prefetches for the following group: a single lookup would miss
  // the cache twice.
  void look_up_names(uint32_t begin) {
    const auto each = [&](uint32_t from, auto step) {
      for (uint32_t i = from; i < std::min(column_size_, from + kGroupItems); ++i) step(i, entry<uint32_t>(players_, i));
    };
    each(begin + 2 * kGroupItems, [&](uint32_t, uint32_t player) { prefetch(engine_.players_.record_line(player)); });
    each(begin + kGroupItems, [&](uint32_t, uint32_t player) {
      prefetch(engine_.players_.name_line(player));
      if (capture_ != nullptr) capture_->prefetch_place(player);
    });
    each(begin, [&](uint32_t, uint32_t player) { players_placed_ += engine_.players_.retain(player) ? 1 : 0; });
    each(begin, [&](uint32_t i, uint32_t player) { names_[i - begin] = engine_.players_.name(player); });
  }

  LoadedEntry next_entry() {
    const uint32_t i = column_at_++;
    if (i % kGroupItems == 0) look_up_names(i);
    const Key key{entry<uint64_t>(scores_, i),
                  uint64_t{entry<uint16_t>(ties_high_, i)} << 32 | entry<uint32_t>(ties_low_, i)};
    if (!has_ties_ && key.tie != 0) damaged("a tie field stands in a board that has none");
    const auto player = entry<uint32_t>(players_, i);
    const std::string_view id = names_[i % kGroupItems];
    if (has_before_) {
      const bool ascends = key_before_.score != key.score ? key_before_.score < key.score
                           : key_before_.tie != key.tie   ? key_before_.tie < key.tie
                                                          : id_before_ < id;
      if (!ascends) damaged("entries are out of order");
    }
    key_before_ = key;
    id_before_ = id;
    has_before_ = true;
    if (capture_ != nullptr && entry<uint32_t>(places_, i) != Capture::kNowhere) {
      capture_->add(player, entry<uint32_t>(places_, i));
    }
    return {key, player, id};
  }

  void read_end() {
    all_taken();
    if (players_read_ != players_count_) damaged("players are missing");
    if (engine_.boards_.size() != boards_count_) damaged("boards are missing");
    char more = 0;
    if (try_take_bytes(&more, 1)) damaged("something follows the end");
    if (players_placed_ != players_read_) damaged("a player stands nowhere");
  }

  Engine& engine_;
  int file_;
  uint64_t blocks_ = 0;
  std::string buffer_;
  size_t buffer_at_ = 0;
  std::string payload_;
  size_t at_ = 0;
  uint64_t players_count_ = 0;
  uint64_t boards_count_ = 0;
  uint32_t players_read_ = 0;
  uint32_t players_placed_ = 0;  // who stand in a board that was read
  uint32_t column_size_ = 0;
  uint32_t column_at_ = 0;
  const char* scores_ = nullptr;
  const char* ties_low_ = nullptr;
  const char* ties_high_ = nullptr;
  const char* players_ = nullptr;
  const char* places_ = nullptr;
  Capture* capture_ = nullptr;  // of the board that is being read
  bool has_ties_ = false;
  bool has_before_ = false;
  Key key_before_;
  std::string_view id_before_;
  std::array<std::string_view, kGroupItems> names_;
};

void Engine::load(int file) {
  const std::lock_guard<std::mutex> writer(writer_);
  regions_.set_hurry(true);
  SnapshotReader(*this, file).read();
  regions_.set_hurry(false);
}

}  // namespace rankd
