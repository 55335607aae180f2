// The engine's answers as Python wants them; included by bindings.cpp only.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
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
    const nb::gil_scoped_release others;  // nobody knows the object yet
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

// The same for a named tuple, past the Python function that its class would call.
template <class... Arguments>
nb::object make_named(nb::handle type, const Arguments&... arguments) {
  const nb::object values = nb::steal(PyTuple_Pack(1, nb::make_tuple(arguments...).ptr()));
  if (!values.is_valid()) nb::raise_python_error();
  nb::object made = nb::steal(PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(type.ptr()), values.ptr(), nullptr));
  if (!made.is_valid()) nb::raise_python_error();
  return made;
}

// What was applied, told. A caller who gets an error in place of the answer must not find the batch applied.
template <class Answer>
auto told(Engine& engine, Answer answer) {
  try {
    return answer();
  } catch (...) {
    engine.give_up();
    throw;
  }
}

inline nb::object whole(uint64_t number) { return nb::steal(PyLong_FromUnsignedLongLong(number)); }
inline nb::object signed_whole(int64_t number) { return nb::steal(PyLong_FromLongLong(number)); }
inline nb::object whole_if(bool present, int64_t number) { return present ? signed_whole(number) : nb::none(); }

}  // namespace rankd
