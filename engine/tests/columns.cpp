// What the module _columns is made of: tables beside maps, rows of teams beside those of each event, and logarithms
// beside those of the machine.
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "decay_key.hpp"
#include "metadata_index.hpp"
#include "order.hpp"
#include "team_rows.hpp"
#include "team_totals.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using testing::Random;

TEST("a metadata index has the events of a map, whatever comes and goes") {
  Random random;
  const HashKey key{random.bits(), random.bits()};
  MetadataIndex index(key);
  std::map<std::string, uint64_t> expected;
  for (uint64_t step = 0; step < testing::scaled(60'000); ++step) {
    // Phases of growth and of decline: a table that empties has long runs of moved slots.
    const bool grows = (step / 5'000) % 2 == 0;
    const std::string player = "p" + std::to_string(random.below(4'000));
    const MetadataIndex::Name name = MetadataIndex::name(key, player);
    if (random.below(10) < (grows ? 8u : 2u)) {
      const uint64_t event = 1 + random.below(UINT64_MAX - 1);
      index.put(name, EventNumber(event));
      expected[player] = event;
    } else {
      index.remove(name);
      expected.erase(player);
    }
    CHECK_EQUAL(index.size(), expected.size());
  }
  const MetadataIndex loaded{std::string_view(index.dump())};
  CHECK_EQUAL(loaded.size(), expected.size());
  for (int number = 0; number < 4'000; ++number) {
    const std::string player = "p" + std::to_string(number);
    const auto found = expected.find(player);
    const uint64_t event = found == expected.end() ? 0 : found->second;
    CHECK_EQUAL(index.find(MetadataIndex::name(key, player)).number(), event);
    CHECK_EQUAL(loaded.find(MetadataIndex::name(key, player)).number(), event);
  }
}

int64_t extreme_score(Random& random) {
  static const std::vector<int64_t> extremes{INT64_MIN, INT64_MAX, -1, 0};
  return random.once_in(3) ? random.pick(extremes) : random.between(-9, 9);
}

TEST("a team's average is that of its players' scores, rounded down, however large the sum") {
  Random random;
  const HashKey key{random.bits(), random.bits()};
  TeamTotals totals(key);
  std::map<std::string, std::multiset<int64_t>> expected;
  for (uint64_t step = 0; step < testing::scaled(40'000); ++step) {
    const std::string team = "t" + std::to_string(random.below(500));
    std::multiset<int64_t>& scores = expected[team];
    const std::optional<int64_t> before = scores.empty() || random.once_in(2) ? std::nullopt : std::optional(*scores.begin());
    const std::optional<int64_t> after = before && random.once_in(2) ? std::nullopt : std::optional(extreme_score(random));
    if (before) scores.erase(scores.begin());
    if (after) scores.insert(*after);
    TeamTotal total = totals.find(TeamTotals::name(key, team));
    total.replace(before ? &*before : nullptr, after ? &*after : nullptr);
    totals.put(TeamTotals::name(key, team), total);
  }
  size_t teams = 0;
  const TeamTotals loaded{std::string_view(totals.dump())};
  CHECK(loaded.holds_the_values_of(totals));
  for (const auto& [team, scores] : expected) {
    const TeamTotal total = loaded.find(TeamTotals::name(key, team));
    CHECK_EQUAL(total.players(), scores.size());
    if (scores.empty()) continue;
    ++teams;
    __int128 sum = 0;
    for (const int64_t score : scores) sum += score;
    const auto count = static_cast<__int128>(scores.size());
    const __int128 rounded = sum >= 0 ? sum / count : -((-sum + count - 1) / count);
    CHECK_EQUAL(total.average(), static_cast<int64_t>(rounded));
  }
  CHECK_EQUAL(totals.size(), teams);
}

TEST("a team's total takes 40 bytes at most, and the number of an event 29") {
  const HashKey key{1, 2};
  TeamTotals totals(key);
  MetadataIndex index(key);
  const int64_t score = 7;
  for (size_t count = 1; count <= 50'000; ++count) {
    const std::string name = std::to_string(count);
    TeamTotal total;
    total.replace(nullptr, &score);
    totals.put(TeamTotals::name(key, name), total);
    index.put(MetadataIndex::name(key, name), EventNumber(count));
    if (count < 100) continue;
    CHECK(totals.bytes() <= count * 40);
    CHECK(index.bytes() <= count * 29);
  }
}

// What is kept, and the row that set it last.
struct Left {
  std::optional<Kept> kept;
  uint32_t row = 0;

  void settle(const Rules& rules, uint32_t source, int64_t score) {
    const Kept after = rankd::settle(rules, kept ? &*kept : nullptr, score, source);
    if (!kept || after != *kept) row = source;
    kept = after;
  }
  bool operator==(const Left&) const = default;
};

template <class Rows>
void check_few_rows(Keep keep) {
  Random random;
  const Rules rules{keep, {Order::desc, Ties::earliest}};
  for (uint64_t round = 0; round < testing::scaled(20'000); ++round) {
    Left each;
    if (random.once_in(2)) each.settle(rules, 0, random.between(-2, 2));
    Left few = each;
    Rows rows;
    for (uint32_t row = 1; row <= 1 + random.below(6); ++row) {
      const int64_t score = random.between(-2, 2);
      each.settle(rules, row, score);
      rows.add(row, score);
    }
    size_t count = 0;
    rows.visit([&](const TeamRow& row) {
      few.settle(rules, row.row, row.value);
      ++count;
    });
    CHECK(count <= 2);
    CHECK(few == each);
  }
}

TEST("one or two rows leave what all scores of a team leave") { check_few_rows<LatestRows>(Keep::latest); }
TEST("one or two rows leave what all changes of a team's sum leave") { check_few_rows<SumRows>(Keep::sum); }

TEST("a team's best is the best of its players after each change") {
  Random random;
  for (uint64_t round = 0; round < testing::scaled(3'000); ++round) {
    const bool is_ascending = random.once_in(2);
    const std::optional<int64_t> rest = random.once_in(2) ? std::nullopt : std::optional(extreme_score(random));
    TeamBest best(is_ascending, rest);
    std::vector<std::optional<int64_t>> scores;
    for (size_t player = 0; player < 5; ++player) {
      scores.push_back(random.once_in(2) ? std::nullopt : std::optional(extreme_score(random)));
      CHECK_EQUAL(best.add(scores.back()), player);
    }
    for (int step = 0; step < 12; ++step) {
      const size_t player = random.below(scores.size());
      scores[player] = extreme_score(random);
      std::set<int64_t> all;
      if (rest) all.insert(*rest);
      for (const auto& score : scores) {
        if (score) all.insert(*score);
      }
      CHECK_EQUAL(best.change(player, *scores[player]), is_ascending ? *all.begin() : *all.rbegin());
    }
  }
}

Wide fixed(long double number, int bits) {
  // In two halves: a long double has 64 bits.
  const long double high = std::floor(std::ldexp(number, bits - 64));
  const long double low = std::ldexp(number, bits) - std::ldexp(high, 64);
  return (Wide{static_cast<uint64_t>(high)} << 64) + static_cast<uint64_t>(low);
}

FixedLog machine_log() {
  std::vector<Wide> table;
  for (uint64_t i = 0; i < FixedLog::kFirst; ++i) {
    table.push_back(fixed(10 - std::log2(static_cast<long double>(FixedLog::first_factor(i))), kLogBits));
  }
  for (uint64_t i = 0; i < FixedLog::kSecond; ++i) table.push_back(fixed(std::log2(1 + std::ldexp(i * 1.0L, -15)), kLogBits));
  for (uint64_t i = 0; i < FixedLog::kThird; ++i) table.push_back(fixed(std::log2(1 + std::ldexp(i * 1.0L, -22)), kLogBits));
  return FixedLog(std::move(table), fixed(1 / std::log(2.0L) - 1, 128));
}

TEST("a logarithm in fixed point is that of the machine, as far as it goes") {
  Random random;
  const FixedLog log = machine_log();
  const auto check = [&](uint64_t number) {
    const long double found = std::ldexp(static_cast<long double>(log.log2(number)), -kLogBits);
    CHECK(std::abs(found - std::log2(static_cast<long double>(number))) < 1e-17L);
  };
  for (int power = 0; power < 63; ++power) {
    for (const uint64_t number : {(uint64_t{1} << power) - 1, uint64_t{1} << power, (uint64_t{1} << power) + 1}) {
      if (number > 0) check(number);
    }
  }
  check(INT64_MAX);
  for (uint64_t i = 0; i < testing::scaled(20'000); ++i) check(1 + (random.bits() >> (1 + random.below(62))));
}

TEST("keys grow with the score and with time") {
  Random random;
  const DecayKeys keys(machine_log(), 49, Wide{1'000'000} << 84);
  for (uint64_t i = 0; i < testing::scaled(20'000); ++i) {
    const auto score = static_cast<int64_t>(1 + random.below(uint64_t{1} << 40));
    const auto at = static_cast<int64_t>(random.below(7'000'000'000'000));
    int64_t key = 0;
    int64_t more = 0;
    int64_t later = 0;
    if (!keys.key(score, at, key)) continue;
    if (keys.key(score + 1 + score / 1'000, at, more)) CHECK(more > key);
    if (keys.key(score, at + 86'400'000, later)) CHECK(later > key);
  }
}

}  // namespace
}  // namespace rankd
