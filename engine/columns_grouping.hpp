// Views of Python's columns, and the distinct items of lists; included by columns.cpp only.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace rankd {

namespace nb = nanobind;

// A view of a caller's column: any contiguous buffer with items of this size.
template <class Item>
class Column {
 public:
  explicit Column(nb::handle column) {
    if (PyObject_GetBuffer(column.ptr(), &view_, PyBUF_C_CONTIGUOUS) != 0) nb::raise_python_error();
    if (view_.len % static_cast<Py_ssize_t>(sizeof(Item)) != 0) {
      PyBuffer_Release(&view_);
      throw nb::value_error("a column has whole items of its own size");
    }
  }
  ~Column() { PyBuffer_Release(&view_); }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  size_t size() const { return static_cast<size_t>(view_.len) / sizeof(Item); }
  const Item* data() const { return static_cast<const Item*>(view_.buf); }
  const Item& operator[](size_t i) const { return data()[i]; }
  void check_size(size_t size) const {
    if (this->size() != size) throw nb::value_error("columns must have one length");
  }

 private:
  Py_buffer view_{};
};

template <class Item>
using Columns = std::vector<std::unique_ptr<Column<Item>>>;

template <class Item>
Columns<Item> columns_of(nb::list list) {
  Columns<Item> columns;
  for (const nb::handle item : list) columns.push_back(std::make_unique<Column<Item>>(item));
  return columns;
}

template <class Item>
nb::bytes bytes_of(const std::vector<Item>& items) {
  return nb::bytes(items.data(), items.size() * sizeof(Item));
}

// The UTF-8 bytes of a str.
inline std::string_view text_of(PyObject* text) {
  Py_ssize_t length = 0;
  const char* data = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &length) : nullptr;
  if (data == nullptr) {
    PyErr_Clear();
    throw nb::type_error("every id must be a str of valid Unicode");
  }
  return {data, static_cast<size_t>(length)};
}

// Numbers distinct items by hash and comparison, in order of first occurrence.
class Numbering {
 public:
  template <class IsEqual>
  uint32_t number(size_t hash, IsEqual is_equal) {
    if ((hashes_.size() + 1) * 2 > slots_.size()) grow();
    size_t i = hash * kSpread & (slots_.size() - 1);
    for (; slots_[i] != 0; i = (i + 1) & (slots_.size() - 1)) {
      const uint32_t found = slots_[i] - 1;
      if (hashes_[found] == hash && is_equal(found)) return found;
    }
    hashes_.push_back(hash);
    slots_[i] = static_cast<uint32_t>(hashes_.size());
    return slots_[i] - 1;
  }
  size_t size() const { return hashes_.size(); }

 private:
  static constexpr size_t kSpread = 0x9e3779b97f4a7c15;

  void grow() {
    slots_.assign(slots_.size() * 2, 0);
    for (uint32_t number = 0; number < hashes_.size(); ++number) {
      size_t i = hashes_[number] * kSpread & (slots_.size() - 1);
      while (slots_[i] != 0) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = number + 1;
    }
  }

  std::vector<size_t> hashes_;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(64, 0);
};

inline nb::tuple distinct(nb::list items) {
  const Py_ssize_t count = PyList_GET_SIZE(items.ptr());
  std::vector<uint32_t> index(static_cast<size_t>(count));
  std::vector<PyObject*> found;
  Numbering numbering;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyList_GET_ITEM(items.ptr(), i);
    if (i > 0 && item == found[index[static_cast<size_t>(i) - 1]]) {
      index[static_cast<size_t>(i)] = index[static_cast<size_t>(i) - 1];
      continue;
    }
    // Objects begin at multiples of 16.
    const uint32_t number =
        numbering.number(reinterpret_cast<size_t>(item) >> 4, [&](uint32_t other) { return found[other] == item; });
    if (number == found.size()) found.push_back(item);
    index[static_cast<size_t>(i)] = number;
  }
  nb::list objects;
  for (PyObject* object : found) objects.append(nb::handle(object));
  return nb::make_tuple(objects, bytes_of(index));
}

// Text, a whole number or None: values that are equal when they have one type and compare equal.
inline bool is_simple(PyObject* value) {
  return PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || value == Py_None;
}

inline bool are_equal(PyObject* a, PyObject* b) {
  return a == b || (Py_TYPE(a) == Py_TYPE(b) && PyObject_RichCompareBool(a, b, Py_EQ) == 1);
}

// The hash of a dict of simple values, in their order; false for anything else.
inline bool hash_of(PyObject* mapping, size_t& hash) {
  if (!PyDict_CheckExact(mapping)) return false;
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  hash = 17;
  while (PyDict_Next(mapping, &position, &name, &value) != 0) {
    if (!PyUnicode_CheckExact(name) || !is_simple(value)) return false;
    hash = (hash * 31 + static_cast<size_t>(PyObject_Hash(name))) * 31 + static_cast<size_t>(PyObject_Hash(value));
  }
  return true;
}

inline bool are_equal_dicts(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!PyDict_CheckExact(b) || PyDict_GET_SIZE(a) != PyDict_GET_SIZE(b)) return false;
  PyObject *name_a, *name_b, *value_a, *value_b;
  Py_ssize_t at_a = 0;
  Py_ssize_t at_b = 0;
  while (PyDict_Next(a, &at_a, &name_a, &value_a) != 0 && PyDict_Next(b, &at_b, &name_b, &value_b) != 0) {
    if (!are_equal(name_a, name_b) || !are_equal(value_a, value_b)) return false;
  }
  return true;
}

inline nb::tuple distinct_mappings(nb::list items) {
  const Py_ssize_t count = PyList_GET_SIZE(items.ptr());
  std::vector<uint32_t> index;
  index.reserve(static_cast<size_t>(count));
  std::vector<PyObject*> found;
  Numbering numbering;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyList_GET_ITEM(items.ptr(), i);
    size_t hash = reinterpret_cast<size_t>(item) >> 4;
    const bool by_value = hash_of(item, hash);
    const uint32_t number = numbering.number(hash, [&](uint32_t other) {
      return found[other] == item || (by_value && are_equal_dicts(item, found[other]));
    });
    if (number == found.size()) found.push_back(item);
    index.push_back(number);
  }
  nb::list objects;
  for (PyObject* object : found) objects.append(nb::handle(object));
  return nb::make_tuple(objects, bytes_of(index));
}

// Rows of several columns; a row with any other than simple values equals no other.
inline nb::tuple distinct_rows(nb::list columns) {
  std::vector<PyObject*> lists;
  Py_ssize_t count = -1;
  for (const nb::handle column : columns) {
    if (!PyList_CheckExact(column.ptr())) throw nb::type_error("every column must be a list");
    if (count >= 0 && PyList_GET_SIZE(column.ptr()) != count) throw nb::value_error("columns must have one length");
    count = PyList_GET_SIZE(column.ptr());
    lists.push_back(column.ptr());
  }
  std::vector<uint32_t> index;
  std::vector<Py_ssize_t> first;
  Numbering numbering;
  for (Py_ssize_t i = 0; i < count; ++i) {
    size_t hash = 17;
    bool by_value = true;
    for (PyObject* list : lists) {
      PyObject* value = PyList_GET_ITEM(list, i);
      by_value = by_value && is_simple(value);
      hash = hash * 31 + (by_value ? static_cast<size_t>(PyObject_Hash(value)) : static_cast<size_t>(i));
    }
    const uint32_t number = numbering.number(hash, [&](uint32_t other) {
      return by_value && std::all_of(lists.begin(), lists.end(), [&](PyObject* list) {
               PyObject* there = PyList_GET_ITEM(list, first[other]);
               return is_simple(there) && are_equal(PyList_GET_ITEM(list, i), there);
             });
    });
    if (number == first.size()) first.push_back(i);
    index.push_back(number);
  }
  nb::list rows;
  for (const Py_ssize_t i : first) {
    nb::list row;
    for (PyObject* list : lists) row.append(nb::handle(PyList_GET_ITEM(list, i)));
    rows.append(row);
  }
  return nb::make_tuple(rows, bytes_of(index));
}

inline nb::bytes divided(nb::handle column, int64_t divisor) {
  const Column<int64_t> items(column);
  if (divisor < 1) throw nb::value_error("a divisor must be at least 1");
  std::vector<int64_t> quotients(items.size());
  for (size_t i = 0; i < items.size(); ++i) quotients[i] = items[i] / divisor - (items[i] % divisor < 0 ? 1 : 0);
  return bytes_of(quotients);
}

inline nb::list take(nb::list items, nb::handle index) {
  const Column<uint32_t> numbers(index);
  const auto size = static_cast<size_t>(PyList_GET_SIZE(items.ptr()));
  nb::list taken = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(numbers.size())));
  for (size_t i = 0; i < numbers.size(); ++i) {
    // Releasing the list releases items that are still null.
    if (numbers[i] >= size) throw nb::index_error("an index is not in the list");
    PyObject* item = PyList_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(numbers[i]));
    Py_INCREF(item);
    PyList_SET_ITEM(taken.ptr(), static_cast<Py_ssize_t>(i), item);
  }
  return taken;
}

}  // namespace rankd
