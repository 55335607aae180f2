#include <algorithm>
#include <numeric>

#include "engine.hpp"

namespace rankd {

Engine::Engine(HashKey key)
    : players_(regions_, Purpose::players, key),
      memory_(regions_, players_),
      boards_(regions_, Purpose::boards, key),
      families_(regions_),
      capture_segments_(regions_, Purpose::captures) {}

Engine::~Engine() {
  boards_.each([&](uint32_t number) { boards_.payload(number).clear(memory_, [](uint32_t) {}); });
}

const Board* Engine::read_board(std::string_view name) const {
  const uint32_t number = boards_.find(boards_.hash(name), name);
  if (number == kNone || boards_.payload(number).size() == 0) return nullptr;
  return &boards_.payload(number);
}

Position Engine::read_position(uint64_t partition) const {
  const auto found = positions_.find(partition);
  return found == positions_.end() ? Position{} : found->second;
}

std::vector<std::string> Engine::read_names(uint64_t& cursor, uint32_t most) const {
  std::vector<std::string> names;
  cursor = boards_.each_some(cursor, most, [&](uint32_t number) {
    if (boards_.payload(number).size() > 0) names.emplace_back(boards_.name(number));
  });
  return names;
}

template <class Visit>
void Engine::each_of_family(std::string_view prefix, uint64_t& place, uint32_t most, Visit visit) const {
  constexpr size_t kAhead = 16;
  const Family* family = families_.find(prefix);
  const size_t count = family == nullptr ? 0 : family->boards.size();
  const size_t end = place < count ? std::min<size_t>(count, place + most) : 0;
  for (size_t i = place; i < end; ++i) {
    if (i + kAhead < end) prefetch(boards_.record_line(family->boards[i + kAhead]));
    visit(family->boards[i], boards_.payload(family->boards[i]));
  }
  place = end == 0 || end == count ? kFamilyEnd : end;
}

std::vector<std::string> Engine::read_scopes(std::string_view prefix, const std::optional<std::string>& id,
                                             uint64_t& place, uint32_t most) const {
  std::vector<std::string> scopes;
  const uint32_t player = id ? players_.find(players_.hash(*id), *id) : kNone;
  if (id && player == kNone) {
    place = kFamilyEnd;
    return scopes;
  }
  each_of_family(prefix, place, most, [&](uint32_t number, const Board& board) {
    const bool is_meant = id ? board.locate(memory_, player).leaf != kNone : board.size() > 0;
    if (is_meant) scopes.emplace_back(boards_.name(number).substr(prefix.size()));
  });
  return scopes;
}

Engine::FamilySum Engine::read_family(std::string_view prefix, uint64_t& place, uint32_t most) const {
  FamilySum sum;
  each_of_family(prefix, place, most, [&](uint32_t, const Board& board) {
    sum.boards += board.size() > 0 ? 1 : 0;
    sum.entries += board.size();
    sum.digest += board.digest();
  });
  return sum;
}

// A lookup is three accesses to memory, each depending on the one before.
std::vector<uint32_t> Engine::find_players(const Ids& ids) const {
  std::vector<uint32_t> numbers(ids.size());
  find_players(ids, 0, ids.size(), numbers);
  return numbers;
}

void Engine::find_players(const Ids& ids, size_t begin, size_t end, std::vector<uint32_t>& numbers) const {
  constexpr size_t kGroupItems = 8;
  const size_t count = end - begin;
  PrefetchGroup<kGroupItems> index(count);
  PrefetchGroup<kGroupItems> records(count);
  PrefetchGroup<kGroupItems> names(count);
  const auto each = [begin](auto step) { return [=](size_t i) { step(begin + i); }; };
  staggered<kGroupItems>(count,  //
                       each([&](size_t i) { index.add(players_.index_line(ids.hash[i])); }),
                       each([&](size_t i) {
                         numbers[i] = players_.likely_number(ids.hash[i]);
                         records.add(numbers[i] == kNone ? nullptr : players_.record_line(numbers[i]));
                       }),
                       each([&](size_t i) {
                         names.add(numbers[i] == kNone ? nullptr : players_.name_line(numbers[i]));
                       }),
                       each([&](size_t i) {
                         if (numbers[i] == kNone || players_.name(numbers[i]) == ids[i]) return;
                         numbers[i] = players_.find(ids.hash[i], ids[i]);
                       }));
}

std::optional<Kept> Engine::read_score(const Board* board, std::string_view id) const {
  if (board == nullptr) return {};
  const uint32_t player = players_.find(players_.hash(id), id);
  if (player == kNone) return {};
  const Spot spot = board->locate(memory_, player);
  if (spot.leaf == kNone) return {};
  return board->kept(memory_, spot);
}

std::vector<std::optional<Kept>> Engine::read_scores(const Board* board, const Ids& ids) const {
  std::vector<std::optional<Kept>> scores(ids.size());
  if (board == nullptr) return scores;
  board->locate_many(memory_, find_players(ids), [&](size_t i, Spot spot) { scores[i] = board->kept(memory_, spot); });
  return scores;
}

Standing Engine::standing_at(const Board& board, Spot spot, Ranking ranking) const {
  Standing standing{true, 0, board.kept(memory_, spot), 0, board.size()};
  const Before before = ranking == Ranking::dense ? board.before(memory_, spot) : Before{board.place(spot), 0};
  standing.better = board.better(memory_, spot, before.entries);
  standing.rank = ranking == Ranking::ordinal       ? before.entries + 1
                  : ranking == Ranking::competition ? standing.better + 1
                                                    : before.distinct;
  return standing;
}

Standing Engine::read_rank(const Board* board, std::string_view id, Ranking ranking) const {
  if (board == nullptr) return {};
  const uint32_t player = players_.find(players_.hash(id), id);
  if (player == kNone) return {};
  const Spot spot = board->locate(memory_, player);
  return spot.leaf == kNone ? Standing{} : standing_at(*board, spot, ranking);
}

std::vector<Standing> Engine::read_ranks(const Board* board, const Ids& ids, Ranking ranking) const {
  std::vector<Standing> standings(ids.size());
  if (board == nullptr) return standings;
  const std::vector<uint32_t> numbers = find_players(ids);
  board->locate_many(memory_, numbers, [&](size_t i, Spot spot) { standings[i] = standing_at(*board, spot, ranking); });
  return standings;
}

// The places first_place, first_place + 1, … counted from 0; the caller has cut `count` to what is there.
void Engine::add_lines(const Board& board, uint64_t first_place, uint64_t count, Ranking ranking, Lines& lines) const {
  if (count == 0) return;
  Spot spot = board.at(first_place);
  const Before before = board.before(memory_, spot);
  uint64_t rank = ranking == Ranking::ordinal       ? first_place + 1
                  : ranking == Ranking::competition ? board.better(memory_, spot, first_place) + 1
                                                    : before.distinct;
  uint64_t score = board.key(memory_, spot).score;
  lines.lines.reserve(lines.lines.size() + count);
  for (uint64_t i = 0; i < count; ++i, spot = board.next(spot)) {
    const Key key = board.key(memory_, spot);
    if (i > 0) {
      if (ranking == Ranking::ordinal) {
        ++rank;
      } else if (key.score != score) {
        rank = ranking == Ranking::dense ? rank + 1 : first_place + i + 1;
      }
    }
    score = key.score;
    lines.add(rank, kept_of(board.direction(), key), players_.name(board.player(memory_, spot)));
  }
}

Lines Engine::read_range(const Board* board, uint64_t first, uint64_t last, Ranking ranking) const {
  Lines lines;
  if (board == nullptr) return lines;
  lines.total = board->size();
  last = std::min(last, lines.total);
  if (first <= last) add_lines(*board, first - 1, last - first + 1, ranking, lines);
  return lines;
}

Lines Engine::read_following(const Board* board, const Kept& after, std::string_view id, uint64_t limit,
                             Ranking ranking) const {
  if (board == nullptr) return {};
  const BehindEntry<Players> where{key_of(board->direction(), after), id, players_};
  const uint64_t place = board->before(memory_, where).entries;
  return read_range(board, place + 1, place + limit, ranking);
}

Lines Engine::read_around(const Board* board, std::string_view id, uint64_t above, uint64_t below, Ranking ranking,
                          Standing& standing, uint64_t& above_count) const {
  standing = {};
  if (board == nullptr) return {};
  const uint32_t player = players_.find(players_.hash(id), id);
  if (player == kNone) return {};
  const Spot spot = board->locate(memory_, player);
  if (spot.leaf == kNone) return {};
  standing = standing_at(*board, spot, ranking);
  const uint64_t place = board->place(spot);
  above_count = std::min(above, place);
  const uint64_t below_count = std::min<uint64_t>(below, board->size() - place - 1);
  Lines lines;
  lines.total = board->size();
  add_lines(*board, place - above_count, above_count + 1 + below_count, ranking, lines);
  return lines;
}

std::vector<FriendLine> Engine::read_friends(const Board* board, const Ids& ids, Ranking ranking) const {
  struct PlacedPlayer {
    uint64_t place;
    uint32_t asked;
    Spot spot;
  };
  std::vector<FriendLine> friends;
  if (board == nullptr) return friends;
  std::vector<PlacedPlayer> found;
  board->locate_many(memory_, find_players(ids), [&](size_t i, Spot spot) {
    found.push_back({board->place(spot), static_cast<uint32_t>(i), spot});
  });
  std::sort(found.begin(), found.end(), [](const PlacedPlayer& a, const PlacedPlayer& b) { return a.place < b.place; });
  const auto is_same = [](const PlacedPlayer& a, const PlacedPlayer& b) { return a.place == b.place; };
  found.erase(std::unique(found.begin(), found.end(), is_same), found.end());
  for (size_t i = 0; i < found.size(); ++i) {
    const Kept kept = board->kept(memory_, found[i].spot);
    const bool tied = i > 0 && kept.score == friends.back().kept.score;
    uint64_t rank = i + 1;
    if (ranking != Ranking::ordinal && i > 0) {
      if (tied) {
        rank = friends.back().rank;
      } else if (ranking == Ranking::dense) {
        rank = friends.back().rank + 1;
      }
    }
    friends.push_back({found[i].asked, rank, board->rank(memory_, found[i].spot, ranking), kept});
  }
  return friends;
}

// Ids lie all over memory: the lines of a whole run are asked for before the first is hashed.
StandingColumns Engine::read_standing(const Board* board, uint64_t most, HashKey key) const {
  StandingColumns columns;
  if (board == nullptr || board->size() == 0) return columns;
  const uint64_t count = std::min<uint64_t>(most, board->size());
  columns.hashes.reserve(count);
  columns.scores.reserve(count);
  Spot behind;
  for (Spot spot = board->at(0); spot.leaf != kNone && columns.scores.size() < count; spot = behind) {
    const Run run = board->run(memory_, spot, behind);
    const auto size = static_cast<uint32_t>(std::min<uint64_t>(run.size(), count - columns.scores.size()));
    for (uint32_t i = 0; i < size; ++i) __builtin_prefetch(players_.record_line(run.player(i)));
    for (uint32_t i = 0; i < size; ++i) __builtin_prefetch(players_.name_line(run.player(i)));
    for (uint32_t i = 0; i < size; ++i) {
      columns.hashes.push_back(hash_bytes(key, players_.name(run.player(i))));
      columns.scores.push_back(kept_of(board->direction(), run.key(i)).score);
    }
  }
  return columns;
}

uint64_t Engine::read_rank_of_score(const Board* board, const Kept& kept, Ranking ranking) const {
  if (board == nullptr) return 1;
  const Key key = key_of(board->direction(), kept);
  if (ranking == Ranking::ordinal) return board->before(memory_, BehindTies{key}).entries + 1;
  const Before before = board->before(memory_, AtScore{key});
  return (ranking == Ranking::competition ? before.entries : before.distinct) + 1;
}

uint64_t Engine::read_count(const Board* board, int64_t low, int64_t high) const {
  if (board == nullptr || low > high) return 0;
  const Order order = board->direction().order;
  const uint64_t first = score_key(order, order == Order::desc ? high : low);
  const uint64_t last = score_key(order, order == Order::desc ? low : high);
  const uint64_t end =
      last == ~uint64_t{0} ? board->size() : board->before(memory_, AtScore{{last + 1, 0}}).entries;
  return end - board->before(memory_, AtScore{{first, 0}}).entries;
}

std::vector<int64_t> Engine::read_quantiles(const Board* board, const std::vector<uint32_t>& ppm) const {
  std::vector<int64_t> scores;
  if (board == nullptr) return scores;
  const uint64_t total = board->size();
  for (const uint32_t q : ppm) {
    const uint64_t lowest_first = std::max<uint64_t>(1, (q * total + 999'999) / 1'000'000);
    const uint64_t place = board->direction().order == Order::asc ? lowest_first - 1 : total - lowest_first;
    scores.push_back(board->kept(memory_, board->at(place)).score);
  }
  return scores;
}

std::vector<Bucket> Engine::read_histogram(const Board* board, uint32_t buckets) const {
  std::vector<Bucket> histogram;
  if (board == nullptr) return histogram;
  const int64_t first = board->kept(memory_, board->at(0)).score;
  const int64_t last = board->kept(memory_, board->at(board->size() - 1)).score;
  const int64_t lowest = std::min(first, last);
  const int64_t highest = std::max(first, last);
  // Unsigned differences, since the whole 64-bit range may be in use.
  const uint64_t span = static_cast<uint64_t>(highest) - static_cast<uint64_t>(lowest);
  const uint64_t step = span / buckets;  // the width less one, which could be 2^64
  for (uint64_t start = 0;;) {
    const uint64_t end = span - start <= step ? span : start + step;
    Bucket bucket{static_cast<int64_t>(static_cast<uint64_t>(lowest) + start),
                  static_cast<int64_t>(static_cast<uint64_t>(lowest) + end), 0};
    bucket.count = read_count(board, bucket.low, bucket.high);
    histogram.push_back(bucket);
    if (end == span) return histogram;
    start = end + 1;
  }
}

MemoryUse Engine::read_memory() const {
  return {regions_.bytes(Purpose::players), regions_.bytes(Purpose::boards), regions_.bytes(Purpose::entries),
          regions_.bytes(Purpose::maps), regions_.bytes(Purpose::captures), regions_.bytes(Purpose::saving),
          regions_.idle_bytes()};
}

void Engine::check() const {
  const std::lock_guard<std::mutex> writer(writer_);
  const auto fail = [](const char* text) { throw std::logic_error(text); };
  players_.check(fail);
  boards_.check(fail);
  size_t leaves = 0;
  size_t inners = 0;
  std::array<size_t, kBlockCapacities.size()> blocks{};
  std::map<uint32_t, uint32_t> references;
  size_t captured = 0;
  size_t in_families = 0;
  const auto check_board = [&](const Board& board, const Capture* capture) {
    board.check(memory_, fail, leaves, inners, blocks);
    uint32_t placed = 0;
    for (Spot spot = board.at(0); spot.leaf != kNone; spot = board.next(spot)) {
      const uint32_t player = board.player(memory_, spot);
      ++references[player];
      placed += capture != nullptr && capture->place(player) != Capture::kNowhere ? 1 : 0;
    }
    if (capture == nullptr) return;
    ++captured;
    capture->check(fail);
    if (placed != capture->size()) fail("engine: a captured place has no entry");
  };
  boards_.each([&](uint32_t number) {
    const Board& board = boards_.payload(number);
    if (board.is_captured() != captures_.contains(number)) fail("engine: a board and its capture are apart");
    check_board(board, capture_of(number));
    const Family* family = families_.find(Families::prefix_of(boards_.name(number)));
    if (family != board.family()) fail("engine: a board is of another family");
    if (family == nullptr) return;
    ++in_families;
    const uint32_t place = board.family_place();
    if (place >= family->boards.size() || family->boards[place] != number) fail("engine: a board is lost to its family");
  });
  families_.each([&](const std::string&, const Family& family) { in_families -= family.boards.size(); });
  if (in_families != 0) fail("engine: a family has boards that are gone");
  if (captured != captures_.size()) fail("engine: a capture of no board is kept");
  if (saving_ != nullptr) {
    for (const auto& [number, board] : saving_->sealed()) check_board(board, nullptr);
  }
  if (leaves != memory_.trees.leaves.used()) fail("engine: leaves were lost");
  if (inners != memory_.trees.inners.used()) fail("engine: inner nodes were lost");
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] != memory_.blocks[i]->used()) fail("engine: blocks were lost");
  }
  players_.each([&](uint32_t number) {
    const auto found = references.find(number);
    if (found == references.end()) fail("engine: a player stands nowhere and is kept");
    if (std::min(found->second, Players::kReferencesMax) != players_.references(number)) fail("engine: a player's references are miscounted");
  });
  if (references.size() != players_.size()) fail("engine: an entry's player is unknown");
}

// Prefetches the memory that a player's score will access, in all boards at once, so that their cache misses overlap.
// For the writer, which changes nothing meanwhile.
void Engine::ask_ahead(const std::vector<uint32_t>& boards, uint32_t player, int64_t score) const {
  constexpr size_t kGroupItems = 16;  // more than the number of lines a processor fetches at once
  struct Asked {
    const Tree* tree;
    uint64_t score_key;
    InsertHint hint;
  };
  std::array<Asked, kGroupItems> asked;
  size_t count = 0;
  for (const uint32_t number : boards) {
    if (number == kNone || player == kNone || count == kGroupItems) continue;
    const Board& board = boards_.payload(number);
    if (board.tree() != nullptr) asked[count++] = {board.tree(), score_key(board.direction().order, score), {}};
  }
  if (count < 2) return;
  const auto each = [&](auto step) {
    for (size_t i = 0; i < count; ++i) step(*asked[i].tree, asked[i].score_key, asked[i].hint);
  };
  const auto ask = [](const void* line) {
    if (line != nullptr) prefetch(line);
  };
  each([&](const Tree& tree, uint64_t, InsertHint&) { ask(tree.map_line(player)); });
  each([&](const Tree& tree, uint64_t key, InsertHint& hint) { hint = tree.begin_hint(key); });
  each([&](const Tree& tree, uint64_t, InsertHint&) {
    ask(tree.leaf_line(tree.likely_spot(player)));
    tree.prefetch_entry(tree.likely_spot(player));
  });
  each([&](const Tree& tree, uint64_t key, InsertHint& hint) { ask(tree.find_parent(key, hint)); });
  each([&](const Tree& tree, uint64_t key, InsertHint& hint) { tree.prefetch_child(key, hint); });
  each([&](const Tree& tree, uint64_t key, InsertHint& hint) { ask(tree.find_leaf(key, hint)); });
  each([&](const Tree& tree, uint64_t, InsertHint& hint) {
    tree.prefetch_arrival(hint);
    const Spot spot = tree.locate(player);
    ask(tree.parent_line(spot));
    tree.prefetch_count(spot);
  });
}

}  // namespace rankd
