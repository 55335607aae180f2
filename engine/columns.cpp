// Columns looked over: what is as it nearly always is needs no look by Python, item by item.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>

namespace nb = nanobind;
using namespace nb::literals;

namespace rankd {
namespace {

constexpr Py_ssize_t kAhead = 16;

// An id of printable ASCII that does not begin with a dot. Such a one is as it may be; others want a closer look.
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
    const nb::gil_scoped_release others;  // the view keeps the buffer in its place
    const auto* items = static_cast<const int64_t*>(view.buf);
    const auto found = std::minmax_element(items, items + view.len / view.itemsize);
    low = *found.first;
    high = *found.second;
  }
  PyBuffer_Release(&view);
  if (!fits) throw nb::value_error("a column must be one or more 64-bit signed integers");
  return nb::make_tuple(low, high);
}

}  // namespace
}  // namespace rankd

NB_MODULE(_columns, module) {
  module.doc() = "Columns looked over without a look by Python at each item.";
  module.def("first_odd", &rankd::first_odd, "ids"_a, "begin"_a, "end"_a, "bytes_max"_a,
             nb::sig("def first_odd(ids: list[typing.Any], begin: int, end: int, bytes_max: int) -> int"),
             "The first of some ids that is not plain printable ASCII of at most so many bytes; `end` when all are.");
  module.def("extent", &rankd::extent, "column"_a, nb::sig("def extent(column: object) -> tuple[int, int]"),
             "The least and the greatest of a column of 64-bit integers.");
}
