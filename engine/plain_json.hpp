// Encodes plain metadata as JSON.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace rankd {

// Compact JSON of text, whole numbers, truth values and None, in lists and in mappings by text.
class PlainJson {
 public:
  explicit PlainJson(size_t bytes_max) : bytes_max_(bytes_max) {}

  // False for other values and for a result that is too long: the caller encodes those in Python.
  bool encode(PyObject* mapping) {
    text_.clear();
    return PyDict_CheckExact(mapping) && write(mapping, 0) && text_.size() <= bytes_max_;
  }
  const std::string& text() const { return text_; }

 private:
  static constexpr int kDepthMax = 8;

  bool write(PyObject* value, int depth) {
    if (text_.size() > bytes_max_ || depth > kDepthMax) return false;
    if (value == Py_None) return add("null");
    if (value == Py_True) return add("true");
    if (value == Py_False) return add("false");
    if (PyUnicode_CheckExact(value)) return write_text(value);
    if (PyLong_CheckExact(value)) return write_number(value);
    if (PyDict_CheckExact(value)) return write_mapping(value, depth);
    return PyList_CheckExact(value) && write_list(value, depth);
  }

  bool add(std::string_view text) {
    text_.append(text);
    return true;
  }

  bool write_number(PyObject* value) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0) return false;
    return add(std::to_string(number));
  }

  bool write_text(PyObject* value) {
    static constexpr char kHex[] = "0123456789abcdef";
    Py_ssize_t length = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(value, &length);
    if (bytes == nullptr) {
      PyErr_Clear();
      return false;
    }
    text_.push_back('"');
    for (const char byte : std::string_view(bytes, static_cast<size_t>(length))) {
      switch (byte) {
        case '"': add("\\\""); break;
        case '\\': add("\\\\"); break;
        case '\n': add("\\n"); break;
        case '\r': add("\\r"); break;
        case '\t': add("\\t"); break;
        case '\b': add("\\b"); break;
        case '\f': add("\\f"); break;
        default:
          if (static_cast<unsigned char>(byte) < 0x20) {
            add("\\u00");
            text_.push_back(kHex[byte >> 4]);
            text_.push_back(kHex[byte & 15]);
          } else {
            text_.push_back(byte);
          }
      }
    }
    text_.push_back('"');
    return true;
  }

  bool write_mapping(PyObject* mapping, int depth) {
    PyObject* name = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t position = 0;
    text_.push_back('{');
    for (bool is_first = true; PyDict_Next(mapping, &position, &name, &value) != 0; is_first = false) {
      if (!is_first) text_.push_back(',');
      if (!PyUnicode_CheckExact(name) || !write_text(name)) return false;
      text_.push_back(':');
      if (!write(value, depth + 1)) return false;
    }
    text_.push_back('}');
    return true;
  }

  bool write_list(PyObject* list, int depth) {
    text_.push_back('[');
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
      if (i > 0) text_.push_back(',');
      if (!write(PyList_GET_ITEM(list, i), depth + 1)) return false;
    }
    text_.push_back(']');
    return true;
  }

  size_t bytes_max_;
  std::string text_;
};

}  // namespace rankd
