// Turns columns of events into columns of rows, without Python code for each item.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "columns_grouping.hpp"
#include "columns_log.hpp"
#include "columns_places.hpp"
#include "columns_totals.hpp"
#include "decay_key.hpp"
#include "metadata_index.hpp"
#include "plain_json.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace rankd {
namespace {

constexpr Py_ssize_t kAhead = 16;

// Printable ASCII that does not begin with a dot is a valid id; other ids are checked in Python.
bool is_plain(PyObject* id, Py_ssize_t bytes_max) {
  if (!PyUnicode_CheckExact(id) || !PyUnicode_IS_COMPACT_ASCII(id)) return false;
  const Py_ssize_t length = PyUnicode_GET_LENGTH(id);
  if (length < 1 || length > bytes_max) return false;
  const uint8_t* text = PyUnicode_1BYTE_DATA(id);
  return text[0] != '.' && std::all_of(text, text + length, [](uint8_t byte) { return byte >= 0x20 && byte < 0x7f; });
}

Py_ssize_t first_odd(nb::list ids, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t bytes_max) {
  const Py_ssize_t count = std::min(end, PyList_GET_SIZE(ids.ptr()));
  for (Py_ssize_t i = std::max(begin, Py_ssize_t{0}); i < count; ++i) {
    if (i + kAhead < count) __builtin_prefetch(PyList_GET_ITEM(ids.ptr(), i + kAhead));
    if (!is_plain(PyList_GET_ITEM(ids.ptr(), i), bytes_max)) return i;
  }
  return end;
}

nb::tuple extent(nb::handle column) {
  Py_buffer view;
  if (PyObject_GetBuffer(column.ptr(), &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) nb::raise_python_error();
  const bool fits = view.ndim == 1 && view.itemsize == sizeof(int64_t) && view.format[0] == 'q' && view.len > 0;
  int64_t low = 0;
  int64_t high = 0;
  if (fits) {
    const nb::gil_scoped_release others;  // the view pins the buffer
    const auto* items = static_cast<const int64_t*>(view.buf);
    const auto found = std::minmax_element(items, items + view.len / view.itemsize);
    low = *found.first;
    high = *found.second;
  }
  PyBuffer_Release(&view);
  if (!fits) throw nb::value_error("a column must be one or more 64-bit signed integers");
  return nb::make_tuple(low, high);
}

// ---------------------------------------------------------------------------------------------------- events to rows

// Each event gets the rows of its group, except those of boards whose bounds exclude its score.
nb::tuple expand(nb::handle group, nb::handle offsets, nb::handle entry_board, nb::handle entry_instance,
                 nb::handle sent, nb::list scores, nb::list ties, nb::handle lowest, nb::handle highest) {
  const Column<uint32_t> groups(group);
  const Column<uint32_t> begins(offsets);
  const Column<uint32_t> boards(entry_board);
  const Column<uint32_t> instances(entry_instance);
  const Column<int64_t> sent_scores(sent);
  const Columns<int64_t> score = columns_of<int64_t>(scores);
  const Columns<int64_t> tie = columns_of<int64_t>(ties);
  const Column<int64_t> low(lowest);
  const Column<int64_t> high(highest);
  const size_t events = groups.size();
  sent_scores.check_size(events);
  instances.check_size(boards.size());
  low.check_size(score.size());
  high.check_size(score.size());
  if (tie.size() != score.size()) throw nb::value_error("every board has a column of scores and one of ties");
  for (size_t i = 0; i < score.size(); ++i) {
    score[i]->check_size(events);
    tie[i]->check_size(events);
  }
  std::vector<uint32_t> instance;
  std::vector<uint32_t> event;
  std::vector<int64_t> ranked;
  std::vector<int64_t> tied;
  std::vector<uint8_t> is_used(boards.size(), 0);
  bool fits = begins.size() > 0 && begins[begins.size() - 1] == boards.size();
  {
    const nb::gil_scoped_release others;
    for (size_t i = 0; fits && i + 1 < begins.size(); ++i) fits = begins[i] <= begins[i + 1];
    for (size_t i = 0; fits && i < boards.size(); ++i) fits = boards[i] < score.size();
    size_t rows = 0;
    for (size_t i = 0; fits && i < events; ++i) {
      fits = groups[i] + size_t{1} < begins.size();
      if (fits) rows += begins[groups[i] + 1] - begins[groups[i]];
    }
    if (fits) {
      instance.reserve(rows);
      event.reserve(rows);
      ranked.reserve(rows);
      tied.reserve(rows);
      for (uint32_t i = 0; i < events; ++i) {
        for (uint32_t entry = begins[groups[i]]; entry < begins[groups[i] + 1]; ++entry) {
          const uint32_t board = boards[entry];
          if (sent_scores[i] < low[board] || sent_scores[i] > high[board]) continue;
          is_used[entry] = 1;
          instance.push_back(instances[entry]);
          event.push_back(i);
          ranked.push_back((*score[board])[i]);
          tied.push_back((*tie[board])[i]);
        }
      }
    }
  }
  if (!fits) throw nb::value_error("a group or a board is named that is not there");
  return nb::make_tuple(bytes_of(instance), bytes_of(event), bytes_of(ranked), bytes_of(tied), bytes_of(is_used));
}

// ---------------------------------------------------------------------------------------------------------- metadata

// A new table of names with a random key, or another's.
template <class Table>
Table new_table(nb::bytes key) {
  HashKey words{};
  if (key.size() != sizeof(words)) throw nb::value_error("a key has 16 bytes");
  std::memcpy(&words, key.c_str(), sizeof(words));
  return Table(words);
}

template <class Table>
Table load_table(nb::bytes dumped) {
  return Table(std::string_view(dumped.c_str(), dumped.size()));
}

template <class Table>
nb::bytes dump_table(const Table& table) {
  const std::string dumped = table.dump();
  return nb::bytes(dumped.data(), dumped.size());
}

template <class Table>
bool equal_table(const Table& table, nb::handle other) {
  const Table* compared = nullptr;
  return nb::try_cast(other, compared) && compared != nullptr && table.holds_the_values_of(*compared);
}

template <class Table>
nb::bytes table_key(const Table& table) {
  return nb::bytes(&table.key(), sizeof(HashKey));
}

// What every table of names has, bound to a class.
template <class Table>
nb::class_<Table>& with_table(nb::class_<Table>& bound) {
  return bound.def(nb::new_(&new_table<Table>), "key"_a)
      .def_static("load", &load_table<Table>, "dumped"_a)
      .def("dump", &dump_table<Table>)
      .def_prop_ro("key", &table_key<Table>)
      .def("memory_bytes", &Table::bytes)
      .def("__eq__", &equal_table<Table>, "other"_a.none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__len__", &Table::size);
}

uint64_t metadata_index_get(const MetadataIndex& index, std::string_view id) {
  return index.find(MetadataIndex::name(index.key(), id)).number();
}

void metadata_index_put(MetadataIndex& index, std::string_view id, uint64_t event) {
  if (event == 0) throw nb::value_error("an event has a number from 1 on");
  index.put(MetadataIndex::name(index.key(), id), EventNumber(event));
}

void metadata_index_remove(MetadataIndex& index, std::string_view id) {
  index.remove(MetadataIndex::name(index.key(), id));
}

std::optional<int64_t> team_totals_average(const TeamTotals& totals, std::string_view team) {
  const TeamTotal total = totals.find(TeamTotals::name(totals.key(), team));
  return total.is_none() ? std::nullopt : std::optional(total.average());
}

void team_totals_replace(TeamTotals& totals, std::string_view team, std::optional<int64_t> before,
                         std::optional<int64_t> after) {
  const TeamTotals::Name name = TeamTotals::name(totals.key(), team);
  TeamTotal total = totals.find(name);
  if (before && total.is_none()) throw nb::value_error("a team without players has no score to replace");
  total.replace(before ? &*before : nullptr, after ? &*after : nullptr);
  totals.put(name, total);
}

// The instances in which a row of an event with metadata changed something.
nb::list instances_with_metadata(nb::handle instance, nb::handle event, nb::handle flags, nb::handle has_metadata) {
  const Column<uint32_t> instances(instance);
  const Column<uint32_t> events(event);
  const Column<uint8_t> flag(flags);
  const Column<uint8_t> has(has_metadata);
  events.check_size(instances.size());
  flag.check_size(instances.size());
  std::vector<uint8_t> is_listed;
  nb::list listed;
  for (size_t row = 0; row < instances.size(); ++row) {
    if ((flag[row] & kSet) == 0 || events[row] >= has.size() || has[events[row]] == 0) continue;
    if (instances[row] >= is_listed.size()) is_listed.resize(instances[row] + size_t{1}, 0);
    if (is_listed[instances[row]] == 0) listed.append(instances[row]);
    is_listed[instances[row]] = 1;
  }
  return listed;
}

// Records the events of rows that changed something; an event without metadata removes the record before it.
void record_metadata_events(nb::list tables, nb::handle instance, nb::handle event, nb::handle subject,
                            nb::handle flags, nb::handle has_metadata, nb::list ids, uint64_t first) {
  const Column<uint32_t> instances(instance);
  const Column<uint32_t> events(event);
  const Column<uint32_t> subjects(subject);
  const Column<uint8_t> flag(flags);
  const Column<uint8_t> has(has_metadata);
  events.check_size(instances.size());
  subjects.check_size(instances.size());
  flag.check_size(instances.size());
  std::vector<MetadataIndex*> maps;
  for (const nb::handle item : tables) maps.push_back(item.is_none() ? nullptr : nb::cast<MetadataIndex*>(item));
  const auto id_count = static_cast<size_t>(PyList_GET_SIZE(ids.ptr()));
  std::vector<MetadataIndex::Name> names(id_count);
  std::vector<uint8_t> is_hashed(id_count, 0);
  const HashKey* key = nullptr;
  for (size_t row = 0; row < instances.size(); ++row) {
    if ((flag[row] & kSet) == 0) continue;
    if (instances[row] >= maps.size() || events[row] >= has.size() || subjects[row] >= id_count) {
      throw nb::value_error("an instance, an event or an id is named that is not there");
    }
    MetadataIndex* map = maps[instances[row]];
    if (map == nullptr) continue;
    if (key == nullptr || *key != map->key()) {
      key = &map->key();
      std::fill(is_hashed.begin(), is_hashed.end(), uint8_t{0});
    }
    const uint32_t who = subjects[row];
    if (is_hashed[who] == 0) {
      names[who] = MetadataIndex::name(*key, text_of(PyList_GET_ITEM(ids.ptr(), static_cast<Py_ssize_t>(who))));
      is_hashed[who] = 1;
    }
    if (has[events[row]] != 0) {
      map->put(names[who], EventNumber(first + events[row]));
    } else {
      map->remove(names[who]);
    }
  }
}

// The JSON of plain mappings, None for None; and the indices of the others, for the caller to encode.
nb::tuple encode_plain(nb::list mappings, size_t bytes_max) {
  nb::list texts;
  nb::list others;
  PlainJson json(bytes_max);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(mappings.ptr()); ++i) {
    PyObject* mapping = PyList_GET_ITEM(mappings.ptr(), i);
    if (mapping != Py_None && json.encode(mapping)) {
      texts.append(nb::str(json.text().data(), json.text().size()));
      continue;
    }
    texts.append(nb::none());
    if (mapping != Py_None) others.append(i);
  }
  return nb::make_tuple(texts, others);
}

// -------------------------------------------------------------------------------------------------------------- decay

Wide wide_of(nb::bytes bytes, size_t index) {
  Wide value = 0;
  std::memcpy(&value, bytes.c_str() + index * sizeof(value), sizeof(value));
  return value;
}

DecayKeys made_keys(nb::bytes logarithms, nb::bytes log2_e, int fraction_bits, nb::bytes rate) {
  if (logarithms.size() != FixedLog::kEntries * sizeof(Wide) || log2_e.size() != sizeof(Wide) ||
      rate.size() != sizeof(Wide)) {
    throw nb::value_error("numbers of 16 bytes are wanted, 1024 of them as logarithms");
  }
  std::vector<Wide> table;
  for (size_t i = 0; i < FixedLog::kEntries; ++i) table.push_back(wide_of(logarithms, i));
  return DecayKeys(FixedLog(std::move(table), wide_of(log2_e, 0)), fraction_bits, wide_of(rate, 0));
}

// The keys, and the indices of those that must be computed in decimals.
nb::tuple decay_keys(const DecayKeys& keys, nb::handle scores, nb::handle instants) {
  const Column<int64_t> score(scores);
  const Column<int64_t> at(instants);
  at.check_size(score.size());
  std::vector<int64_t> found(score.size());
  std::vector<size_t> doubtful;
  {
    const nb::gil_scoped_release others;
    for (size_t i = 0; i < score.size(); ++i) {
      // A score that the board leaves out has no key.
      if (score[i] < 1 || at[i] < 0) continue;
      if (!keys.key(score[i], at[i], found[i])) doubtful.push_back(i);
    }
  }
  nb::list indices;
  for (const size_t index : doubtful) indices.append(index);
  return nb::make_tuple(bytes_of(found), indices);
}

}  // namespace
}  // namespace rankd

NB_MODULE(_columns, module) {
  nb::set_leak_warnings(false);
  module.doc() = "Turns columns of events into columns of rows, without Python code for each item.";
  module.def("first_odd", &rankd::first_odd, "ids"_a, "begin"_a, "end"_a, "bytes_max"_a,
             nb::sig("def first_odd(ids: list[typing.Any], begin: int, end: int, bytes_max: int) -> int"),
             "The first of some ids that is not plain printable ASCII of at most so many bytes; `end` when all are.");
  module.def("extent", &rankd::extent, "column"_a, nb::sig("def extent(column: object) -> tuple[int, int]"),
             "The least and the greatest of a column of 64-bit integers.");
  module.def("distinct", &rankd::distinct, "items"_a,
             nb::sig("def distinct(items: list[typing.Any]) -> tuple[list[typing.Any], bytes]"),
             "The objects of a list, each once in the order they come, and as uint32 which of them each item is.");
  module.def("distinct_mappings", &rankd::distinct_mappings, "items"_a,
             nb::sig("def distinct_mappings(items: list[typing.Any]) -> tuple[list[typing.Any], bytes]"),
             "As `distinct`; dicts that hold the same text, whole numbers and None in the same order are one.");
  module.def("distinct_rows", &rankd::distinct_rows, "columns"_a,
             nb::sig("def distinct_rows(columns: list[list[typing.Any]]) -> tuple[list[list[typing.Any]], bytes]"),
             "As `distinct`, of the rows of some columns; those with the same text, whole numbers and None are one.");
  module.def("plain_json", &rankd::encode_plain, "mappings"_a, "bytes_max"_a,
             nb::sig("def plain_json(mappings: list[typing.Any], bytes_max: int) -> tuple[list[str | None], list[int]]"),
             "Compact JSON of mappings that hold nothing unusual, None for None; and the indices of the others.");
  module.def("take", &rankd::take, "items"_a, "index"_a,
             nb::sig("def take(items: list[typing.Any], index: object) -> list[typing.Any]"), "The items that a column of uint32 names.");
  module.def("divided", &rankd::divided, "column"_a, "divisor"_a,
             nb::sig("def divided(column: object, divisor: int) -> bytes"),
             "A column of int64 divided by a number and rounded down.");
  module.def("rising", &rankd::rising, "times"_a, "at"_a, "sent"_a.none(), "last"_a,
             nb::sig("def rising(times: object, at: object, sent: object | None, last: int) -> tuple[bytes, bytes] | None"),
             "The record times of a log's events, none before `last` or the one before it, and the events' own instants,\n"
             "which follow where the sender gave none (`sent` is 0); None where that changes nothing.");
  module.def("pack_places", &rankd::pack_places, "hashes"_a, "scores"_a, "hash_bits"_a, "leaves_out"_a,
             nb::sig("def pack_places(hashes: object, scores: object, hash_bits: int, leaves_out: bool) "
                     "-> tuple[int, bool, bytes, bytes, bytes, bytes, bytes, bytes, bytes] | None"),
             "Places and scores in standing order, packed to be searched by hash: how many players, whether scores fall,\n"
             "hashes (firsts, begins, bits), ranks, and scores (firsts, begins, bits). None where hashes are equal.");
  module.def("expand", &rankd::expand, "group"_a, "offsets"_a, "entry_board"_a, "entry_instance"_a, "sent"_a,
             "scores"_a, "ties"_a, "lowest"_a, "highest"_a,
             nb::sig("def expand(group: object, offsets: object, entry_board: object, entry_instance: object, "
                     "sent: object, scores: list[typing.Any], ties: list[typing.Any], lowest: object, "
                     "highest: object) -> tuple[bytes, bytes, bytes, bytes, bytes]"),
             "Events by group to rows: instance, event, score and tie of each, and which entries have any.");
  module.def("changes", &rankd::changes, "instance"_a, "event"_a, "tie"_a, "flags"_a, "before"_a, "after"_a,
             "offsets"_a, "wholes"_a, "subjects"_a.none(), "whole_count"_a, "as_kept"_a, "is_folded"_a,
             nb::sig("def changes(instance: object, event: object, tie: object, flags: object, before: object, "
                     "after: object, offsets: object, wholes: object, subjects: object | None, whole_count: int, "
                     "as_kept: bool, is_folded: bool) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bool]"),
             "What rows changed, as rows of totals.\n\n"
             "Total, event, change (or what is kept), tie, subject (by instance, or else the event) and source row of\n"
             "each; by how much each total can have grown and shrunk; whether all of it fits in 64 bits. Folded, it is the\n"
             "fewest rows that leave the same sums.");
  module.def("instances_with_metadata", &rankd::instances_with_metadata, "instance"_a, "event"_a, "flags"_a,
             "has_metadata"_a,
             nb::sig("def instances_with_metadata(instance: object, event: object, flags: object, "
                     "has_metadata: object) -> list[int]"),
             "The instances in which a row of an event with metadata changed something.");
  module.def("record_metadata_events", &rankd::record_metadata_events, "tables"_a, "instance"_a, "event"_a,
             "subject"_a, "flags"_a, "has_metadata"_a, "ids"_a, "first"_a,
             nb::sig("def record_metadata_events(tables: list[MetadataIndex | None], instance: object, event: object, "
                     "subject: object, flags: object, has_metadata: object, ids: list[str], first: int) -> None"),
             "Record the events of rows that changed something; `first` is the number of the first event.");
  module.def("averages", &rankd::averages, "instance"_a, "event"_a, "tie"_a, "flags"_a, "before"_a, "after"_a,
             "offsets"_a, "wholes"_a, "subjects"_a, "tables"_a, "names"_a, "lowest"_a, "highest"_a,
             nb::sig("def averages(instance: object, event: object, tie: object, flags: object, before: object, "
                     "after: object, offsets: object, wholes: object, subjects: object, tables: list[TeamTotals], "
                     "names: list[str], lowest: object, highest: object) "
                     "-> tuple[bytes, bytes, bytes, bytes, bytes, bytes]"),
             "Note the changes of players in the tables of their totals; return the rows of the teams' averages.\n\n"
             "Total, event, score, tie, team and source row of each.");
  module.def("contested_rows", &rankd::contested_rows, "instance"_a, "flags"_a, "before"_a, "has_best"_a, "best"_a,
             nb::sig("def contested_rows(instance: object, flags: object, before: object, has_best: object, "
                     "best: object) -> bytes"),
             "The changed rows of the instances in which a player who had the best score got another one, as uint32.");
  module.def("bests", &rankd::bests, "instance"_a, "event"_a, "tie"_a, "flags"_a, "before"_a, "after"_a, "offsets"_a,
             "wholes"_a, "subjects"_a, "is_ascending"_a, "player"_a, "has_rest"_a, "rest"_a,
             nb::sig("def bests(instance: object, event: object, tie: object, flags: object, before: object, "
                     "after: object, offsets: object, wholes: object, subjects: object, is_ascending: object, "
                     "player: object, has_rest: object, rest: object) "
                     "-> tuple[bytes, bytes, bytes, bytes, bytes, bytes]"),
             "The rows of teams ranked by their best player, as `averages` returns them.\n\n"
             "`rest` is the best score, by instance, of those who have no changed row there.");
  using rankd::MetadataIndex;
  nb::class_<MetadataIndex> metadata_index(module, "MetadataIndex",
                                           "The numbers of events by player, stored by the hashes of player ids.");
  rankd::with_table(metadata_index)
      .def("get", &rankd::metadata_index_get, "player"_a, "The number of an event, 0 for none.")
      .def("put", &rankd::metadata_index_put, "player"_a, "event"_a)
      .def("remove", &rankd::metadata_index_remove, "player"_a);
  using rankd::TeamTotals;
  nb::class_<TeamTotals> team_totals(
      module, "TeamTotals", "The sum and the number of players' scores by team, stored by the hashes of team names.");
  rankd::with_table(team_totals)
      .def("average", &rankd::team_totals_average, "team"_a, "Rounded down; None for a team without players.")
      .def("replace", &rankd::team_totals_replace, "team"_a, "before"_a.none(), "after"_a.none(),
           "Note that a player's score changed; None is a player without one.");
  using rankd::KeysSnapshot;
  nb::class_<KeysSnapshot>(module, "KeysSnapshot", "Recent keys as they were at an instant.")
      .def_prop_ro("key", &KeysSnapshot::key)
      .def_prop_ro("time", &KeysSnapshot::time)
      .def_prop_ro("part_count", &KeysSnapshot::part_count)
      .def("part", &KeysSnapshot::part, "index"_a, "The bytes of one part, for `restore`.")
      .def("__len__", &KeysSnapshot::size);
  using rankd::RecentKeys;
  nb::class_<RecentKeys>(module, "RecentKeys", "The keys that one partition of a log has seen within a time to live.")
      .def(nb::new_(&rankd::new_recent_keys), "key"_a, "ttl_ms"_a)
      .def("admit", &rankd::admit_keys, "keys"_a, "times"_a,
           nb::sig("def admit(self, keys: object, times: object) -> bytes | None"),
           "Remember the keys of events, each 16 bytes of a digest and 16 of a fingerprint, all zero without one.\n\n"
           "Return None where all are fresh; else for each event 0 fresh, 1 repeated, 2 used with another fingerprint.")
      .def("snapshot", [](const RecentKeys& keys) { return KeysSnapshot(keys); })
      .def("reserve", &RecentKeys::reserve, "count"_a, "Make room for so many keys to restore; there must be none.")
      .def("restore", [](RecentKeys& keys, nb::bytes part, int64_t time) {
             keys.restore(std::string_view(part.c_str(), part.size()), time);
           }, "part"_a, "time"_a, "Add a part of a snapshot of keys with the same hash key, as of a time.")
      .def_prop_ro("time", &RecentKeys::time, "The log's time at the last key judged.")
      .def("memory_bytes", &RecentKeys::bytes)
      .def("check", &RecentKeys::check, "Fail where an invariant does not hold.")
      .def("__len__", &RecentKeys::size);
  using rankd::DecayKeys;
  nb::class_<DecayKeys>(module, "DecayKeys", "The order keys of decaying scores; see rankd.domain.decay.")
      .def(nb::new_(&rankd::made_keys), "logarithms"_a, "log2_e"_a, "fraction_bits"_a, "rate"_a)
      .def("keys", &rankd::decay_keys, "scores"_a, "instants"_a,
           nb::sig("def keys(self, scores: object, instants: object) -> tuple[bytes, list[int]]"),
           "The keys as int64, and the indices of those that must be computed in decimals.");
}
