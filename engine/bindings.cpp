// The Python bindings of the engine: only the bindings know Python.
//
// Arguments are copied from Python objects first (bindings_arguments.hpp), answers from the engine before they become
// objects (bindings_answers.hpp): neither the interpreter's lock nor the engine's is held during the other's work.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "bindings_answers.hpp"
#include "bindings_arguments.hpp"
#include "bindings_errors.hpp"
#include "engine.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace rankd {
namespace {

// Reads of more lines than this release the interpreter's lock.
constexpr size_t kShortRead = 128;

// ------------------------------------------------------------------------------------------------------ the class

class PyEngine {
 public:
  PyEngine(nb::object entry, nb::object standing, nb::object friend_line, nb::object kept, nb::object change,
           nb::tuple verdicts)
      : engine_(random_key()), answers_{entry, standing, friend_line, kept, change, verdicts} {}

  nb::tuple apply(nb::list instances, nb::handle players, nb::handle score, nb::handle tie, nb::handle instance,
                  nb::handle player, nb::handle op, uint64_t partition, uint64_t epoch, uint64_t after, uint64_t upto,
                  int ranking) {
    Batch batch;
    Columns columns;
    take_column(score, "score", "ql", columns.score);
    batch.rows = columns.score.size();
    batch.score = columns.score.data();
    batch.tie = take_optional(tie, "tie", "ql", columns.tie, batch.rows);
    batch.instance = take_optional(instance, "instance", "IL", columns.instance, batch.rows);
    batch.player = take_optional(player, "player", "IL", columns.player, batch.rows);
    batch.op = take_optional(op, "op", "B", columns.op, batch.rows);
    batch.partition = partition;
    batch.epoch = epoch;
    batch.after = after;
    batch.upto = upto;
    if (ranking >= 0) batch.ranks = static_cast<Ranking>(ranking);
    batch.instances.reserve(instances.size());
    for (const nb::handle item : instances) {
      batch.instances.push_back(take_instance(item, batch.instances.size()));
      // The list is the caller's own: see EngineStore.apply.
      if (batch.instances.size() % kIdsPerTurn == 0) let_others_run();
    }
    Ids ids;
    BadId bad{-1, {}};
    take_ids(players, engine_, ids, &bad);
    if (bad.index >= 0) report_bad_id(bad, batch);
    batch.players = &ids;

    Applied applied;
    {
      const nb::gil_scoped_release others;
      applied = engine_.apply(batch);
    }
    const bool ranked = batch.ranks && applied.verdict == Verdict::applied;
    return answer_or_break(engine_, [&] {
      return nb::make_tuple(static_cast<int>(applied.verdict), applied.position.epoch, applied.position.sequence,
                            column_of(applied.flags, "B"), column_of(applied.old_score, "q"),
                            column_of(applied.new_score, "q"),
                            ranked ? column_of(applied.rank_before, "q") : nb::none(),
                            ranked ? column_of(applied.rank_after, "q") : nb::none());
    });
  }

  nb::object apply_one(nb::list instances, nb::str player, int64_t score, nb::handle ties, uint64_t at, int ranking) {
    OneEvent event;
    take_event(event, one_table_.take(instances), player, score, ties, engine_);
    event.batch.after = at - 1;
    event.batch.upto = at;
    event.batch.ranks = static_cast<Ranking>(ranking);
    event.batch.ranked_rows = 1;
    Applied applied;
    {
      const nb::gil_scoped_release others;
      applied = engine_.apply(event.batch);
    }
    if (applied.verdict != Verdict::applied) return answers_.verdicts[static_cast<size_t>(applied.verdict)];
    const uint8_t flags = applied.flags[0];
    return answer_or_break(engine_, [&] {
      return make_named(answers_.change, (flags & kSet) != 0, whole_if((flags & kWasPresent) != 0, applied.old_score[0]),
                        whole_if((flags & kIsPresent) != 0, applied.new_score[0]),
                        whole_if(applied.rank_before[0] != kRankAbsent, applied.rank_before[0]),
                        whole_if(applied.rank_after[0] != kRankAbsent, applied.rank_after[0]));
    });
  }

  bool drop(std::string_view name) {
    const std::string copy(name);
    const nb::gil_scoped_release others;
    return engine_.drop(copy);
  }

  nb::tuple position(uint64_t partition) const {
    Position position;
    reading([&] { position = engine_.read_position(partition); });
    return nb::make_tuple(position.epoch, position.sequence);
  }

  nb::tuple names(uint64_t cursor, uint32_t most) const {
    std::vector<std::string> names;
    reading([&] { names = engine_.read_names(cursor, most); });
    nb::list list;
    for (const std::string& name : names) list.append(str_of(name));
    return nb::make_tuple(list, cursor >= Engine::kNamesEnd ? nb::none() : nb::object(nb::int_(cursor)));
  }

  nb::tuple drop_family(std::string_view prefix, uint32_t most) {
    const std::string copy(prefix);
    Engine::Dropped dropped;
    {
      const nb::gil_scoped_release others;
      dropped = engine_.drop_family(copy, most);
    }
    return nb::make_tuple(dropped.boards, dropped.entries);
  }

  nb::tuple scopes(std::string_view prefix, std::optional<std::string> player, uint64_t place, uint32_t most) const {
    std::vector<std::string> found;
    reading([&] { found = engine_.read_scopes(prefix, player, place, most); }, most);
    nb::list list;
    for (const std::string& scope : found) list.append(str_of(scope));
    return nb::make_tuple(list, next_place(place));
  }

  nb::tuple family(std::string_view prefix, uint64_t place, uint32_t most) const {
    Engine::FamilySum sum;
    reading([&] { sum = engine_.read_family(prefix, place, most); }, most);
    return nb::make_tuple(sum.boards, sum.entries, sum.digest.low, sum.digest.high, next_place(place));
  }

  uint64_t total(std::string_view name) const {
    uint64_t total = 0;
    reading([&] {
      const Board* board = engine_.read_board(name);
      total = board == nullptr ? 0 : board->size();
    });
    return total;
  }

  nb::object score(std::string_view name, nb::str player) const {
    std::string_view id;
    if (!utf8(player.ptr(), id)) return nb::none();
    std::optional<Kept> kept;
    reading([&] { kept = engine_.read_score(engine_.read_board(name), id); });
    return answers_.kept_object(kept);
  }

  nb::list scores(std::string_view name, nb::handle players) const {
    Ids ids;
    take_ids(players, engine_, ids, nullptr);
    std::vector<std::optional<Kept>> scores;
    reading([&] { scores = engine_.read_scores(engine_.read_board(name), ids); }, ids.size());
    nb::list list;
    for (const auto& kept : scores) list.append(answers_.kept_object(kept));
    return list;
  }

  nb::tuple columns(std::string_view name, nb::handle players) const {
    Ids ids;
    take_ids(players, engine_, ids, nullptr);
    KeptColumns columns;
    reading([&] { columns.take(engine_.read_scores(engine_.read_board(name), ids)); }, ids.size());
    return nb::make_tuple(column_of(columns.score, "q"), column_of(columns.tie, "q"), column_of(columns.gone, "B"));
  }

  nb::object rank(std::string_view name, nb::str player, int ranking) const {
    std::string_view id;
    if (!utf8(player.ptr(), id)) return nb::none();
    Standing standing;
    reading([&] { standing = engine_.read_rank(engine_.read_board(name), id, static_cast<Ranking>(ranking)); });
    return answers_.standing_object(standing, player);
  }

  nb::object ranks(std::string_view name, nb::handle players, int ranking) const {
    Ids ids;
    take_ids(players, engine_, ids, nullptr);
    std::vector<Standing> standings;
    reading([&] { standings = engine_.read_ranks(engine_.read_board(name), ids, static_cast<Ranking>(ranking)); },
            ids.size());
    nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(standings.size())));
    for (size_t i = 0; i < standings.size(); ++i) {
      nb::object id = standings[i].present ? str_of(ids[i]) : nb::none();
      PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), answers_.standing_object(standings[i], id).release().ptr());
    }
    return list;
  }

  nb::tuple range(std::string_view name, uint64_t first, uint64_t last, int ranking) const {
    Lines lines;
    reading(
        [&] { lines = engine_.read_range(engine_.read_board(name), first, last, static_cast<Ranking>(ranking)); },
        last - first);
    return nb::make_tuple(answers_.entries(lines, 0, lines.lines.size()), lines.total);
  }

  nb::tuple following(std::string_view name, int64_t score, uint64_t tie, nb::str player, uint64_t limit,
                      int ranking) const {
    std::string_view id;
    if (!utf8(player.ptr(), id)) throw nb::value_error("after: the player's id is not valid Unicode");
    Lines lines;
    reading(
        [&] {
          lines = engine_.read_following(engine_.read_board(name), {score, tie}, id, limit,
                                         static_cast<Ranking>(ranking));
        },
        limit);
    return nb::make_tuple(answers_.entries(lines, 0, lines.lines.size()), lines.total);
  }

  nb::object around(std::string_view name, nb::str player, uint64_t above, uint64_t below, int ranking) const {
    std::string_view id;
    if (!utf8(player.ptr(), id)) return nb::none();
    Lines lines;
    Standing standing;
    uint64_t above_count = 0;
    reading(
        [&] {
          lines = engine_.read_around(engine_.read_board(name), id, above, below, static_cast<Ranking>(ranking),
                                      standing, above_count);
        },
        above + below);
    if (!standing.present) return nb::none();
    return nb::make_tuple(answers_.entries(lines, 0, above_count), answers_.standing_object(standing, player),
                          answers_.entries(lines, above_count + 1, lines.lines.size()));
  }

  nb::list friends(std::string_view name, nb::handle players, int ranking) const {
    Ids ids;
    take_ids(players, engine_, ids, nullptr);
    std::vector<FriendLine> friends;
    reading([&] { friends = engine_.read_friends(engine_.read_board(name), ids, static_cast<Ranking>(ranking)); },
            ids.size());
    nb::list list;
    for (const FriendLine& line : friends) {
      list.append(make(answers_.friend_line, whole(line.rank), str_of(ids[line.asked]), signed_whole(line.kept.score),
                       whole(line.kept.tie), whole(line.global_rank)));
    }
    return list;
  }

  nb::tuple rank_of_score(std::string_view name, int64_t score, uint64_t tie, int ranking) const {
    uint64_t rank = 0;
    uint64_t total = 0;
    reading([&] {
      const Board* board = engine_.read_board(name);
      rank = engine_.read_rank_of_score(board, {score, tie}, static_cast<Ranking>(ranking));
      total = board == nullptr ? 0 : board->size();
    });
    return nb::make_tuple(rank, total);
  }

  uint64_t count(std::string_view name, int64_t low, int64_t high) const {
    uint64_t count = 0;
    reading([&] { count = engine_.read_count(engine_.read_board(name), low, high); });
    return count;
  }

  std::vector<int64_t> quantiles(std::string_view name, const std::vector<uint32_t>& ppm) const {
    std::vector<int64_t> scores;
    reading([&] { scores = engine_.read_quantiles(engine_.read_board(name), ppm); }, ppm.size());
    return scores;
  }

  nb::list histogram(std::string_view name, uint32_t buckets) const {
    std::vector<Bucket> histogram;
    reading([&] { histogram = engine_.read_histogram(engine_.read_board(name), buckets); }, buckets);
    nb::list list;
    for (const Bucket& bucket : histogram) list.append(nb::make_tuple(bucket.low, bucket.high, bucket.count));
    return list;
  }

  nb::tuple digest(std::string_view name) const {
    Digest digest;
    reading([&] {
      const Board* board = engine_.read_board(name);
      if (board != nullptr) digest = board->digest();
    });
    return nb::make_tuple(digest.low, digest.high);
  }

  nb::dict memory() const {
    MemoryUse use;
    reading([&] { use = engine_.read_memory(); });
    return dict_of(use);
  }

  nb::dict longest_waits() const { return dict_of(engine_.lock().longest_waits()); }

  void forget_waits() const { engine_.lock().forget_waits(); }

  void check() const {
    const nb::gil_scoped_release others;
    engine_.check();
  }

  void capture(std::string_view name) {
    const std::string copy(name);
    const nb::gil_scoped_release others;
    engine_.capture(copy);
  }

  nb::tuple standing_columns(std::string_view name, uint64_t most, nb::bytes key) const {
    HashKey words{};
    if (key.size() != sizeof(words)) throw nb::value_error("a key has 16 bytes");
    std::memcpy(&words, key.c_str(), sizeof(words));
    StandingColumns columns;
    reading([&] { columns = engine_.read_standing(engine_.read_board(name), most, words); }, most);
    return nb::make_tuple(column_of(columns.hashes, "Q"), column_of(columns.scores, "q"));
  }

  nb::object captured(std::string_view name, nb::str player) const {
    std::string_view id;
    if (!utf8(player.ptr(), id)) return nb::none();
    uint32_t place = Capture::kNowhere;
    reading([&] { place = engine_.read_captured(name, id); });
    return place == Capture::kNowhere ? nb::none() : whole(place);
  }

  nb::object captured_many(std::string_view name, nb::handle players) const {
    Ids ids;
    take_ids(players, engine_, ids, nullptr);
    std::vector<int64_t> places(ids.size());
    reading(
        [&] {
          for (size_t i = 0; i < places.size(); ++i) places[i] = place_of(engine_.read_captured(name, ids[i]));
        },
        ids.size());
    return column_of(places, "q");
  }

  void forget_capture(std::string_view name) {
    const std::string copy(name);
    const nb::gil_scoped_release others;
    engine_.forget_capture(copy);
  }

  nb::tuple begin_save(std::optional<size_t> undo_bytes_max) {
    SaveBegun begun;
    {
      const nb::gil_scoped_release others;
      begun = engine_.begin_save(undo_bytes_max);
    }
    nb::list positions;
    for (const auto& [partition, position] : begun.positions) {
      positions.append(nb::make_tuple(partition, position.epoch, position.sequence));
    }
    return nb::make_tuple(begun.number, positions);
  }

  void write_save(uint64_t number, int file) {
    const nb::gil_scoped_release others;
    engine_.write_save(number, file);
  }

  void abandon_save(uint64_t number) {
    const nb::gil_scoped_release others;
    engine_.abandon_save(number);
  }

  void load(int file) {
    const nb::gil_scoped_release others;
    engine_.load(file);
  }

 private:
  static nb::object next_place(uint64_t place) {
    return place == Engine::kFamilyEnd ? nb::none() : nb::object(nb::int_(place));
  }

  // Runs a read under the shared lock. It never waits or works for long while it holds the interpreter's lock.
  template <class Read>
  void reading(Read read, size_t lines = 1) const {
    if (lines <= kShortRead && engine_.lock().try_lock_shared()) {
      const std::shared_lock<TurnLock> shared(engine_.lock(), std::adopt_lock);
      engine_.refuse_if_broken();
      read();
      return;
    }
    const nb::gil_scoped_release others;
    const std::shared_lock<TurnLock> shared(engine_.lock());
    engine_.refuse_if_broken();
    read();
  }

  Engine engine_;
  Answers answers_;
  TakenTable one_table_;  // of the last apply_one
};

}  // namespace
}  // namespace rankd

NB_MODULE(_engine, module) {
  using rankd::PyEngine;
  nb::set_leak_warnings(false);  // a store may live until the interpreter ends
  nb::register_exception_translator(rankd::translate);
  module.doc() = "The native ranking engine; use rankd.projection.engine.";
  nb::class_<PyEngine>(module, "Engine", "Any number of boards over one set of players.")
      .def(nb::init<nb::object, nb::object, nb::object, nb::object, nb::object, nb::tuple>(), "entry"_a, "standing"_a,
           "friend"_a, "kept"_a, "change"_a, "verdicts"_a,
           nb::sig("def __init__(self, entry: type[typing.Any], standing: type[typing.Any], friend: type[typing.Any], "
                   "kept: type[typing.Any], change: type[typing.Any], verdicts: tuple[typing.Any, ...]) -> None"),
           "The classes of answers, made with positional arguments, and the verdicts in order.")
      .def("apply", &PyEngine::apply, "instances"_a, "players"_a, "score"_a, "tie"_a.none(), "instance"_a.none(),
           "player"_a.none(), "op"_a.none(), "partition"_a, "epoch"_a, "after"_a, "upto"_a, "ranking"_a,
           nb::sig("def apply(self, instances: list[tuple[str, int, int, int, int, int]], players: collections.abc.Sequence[str], "
                   "score: object, tie: object | None, instance: object | None, player: object | None, "
                   "op: object | None, partition: int, epoch: int, after: int, upto: int, ranking: int) -> "
                   "tuple[int, int, int, memoryview, memoryview, memoryview, memoryview | None, memoryview | None]"))
      .def("apply_one", &PyEngine::apply_one, "instances"_a, "player"_a, "score"_a, "ties"_a, "at"_a, "ranking"_a,
           nb::sig("def apply_one(self, instances: list[tuple[str, int, int, int, int, int]], player: str, score: int, "
                   "ties: collections.abc.Sequence[int], at: int, ranking: int) -> typing.Any"),
           "One row for each instance, of event `at`; what the first row did, or a verdict.")
      .def("drop", &PyEngine::drop, "name"_a)
      .def("position", &PyEngine::position, "partition"_a,
           nb::sig("def position(self, partition: int) -> tuple[int, int]"))
      .def("names", &PyEngine::names, "cursor"_a, "most"_a,
           nb::sig("def names(self, cursor: int, most: int) -> tuple[list[str], int | None]"))
      .def("drop_family", &PyEngine::drop_family, "prefix"_a, "most"_a,
           nb::sig("def drop_family(self, prefix: str, most: int) -> tuple[int, int]"),
           "Drops some of the boards whose names begin so; returns how many, and how many stood in them.")
      .def("scopes", &PyEngine::scopes, "prefix"_a, "player"_a.none(), "place"_a, "most"_a,
           nb::sig("def scopes(self, prefix: str, player: str | None, place: int, most: int) "
                   "-> tuple[list[str], int | None]"),
           "The rests of names that begin so, of all boards or of those a player stands in, from a place on.")
      .def("family", &PyEngine::family, "prefix"_a, "place"_a, "most"_a,
           nb::sig("def family(self, prefix: str, place: int, most: int) -> tuple[int, int, int, int, int | None]"),
           "Boards, entries, and the sum of digests (low, high) of some of them, and the place to go on from.")
      .def("total", &PyEngine::total, "name"_a)
      .def("score", &PyEngine::score, "name"_a, "player"_a, nb::sig("def score(self, name: str, player: str) -> typing.Any"))
      .def("scores", &PyEngine::scores, "name"_a, "players"_a,
           nb::sig("def scores(self, name: str, players: collections.abc.Sequence[str]) -> list[typing.Any]"))
      .def("columns", &PyEngine::columns, "name"_a, "players"_a,
           nb::sig("def columns(self, name: str, players: collections.abc.Sequence[str]) "
                   "-> tuple[memoryview, memoryview, memoryview]"),
           "Scores, tie fields and, where somebody is not there, 1; of one instant, in request order.")
      .def("rank", &PyEngine::rank, "name"_a, "player"_a, "ranking"_a,
           nb::sig("def rank(self, name: str, player: str, ranking: int) -> typing.Any"))
      .def("ranks", &PyEngine::ranks, "name"_a, "players"_a, "ranking"_a,
           nb::sig("def ranks(self, name: str, players: collections.abc.Sequence[str], ranking: int) -> list[typing.Any]"))
      .def("range", &PyEngine::range, "name"_a, "first"_a, "last"_a, "ranking"_a,
           nb::sig("def range(self, name: str, first: int, last: int, ranking: int) -> tuple[list[typing.Any], int]"))
      .def("following", &PyEngine::following, "name"_a, "score"_a, "tie"_a, "player"_a, "limit"_a, "ranking"_a,
           nb::sig("def following(self, name: str, score: int, tie: int, player: str, limit: int, ranking: int) -> "
                   "tuple[list[typing.Any], int]"))
      .def("around", &PyEngine::around, "name"_a, "player"_a, "above"_a, "below"_a, "ranking"_a,
           nb::sig("def around(self, name: str, player: str, above: int, below: int, ranking: int) -> "
                   "tuple[list[typing.Any], typing.Any, list[typing.Any]] | None"))
      .def("friends", &PyEngine::friends, "name"_a, "players"_a, "ranking"_a,
           nb::sig("def friends(self, name: str, players: collections.abc.Sequence[str], ranking: int) -> list[typing.Any]"))
      .def("rank_of_score", &PyEngine::rank_of_score, "name"_a, "score"_a, "tie"_a, "ranking"_a,
           nb::sig("def rank_of_score(self, name: str, score: int, tie: int, ranking: int) -> tuple[int, int]"))
      .def("count", &PyEngine::count, "name"_a, "low"_a, "high"_a)
      .def("quantiles", &PyEngine::quantiles, "name"_a, "ppm"_a)
      .def("histogram", &PyEngine::histogram, "name"_a, "buckets"_a,
           nb::sig("def histogram(self, name: str, buckets: int) -> list[tuple[int, int, int]]"))
      .def("digest", &PyEngine::digest, "name"_a, nb::sig("def digest(self, name: str) -> tuple[int, int]"))
      .def("memory", &PyEngine::memory, nb::sig("def memory(self) -> dict[str, int]"))
      .def("longest_waits", &PyEngine::longest_waits, nb::sig("def longest_waits(self) -> dict[str, int]"))
      .def("forget_waits", &PyEngine::forget_waits)
      .def("check", &PyEngine::check, "Raises RuntimeError naming the first invariant that does not hold.")
      .def("capture", &PyEngine::capture, "name"_a)
      .def("captured", &PyEngine::captured, "name"_a, "player"_a,
           nb::sig("def captured(self, name: str, player: str) -> int | None"))
      .def("captured_many", &PyEngine::captured_many, "name"_a, "players"_a,
           nb::sig("def captured_many(self, name: str, players: collections.abc.Sequence[str]) -> memoryview"),
           "Captured places of one instant, in request order; -1 for those who have none.")
      .def("standing_columns", &PyEngine::standing_columns, "name"_a, "most"_a, "key"_a,
           nb::sig("def standing_columns(self, name: str, most: int, key: bytes) -> tuple[memoryview, memoryview]"),
           "Of the first players in standing order: a hash of each id by a key of 16 bytes, and the score.")
      .def("forget_capture", &PyEngine::forget_capture, "name"_a)
      .def("begin_save", &PyEngine::begin_save, "undo_bytes_max"_a.none(),
           nb::sig("def begin_save(self, undo_bytes_max: int | None) -> tuple[int, list[tuple[int, int, int]]]"),
           "Returns the save's number, and its positions as (partition, epoch, sequence).")
      .def("write_save", &PyEngine::write_save, "number"_a, "file"_a)
      .def("abandon_save", &PyEngine::abandon_save, "number"_a)
      .def("load", &PyEngine::load, "file"_a);
}
