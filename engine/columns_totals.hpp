// Rows that changed something become rows of the totals that their instances are part of; included by columns.cpp only.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "columns_grouping.hpp"
#include "team_rows.hpp"
#include "team_totals.hpp"

namespace rankd {

inline constexpr uint8_t kWasPresent = 1;  // flags of src/rankd/projection/port.py
inline constexpr uint8_t kIsPresent = 2;
inline constexpr uint8_t kSet = 4;

// Rows that were applied, and what each changed.
struct AppliedRows {
  AppliedRows(nb::handle instance, nb::handle event, nb::handle tie, nb::handle flags, nb::handle before, nb::handle after)
      : instance(instance), event(event), tie(tie), flags(flags), before(before), after(after) {
    this->event.check_size(size());
    this->tie.check_size(size());
    this->flags.check_size(size());
    this->before.check_size(size());
    this->after.check_size(size());
  }
  size_t size() const { return instance.size(); }
  bool is_set(size_t row) const { return (flags[row] & kSet) != 0; }
  std::optional<int64_t> old_score(size_t row) const {
    return (flags[row] & kWasPresent) != 0 ? std::optional(before[row]) : std::nullopt;
  }
  std::optional<int64_t> new_score(size_t row) const {
    return (flags[row] & kIsPresent) != 0 ? std::optional(after[row]) : std::nullopt;
  }

  const Column<uint32_t> instance;
  const Column<uint32_t> event;
  const Column<int64_t> tie;
  const Column<uint8_t> flags;
  const Column<int64_t> before;
  const Column<int64_t> after;
};

// The totals that each instance counts in, and whose they are; without subjects, those of the events' players.
class Totals {
 public:
  Totals(const AppliedRows& rows, nb::handle offsets, nb::handle wholes, nb::handle subjects, size_t count)
      : begins_(offsets), wholes_(wholes) {
    bool fits = begins_.size() > 0 && begins_[begins_.size() - 1] == wholes_.size();
    for (size_t i = 0; fits && i + 1 < begins_.size(); ++i) fits = begins_[i] <= begins_[i + 1];
    for (size_t i = 0; fits && i < wholes_.size(); ++i) fits = wholes_[i] < count;
    for (size_t row = 0; fits && row < rows.size(); ++row) fits = rows.instance[row] + size_t{1} < begins_.size();
    if (!fits) throw nb::value_error("a row or a total is named that is not there");
    if (subjects.is_none()) return;
    subjects_.emplace(subjects);
    subjects_->check_size(instance_count());
  }
  size_t instance_count() const { return begins_.size() - 1; }
  const uint32_t* begin(uint32_t instance) const { return wholes_.data() + begins_[instance]; }
  const uint32_t* end(uint32_t instance) const { return wholes_.data() + begins_[instance + size_t{1}]; }
  bool has_subjects() const { return subjects_.has_value(); }
  uint32_t subject(uint32_t instance) const { return (*subjects_)[instance]; }

 private:
  const Column<uint32_t> begins_;
  const Column<uint32_t> wholes_;
  std::optional<Column<uint32_t>> subjects_;
};

// Rows of totals: total, event, score or change, tie, subject (by instance, or else the event) and source row of each.
class TotalRows {
 public:
  void add(uint32_t whole, uint32_t row, int64_t value) {
    total_.push_back(whole);
    source_.push_back(row);
    value_.push_back(value);
  }
  // With the items of `more` behind them.
  template <class... More>
  nb::tuple columns(const AppliedRows& rows, const Totals& totals, More... more) const {
    std::vector<uint32_t> event;
    std::vector<int64_t> tie;
    std::vector<uint32_t> subject;
    event.reserve(source_.size());
    tie.reserve(source_.size());
    for (const uint32_t row : source_) {
      event.push_back(rows.event[row]);
      tie.push_back(rows.tie[row]);
      if (totals.has_subjects()) subject.push_back(totals.subject(rows.instance[row]));
    }
    const nb::bytes events = bytes_of(event);
    return nb::make_tuple(bytes_of(total_), events, bytes_of(value_), bytes_of(tie),
                          totals.has_subjects() ? bytes_of(subject) : events, bytes_of(source_), more...);
  }

 private:
  std::vector<uint32_t> total_;
  std::vector<uint32_t> source_;
  std::vector<int64_t> value_;
};

inline RowsByInstance changed_rows(const AppliedRows& rows, size_t instances) {
  return RowsByInstance(rows.instance.data(), rows.size(), instances, [&](size_t row) { return rows.is_set(row); });
}

// Folded, the rows of an instance are made as few as leave the same sums; each instance must be part of one total at most.
inline nb::tuple changes(nb::handle instance, nb::handle event, nb::handle tie, nb::handle flags, nb::handle before,
                         nb::handle after, nb::handle offsets, nb::handle wholes, nb::handle subjects,
                         size_t whole_count, bool as_kept, bool is_folded) {
  const AppliedRows rows(instance, event, tie, flags, before, after);
  const Totals totals(rows, offsets, wholes, subjects, whole_count);
  std::vector<int64_t> raised(whole_count, 0);  // by how much each total can have grown, at most
  std::vector<int64_t> lowered(whole_count, 0);
  bool is_small = true;
  TotalRows made;
  {
    const nb::gil_scoped_release others;
    const auto value_of = [&](uint32_t row) {
      int64_t value = rows.new_score(row).value_or(0);
      if (!as_kept && __builtin_sub_overflow(value, rows.old_score(row).value_or(0), &value)) is_small = false;
      return value;
    };
    const auto note = [&](uint32_t whole, int64_t value) {
      int64_t& moved = value < 0 ? lowered[whole] : raised[whole];
      if (__builtin_add_overflow(moved, value, &moved)) is_small = false;
    };
    if (is_folded) {
      changed_rows(rows, totals.instance_count()).visit([&](uint32_t number, const uint32_t* first, const uint32_t* end) {
        if (totals.begin(number) == totals.end(number)) return;
        const uint32_t whole = *totals.begin(number);
        SumRows sum;
        for (const uint32_t* row = first; row != end; ++row) {
          const int64_t value = value_of(*row);
          note(whole, value);
          sum.add(*row, value);
        }
        sum.visit([&](const TeamRow& team) { made.add(whole, team.row, team.value); });
      });
    } else {
      for (uint32_t row = 0; row < rows.size(); ++row) {
        if (!rows.is_set(row)) continue;
        const int64_t value = value_of(row);
        const uint32_t number = rows.instance[row];
        for (const uint32_t* whole = totals.begin(number); whole != totals.end(number); ++whole) {
          note(*whole, value);
          made.add(*whole, row, value);
        }
      }
    }
  }
  return made.columns(rows, totals, bytes_of(raised), bytes_of(lowered), is_small);
}

// ------------------------------------------------------------------------------------------------ averages of teams

// Notes the changes of players in the tables of their totals, one for each total that has rows, and makes the rows of
// the averages.
inline nb::tuple averages(nb::handle instance, nb::handle event, nb::handle tie, nb::handle flags, nb::handle before,
                          nb::handle after, nb::handle offsets, nb::handle wholes, nb::handle subjects,
                          nb::list tables, nb::list names, nb::handle lowest, nb::handle highest) {
  const AppliedRows rows(instance, event, tie, flags, before, after);
  const Column<int64_t> low(lowest);
  const Column<int64_t> high(highest);
  high.check_size(low.size());
  const Totals totals(rows, offsets, wholes, subjects, low.size());
  std::vector<TeamTotals*> table;
  for (const nb::handle item : tables) table.push_back(nb::cast<TeamTotals*>(item));
  if (table.size() != low.size()) throw nb::value_error("every total has a table");
  const auto id_count = static_cast<size_t>(PyList_GET_SIZE(names.ptr()));
  std::vector<TeamTotals::Name> hashed(id_count);
  std::vector<const HashKey*> hashed_with(id_count, nullptr);
  TotalRows made;
  changed_rows(rows, totals.instance_count()).visit([&](uint32_t number, const uint32_t* first, const uint32_t* end) {
    if (totals.begin(number) == totals.end(number)) return;
    const uint32_t whole = *totals.begin(number);
    const uint32_t team = totals.subject(number);
    if (team >= id_count) throw nb::value_error("a team is named that is not there");
    const HashKey& key = table[whole]->key();
    if (hashed_with[team] == nullptr || *hashed_with[team] != key) {
      hashed[team] = TeamTotals::name(key, text_of(PyList_GET_ITEM(names.ptr(), static_cast<Py_ssize_t>(team))));
      hashed_with[team] = &key;
    }
    TeamTotal total = table[whole]->find(hashed[team]);
    LatestRows scores;
    for (const uint32_t* row = first; row != end; ++row) {
      const std::optional<int64_t> was = rows.old_score(*row);
      const std::optional<int64_t> is = rows.new_score(*row);
      total.replace(was ? &*was : nullptr, is ? &*is : nullptr);
      if (total.is_none()) throw nb::value_error("a team has lost its last player");
      scores.add(*row, std::max(low[whole], std::min(high[whole], total.average())));
    }
    table[whole]->put(hashed[team], total);
    scores.visit([&](const TeamRow& row) { made.add(whole, row.row, row.value); });
  });
  return made.columns(rows, totals);
}

// ---------------------------------------------------------------------------------------------- the best of teams

// The changed rows of the instances in which a player who had the best score got another one.
inline nb::bytes contested_rows(nb::handle instance, nb::handle flags, nb::handle before, nb::handle has_best,
                                nb::handle best) {
  const Column<uint32_t> instances(instance);
  const Column<uint8_t> flag(flags);
  const Column<int64_t> old_score(before);
  const Column<uint8_t> has(has_best);
  const Column<int64_t> bests(best);
  flag.check_size(instances.size());
  old_score.check_size(instances.size());
  bests.check_size(has.size());
  std::vector<uint8_t> is_contested(has.size(), 0);
  constexpr uint8_t kReplaced = kSet | kWasPresent;
  for (size_t row = 0; row < instances.size(); ++row) {
    const uint32_t number = instances[row];
    if (number >= has.size()) throw nb::value_error("an instance is named that is not there");
    if (has[number] != 0 && (flag[row] & kReplaced) == kReplaced && old_score[row] == bests[number]) is_contested[number] = 1;
  }
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < instances.size(); ++row) {
    if (is_contested[instances[row]] != 0 && (flag[row] & kSet) != 0) rows.push_back(row);
  }
  return bytes_of(rows);
}

// The rows of teams ranked by their best player. `rest` is the best of those who have no changed row in an instance;
// `player` numbers the events' players.
inline nb::tuple bests(nb::handle instance, nb::handle event, nb::handle tie, nb::handle flags, nb::handle before,
                       nb::handle after, nb::handle offsets, nb::handle wholes, nb::handle subjects,
                       nb::handle is_ascending, nb::handle player, nb::handle has_rest, nb::handle rest) {
  const AppliedRows rows(instance, event, tie, flags, before, after);
  const Column<uint8_t> ascending(is_ascending);
  const Column<uint32_t> players(player);
  const Column<uint8_t> has(has_rest);
  const Column<int64_t> rests(rest);
  const Totals totals(rows, offsets, wholes, subjects, ascending.size());
  has.check_size(totals.instance_count());
  rests.check_size(totals.instance_count());
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows.event[row] >= players.size()) throw nb::value_error("an event is named that is not there");
  }
  TotalRows made;
  {
    const nb::gil_scoped_release others;
    std::vector<std::pair<uint32_t, uint32_t>> by_player;  // player and row
    std::vector<size_t> numbers;                           // of the players of an instance's rows
    changed_rows(rows, totals.instance_count()).visit([&](uint32_t number, const uint32_t* first, const uint32_t* end) {
      if (totals.begin(number) == totals.end(number)) return;
      const uint32_t whole = *totals.begin(number);
      TeamBest best(ascending[whole] != 0, has[number] != 0 ? std::optional(rests[number]) : std::nullopt);
      by_player.clear();
      for (const uint32_t* row = first; row != end; ++row) {
        by_player.emplace_back(players[rows.event[*row]], static_cast<uint32_t>(row - first));
      }
      std::sort(by_player.begin(), by_player.end());
      numbers.assign(by_player.size(), 0);
      size_t latest = 0;
      for (size_t i = 0; i < by_player.size(); ++i) {
        const auto [who, at] = by_player[i];
        if (i == 0 || who != by_player[i - 1].first) latest = best.add(rows.old_score(first[at]));
        numbers[at] = latest;
      }
      LatestRows scores;
      for (const uint32_t* row = first; row != end; ++row) {
        scores.add(*row, best.change(numbers[static_cast<size_t>(row - first)], rows.after[*row]));
      }
      scores.visit([&](const TeamRow& row) { made.add(whole, row.row, row.value); });
    });
  }
  return made.columns(rows, totals);
}

}  // namespace rankd
