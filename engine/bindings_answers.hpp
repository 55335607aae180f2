// Converts the engine's answers to Python objects; included by bindings.cpp only.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "engine.hpp"

namespace rankd {

namespace nb = nanobind;

inline nb::object str_of(std::string_view text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr));
}

template <class Item>
nb::object column_of(const std::vector<Item>& items, const char* format) {
  const size_t size = items.size() * sizeof(Item);
  nb::object bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!bytes.is_valid()) nb::raise_python_error();
  if (size > 0) {
    char* room = PyBytes_AS_STRING(bytes.ptr());
    const nb::gil_scoped_release others;  // no other thread has the object yet
    std::memcpy(room, items.data(), size);
  }
  nb::object view = nb::steal(PyMemoryView_FromObject(bytes.ptr()));
  return view.attr("cast")(format);
}

// Makes an instance of a Python class from positional arguments, as cheaply as the interpreter allows.
template <class... Arguments>
nb::object make(nb::handle type, const Arguments&... arguments) {
  PyObject* values[] = {arguments.ptr()...};
  nb::object made = nb::steal(PyObject_Vectorcall(type.ptr(), values, sizeof...(arguments), nullptr));
  if (!made.is_valid()) nb::raise_python_error();
  return made;
}

// The same for a named tuple, without calling its Python constructor.
template <class... Arguments>
nb::object make_named(nb::handle type, const Arguments&... arguments) {
  const nb::object values = nb::steal(PyTuple_Pack(1, nb::make_tuple(arguments...).ptr()));
  if (!values.is_valid()) nb::raise_python_error();
  nb::object made = nb::steal(PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(type.ptr()), values.ptr(), nullptr));
  if (!made.is_valid()) nb::raise_python_error();
  return made;
}

// Converts the answer of an applied batch. If that fails, the engine is marked as broken: a caller that gets an error
// must not go on with an engine that has applied the batch.
template <class Answer>
auto answer_or_break(Engine& engine, Answer answer) {
  try {
    return answer();
  } catch (...) {
    engine.give_up();
    throw;
  }
}

inline nb::dict dict_of(const MemoryUse& use) {
  nb::dict dict;
  dict["players_bytes"] = use.players;
  dict["boards_bytes"] = use.boards;
  dict["entries_bytes"] = use.entries;
  dict["maps_bytes"] = use.maps;
  dict["captures_bytes"] = use.captures;
  dict["saving_bytes"] = use.saving;
  dict["idle_bytes"] = use.idle;
  return dict;
}

inline nb::dict dict_of(const ReaderWaits& waits) {
  nb::dict dict;
  dict["reader_ns"] = waits.reader;
  dict["let_in_ns"] = waits.let_in;
  dict["work_ns"] = waits.work;
  return dict;
}

inline int64_t place_of(uint32_t captured) { return captured == Capture::kNowhere ? -1 : int64_t{captured}; }

// The kept scores of many players, as columns.
struct KeptColumns {
  std::vector<int64_t> score;
  std::vector<int64_t> tie;
  std::vector<uint8_t> gone;  // 1: absent

  void take(const std::vector<std::optional<Kept>>& found) {
    score.reserve(found.size());
    tie.reserve(found.size());
    gone.reserve(found.size());
    for (const std::optional<Kept>& kept : found) {
      score.push_back(kept ? kept->score : 0);
      tie.push_back(kept ? static_cast<int64_t>(kept->tie) : 0);
      gone.push_back(kept ? 0 : 1);
    }
  }
};

inline nb::object whole(uint64_t number) { return nb::steal(PyLong_FromUnsignedLongLong(number)); }
inline nb::object signed_whole(int64_t number) { return nb::steal(PyLong_FromLongLong(number)); }
inline nb::object whole_if(bool present, int64_t number) { return present ? signed_whole(number) : nb::none(); }

// The Python classes of the answers, and how to construct them.
struct Answers {
  nb::object entry;
  nb::object standing;
  nb::object friend_line;
  nb::object kept;
  nb::object change;
  nb::tuple verdicts;

  nb::object kept_object(const std::optional<Kept>& found) const {
    if (!found) return nb::none();
    return make_named(kept, signed_whole(found->score), whole(found->tie));
  }

  nb::object standing_object(const Standing& found, nb::handle id) const {
    if (!found.present) return nb::none();
    return make(standing, whole(found.rank), id, signed_whole(found.kept.score), whole(found.kept.tie),
                whole(found.better), whole(found.total));
  }

  nb::object entries(const Lines& lines, size_t begin, size_t end) const {
    nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(end - begin)));
    for (size_t i = begin; i < end; ++i) {
      const Line& line = lines.lines[i];
      nb::object made = make(entry, whole(line.rank), str_of(lines.id(line)), signed_whole(line.kept.score),
                             whole(line.kept.tie));
      PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i - begin), made.release().ptr());
    }
    return list;
  }
};

}  // namespace rankd
