// Converts Python arguments for the engine; included by bindings.cpp only.
//
// Arguments are copied, so that the work runs without the interpreter's lock and no thread can change a column
// meanwhile.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine.hpp"

namespace rankd {

namespace nb = nanobind;

// How many ids are converted before other Python threads get a turn.
inline constexpr Py_ssize_t kIdsPerTurn = 8192;
inline constexpr Py_ssize_t kIdsAhead = 16;
// Yields the interpreter to a waiting thread. A thread that reacquires it at once wins against the one it has just
// woken, so this one sleeps for about the time of a wake-up.
inline void let_others_run() {
  const nb::gil_scoped_release others;
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

// The UTF-8 bytes of a str; false when it has none (a lone surrogate).
inline bool utf8(PyObject* text, std::string_view& bytes) {
  if (PyUnicode_IS_COMPACT_ASCII(text)) {
    bytes = {reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(text)), static_cast<size_t>(PyUnicode_GET_LENGTH(text))};
    return true;
  }
  Py_ssize_t length = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &length);
  if (data == nullptr) {
    PyErr_Clear();
    return false;
  }
  bytes = {data, static_cast<size_t>(length)};
  return true;
}

struct BadId {
  Py_ssize_t index;
  std::string problem;
};

// Converts the ids of a list or tuple. The first invalid id is reported in `bad`; if that is null, invalid ids become
// empty.
inline void take_ids(nb::handle sequence, const Engine& engine, Ids& ids, BadId* bad) {
  nb::object fast = nb::steal(PySequence_Fast(sequence.ptr(), "players must be a sequence of str"));
  if (!fast.is_valid()) nb::raise_python_error();
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast.ptr());
  ids.end.reserve(static_cast<size_t>(count));
  ids.text.reserve(static_cast<size_t>(count) * 16);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (i > 0 && i % kIdsPerTurn == 0) let_others_run();
    if (PySequence_Fast_GET_SIZE(fast.ptr()) != count) {
      throw MalformedBatch(-1, "players: the list was changed while it was read");
    }
    PyObject** items = PySequence_Fast_ITEMS(fast.ptr());
    if (i + kIdsAhead < count) {
      __builtin_prefetch(items[i + kIdsAhead]);
      __builtin_prefetch(reinterpret_cast<char*>(items[i + kIdsAhead]) + 64);
    }
    std::string_view id;
    const char* problem = nullptr;
    if (!PyUnicode_Check(items[i])) {
      if (bad == nullptr) throw nb::type_error("players: every id must be a str");
      problem = "is not a str";
    } else if (!utf8(items[i], id)) {
      problem = "is not valid Unicode: it holds a lone surrogate";
    } else if (id.empty() || id.size() > kPlayerBytesMax) {
      problem = "must be 1 to 128 bytes of UTF-8";
      id = {};
    }
    if (problem != nullptr && bad != nullptr && bad->index < 0) *bad = {i, problem};
    ids.text.append(id);
    if (ids.text.size() > UINT32_MAX) throw MalformedBatch(-1, "players: too many bytes; send smaller batches");
    ids.end.push_back(static_cast<uint32_t>(ids.text.size()));
  }
  const nb::gil_scoped_release others;
  ids.hash.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) ids.hash[i] = engine.hash(ids[i]);
}

// Copies a column. `letters` are the buffer formats of its item type.
template <class Item>
void take_column(nb::handle column, const char* name, const char* letters, std::vector<Item>& items) {
  Py_buffer view;
  if (PyObject_GetBuffer(column.ptr(), &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    throw MalformedBatch(-1, std::string(name) + ": must be contiguous and offer the buffer protocol, such as array.array");
  }
  const char* format = view.format == nullptr ? "B" : view.format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const bool fits = view.ndim == 1 && view.itemsize == sizeof(Item) && format[0] != '\0' && format[1] == '\0' &&
                    std::string_view(letters).find(format[0]) != std::string_view::npos;
  if (fits) {
    const auto* data = static_cast<const Item*>(view.buf);
    const nb::gil_scoped_release others;  // the view pins the buffer
    items.assign(data, data + view.len / static_cast<Py_ssize_t>(sizeof(Item)));
  }
  PyBuffer_Release(&view);
  if (!fits) {
    throw MalformedBatch(-1, std::string(name) + ": must be one-dimensional with items of " +
                                 std::to_string(sizeof(Item)) + " bytes and format " + letters[0]);
  }
}

struct Columns {
  std::vector<int64_t> score;
  std::vector<int64_t> tie;
  std::vector<uint32_t> instance;
  std::vector<uint32_t> player;
  std::vector<uint8_t> op;
};

template <class Item>
const Item* take_optional(nb::handle column, const char* name, const char* letters, std::vector<Item>& items,
                          size_t rows) {
  if (column.is_none()) return nullptr;
  take_column(column, name, letters, items);
  if (items.size() != rows) {
    throw MalformedBatch(-1, std::string(name) + ": has " + std::to_string(items.size()) + " rows, score has " +
                                 std::to_string(rows));
  }
  return items.data();
}

inline void report_bad_id(const BadId& bad, const Batch& batch) {
  const auto index = static_cast<size_t>(bad.index);
  const std::string problem = "players[" + std::to_string(index) + "]: " + bad.problem;
  for (size_t row = 0; row < batch.rows; ++row) {
    const bool uses = batch.player == nullptr ? row == index : batch.player[row] == index;
    const bool clears = batch.op != nullptr && batch.op[row] == static_cast<uint8_t>(Op::clear);
    if (uses && !clears) throw MalformedBatch(static_cast<int64_t>(row), problem);
  }
  throw MalformedBatch(-1, problem);
}

inline Batch::Instance take_instance(nb::handle item, size_t index) {
  const nb::tuple parts = nb::cast<nb::tuple>(item);
  Batch::Instance instance;
  nb::handle name = parts[0];
  if (!utf8(name.ptr(), instance.name) || instance.name.size() > kBoardNameBytesMax) {
    throw MalformedBatch(-1, "instances[" + std::to_string(index) + "]: the key must be at most " +
                                 std::to_string(kBoardNameBytesMax) + " bytes of valid Unicode");
  }
  instance.rules.keep = static_cast<Keep>(nb::cast<int>(parts[1]));
  instance.rules.direction.order = static_cast<Order>(nb::cast<int>(parts[2]));
  instance.rules.direction.ties = static_cast<Ties>(nb::cast<int>(parts[3]));
  instance.rules.score_min = nb::cast<int64_t>(parts[4]);
  instance.rules.score_max = nb::cast<int64_t>(parts[5]);
  return instance;
}

// The converted instances of a list, cached by the list's identity. So the caller must not change a list after passing
// it.
class TakenTable {
 public:
  const std::vector<Batch::Instance>& take(const nb::list& list) {
    if (!list.is(list_)) {
      std::vector<Batch::Instance> instances;
      for (const nb::handle item : list) instances.push_back(take_instance(item, instances.size()));
      list_ = list;
      instances_ = std::move(instances);
    }
    return instances_;
  }

 private:
  nb::object list_;  // keeps the names alive
  std::vector<Batch::Instance> instances_;
};

// One event as a batch: a row for each instance.
struct OneEvent {
  Ids ids;
  std::vector<int64_t> score;
  std::vector<int64_t> tie;
  std::vector<uint32_t> instance;
  std::vector<uint32_t> player;
  Batch batch;
};

inline void take_event(OneEvent& event, const std::vector<Batch::Instance>& instances, const nb::str& player,
                       int64_t score, nb::handle ties, const Engine& engine) {
  const size_t rows = instances.size();
  const nb::object listed = nb::steal(PySequence_Fast(ties.ptr(), "ties must be a sequence of int"));
  if (!listed.is_valid()) nb::raise_python_error();
  std::string_view id;
  if (rows == 0 || static_cast<size_t>(PySequence_Fast_GET_SIZE(listed.ptr())) != rows ||
      !utf8(player.ptr(), id) || id.empty() || id.size() > kPlayerBytesMax) {
    throw MalformedBatch(-1, "one event must have rows, a tie for each, and a player's id");
  }
  event.ids.text = id;
  event.ids.end = {static_cast<uint32_t>(id.size())};
  event.ids.hash = {engine.hash(id)};
  event.score.assign(rows, score);
  event.player.assign(rows, 0);
  event.tie.reserve(rows);
  event.instance.reserve(rows);
  for (uint32_t row = 0; row < rows; ++row) {
    int64_t tie = 0;
    if (!nb::try_cast(nb::handle(PySequence_Fast_GET_ITEM(listed.ptr(), row)), tie)) {
      throw MalformedBatch(row, "a tie must be an integer");
    }
    event.tie.push_back(tie);
    event.instance.push_back(row);
  }
  event.batch.instances = instances;
  event.batch.players = &event.ids;
  event.batch.rows = rows;
  event.batch.score = event.score.data();
  event.batch.tie = event.tie.data();
  event.batch.instance = event.instance.data();
  event.batch.player = event.player.data();
}

}  // namespace rankd
