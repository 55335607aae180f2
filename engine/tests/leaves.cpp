// A leaf by itself: entries stand in order, and sit where they were put.
#include <algorithm>
#include <string>
#include <vector>

#include "leaf.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using testing::Random;

struct Names {
  std::string name(uint32_t player) const { return std::to_string(1'000 + player); }
};

struct Entry {
  Key key;
  uint32_t player;
  uint32_t slot;
};

bool stands_before(const Entry& a, const Entry& b) {
  return a.key.score != b.key.score ? a.key.score < b.key.score
         : a.key.tie != b.key.tie   ? a.key.tie < b.key.tie
                                    : a.player < b.player;
}

TEST("entries that come and go stand in order and keep their slots") {
  Random random;
  const Names names;
  Leaf leaf;
  leaf.empty();
  std::vector<Entry> expected;
  uint32_t players = 0;
  for (int step = 0; step < 4'000; ++step) {
    const bool grows = expected.empty() || (expected.size() < kLeafEntries && random.below(100) < 55);
    if (grows) {
      Entry entry{{random.below(30), random.below(2) << 40 | random.below(2)}, players++, 0};
      const std::string id = names.name(entry.player);
      const uint32_t at = position(leaf, leaf.size, NewEntry<Names>{entry.key, id, names});
      const auto where = std::lower_bound(expected.begin(), expected.end(), entry, stands_before);
      CHECK_EQUAL(at, where - expected.begin());
      entry.slot = leaf.insert(at, entry.key, entry.player);
      expected.insert(where, entry);
    } else {
      const auto at = static_cast<uint32_t>(random.below(expected.size()));
      CHECK_EQUAL(leaf.place_of(expected[at].slot), at);
      leaf.erase(at);
      expected.erase(expected.begin() + at);
    }
    if (players == 9'000) players = 0;
    CHECK_EQUAL(leaf.size, expected.size());
    const Run run(leaf, 0);
    uint32_t changes = 0;
    for (uint32_t i = 0; i < expected.size(); ++i) {
      CHECK(leaf.order[i] == expected[i].slot && leaf.key(expected[i].slot) == expected[i].key);
      CHECK(leaf.player_at(i) == expected[i].player && run.player(i) == expected[i].player);
      CHECK(run.key(i) == expected[i].key);
      changes += i > 0 && expected[i].key.score != expected[i - 1].key.score ? 1 : 0;
    }
    CHECK_EQUAL(score_changes(leaf, leaf.size), changes);
    const uint64_t bound = random.below(32);
    const auto less = std::count_if(expected.begin(), expected.end(), [&](const Entry& e) { return e.key.score < bound; });
    CHECK_EQUAL(count_less(leaf, 0, leaf.size, bound), less);
  }
}

TEST("who comes has the slot of who left last, and an emptied leaf is filled from the front") {
  Leaf leaf;
  leaf.empty();
  for (uint32_t i = 0; i < kLeafEntries; ++i) CHECK_EQUAL(leaf.insert(leaf.size, {i, 0}, i), i);
  leaf.erase(20);
  leaf.erase(10);
  CHECK_EQUAL(leaf.insert(0, {0, 0}, 100), 10);
  CHECK_EQUAL(leaf.insert(0, {0, 0}, 101), 20);
  CHECK_EQUAL(leaf.place_of(20), 0);
  leaf.empty();
  CHECK_EQUAL(leaf.insert(0, {7, 1ull << 47}, 5), 0);
  CHECK(leaf.key_at(0) == Key(7, 1ull << 47));
}

TEST("a run of a leaf begins where it is asked to") {
  Leaf leaf;
  leaf.empty();
  for (uint32_t i = 0; i < 5; ++i) leaf.insert(0, {10 - i, 0}, i);
  const Run run(leaf, 2);
  CHECK_EQUAL(run.size(), 3);
  CHECK(run.player(0) == 2 && run.player(2) == 0 && run.key(1).score == 9);
}

}  // namespace
}  // namespace rankd
