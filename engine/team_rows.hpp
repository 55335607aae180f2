// The scores that teams took during a batch, from the changes of their players.
//
// A batch changes a team many times, but only the last change stays: its score, and the event that brought it. So at
// most two rows stand for all changes of one team. Where a team came back to the score it had before, the first of
// them leaves that score, and the second returns to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

namespace rankd {

// A score that a team took, or the change of one; `row` is the player's row that made it.
struct TeamRow {
  uint32_t row;
  int64_t value;
};

// The rows that leave the same entry under the keep rule `latest` as all of a team's scores one after the other.
class LatestRows {
 public:
  void add(uint32_t row, int64_t score) {
    if (last_ && last_->value == score) return;  // it changes nothing
    before_ = last_;
    last_ = TeamRow{row, score};
  }
  template <class Visit>
  void visit(Visit visit) const {
    if (before_) visit(*before_);
    if (last_) visit(*last_);
  }

 private:
  std::optional<TeamRow> before_;
  std::optional<TeamRow> last_;
};

// The rows that leave the same entry under the keep rule `sum` as all changes of a team's sum one after the other, as
// long as no sum is clamped. Overflows wrap around.
class SumRows {
 public:
  void add(uint32_t row, int64_t change) {
    if (!last_ || change != 0) {
      if (last_) before_ = wrapped(before_, last_->value);
      last_ = TeamRow{row, change};
    }
  }
  template <class Visit>
  void visit(Visit visit) const {
    if (!last_) return;
    const int64_t whole = wrapped(before_, last_->value);
    if (whole != 0 || last_->value == 0) {
      visit(TeamRow{last_->row, whole});
    } else {
      visit(TeamRow{last_->row, before_});
      visit(*last_);
    }
  }

 private:
  static int64_t wrapped(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }

  int64_t before_ = 0;
  std::optional<TeamRow> last_;
};

// The kept scores of those of a team's players that a batch changed, and the best score of all its players.
class TeamBest {
 public:
  // `rest` is the best of the players that the batch did not change, if there are any.
  TeamBest(bool is_ascending, std::optional<int64_t> rest) : is_ascending_(is_ascending), rest_(rest) {}

  // Adds a player that the batch will change, and the score before; returns the player's number.
  size_t add(std::optional<int64_t> score) {
    scores_.push_back(score);
    if (score) scores_of_players_.push({key(*score), scores_.size() - 1});
    return scores_.size() - 1;
  }
  // Changes a player's score, and returns the best.
  int64_t change(size_t player, int64_t score) {
    scores_[player] = score;
    scores_of_players_.push({key(score), player});
    // Scores that players no longer have leave the heap when they get to its top.
    while (is_outdated(scores_of_players_.top())) scores_of_players_.pop();
    const int64_t best = *scores_[scores_of_players_.top().second];
    return rest_ && key(*rest_) > key(best) ? *rest_ : best;
  }

 private:
  using Scored = std::pair<uint64_t, size_t>;

  // The greatest key is that of the best score.
  uint64_t key(int64_t score) const {
    const uint64_t biased = static_cast<uint64_t>(score) ^ (uint64_t{1} << 63);
    return is_ascending_ ? ~biased : biased;
  }
  bool is_outdated(const Scored& scored) const { return key(*scores_[scored.second]) != scored.first; }

  bool is_ascending_;
  std::optional<int64_t> rest_;
  std::vector<std::optional<int64_t>> scores_;
  std::priority_queue<Scored> scores_of_players_;
};

// Rows by the instance that they are in, each instance's in their order.
class RowsByInstance {
 public:
  // Only the rows that `has(row)` takes.
  template <class Has>
  RowsByInstance(const uint32_t* instances, size_t rows, size_t instance_count, Has has) : begins_(instance_count + 1, 0) {
    for (size_t row = 0; row < rows; ++row) {
      if (has(row)) ++begins_[instances[row] + size_t{1}];
    }
    for (size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
    rows_.resize(begins_.back());
    std::vector<uint32_t> ends(begins_.begin(), begins_.end() - 1);
    for (size_t row = 0; row < rows; ++row) {
      if (has(row)) rows_[ends[instances[row]]++] = static_cast<uint32_t>(row);
    }
  }
  // Calls visit(instance, first, end) for each instance with rows.
  template <class Visit>
  void visit(Visit visit) const {
    for (uint32_t i = 0; i + 1 < begins_.size(); ++i) {
      if (begins_[i] < begins_[i + 1]) visit(i, rows_.data() + begins_[i], rows_.data() + begins_[i + 1]);
    }
  }

 private:
  std::vector<uint32_t> begins_;
  std::vector<uint32_t> rows_;
};

}  // namespace rankd
