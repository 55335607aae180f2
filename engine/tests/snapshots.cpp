// Saved and read back; and files that are cut, flipped, invented or spoiled by somebody who knows the format.
#include <cstring>
#include <memory>

#include "files.hpp"
#include "model.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using testing::Boards;
using testing::load;
using testing::Pair;
using testing::Random;
using testing::Row;
using testing::saved;

// Whether it was taken; what was taken must be sound, and what was not must not have crashed anything.
bool loads(const std::string& bytes, Engine& engine) {
  try {
    load(engine, bytes);
  } catch (const SnapshotDamaged&) {
    return false;
  } catch (const SnapshotNewer&) {
    return false;
  }
  CHECK_SOUND(engine);
  return true;
}

bool loads(const std::string& bytes) {
  Engine engine({5, 6});
  return loads(bytes, engine);
}

// ------------------------------------------------------------------------------------------------------ the format

constexpr size_t kFileHeadBytes = 12;
constexpr size_t kBlockHeadBytes = 16;
enum Type : uint32_t { kBegin = 1, kPositions, kPlayers, kBoard, kEntries, kEnd };

struct FileBlock {
  uint32_t type;
  std::string payload;
};

template <class Number>
std::string bytes_of(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

// With the checksum that the block should have.
std::string sealed(const FileBlock& block, uint64_t number) {
  SipHash13 hash({0x6b6e6172ULL, 0x746f687370616e73ULL}, false);
  hash.absorb(uint64_t{block.type} << 32 | block.payload.size());
  hash.absorb(number);
  hash.absorb_tail(block.payload.data(), block.payload.size(), block.payload.size() + 16);
  return bytes_of(block.type) + bytes_of(static_cast<uint32_t>(block.payload.size())) + bytes_of(hash.finish()) +
         block.payload;
}

std::string file_of(const std::vector<FileBlock>& blocks, uint32_t version = 2) {
  std::string bytes = "rankdsnp" + bytes_of(version);
  for (size_t i = 0; i < blocks.size(); ++i) bytes += sealed(blocks[i], i);
  return bytes;
}

std::vector<FileBlock> blocks_of(const std::string& bytes) {
  std::vector<FileBlock> blocks;
  for (size_t at = kFileHeadBytes; at < bytes.size();) {
    uint32_t head[2];
    std::memcpy(head, bytes.data() + at, sizeof(head));
    blocks.push_back({head[0], bytes.substr(at + kBlockHeadBytes, head[1])});
    at += kBlockHeadBytes + head[1];
  }
  return blocks;
}

struct FileLine {
  uint64_t score;
  uint64_t tie;
  uint32_t player;
  uint32_t place = 0;
};

FileBlock players_block(const std::vector<std::string>& players) {
  std::string lengths;
  std::string ids;
  for (const std::string& player : players) {
    lengths += bytes_of(static_cast<uint16_t>(player.size()));
    ids += player;
  }
  return {kPlayers, bytes_of(static_cast<uint32_t>(players.size())) + lengths + ids};
}

FileBlock entries_block(const std::vector<FileLine>& lines, bool captured = false) {
  std::string scores;
  std::string ties_low;
  std::string ties_high;
  std::string numbers;
  std::string places;
  for (const FileLine& line : lines) {
    scores += bytes_of(line.score);
    ties_low += bytes_of(static_cast<uint32_t>(line.tie));
    ties_high += bytes_of(static_cast<uint16_t>(line.tie >> 32));
    numbers += bytes_of(line.player);
    if (captured) places += bytes_of(line.place);
  }
  return {kEntries, bytes_of(static_cast<uint32_t>(lines.size())) + scores + ties_low + ties_high + numbers + places};
}

FileBlock begin_block(uint64_t players, uint64_t boards) {
  return {kBegin, bytes_of(players) + bytes_of(boards) + bytes_of(HashKey{1, 2})};
}

FileBlock board_block(uint32_t entries, const std::string& name, uint8_t order = 0, uint8_t ties = 0,
                      uint8_t captured = 0) {
  return {kBoard, bytes_of(entries) + bytes_of(order) + bytes_of(ties) + bytes_of(captured) + name};
}

// What a small file says, as it can be written down right or wrong.
struct Draft {
  uint64_t players_said = 3;
  uint64_t boards_said = 1;
  std::vector<std::string> players{"ann", "bob", "eve"};
  uint32_t entries_said = 3;
  uint8_t order = 0;
  uint8_t ties = 0;
  uint8_t captured = 0;
  std::string name = "board@all_time@global";
  std::vector<FileLine> lines{{10, 0, 0}, {10, 5, 1}, {20, 0, 2}};

  std::vector<FileBlock> blocks() const {
    return {
        begin_block(players_said, boards_said),
        {kPositions, bytes_of(uint64_t{0}) + bytes_of(uint64_t{3}) + bytes_of(uint64_t{99})},
        players_block(players),
        board_block(entries_said, name, order, ties, captured),
        entries_block(lines, captured == 1),
        {kEnd, ""},
    };
  }
};

// Boards of every direction and size; some thousand players, so that there is more than one segment of everything.
std::unique_ptr<Pair> filled_pair(Random& random, size_t rows_count = 6'000) {
  Boards boards;
  for (const Order order : {Order::desc, Order::asc}) {
    for (const Ties ties : {Ties::earliest, Ties::latest, Ties::value, Ties::player}) {
      boards.emplace_back("board " + std::to_string(boards.size()), Rules{Keep::latest, {order, ties}});
    }
  }
  auto pair = std::make_unique<Pair>(boards, HashKey{random.bits(), random.bits()});
  std::vector<Row> rows;
  for (size_t i = 0; i < rows_count; ++i) {
    // The first boards get most of it, the last ones a few entries.
    const auto board = static_cast<uint32_t>(random.below(1 + random.below(boards.size())));
    const int64_t bound = random.once_in(3) ? testing::kHighest : 3;
    const int64_t score = random.between(-bound, bound);
    const uint64_t tie = random.once_in(3) ? random.below(kTieFieldMax + 1) : random.below(4);
    rows.push_back({board, Op::apply, "player \xc3\xab" + std::to_string(random.below(rows_count / 2)), score, tie});
  }
  pair->apply(rows);
  return pair;
}

// ------------------------------------------------------------------------------------------------------ round trips

TEST("what is read back is what was saved") {
  Random random;
  const std::unique_ptr<Pair> filled = filled_pair(random);
  Pair& pair = *filled;
  Engine loaded({random.bits(), random.bits()});
  load(loaded, saved(pair.engine));
  CHECK_SOUND(loaded);
  CHECK(loaded.read_position(0) == pair.engine.read_position(0));
  for (size_t i = 0; i < pair.boards().size(); ++i) {
    const std::string& name = pair.boards()[i].first;
    compare(loaded, name, pair.model(i), random);
    CHECK(loaded.read_board(name)->direction() == pair.engine.read_board(name)->direction());
  }
  CHECK(saved(loaded).size() == saved(pair.engine).size());
}

TEST("an engine goes on after it was read back") {
  Random random;
  const std::unique_ptr<Pair> filled = filled_pair(random, 2'000);
  Pair& pair = *filled;
  Engine loaded({1, 2});
  load(loaded, saved(pair.engine));
  for (int batch = 0; batch < 3; ++batch) {
    std::vector<Row> rows;
    for (int i = 0; i < 1'000; ++i) {
      rows.push_back({static_cast<uint32_t>(random.below(8)), random.once_in(2) ? Op::remove : Op::put,
                      "player \xc3\xab" + std::to_string(random.below(1'500)), random.between(-3, 3), random.below(4)});
    }
    testing::apply(loaded, pair.boards(), rows);
    pair.apply(rows);
    CHECK_SOUND(loaded);
  }
  for (size_t i = 0; i < pair.boards().size(); ++i) compare(loaded, pair.boards()[i].first, pair.model(i), random);
  for (const auto& [name, rules] : pair.boards()) loaded.drop(name);
  CHECK_EQUAL(testing::bytes_held(loaded), 0);
}

TEST("an empty engine and its positions are read back") {
  Engine empty({1, 2});
  Engine loaded({3, 4});
  load(loaded, saved(empty));
  CHECK_SOUND(loaded);
  CHECK_EQUAL(testing::bytes_held(loaded), 0);

  const Ids nobody;
  for (uint64_t partition = 0; partition < 5; ++partition) {
    Batch batch;
    batch.players = &nobody;
    batch.partition = partition * partition;
    batch.epoch = partition;
    batch.upto = 1'000 - partition;
    CHECK(empty.apply(batch).verdict == Verdict::applied);
  }
  Engine again({5, 6});
  load(again, saved(empty));
  for (uint64_t partition = 0; partition < 5; ++partition) {
    CHECK(again.read_position(partition * partition) == (Position{partition, 1'000 - partition}));
  }
  CHECK(again.read_position(2) == Position{});
}

TEST("a board of more entries than a block holds is read back") {
  Random random;
  Engine engine({1, 2});
  std::vector<Row> rows;
  for (uint64_t i = 0; i < 40'000; ++i) {
    rows.push_back({0, Op::apply, "p" + std::to_string(i), random.between(0, 9'000)});
  }
  testing::apply(engine, {{"board", Rules{}}}, rows);
  Engine loaded({3, 4});
  load(loaded, saved(engine));
  CHECK_SOUND(loaded);
  CHECK_EQUAL(loaded.read_board("board")->size(), 40'000);
  CHECK(loaded.read_board("board")->digest() == engine.read_board("board")->digest());
}

TEST("a file written by hand is read") {
  Engine engine({3, 4});
  CHECK(loads(file_of(Draft().blocks()), engine));
  const Board* board = engine.read_board("board@all_time@global");
  CHECK_EQUAL(board->size(), 3);
  CHECK_EQUAL(engine.read_rank(board, "eve", Ranking::dense).rank, 2);
  CHECK(engine.read_position(0) == (Position{3, 99}));
}

TEST("captured places written by hand are read") {
  Draft draft;
  draft.captured = 1;
  draft.lines = {{10, 0, 0, 3}, {10, 5, 1, 0}, {20, 0, 2, 1}};
  Engine engine({3, 4});
  CHECK(loads(file_of(draft.blocks()), engine));
  CHECK_EQUAL(engine.read_captured(draft.name, "ann"), 3);
  CHECK_EQUAL(engine.read_captured(draft.name, "bob"), Capture::kNowhere);
  CHECK_EQUAL(engine.read_captured(draft.name, "eve"), 1);
}

// ---------------------------------------------------------------------------------------------------------- damage

TEST("a file that is cut anywhere is refused") {
  Random random;
  const std::string whole = saved(filled_pair(random, 600)->engine);
  std::vector<size_t> ends{0, 1, 8, 11, kFileHeadBytes};
  size_t at = kFileHeadBytes;
  for (const FileBlock& block : blocks_of(whole)) {
    ends.push_back(at);
    ends.push_back(at + kBlockHeadBytes);
    at += kBlockHeadBytes + block.payload.size();
    ends.push_back(at - 1);
  }
  CHECK_EQUAL(at, whole.size());
  for (uint64_t i = 0; i < testing::scaled(40); ++i) ends.push_back(random.below(whole.size()));
  for (const size_t end : ends) CHECK(end == whole.size() || !loads(whole.substr(0, end)));
  CHECK(!loads(whole + '\0'));
  CHECK(loads(whole));
}

TEST("two hundred flipped bytes are each refused") {
  Random random;
  const std::string whole = saved(filled_pair(random, 600)->engine);
  for (size_t i = 0; i < testing::scaled(200) + kFileHeadBytes; ++i) {
    std::string flipped = whole;
    const size_t at = i < kFileHeadBytes ? i : random.below(whole.size());
    flipped[at] = static_cast<char>(flipped[at] ^ static_cast<char>(1 + random.below(255)));
    CHECK(!loads(flipped));
  }
}

TEST("blocks that are swapped, repeated or left out are refused") {
  Random random;
  const std::string whole = saved(filled_pair(random, 600)->engine);
  std::vector<std::string> parts;
  const std::vector<FileBlock> blocks = blocks_of(whole);
  for (size_t i = 0; i < blocks.size(); ++i) parts.push_back(sealed(blocks[i], i));
  const auto joined = [&](const std::vector<std::string>& some) {
    std::string bytes = whole.substr(0, kFileHeadBytes);
    for (const std::string& part : some) bytes += part;
    return bytes;
  };
  CHECK(joined(parts) == whole);
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<std::string> other = parts;
    other.insert(other.begin() + static_cast<long>(i), parts[i]);
    CHECK(!loads(joined(other)));
    other = parts;
    other.erase(other.begin() + static_cast<long>(i));
    CHECK(!loads(joined(other)));
    other = parts;
    std::swap(other[i], other[(i + 1) % parts.size()]);
    CHECK(!loads(joined(other)));
  }
}

TEST("what is no snapshot is refused") {
  Random random;
  for (uint64_t i = 0; i < testing::scaled(100); ++i) {
    std::string noise(random.below(3'000), '\0');
    for (char& byte : noise) byte = static_cast<char>(random.bits());
    CHECK(!loads(noise));
    CHECK(!loads("rankdsnp" + bytes_of(uint32_t{2}) + noise));
  }
}

TEST("a newer format is refused as newer, an older one is refused, and there is no format 0") {
  Engine engine({1, 2});
  CHECK_THROWS(SnapshotNewer, load(engine, file_of(Draft().blocks(), 3)));
  CHECK_THROWS(SnapshotNewer, load(engine, file_of({}, ~uint32_t{0})));
  CHECK_THROWS(SnapshotDamaged, load(engine, file_of(Draft().blocks(), 1)));
  CHECK_THROWS(SnapshotDamaged, load(engine, file_of(Draft().blocks(), 0)));
}

// -------------------------------------------------------------------------------------------------------- nonsense

TEST("nonsense under a right checksum is refused") {
  const auto refused = [](const char* what, auto spoil) {
    Draft draft;
    spoil(draft);
    if (loads(file_of(draft.blocks()))) testing::fail(__FILE__, __LINE__, std::string("taken: ") + what);
  };
  refused("an entry of a player nobody knows", [](Draft& draft) { draft.lines[1].player = 3; });
  refused("an entry of the last possible player", [](Draft& draft) { draft.lines[1].player = kNone; });
  refused("scores out of order", [](Draft& draft) { draft.lines[2].score = 9; });
  refused("ties out of order", [](Draft& draft) { draft.lines[0].tie = 6; });
  refused("ids out of order", [](Draft& draft) {
    draft.lines = {{10, 5, 1}, {10, 5, 0}, {20, 0, 2}};
  });
  refused("a player twice in the file", [](Draft& draft) { draft.players[1] = "ann"; });
  refused("a player without an id", [](Draft& draft) { draft.players[1] = ""; });
  refused("an id that is too long", [](Draft& draft) { draft.players[1] = std::string(kPlayerBytesMax + 1, 'x'); });
  refused("an id that is not UTF-8", [](Draft& draft) { draft.players[1] = "b\xff"; });
  refused("an id that ends within a character", [](Draft& draft) { draft.players[1] = "b\xe6\x97"; });
  refused("an id with a surrogate", [](Draft& draft) { draft.players[1] = "b\xed\xa0\x80"; });
  refused("a player who stands nowhere", [](Draft& draft) {
    draft.players.emplace_back("tom");
    draft.players_said = 4;
  });
  refused("more players than it says", [](Draft& draft) { draft.players_said = 2; });
  refused("fewer players than it says", [](Draft& draft) { draft.players_said = 4; });
  refused("more players than there can be", [](Draft& draft) { draft.players_said = ~uint64_t{0}; });
  refused("more players than the file has bytes", [](Draft& draft) { draft.players_said = 1u << 30; });
  refused("more boards than it says", [](Draft& draft) { draft.boards_said = 0; });
  refused("fewer boards than it says", [](Draft& draft) { draft.boards_said = 2; });
  refused("more boards than there can be", [](Draft& draft) { draft.boards_said = ~uint64_t{0}; });
  refused("an empty board", [](Draft& draft) {
    draft.entries_said = 0;
    draft.lines.clear();
  });
  refused("a board without entries", [](Draft& draft) { draft.lines.clear(); });
  refused("fewer entries than it says", [](Draft& draft) { draft.lines.pop_back(); });
  refused("more entries than it says", [](Draft& draft) { draft.entries_said = 2; });
  refused("more entries than players", [](Draft& draft) { draft.entries_said = 4; });
  refused("a huge board", [](Draft& draft) { draft.entries_said = kNone; });
  refused("no such order", [](Draft& draft) { draft.order = 2; });
  refused("no such ties", [](Draft& draft) { draft.ties = 4; });
  refused("a tie field where ties are by player", [](Draft& draft) { draft.ties = 3; });
  refused("something between captured and not", [](Draft& draft) { draft.captured = 2; });
  refused("a captured place out of bounds", [](Draft& draft) {
    draft.captured = 1;
    draft.lines[1].place = kNone;
  });
  refused("a name that is too long", [](Draft& draft) { draft.name = std::string(kBoardNameBytesMax + 1, 'x'); });
  refused("a name that is not UTF-8", [](Draft& draft) { draft.name = "board\xc0\x80"; });
}

TEST("a player who stands twice in a board is found in boards of every size") {
  Random random;
  for (const uint32_t players_count : {200u, 3'000u}) {
    std::vector<std::string> players;
    std::vector<FileLine> everybody;
    for (uint32_t i = 0; i < players_count; ++i) {
      players.push_back("p" + std::to_string(i));
      everybody.push_back({i, 0, i});
    }
    // A block, a tree of few of the players, a tree of most of them.
    for (const uint32_t entries : {2u, 128u, 129u, players_count}) {
      for (const bool twice : {false, true}) {
        std::vector<FileLine> lines(everybody.begin(), everybody.begin() + entries);
        if (twice) lines.back().player = static_cast<uint32_t>(random.below(entries - 1));
        const std::string file = file_of({begin_block(players_count, 2), players_block(players),
                                          board_block(players_count, "everybody"), entries_block(everybody),
                                          board_block(entries, "board"), entries_block(lines), {kEnd, ""}});
        CHECK_EQUAL(loads(file), !twice);
      }
    }
  }
}

TEST("blocks in the wrong place or of the wrong length are refused, their checksums being right") {
  const std::vector<FileBlock> right = Draft().blocks();
  CHECK(loads(file_of(right)));
  for (size_t i = 0; i < right.size(); ++i) {
    std::vector<FileBlock> blocks = right;
    blocks[i].payload += '\0';
    // Another name is only another name.
    CHECK(!loads(file_of(blocks)) || right[i].type == kBoard);
    blocks = right;
    if (!blocks[i].payload.empty()) {
      blocks[i].payload.pop_back();
      CHECK(!loads(file_of(blocks)) || right[i].type == kBoard);
      blocks[i].payload.clear();
      CHECK(!loads(file_of(blocks)) || right[i].type == kPositions);
    }
    blocks = right;
    blocks.erase(blocks.begin() + static_cast<long>(i));
    CHECK(!loads(file_of(blocks)) || right[i].type == kPositions);
    for (const uint32_t type : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, ~0u}) {
      if (type == right[i].type) continue;
      blocks = right;
      blocks[i].type = type;
      CHECK(!loads(file_of(blocks)));
      blocks = right;
      blocks.insert(blocks.begin() + static_cast<long>(i), {type, right[i].payload});
      loads(file_of(blocks));
    }
  }
  std::vector<FileBlock> twice = right;
  twice.insert(twice.begin() + 4, right[3]);
  CHECK(!loads(file_of(twice)));
  twice = right;
  twice.insert(twice.begin() + 5, {right[3], right[4]});
  CHECK(!loads(file_of(twice)));
}

TEST("counts inside a block that are far too large are refused") {
  for (const uint32_t count : {0u, 1u, 4u, 1u << 20, 1u << 30, kNone}) {
    for (const size_t block : {size_t{2}, size_t{4}}) {
      std::vector<FileBlock> blocks = Draft().blocks();
      blocks[block].payload.replace(0, 4, bytes_of(count));
      CHECK(!loads(file_of(blocks)));
    }
  }
}

TEST("any byte changed under a right checksum is refused or gives a sound engine") {
  Random random;
  const std::vector<FileBlock> right = blocks_of(saved(filled_pair(random, 600)->engine));
  int taken = 0;
  for (uint64_t i = 0; i < testing::scaled(250); ++i) {
    std::vector<FileBlock> blocks = right;
    for (uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
      FileBlock& block = random.pick(blocks);
      if (block.payload.empty()) continue;
      // What stands first more often than the rest: counts.
      const size_t size = block.payload.size();
      const size_t at = random.below(random.once_in(2) ? std::min<size_t>(size, 12) : size);
      block.payload[at] = static_cast<char>(random.once_in(3) ? 0xff : random.bits());
    }
    taken += loads(file_of(blocks)) ? 1 : 0;
  }
  // Other scores, names and positions are nothing a reader could object to.
  CHECK(taken > 0);
}

}  // namespace
}  // namespace rankd
