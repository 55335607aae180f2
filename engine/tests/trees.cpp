// The tree by itself, one entry at a time, with every invariant tested after each.
#include <memory>
#include <string>

#include "testing.hpp"
#include "tree.hpp"

namespace rankd {
namespace {

using testing::Random;

// Two levels of inner nodes, however full they are.
constexpr uint32_t kEntries = 4'000;

// A tree of players 0 … kEntries − 1 with scores 0, 2, 4, …, a few of them alike.
struct OwnTree {
  Regions regions;
  Players players{regions, Purpose::players, {1, 2}};
  TreeMemory memory{regions, players};
  std::unique_ptr<Tree> tree = std::make_unique<Tree>(memory);

  OwnTree() {
    tree->begin(kEntries, kEntries);
    for (uint32_t i = 0; i < kEntries; ++i) {
      const std::string id = std::to_string(10'000 + i);
      CHECK_EQUAL(players.add(players.hash(id), id), i);
      tree->append(key_of_player(i), i);
    }
    CHECK(tree->finish());
    check();
  }

  static Key key_of_player(uint32_t player) { return {player / 3 * 2, 0}; }

  void check() const {
    size_t leaves = 0;
    size_t inners = 0;
    tree->check([](const char* text) { throw testing::Failure(text); }, leaves, inners);
    CHECK_EQUAL(leaves, memory.leaves.used());
    CHECK_EQUAL(inners, memory.inners.used());
  }
  void erase(uint32_t player) const { tree->erase(tree->locate(player)); }
  void insert(uint32_t player) const { tree->insert(key_of_player(player), player, players.name(player)); }
};

// Wherever the first leaf of an inner node is: it is among so many.
constexpr uint32_t kFrom = 2'600;
constexpr uint32_t kTo = 3'200;

TEST("a run of neighbours leaves from the front and comes back, and every node knows its first key") {
  const OwnTree own;
  for (uint32_t player = kFrom; player < kTo; ++player) {
    own.erase(player);
    own.check();
  }
  CHECK_EQUAL(own.tree->place(own.tree->locate(kTo)), kFrom);
  for (uint32_t player = kFrom; player < kTo; ++player) {
    own.insert(player);
    if (player % 4 == 0) own.check();
  }
  CHECK_EQUAL(own.tree->place(own.tree->locate(kTo)), kTo);
  own.check();
}

TEST("a run of neighbours leaves from the back") {
  const OwnTree own;
  for (uint32_t player = kTo; player-- > kFrom;) {
    own.erase(player);
    if (player % 2 == 0) own.check();
  }
  CHECK_EQUAL(own.tree->size(), kEntries - (kTo - kFrom));
}

TEST("entries move one at a time over leaves and nodes, and places and dense ranks follow") {
  Random random;
  const OwnTree own;
  for (int step = 0; step < 250; ++step) {
    const auto player = static_cast<uint32_t>(random.below(kEntries));
    const uint64_t score = random.below(3) == 0 ? random.below(kEntries) : kFrom;
    own.tree->move(own.tree->locate(player), {score, random.below(3) << 40}, own.players.name(player));
    if (step % 3 == 0) own.check();
  }
  uint64_t place = 0;
  uint64_t distinct = 0;
  uint64_t score_before = ~uint64_t{0};
  for (Spot spot = own.tree->first(); spot.leaf != kNone; spot = own.tree->next(spot), ++place) {
    distinct += own.tree->key(spot).score != score_before ? 1 : 0;
    score_before = own.tree->key(spot).score;
    CHECK_EQUAL(own.tree->place(spot), place);
    CHECK_EQUAL(own.tree->before(spot).distinct, distinct);
    const Spot found = own.tree->at(place);
    CHECK(found.leaf == spot.leaf && found.index == spot.index);
  }
  CHECK_EQUAL(place, kEntries);
}

TEST("hints through a tree of three levels lead where the search does, whatever moves before they are gone") {
  constexpr uint32_t kMany = 200'000;
  constexpr size_t kGroupItems = 32;
  Random random;
  Regions regions;
  Players players(regions, Purpose::players, {1, 2});
  TreeMemory memory(regions, players);
  Tree tree(memory);
  tree.begin(kMany, kMany);
  for (uint32_t i = 0; i < kMany; ++i) {
    const std::string id = std::to_string(i);
    tree.append({uint64_t{i} / 2 * 3, 0}, players.add(players.hash(id), id));
  }
  CHECK(tree.finish());
  for (size_t round = 0; round < testing::scaled(60); ++round) {
    // Some rounds crowd into a few leaves, which then share and split under the hints.
    const uint64_t low = random.below(2) == 0 ? 0 : random.below(kMany);
    const uint64_t width = low == 0 ? uint64_t{kMany} * 3 / 2 : 40;
    std::vector<std::pair<uint32_t, uint64_t>> moves;
    std::vector<InsertHint> hints;
    for (size_t i = 0; i < kGroupItems; ++i) {
      moves.emplace_back(static_cast<uint32_t>(random.below(kMany)), low + random.below(width));
      InsertHint hint = tree.begin_hint(moves.back().second);
      tree.prefetch_child(moves.back().second, hint);
      tree.find_parent(moves.back().second, hint);
      tree.find_leaf(moves.back().second, hint);
      tree.prefetch_arrival(hint);
      hints.push_back(hint);
    }
    for (size_t i = 0; i < kGroupItems; ++i) {
      const auto [player, score] = moves[i];
      tree.move(tree.locate(player), {score, i}, players.name(player), hints[i]);
      CHECK_EQUAL(tree.key(tree.locate(player)).score, score);
    }
  }
  size_t leaves = 0;
  size_t inners = 0;
  tree.check([](const char* text) { throw testing::Failure(text); }, leaves, inners);
}

TEST("leaves share with their neighbours before they split: they are three quarters full after random arrivals") {
  Random random;
  Regions regions;
  Players players(regions, Purpose::players, {1, 2});
  TreeMemory memory(regions, players);
  Tree tree(memory);
  const auto add = [&](const auto& put) {
    const std::string id = std::to_string(players.size());
    put(players.add(players.hash(id), id), id);
  };
  for (uint64_t i = 0; i < 2 * kLeafEntries; ++i) {
    add([&](uint32_t player, const std::string&) { tree.append({i * 1'000, 0}, player); });
  }
  CHECK(tree.finish());
  while (tree.size() < 20'000) {
    const Key key{random.below(random.once_in(4) ? 50 : 100'000), 0};  // some share their scores
    add([&](uint32_t player, const std::string& id) { tree.insert(key, player, id); });
    if (tree.size() % 2'000 != 0) continue;
    size_t leaves = 0;
    size_t inners = 0;
    tree.check([](const char* text) { throw testing::Failure(text); }, leaves, inners);
  }
  CHECK(memory.leaves.used() * kLeafEntries * 3 / 4 < tree.size());
}

TEST("a tree is dismantled a few leaves at a time, naming everybody once") {
  const OwnTree own;
  std::vector<int> seen(kEntries, 0);
  int steps = 1;
  while (own.tree->dismantle(3, [&](uint32_t player) { ++seen[player]; })) ++steps;
  CHECK(steps > 20);
  for (const int times : seen) CHECK_EQUAL(times, 1);
  CHECK_EQUAL(own.regions.bytes(Purpose::entries), 0);
  CHECK_EQUAL(own.regions.bytes(Purpose::maps), 0);
}

}  // namespace
}  // namespace rankd
