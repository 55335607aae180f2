// A whole engine in a file, and back.
//
//   file     = magic, version, block*
//   block    = type (4 bytes), length (4), checksum (8), payload; everything little-endian
//   checksum = SipHash-1-3 of type, length, the block's number and the payload: what was flipped, cut, moved or
//              repeated is seen before it is used
//
//   begin       players (8), boards (8), the hash key (16): with it, players in the order of their hashes fill the
//               index from one end to the other. It is a secret like the file itself
//   positions   partition, epoch, sequence (8 bytes each), any number
//   players     count, lengths (2 bytes each), bytes; numbered from 0 over all blocks
//   board       entries (4), order, ties, name
//   entries     of the board before: count, scores (8 each), ties (4 + 2), players (4), in standing order
//   end         nothing; what is missing before it is missing
//
// Reading checks everything that would let a later operation go wrong, and recomputes digests.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "engine.hpp"

namespace rankd {

namespace {

constexpr char kMagic[8] = {'r', 'a', 'n', 'k', 'd', 's', 'n', 'p'};
constexpr uint32_t kVersion = 1;
constexpr HashKey kChecksumKey{0x6b6e6172ULL, 0x746f687370616e73ULL};
constexpr size_t kPayloadBytesMax = size_t{1} << 20;
constexpr uint32_t kEntriesPerBlock = 32768;
constexpr size_t kEntryBytes = 18;
constexpr uint32_t kPrefetchAhead = 16;
constexpr uint32_t kTogether = 64;
static_assert(kEntriesPerBlock * kEntryBytes + 4 <= kPayloadBytesMax);

enum class Type : uint32_t { begin = 1, positions = 2, players = 3, board = 4, entries = 5, end = 6 };

struct BlockHead {
  uint32_t type;
  uint32_t length;
  uint64_t checksum;
};

uint64_t checksum(uint32_t type, uint64_t number, std::string_view payload) {
  SipHash13 hash(kChecksumKey, false);
  hash.absorb(uint64_t{type} << 32 | payload.size());
  hash.absorb(number);
  hash.absorb_tail(payload.data(), payload.size(), payload.size() + 16);
  return hash.finish();
}

template <class Number>
void append(std::string& payload, Number number) {
  payload.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Ids and names leave as text: what is none must be refused here, where somebody asks whether the file is good.
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

class SnapshotWriter {
 public:
  SnapshotWriter(const Engine& engine, int file) : engine_(engine), file_(file) {}

  void write() {
    buffer_.append(kMagic, sizeof(kMagic));
    append(buffer_, kVersion);
    append(payload_, uint64_t{engine_.players_.size()});
    append(payload_, uint64_t{engine_.boards_.size()});
    append(payload_, engine_.players_.key());
    finish_block(Type::begin);
    write_positions();
    write_players();
    engine_.boards_.each([&](uint32_t number) { write_board(number); });
    finish_block(Type::end);
    flush();
  }

 private:
  void finish_block(Type type) {
    const auto kind = static_cast<uint32_t>(type);
    const BlockHead head{kind, static_cast<uint32_t>(payload_.size()), checksum(kind, blocks_++, payload_)};
    append(buffer_, head);
    buffer_ += payload_;
    payload_.clear();
    if (buffer_.size() >= 4 * kPayloadBytesMax) flush();
  }

  void flush() {
    for (size_t done = 0; done < buffer_.size();) {
      const ssize_t wrote = ::write(file_, buffer_.data() + done, buffer_.size() - done);
      if (wrote >= 0) {
        done += static_cast<size_t>(wrote);
      } else if (errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "writing a snapshot");
      }
    }
    buffer_.clear();
  }

  void write_positions() {
    for (const auto& [partition, position] : engine_.positions_) {
      append(payload_, partition);
      append(payload_, position.epoch);
      append(payload_, position.sequence);
      if (payload_.size() + 24 > kPayloadBytesMax) finish_block(Type::positions);
    }
    if (!payload_.empty()) finish_block(Type::positions);
  }

  void write_players() {
    std::vector<uint32_t> order;
    order.reserve(engine_.players_.size());
    engine_.players_.each([&](uint32_t number) { order.push_back(number); });
    std::string lengths;
    std::string bytes;
    const auto finish = [&] {
      append(payload_, static_cast<uint32_t>(lengths.size() / 2));
      payload_ += lengths;
      payload_ += bytes;
      lengths.clear();
      bytes.clear();
      finish_block(Type::players);
    };
    for (size_t i = 0; i < order.size(); ++i) {
      if (i + 2 * kPrefetchAhead < order.size()) engine_.players_.prefetch_record(order[i + 2 * kPrefetchAhead]);
      if (i + kPrefetchAhead < order.size()) engine_.players_.prefetch_name(order[i + kPrefetchAhead]);
      const std::string_view name = engine_.players_.name(order[i]);
      append(lengths, static_cast<uint16_t>(name.size()));
      bytes += name;
      if (numbers_.size() <= order[i]) numbers_.resize(std::max<size_t>(order[i] + size_t{1}, numbers_.size() * 2));
      numbers_[order[i]] = static_cast<uint32_t>(i);
      if (lengths.size() + bytes.size() + 1024 > kPayloadBytesMax) finish();
    }
    if (!lengths.empty()) finish();
  }

  void write_board(uint32_t number) {
    const Board& board = engine_.boards_.payload(number);
    append(payload_, board.size());
    append(payload_, static_cast<uint8_t>(board.direction().order));
    append(payload_, static_cast<uint8_t>(board.direction().ties));
    payload_ += engine_.boards_.name(number);
    finish_block(Type::board);

    std::vector<uint64_t> scores;
    std::vector<uint32_t> ties_low;
    std::vector<uint16_t> ties_high;
    std::vector<uint32_t> players;
    const auto column = [&](auto& values) {
      payload_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
      values.clear();
    };
    const auto finish = [&] {
      append(payload_, static_cast<uint32_t>(scores.size()));
      column(scores);
      column(ties_low);
      column(ties_high);
      column(players);
      finish_block(Type::entries);
    };
    for (Spot spot = board.at(0); spot.leaf != kNone; spot = board.next(spot)) {
      const Key key = board.key(engine_.memory_, spot);
      scores.push_back(key.score);
      ties_low.push_back(static_cast<uint32_t>(key.tie));
      ties_high.push_back(static_cast<uint16_t>(key.tie >> 32));
      players.push_back(numbers_[board.player(engine_.memory_, spot)]);
      if (scores.size() == kEntriesPerBlock) finish();
    }
    if (!scores.empty()) finish();
  }

  const Engine& engine_;
  int file_;
  uint64_t blocks_ = 0;
  std::string payload_;
  std::string buffer_;
  std::vector<uint32_t> numbers_;  // player's number → number in the file
};

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

  // Reads ahead a good deal: a system call a block would be many for small boards.
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
    // A file that promises more players than it has bytes is not believed.
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
    const std::string name(take_span(payload_.size() - at_), payload_.size() - 6);
    if (order > static_cast<uint8_t>(Order::asc) || ties > static_cast<uint8_t>(Ties::player)) {
      damaged("a board's order is unknown");
    }
    if (count == 0 || count > players_read_) damaged("a board's size is out of bounds");
    if (name.size() > kBoardNameBytesMax || !is_utf8(name)) damaged("a board's name is too long, or not UTF-8");
    const uint64_t hash = engine_.boards_.hash(name);
    if (engine_.boards_.find(hash, name) != kNone) damaged("a board occurs twice");
    Board& board = engine_.boards_.payload(engine_.boards_.add(hash, name));
    board.set_direction({static_cast<Order>(order), static_cast<Ties>(ties)});

    has_ties_ = board.direction().ties != Ties::player;
    column_size_ = column_at_ = 0;
    has_before_ = false;
    const bool all_differ = board.load(engine_.memory_, count, players_read_, [&] {
      if (column_at_ == column_size_) next_entries();
      return next_entry();
    });
    if (!all_differ) damaged("a player stands twice in a board");
    if (column_at_ != column_size_) damaged("a board has more entries than it says");
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
    all_taken();
    for (uint32_t i = 0; i < column_size_; ++i) {
      if (entry<uint32_t>(players_, i) >= players_read_) damaged("an entry's player is unknown");
    }
  }

  template <class Number>
  static Number entry(const char* column, uint32_t i) {
    Number number;
    std::memcpy(&number, column + size_t{i} * sizeof(number), sizeof(number));
    return number;
  }

  // Players are looked up many at a time, each step for all before the next, while the memory that the following ones
  // need is on its way: one after the other, each would wait for it twice.
  void look_up_names(uint32_t begin) {
    const auto each = [&](uint32_t from, auto step) {
      for (uint32_t i = from; i < std::min(column_size_, from + kTogether); ++i) step(i, entry<uint32_t>(players_, i));
    };
    each(begin + 2 * kTogether, [&](uint32_t, uint32_t player) { engine_.players_.prefetch_record(player); });
    each(begin + kTogether, [&](uint32_t, uint32_t player) { engine_.players_.prefetch_name(player); });
    each(begin, [&](uint32_t, uint32_t player) { players_placed_ += engine_.players_.retain(player) ? 1 : 0; });
    each(begin, [&](uint32_t i, uint32_t player) { names_[i - begin] = engine_.players_.name(player); });
  }

  LoadedEntry next_entry() {
    const uint32_t i = column_at_++;
    if (i % kTogether == 0) look_up_names(i);
    const Key key{entry<uint64_t>(scores_, i),
                  uint64_t{entry<uint16_t>(ties_high_, i)} << 32 | entry<uint32_t>(ties_low_, i)};
    if (!has_ties_ && key.tie != 0) damaged("a tie field stands in a board that has none");
    const auto player = entry<uint32_t>(players_, i);
    const std::string_view id = names_[i % kTogether];
    if (has_before_) {
      const bool ascends = key_before_.score != key.score ? key_before_.score < key.score
                           : key_before_.tie != key.tie   ? key_before_.tie < key.tie
                                                          : id_before_ < id;
      if (!ascends) damaged("entries are out of order");
    }
    key_before_ = key;
    id_before_ = id;
    has_before_ = true;
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
  bool has_ties_ = false;
  bool has_before_ = false;
  Key key_before_;
  std::string_view id_before_;
  std::array<std::string_view, kTogether> names_;
};

void Engine::save(int file) const {
  const std::lock_guard<std::mutex> writer(writer_);
  refuse_if_broken();
  SnapshotWriter(*this, file).write();
}

void Engine::load(int file) {
  const std::lock_guard<std::mutex> writer(writer_);
  regions_.set_hurry(true);
  SnapshotReader(*this, file).read();
  regions_.set_hurry(false);
}

}  // namespace rankd
