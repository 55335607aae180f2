// A board as a map, slow and obviously right, and how the engine is asked and compared with it.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine.hpp"
#include "testing.hpp"

namespace rankd::testing {

inline constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
inline constexpr Ranking kRankings[] = {Ranking::ordinal, Ranking::competition, Ranking::dense};

struct Row {
  uint32_t board = 0;
  Op op = Op::apply;
  std::string player = {};
  int64_t score = 0;
  uint64_t tie = 0;
};

using Boards = std::vector<std::pair<std::string, Rules>>;

struct Entry {
  std::string player;
  Kept kept;
};

// The standing order and the keep rules once more, from their definition and not from order.hpp.
inline bool stands_before(Direction direction, const Entry& a, const Entry& b) {
  if (a.kept.score != b.kept.score) {
    return direction.order == Order::desc ? a.kept.score > b.kept.score : a.kept.score < b.kept.score;
  }
  if (direction.ties != Ties::player && a.kept.tie != b.kept.tie) {
    return direction.ties == Ties::earliest ? a.kept.tie < b.kept.tie : a.kept.tie > b.kept.tie;
  }
  return a.player < b.player;
}

inline Kept kept_after(const Rules& rules, const std::optional<Kept>& kept, const Row& row) {
  const bool ties_by_value = rules.direction.ties == Ties::value;
  const Kept arrived{row.score, rules.direction.ties == Ties::player ? 0 : row.tie};
  if (row.op == Op::put) return arrived;
  const auto bounded = [&](__int128 sum) {
    return static_cast<int64_t>(std::clamp<__int128>(sum, rules.score_min, rules.score_max));
  };
  switch (rules.keep) {
    case Keep::first:
      return kept.value_or(arrived);
    case Keep::best: {
      if (!kept) return arrived;
      if (row.score == kept->score) return ties_by_value && arrived.tie > kept->tie ? arrived : *kept;
      return (row.score > kept->score) == (rules.direction.order == Order::desc) ? arrived : *kept;
    }
    case Keep::latest:
      if (!kept || row.score != kept->score || ties_by_value) return arrived;
      return *kept;
    case Keep::sum: {
      const int64_t sum = bounded(static_cast<__int128>(kept ? kept->score : 0) + row.score);
      if (!kept || sum != kept->score || ties_by_value) return {sum, arrived.tie};
      return *kept;
    }
  }
  return arrived;
}

class Model {
 public:
  explicit Model(Rules rules) : rules_(rules) {}

  // What the engine should answer for the row.
  struct Answer {
    uint8_t flags = 0;
    int64_t old_score = 0;
    int64_t new_score = 0;
  };
  Answer apply(const Row& row) {
    if (row.op == Op::clear) {
      const bool changes = !kept_.empty();
      kept_.clear();
      return {changes ? kSet : uint8_t{0}, 0, 0};
    }
    std::optional<Kept> old;
    if (const auto found = kept_.find(row.player); found != kept_.end()) old = found->second;
    std::optional<Kept> now;
    if (row.op != Op::remove) now = kept_after(rules_, old, row);
    if (now) {
      kept_[row.player] = *now;
    } else {
      kept_.erase(row.player);
    }
    const int flags = (old ? kWasPresent : 0) | (now ? kIsPresent : 0) | (old != now ? kSet : 0);
    return {static_cast<uint8_t>(flags), old ? old->score : 0, now ? now->score : 0};
  }

  size_t size() const { return kept_.size(); }
  const Rules& rules() const { return rules_; }
  const std::map<std::string, Kept>& kept() const { return kept_; }
  std::vector<Entry> standings() const {
    std::vector<Entry> entries;
    for (const auto& [player, kept] : kept_) entries.push_back({player, kept});
    std::sort(entries.begin(), entries.end(),
              [&](const Entry& a, const Entry& b) { return stands_before(rules_.direction, a, b); });
    return entries;
  }

 private:
  Rules rules_;
  std::map<std::string, Kept> kept_;
};

inline std::vector<uint64_t> ranks_of(const std::vector<Entry>& entries, Ranking ranking) {
  std::vector<uint64_t> ranks;
  uint64_t dense = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const bool level = i > 0 && entries[i].kept.score == entries[i - 1].kept.score;
    dense += level ? 0 : 1;
    ranks.push_back(ranking == Ranking::ordinal ? i + 1
                    : ranking == Ranking::dense ? dense
                    : level                     ? ranks.back()
                                                : i + 1);
  }
  return ranks;
}

inline Ids ids_of(const Engine& engine, const std::vector<std::string>& players) {
  Ids ids;
  for (const std::string& player : players) {
    ids.text += player;
    ids.end.push_back(static_cast<uint32_t>(ids.text.size()));
    ids.hash.push_back(engine.hash(player));
  }
  return ids;
}

// Rows as a batch at the next position of partition 0. Columns are left out where every row has what that means.
class Columns {
 public:
  Columns(const Engine& engine, const Boards& boards, const std::vector<Row>& rows, std::optional<Ranking> ranks = {}) {
    std::vector<std::string> table;
    std::unordered_map<std::string, uint32_t> in_table;
    for (const Row& row : rows) {
      score_.push_back(row.score);
      tie_.push_back(static_cast<int64_t>(row.tie));
      board_.push_back(row.board);
      op_.push_back(static_cast<uint8_t>(row.op));
      const auto [found, is_new] = in_table.emplace(row.player, static_cast<uint32_t>(table.size()));
      if (is_new) table.push_back(row.player);
      player_.push_back(found->second);
    }
    const auto all_zero = [](const auto& column) {
      return std::all_of(column.begin(), column.end(), [](auto item) { return item == 0; });
    };
    ids_ = ids_of(engine, table);
    for (const auto& [name, rules] : boards) batch.instances.push_back({name, rules});
    batch.players = &ids_;
    batch.rows = rows.size();
    batch.score = score_.data();
    batch.tie = all_zero(tie_) ? nullptr : tie_.data();
    batch.instance = all_zero(board_) ? nullptr : board_.data();
    batch.player = table.size() == rows.size() ? nullptr : player_.data();
    batch.op = all_zero(op_) ? nullptr : op_.data();
    const Position position = engine.read_position(0);
    batch.epoch = position.epoch;
    batch.after = position.sequence;
    batch.upto = position.sequence + rows.size();
    batch.ranks = ranks;
  }
  Columns(const Columns&) = delete;
  Columns& operator=(const Columns&) = delete;

  Batch batch;

 private:
  std::vector<int64_t> score_;
  std::vector<int64_t> tie_;
  std::vector<uint32_t> board_;
  std::vector<uint32_t> player_;
  std::vector<uint8_t> op_;
  Ids ids_;
};

inline Applied apply(Engine& engine, const Boards& boards, const std::vector<Row>& rows,
                     std::optional<Ranking> ranks = {}) {
  return engine.apply(Columns(engine, boards, rows, ranks).batch);
}

inline MemoryUse memory_of(const Engine& engine) {
  const std::shared_lock<TurnLock> reading(engine.lock());
  return engine.read_memory();
}

inline size_t bytes_held(const Engine& engine) {
  return memory_of(engine).total();
}

inline void check_sound(const char* file, int line, const Engine& engine) {
  try {
    engine.check();
  } catch (const std::logic_error& error) {
    fail(file, line, error.what());
  }
}

// Every read of the engine, against the model; costs some passes over the board.
inline void compare(const Engine& engine, const std::string& name, const Model& model, Random& random) {
  const std::shared_lock<TurnLock> reading(engine.lock());
  const std::vector<Entry> entries = model.standings();
  const Direction direction = model.rules().direction;
  const Board* board = engine.read_board(name);
  CHECK_EQUAL(board == nullptr, entries.empty());
  if (board == nullptr) {
    CHECK(!engine.read_rank(board, "anybody", Ranking::dense).present);
    CHECK(engine.read_range(board, 1, 10, Ranking::ordinal).lines.empty());
    CHECK_EQUAL(engine.read_rank_of_score(board, {5, 0}, Ranking::ordinal), 1);
    CHECK_EQUAL(engine.read_count(board, kLowest, kHighest), 0);
    CHECK(engine.read_quantiles(board, {500'000}).empty());
    CHECK(engine.read_histogram(board, 5).empty());
    return;
  }
  const uint64_t total = entries.size();
  CHECK_EQUAL(board->size(), total);
  Digest digest;
  for (const Entry& entry : entries) digest += entry_digest(entry.kept.score, entry.kept.tie, entry.player);
  CHECK(board->digest() == digest);

  const auto check_lines = [&](const Lines& lines, uint64_t first, uint64_t count, const std::vector<uint64_t>& ranks) {
    CHECK_EQUAL(lines.lines.size(), count);
    for (uint64_t i = 0; i < count; ++i) {
      CHECK(lines.id(lines.lines[i]) == entries[first + i].player);
      CHECK(lines.lines[i].kept == entries[first + i].kept);
      CHECK_EQUAL(lines.lines[i].rank, ranks[first + i]);
    }
  };
  std::vector<int64_t> scores;
  for (const Entry& entry : entries) scores.push_back(entry.kept.score);
  std::sort(scores.begin(), scores.end());
  const std::vector<uint64_t> competition = ranks_of(entries, Ranking::competition);

  for (const Ranking ranking : kRankings) {
    const std::vector<uint64_t> ranks = ranks_of(entries, ranking);
    check_lines(engine.read_range(board, 1, total, ranking), 0, total, ranks);
    check_lines(engine.read_range(board, total + 1, total + 5, ranking), 0, 0, ranks);

    const auto check_standing = [&](const Standing& standing, uint64_t place) {
      CHECK(standing.present);
      CHECK(standing.kept == entries[place].kept);
      CHECK_EQUAL(standing.rank, ranks[place]);
      CHECK_EQUAL(standing.better, competition[place] - 1);
      CHECK_EQUAL(standing.total, total);
    };
    const bool each_one = total <= 150;
    std::vector<std::string> asked;
    std::vector<std::optional<uint64_t>> places;
    for (uint64_t i = 0; i < (each_one ? total : 100); ++i) {
      places.push_back(each_one ? i : random.below(total));
      asked.push_back(entries[*places.back()].player);
      check_standing(engine.read_rank(board, asked.back(), ranking), *places.back());
      CHECK(engine.read_score(board, asked.back()) == entries[*places.back()].kept);
      if (random.once_in(5)) {
        asked.push_back(asked.back() + "?");
        places.emplace_back();
        CHECK(!engine.read_rank(board, asked.back(), ranking).present);
        CHECK(!engine.read_score(board, asked.back()).has_value());
      }
    }
    const Ids ids = ids_of(engine, asked);
    const std::vector<Standing> standings = engine.read_ranks(board, ids, ranking);
    const std::vector<std::optional<Kept>> kept = engine.read_scores(board, ids);
    for (size_t i = 0; i < asked.size(); ++i) {
      CHECK_EQUAL(standings[i].present, places[i].has_value());
      CHECK_EQUAL(kept[i].has_value(), places[i].has_value());
      if (places[i]) check_standing(standings[i], *places[i]);
    }

    std::vector<uint64_t> friends_at;
    for (const auto& place : places) {
      if (place) friends_at.push_back(*place);
    }
    std::sort(friends_at.begin(), friends_at.end());
    friends_at.erase(std::unique(friends_at.begin(), friends_at.end()), friends_at.end());
    std::vector<Entry> group;
    for (const uint64_t place : friends_at) group.push_back(entries[place]);
    const std::vector<uint64_t> group_ranks = ranks_of(group, ranking);
    const std::vector<FriendLine> friends = engine.read_friends(board, ids, ranking);
    CHECK_EQUAL(friends.size(), group.size());
    for (size_t i = 0; i < friends.size(); ++i) {
      CHECK(asked[friends[i].asked] == group[i].player);
      CHECK(friends[i].kept == group[i].kept);
      CHECK_EQUAL(friends[i].rank, group_ranks[i]);
      CHECK_EQUAL(friends[i].global_rank, ranks[friends_at[i]]);
    }

    for (int i = 0; i < 10; ++i) {
      const uint64_t place = random.below(total);
      const uint64_t above = random.below(20);
      const uint64_t below = random.below(20);
      Standing standing;
      uint64_t above_count = 0;
      const std::string& id = entries[place].player;
      const Lines lines = engine.read_around(board, id, above, below, ranking, standing, above_count);
      check_standing(standing, place);
      CHECK_EQUAL(above_count, std::min(above, place));
      check_lines(lines, place - above_count, above_count + 1 + std::min(below, total - place - 1), ranks);

      // Behind somebody who is there, and behind somebody beside them who is not.
      Entry after = entries[place];
      if (random.once_in(2)) after.player += random.once_in(2) ? "!" : "~";
      if (random.once_in(3) && direction.ties != Ties::player) after.kept.tie = random.below(kTieFieldMax);
      const auto behind = std::upper_bound(entries.begin(), entries.end(), after, [&](const Entry& a, const Entry& b) {
        return stands_before(direction, a, b);
      });
      const uint64_t first = static_cast<uint64_t>(behind - entries.begin());
      const uint64_t limit = 1 + random.below(30);
      check_lines(engine.read_following(board, after.kept, after.player, limit, ranking), first,
                  std::min(limit, total - first), ranks);

      const uint64_t newcomer = engine.read_rank_of_score(board, after.kept, ranking);
      uint64_t expected = 1;
      for (uint64_t at = 0; at < total; ++at) {
        const Kept& other = entries[at].kept;
        const bool is_more = other.score > after.kept.score;
        const bool better = other.score != after.kept.score && is_more == (direction.order == Order::desc);
        // Last by id among equals, so whoever is not behind by the tie field stands before.
        const bool level = other.score == after.kept.score &&
                           (direction.ties == Ties::player || other.tie == after.kept.tie ||
                            (direction.ties == Ties::earliest) == (other.tie < after.kept.tie));
        const bool is_counted = ranking != Ranking::dense || at == 0 || entries[at - 1].kept.score != other.score;
        expected += (better && is_counted) || (level && ranking == Ranking::ordinal) ? 1 : 0;
      }
      CHECK_EQUAL(newcomer, expected);
    }
  }

  for (int i = 0; i < 20; ++i) {
    const auto bound = [&] {
      if (random.once_in(4)) return random.once_in(2) ? kLowest : kHighest;
      const int64_t score = random.pick(scores);
      const int64_t step = static_cast<int64_t>(random.below(3)) - 1;
      return score == kLowest || score == kHighest ? score : score + step;
    };
    const int64_t low = bound();
    const int64_t high = bound();
    const auto expected = low > high ? 0
                                     : std::upper_bound(scores.begin(), scores.end(), high) -
                                           std::lower_bound(scores.begin(), scores.end(), low);
    CHECK_EQUAL(engine.read_count(board, low, high), expected);
  }

  std::vector<uint32_t> ppm{0, 1, 500'000, 999'999, 1'000'000};
  for (int i = 0; i < 10; ++i) ppm.push_back(static_cast<uint32_t>(random.below(1'000'001)));
  const std::vector<int64_t> quantiles = engine.read_quantiles(board, ppm);
  CHECK_EQUAL(quantiles.size(), ppm.size());
  for (size_t i = 0; i < ppm.size(); ++i) {
    const uint64_t at_most = std::max<uint64_t>(1, (ppm[i] * total + 999'999) / 1'000'000);
    CHECK_EQUAL(quantiles[i], scores[at_most - 1]);
  }

  for (const uint32_t buckets : {1u, 2u, 7u, 1'000u}) {
    const std::vector<Bucket> histogram = engine.read_histogram(board, buckets);
    CHECK(!histogram.empty() && histogram.size() <= buckets);
    CHECK_EQUAL(histogram.front().low, scores.front());
    CHECK_EQUAL(histogram.back().high, scores.back());
    for (size_t i = 0; i < histogram.size(); ++i) {
      const Bucket& bucket = histogram[i];
      if (i > 0) CHECK_EQUAL(bucket.low, histogram[i - 1].high + 1);
      CHECK_EQUAL(bucket.count, std::upper_bound(scores.begin(), scores.end(), bucket.high) -
                                    std::lower_bound(scores.begin(), scores.end(), bucket.low));
    }
  }
}

// What some boards hold at an instant.
struct State {
  std::vector<Model> models;
  std::vector<std::map<std::string, uint64_t>> captured;  // places, by board and player
};

inline void compare(const Engine& engine, const Boards& boards, const State& state, Random& random) {
  for (size_t i = 0; i < boards.size(); ++i) {
    compare(engine, boards[i].first, state.models[i], random);
    const std::shared_lock<TurnLock> reading(engine.lock());
    for (const auto& [player, kept] : state.models[i].kept()) {
      const auto found = state.captured[i].find(player);
      const uint64_t place = found == state.captured[i].end() ? Capture::kNowhere : found->second;
      CHECK_EQUAL(engine.read_captured(boards[i].first, player), place);
    }
  }
}

// Boards of one engine beside their models; each batch goes to both.
class Pair {
 public:
  explicit Pair(Boards boards, HashKey key = {0x0123456789abcdef, 0xfedcba9876543210})
      : engine(key), boards_(std::move(boards)) {
    for (const auto& [name, rules] : boards_) state_.models.emplace_back(rules);
    state_.captured.resize(boards_.size());
  }

  void drop(size_t board) {
    CHECK_EQUAL(engine.drop(boards_[board].first), model(board).size() > 0);
    state_.models[board].apply({0, Op::clear});
    state_.captured[board].clear();
  }
  void capture(size_t board) {
    engine.capture(boards_[board].first);
    state_.captured[board].clear();
    for (const Entry& entry : model(board).standings()) {
      const uint64_t place = state_.captured[board].size() + 1;
      state_.captured[board][entry.player] = place;
    }
  }
  void forget_capture(size_t board) {
    engine.forget_capture(boards_[board].first);
    state_.captured[board].clear();
  }

  void apply(const std::vector<Row>& rows, std::optional<Ranking> ranks = {}) {
    const auto all_ranks = [&] {
      std::vector<std::map<std::string, uint64_t>> all(boards_.size());
      for (size_t i = 0; ranks && i < boards_.size(); ++i) {
        const std::vector<Entry> entries = model(i).standings();
        const std::vector<uint64_t> places = ranks_of(entries, *ranks);
        for (size_t at = 0; at < entries.size(); ++at) all[i][entries[at].player] = places[at];
      }
      return all;
    };
    const auto before = all_ranks();
    const Applied applied = testing::apply(engine, boards_, rows, ranks);
    CHECK(applied.verdict == Verdict::applied);
    CHECK_EQUAL(applied.flags.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const Model::Answer answer = state_.models[rows[i].board].apply(rows[i]);
      if (rows[i].op == Op::clear) state_.captured[rows[i].board].clear();
      if (rows[i].op == Op::remove) state_.captured[rows[i].board].erase(rows[i].player);
      CHECK_EQUAL(int{applied.flags[i]}, int{answer.flags});
      if (answer.flags & kWasPresent) CHECK_EQUAL(applied.old_score[i], answer.old_score);
      if (answer.flags & kIsPresent) CHECK_EQUAL(applied.new_score[i], answer.new_score);
    }
    if (!ranks) return;
    const auto after = all_ranks();
    const auto rank_in = [&](const std::vector<std::map<std::string, uint64_t>>& all, const Row& row) {
      const auto found = all[row.board].find(row.player);
      return row.op == Op::clear || found == all[row.board].end() ? kRankAbsent : static_cast<int64_t>(found->second);
    };
    for (size_t i = 0; i < rows.size(); ++i) {
      CHECK_EQUAL(applied.rank_before[i], rank_in(before, rows[i]));
      CHECK_EQUAL(applied.rank_after[i], rank_in(after, rows[i]));
    }
  }

  void compare(Random& random) const { testing::compare(engine, boards_, state_, random); }
  const Model& model(size_t board = 0) const { return state_.models[board]; }
  const State& state() const { return state_; }
  const Boards& boards() const { return boards_; }

  Engine engine;

 private:
  Boards boards_;
  State state_;
};

}  // namespace rankd::testing

#define CHECK_SOUND(engine) ::rankd::testing::check_sound(__FILE__, __LINE__, engine)
