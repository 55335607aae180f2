// The Python face of NumberTable: lists of ids in, columns of numbers out.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "prefetch.hpp"
#include "number_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace rankd {
namespace {

constexpr uint32_t kNumberMax = UINT32_MAX;

class Numbers {
 public:
  Numbers() : table_(random_key()) {}

  // The numbers as int64 bytes, 0 for unknown ids, and the indices of the unknown ids.
  nb::tuple find(nb::handle ids) {
    const std::vector<NumberTable::Name> names = take(ids);
    std::vector<int64_t> numbers(names.size());
    std::vector<size_t> missing;
    {
      const nb::gil_scoped_release others;
      constexpr size_t kGroupItems = 8;
      PrefetchGroup<kGroupItems> slots(names.size());
      staggered<kGroupItems>(
          names.size(), [&](size_t i) { slots.add(table_.line(names[i])); },
          [&](size_t i) {
            numbers[i] = table_.find(names[i]);
            if (numbers[i] == 0) missing.push_back(i);
          });
    }
    nb::list indices;
    for (const size_t index : missing) indices.append(index);
    return nb::make_tuple(nb::bytes(numbers.data(), numbers.size() * sizeof(int64_t)), indices);
  }

  // The number of one id, 0 for an unknown one.
  uint32_t get(std::string_view id) const { return static_cast<uint32_t>(table_.find(table_.name(id))); }

  void put(nb::handle ids, nb::handle numbers) {
    const std::vector<NumberTable::Name> names = take(ids);
    const nb::object fast = nb::steal(PySequence_Fast(numbers.ptr(), "numbers must be a sequence of int"));
    if (!fast.is_valid()) nb::raise_python_error();
    if (static_cast<size_t>(PySequence_Fast_GET_SIZE(fast.ptr())) != names.size()) {
      throw nb::value_error("numbers must be as many as ids");
    }
    std::vector<uint32_t> checked;
    checked.reserve(names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      const auto number = nb::cast<uint64_t>(nb::handle(PySequence_Fast_GET_ITEM(fast.ptr(), i)));
      if (number == 0 || number > kNumberMax) throw nb::value_error("a number must be from 1 to 2^32 - 1");
      checked.push_back(static_cast<uint32_t>(number));
    }
    const nb::gil_scoped_release others;
    table_.reserve(names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      if (i + kAhead < names.size()) __builtin_prefetch(table_.line(names[i + kAhead]), 1);
      table_.put(names[i], checked[i]);
    }
  }

  void reserve(size_t more) {
    const nb::gil_scoped_release others;
    table_.reserve(more);
  }

  size_t size() const { return table_.size(); }
  size_t bytes() const { return table_.bytes(); }

 private:
  static constexpr size_t kAhead = 8;

  // Copies the ids, so that they can be hashed while Python runs other threads.
  std::vector<NumberTable::Name> take(nb::handle ids) const {
    const nb::object fast = nb::steal(PySequence_Fast(ids.ptr(), "ids must be a sequence of str"));
    if (!fast.is_valid()) nb::raise_python_error();
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast.ptr());
    std::string text;
    std::vector<size_t> ends;
    ends.reserve(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject** items = PySequence_Fast_ITEMS(fast.ptr());
      if (i + Py_ssize_t{kAhead} < count) {
        __builtin_prefetch(items[i + Py_ssize_t{kAhead}]);
        __builtin_prefetch(reinterpret_cast<char*>(items[i + Py_ssize_t{kAhead}]) + 64);
      }
      Py_ssize_t length = 0;
      const char* id = PyUnicode_AsUTF8AndSize(items[i], &length);
      if (id == nullptr) nb::raise_python_error();
      text.append(id, static_cast<size_t>(length));
      ends.push_back(text.size());
    }
    const nb::gil_scoped_release others;
    std::vector<NumberTable::Name> names;
    names.reserve(ends.size());
    size_t start = 0;
    for (const size_t end : ends) {
      names.push_back(table_.name(std::string_view(text).substr(start, end - start)));
      start = end;
    }
    return names;
  }

  NumberTable table_;
};

// A set of texts that only grows, by 96 bits of a keyed hash each: the values that an attribute has had.
class Texts {
 public:
  Texts() : table_(random_key()) {}
  // Loads the bytes that `dump` returned.
  explicit Texts(nb::bytes dumped) : table_(key_in(dumped)) {
    const char* at = dumped.c_str() + sizeof(HashKey);
    for (const char* end = dumped.c_str() + dumped.size(); at < end; at += kNameBytes) {
      NumberTable::Name name{};
      std::memcpy(&name.low, at, sizeof(name.low));
      std::memcpy(&name.high, at + sizeof(name.low), sizeof(name.high));
      table_.put(name, 1);
    }
  }

  void add(std::string_view text) { table_.put(table_.name(text), 1); }
  bool contains(std::string_view text) const { return table_.find(table_.name(text)) != 0; }
  size_t size() const { return table_.size(); }

  nb::bytes dump() const {
    std::string dumped;
    dumped.reserve(sizeof(HashKey) + table_.size() * kNameBytes);
    const HashKey key = table_.key();
    dumped.append(reinterpret_cast<const char*>(&key), sizeof(key));
    table_.each([&](const NumberTable::Name& name) {
      dumped.append(reinterpret_cast<const char*>(&name.low), sizeof(name.low));
      dumped.append(reinterpret_cast<const char*>(&name.high), sizeof(name.high));
    });
    return nb::bytes(dumped.data(), dumped.size());
  }

 private:
  static constexpr size_t kNameBytes = 12;

  static HashKey key_in(const nb::bytes& dumped) {
    HashKey key{};
    if (dumped.size() < sizeof(key) || (dumped.size() - sizeof(key)) % kNameBytes != 0) {
      throw nb::value_error("this is no dump of texts");
    }
    std::memcpy(&key, dumped.c_str(), sizeof(key));
    return key;
  }

  NumberTable table_;
};

}  // namespace
}  // namespace rankd

NB_MODULE(_numbers, module) {
  using rankd::Numbers;
  nb::set_leak_warnings(false);
  module.doc() = "Numbers of players by their ids, in memory; use rankd.ledger.sqlite.numbers.";
  nb::class_<Numbers>(module, "Numbers", "A cache of players' numbers; used by one thread at a time.")
      .def(nb::init<>())
      .def("find", &Numbers::find, "ids"_a, nb::sig("def find(self, ids: collections.abc.Sequence[str]) -> tuple[bytes, list[int]]"))
      .def("get", &Numbers::get, "player"_a)
      .def("put", &Numbers::put, "ids"_a, "numbers"_a,
           nb::sig("def put(self, ids: collections.abc.Sequence[str], numbers: collections.abc.Sequence[int]) -> None"))
      .def("reserve", &Numbers::reserve, "more"_a)
      .def("memory_bytes", &Numbers::bytes)
      .def("__len__", &Numbers::size);
  using rankd::Texts;
  nb::class_<Texts>(module, "Texts", "A set of texts that only grows, known by their hashes.")
      .def(nb::init<>())
      .def(nb::init<nb::bytes>(), "dumped"_a)
      .def("add", &Texts::add, "text"_a)
      .def("dump", &Texts::dump)
      .def("__contains__", &Texts::contains, "text"_a)
      .def("__len__", &Texts::size);
}
