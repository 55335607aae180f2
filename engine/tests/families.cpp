// Families: the boards whose names differ behind their second `@` only, listed, searched, added up and dropped together.
#include <set>
#include <string>

#include "model.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using testing::Boards;
using testing::Pair;
using testing::Random;
using testing::Row;

const std::string kDay = "arcade@daily:2026-05-04@";
const std::string kOtherDay = "arcade@daily:2026-05-05@";
constexpr uint32_t kScopes = 40;

Boards boards_of_two_days() {
  const Rules rules{Keep::latest, {Order::desc, Ties::earliest}, testing::kLowest, testing::kHighest};
  Boards boards;
  for (const std::string& day : {kDay, kOtherDay}) {
    for (uint32_t scope = 0; scope < kScopes; ++scope) boards.push_back({day + "level:" + std::to_string(scope), rules});
    boards.push_back({day + "global", rules});
  }
  boards.push_back({"arcade", rules});
  return boards;
}

std::set<std::string> scopes_of(const Engine& engine, const std::string& prefix, std::optional<std::string> player = {}) {
  std::set<std::string> scopes;
  for (uint64_t place = 0; place != Engine::kFamilyEnd;) {
    for (std::string& scope : engine.read_scopes(prefix, player, place, 7)) CHECK(scopes.insert(std::move(scope)).second);
  }
  return scopes;
}

TEST("a family is what stands under its prefix, whatever comes and goes") {
  Random random;
  const Boards boards = boards_of_two_days();
  Pair pair(boards);
  for (size_t step = 0; step < testing::scaled(60); ++step) {
    std::vector<Row> rows;
    for (size_t i = 0; i < 30; ++i) {
      const Op op = random.once_in(4) ? Op::remove : random.once_in(12) ? Op::clear : Op::apply;
      rows.push_back({static_cast<uint32_t>(random.below(boards.size())), op, "p" + std::to_string(random.below(5)),
                      random.between(0, 9)});
    }
    pair.apply(rows);
    CHECK_SOUND(pair.engine);
    for (const std::string& day : {kDay, kOtherDay}) {
      std::set<std::string> standing;
      std::set<std::string> of_player;
      uint64_t entries = 0;
      Digest digest;
      for (uint32_t scope = 0; scope < kScopes; ++scope) {
        const std::string rest = "level:" + std::to_string(scope);
        const Board* board = pair.engine.read_board(day + rest);
        if (board == nullptr) continue;
        standing.insert(rest);
        entries += board->size();
        digest += board->digest();
        if (pair.engine.read_score(board, "p3")) of_player.insert(rest);
      }
      CHECK(scopes_of(pair.engine, day) == standing);
      CHECK(scopes_of(pair.engine, day, "p3") == of_player);
      CHECK(scopes_of(pair.engine, day, "nobody").empty());
      Engine::FamilySum sum;
      for (uint64_t place = 0; place != Engine::kFamilyEnd;) {
        const Engine::FamilySum part = pair.engine.read_family(day, place, 7);
        sum.boards += part.boards;
        sum.entries += part.entries;
        sum.digest += part.digest;
      }
      CHECK_EQUAL(sum.boards, standing.size());
      CHECK_EQUAL(sum.entries, entries);
      CHECK(sum.digest.low == digest.low && sum.digest.high == digest.high);
    }
  }
  CHECK(scopes_of(pair.engine, "arcade@").empty());
}

TEST("a family is dropped in parts, and nothing else with it") {
  Pair pair(boards_of_two_days());
  std::vector<Row> rows;
  for (uint32_t board = 0; board < 2 * (kScopes + 1) + 1; ++board) rows.push_back({board, Op::apply, "ann", 1});
  pair.apply(rows);
  uint64_t entries = 0;
  uint64_t dropped = 0;
  do {
    const Engine::Dropped part = pair.engine.drop_family(kDay, 9);
    dropped = part.boards;
    entries += part.entries;
    CHECK_SOUND(pair.engine);
  } while (dropped == 9);
  CHECK_EQUAL(entries, uint64_t{kScopes});
  CHECK(scopes_of(pair.engine, kDay).empty());
  CHECK_EQUAL(scopes_of(pair.engine, kOtherDay).size(), size_t{kScopes});
  CHECK(pair.engine.read_board(kDay + "global") != nullptr);
  CHECK_EQUAL(pair.engine.drop_family(kOtherDay, 1'000).entries, uint64_t{kScopes});
  for (const char* name : {"global"}) {
    CHECK(pair.engine.drop(kDay + name));
    CHECK(pair.engine.drop(kOtherDay + name));
  }
  CHECK(pair.engine.drop("arcade"));
  CHECK_EQUAL(testing::bytes_held(pair.engine), 0);
}

TEST("a family dropped while a save is under way is in its file, and not behind it") {
  Pair pair(boards_of_two_days());
  std::vector<Row> rows;
  for (uint32_t board = 0; board < kScopes; ++board) rows.push_back({board, Op::apply, "ann", 1});
  pair.apply(rows);
  const SaveBegun begun = pair.engine.begin_save();
  CHECK_EQUAL(pair.engine.drop_family(kDay, 1'000).boards, uint64_t{kScopes});
  CHECK_SOUND(pair.engine);
  CHECK(scopes_of(pair.engine, kDay).empty());
  pair.engine.abandon_save(begun.number);
  CHECK_SOUND(pair.engine);
}

}  // namespace
}  // namespace rankd
