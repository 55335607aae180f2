// Events inserted into the ledger, without the interpreter while SQLite works: one by a call that seals it, commits it
// in a transaction of its own and tells the witness; or all of a commit, inside a transaction that the caller ends.
//
// The driver has its SQLite inside it, where nobody can link to it. But SQLite hands the table of its functions to
// whatever it loads as an extension, so this module is loaded as one too. What it does is what SqliteLedger does by the
// driver, too: for players who are new, and where this module cannot be built or loaded. The tests compare them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <sqlite3ext.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "blake2b.hpp"

namespace nb = nanobind;
using namespace nb::literals;

SQLITE_EXTENSION_INIT1

extern "C" __attribute__((visibility("default"))) int rankd_appender_init(sqlite3*, char**,
                                                                         const sqlite3_api_routines* functions) {
  SQLITE_EXTENSION_INIT2(functions);
  return SQLITE_OK;
}

namespace rankd {
namespace {

constexpr int kDetail = 7;  // parameters of the statement, null where they are not bound
constexpr int kSeal = 8;
constexpr int kColumns = 8;
constexpr size_t kHashBytes = 16;
constexpr size_t kSealBytes = kHashBytes + sizeof(int64_t);

std::string_view bytes_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

// The CRC-32 of zlib.
uint32_t crc32(const char* bytes, size_t size) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < size; ++i) {
    crc ^= static_cast<uint8_t>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
  }
  return ~crc;
}

// The mapped bytes of the witness: magic (4), sequence (8), changes of the registry (8), the CRC-32 of these.
class WitnessBytes {
 public:
  static constexpr size_t kSequence = 4;
  static constexpr size_t kChecksum = 20;

  explicit WitnessBytes(nb::handle mapped) {
    if (PyObject_GetBuffer(mapped.ptr(), &view_, PyBUF_WRITABLE) != 0) nb::raise_python_error();
    if (view_.len == kChecksum + sizeof(uint32_t)) return;
    release();
    throw nb::value_error("a witness has another length");
  }
  ~WitnessBytes() { release(); }
  WitnessBytes(const WitnessBytes&) = delete;
  WitnessBytes& operator=(const WitnessBytes&) = delete;

  void tell(int64_t sequence) {
    std::array<char, kChecksum + sizeof(uint32_t)> told;
    std::memcpy(told.data(), view_.buf, told.size());
    std::memcpy(told.data() + kSequence, &sequence, sizeof sequence);
    const uint32_t checksum = crc32(told.data(), kChecksum);
    std::memcpy(told.data() + kChecksum, &checksum, sizeof checksum);
    std::memcpy(view_.buf, told.data(), told.size());
  }

  void release() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }

 private:
  Py_buffer view_{};
};

// A column of 64-bit integers, held in its place.
class Column {
 public:
  explicit Column(nb::handle column) {
    if (PyObject_GetBuffer(column.ptr(), &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) nb::raise_python_error();
    if (view_.ndim == 1 && view_.itemsize == sizeof(int64_t) && view_.format[0] == 'q') return;
    PyBuffer_Release(&view_);
    throw nb::value_error("a column must be 64-bit signed integers");
  }
  ~Column() { PyBuffer_Release(&view_); }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  size_t size() const { return static_cast<size_t>(view_.len) / sizeof(int64_t); }
  int64_t operator[](size_t row) const { return static_cast<const int64_t*>(view_.buf)[row]; }

 private:
  Py_buffer view_{};
};

std::vector<std::string_view> texts_of(const nb::list& details) {
  std::vector<std::string_view> texts;
  texts.reserve(details.size());
  for (nb::handle detail : details) {
    if (!PyBytes_Check(detail.ptr())) throw nb::type_error("a detail must be bytes");
    texts.push_back({PyBytes_AS_STRING(detail.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(detail.ptr()))});
  }
  return texts;
}

class Appender {
 public:
  // `connection` is the driver's own, `text` inserts (sequence, context, at, player, score, tiebreak, detail, seal).
  // Whoever makes this closes it before the connection and the witness.
  Appender(uintptr_t connection, const std::string& text, nb::handle witness)
      : connection_(reinterpret_cast<sqlite3*>(connection)), witness_(witness) {
    if (sqlite3_api == nullptr) throw nb::value_error("SQLite has not loaded this module as an extension");
    const int code = sqlite3_prepare_v3(connection_, text.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &insert_, nullptr);
    if (code != SQLITE_OK) throw nb::value_error(sqlite3_errmsg(connection_));
    if (sqlite3_bind_parameter_count(insert_) == kColumns) return;
    close();
    throw nb::value_error("the statement must take the eight columns of an event");
  }
  ~Appender() { close(); }
  Appender(const Appender&) = delete;
  Appender& operator=(const Appender&) = delete;

  // The seal of the commit, or the code and the text of what SQLite says is wrong.
  nb::object append(nb::bytes before, nb::bytes context_text, int64_t sequence, int64_t context, int64_t at,
                    int64_t player, int64_t score, int64_t tiebreak) {
    if (insert_ == nullptr) throw nb::value_error("the ledger is closed");
    const std::array<int64_t, 8> numbers = {at, sequence, 1, context, at, player, score, tiebreak};
    Blake2b hash(kHashBytes);
    hash.add(bytes_of(before));
    hash.add({reinterpret_cast<const char*>(numbers.data()), sizeof numbers});
    hash.add(bytes_of(context_text));
    std::array<char, kSealBytes> seal;
    std::memcpy(seal.data(), hash.finish().data(), kHashBytes);
    std::memcpy(seal.data() + kHashBytes, &at, sizeof at);

    bind_numbers({sequence, context, at, player, score, tiebreak});
    Problem problem;
    {
      const nb::gil_scoped_release others;
      sqlite3_bind_blob(insert_, kSeal, seal.data(), kSealBytes, SQLITE_STATIC);
      step(problem);
      sqlite3_bind_null(insert_, kSeal);  // it was ours
    }
    if (PyErr_Occurred() != nullptr) nb::raise_python_error();  // from a file system that is written in Python
    if (problem.code != SQLITE_OK) return nb::make_tuple(problem.code, problem.text);
    witness_.tell(sequence);
    return nb::bytes(seal.data(), seal.size());
  }

  // Insert the events of a commit, the last of them with the seal, and answer nothing, or as `append` does. `details`
  // holds the JSON of each, b"" for none. The caller's transaction goes on, and takes everything back after a problem.
  nb::object insert(int64_t first, nb::handle context, nb::handle at, nb::handle player, nb::handle score,
                    nb::handle tiebreak, std::optional<nb::list> details, nb::bytes seal) {
    if (insert_ == nullptr) throw nb::value_error("the ledger is closed");
    const Column contexts(context), ats(at), players(player), scores(score), tiebreaks(tiebreak);
    const size_t count = contexts.size();
    const std::vector<std::string_view> texts = details ? texts_of(*details) : std::vector<std::string_view>(count);
    for (size_t size : {ats.size(), players.size(), scores.size(), tiebreaks.size(), texts.size()}) {
      if (size != count) throw nb::value_error("the columns must be of one length");
    }
    const std::string_view sealed = bytes_of(seal);
    Problem problem;
    {
      const nb::gil_scoped_release others;
      for (size_t row = 0; row < count && problem.code == SQLITE_OK; ++row) {
        const int64_t sequence = first + static_cast<int64_t>(row);
        bind_numbers({sequence, contexts[row], ats[row], players[row], scores[row], tiebreaks[row]});
        const std::string_view text = texts[row];
        const int length = static_cast<int>(text.size());
        if (!text.empty()) sqlite3_bind_text(insert_, kDetail, text.data(), length, SQLITE_STATIC);
        const bool is_last = row + 1 == count;
        if (is_last) sqlite3_bind_blob(insert_, kSeal, sealed.data(), static_cast<int>(sealed.size()), SQLITE_STATIC);
        step(problem);
        if (!text.empty()) sqlite3_bind_null(insert_, kDetail);
        if (is_last) sqlite3_bind_null(insert_, kSeal);
      }
    }
    if (PyErr_Occurred() != nullptr) nb::raise_python_error();
    if (problem.code != SQLITE_OK) return nb::make_tuple(problem.code, problem.text);
    return nb::none();
  }

  void close() {
    if (insert_ != nullptr) sqlite3_finalize(insert_);
    insert_ = nullptr;
    witness_.release();
  }

 private:
  // What SQLite says is wrong.
  struct Problem {
    int code = SQLITE_OK;
    std::string text;
  };

  void bind_numbers(const std::array<int64_t, 6>& numbers) {
    for (size_t i = 0; i < numbers.size(); ++i) sqlite3_bind_int64(insert_, static_cast<int>(i) + 1, numbers[i]);
  }

  void step(Problem& problem) {
    if (sqlite3_step(insert_) != SQLITE_DONE) {
      problem.code = sqlite3_extended_errcode(connection_);
      problem.text = sqlite3_errmsg(connection_);
    }
    sqlite3_reset(insert_);
  }

  sqlite3* connection_;
  WitnessBytes witness_;
  sqlite3_stmt* insert_ = nullptr;
};

}  // namespace
}  // namespace rankd

NB_MODULE(_appender, module) {
  using rankd::Appender;
  nb::set_leak_warnings(false);
  module.doc() = "Events inserted in the driver's own SQLite; use rankd.ledger.direct.";
  nb::class_<Appender>(module, "Appender", "Inserts events; used by one thread at a time.")
      .def(nb::init<uintptr_t, const std::string&, nb::handle>(), "connection"_a, "text"_a, "witness"_a,
           nb::sig("def __init__(self, connection: int, text: str, witness: object) -> None"))
      .def("append", &Appender::append, "before"_a, "context_text"_a, "sequence"_a, "context"_a, "at"_a, "player"_a,
           "score"_a, "tiebreak"_a,
           nb::sig("def append(self, before: bytes, context_text: bytes, sequence: int, context: int, at: int, "
                   "player: int, score: int, tiebreak: int) -> bytes | tuple[int, str]"),
           "The seal, or the code and the text of an error.")
      .def("insert", &Appender::insert, "first"_a, "context"_a, "at"_a, "player"_a, "score"_a, "tiebreak"_a,
           "details"_a.none(), "seal"_a,
           nb::sig("def insert(self, first: int, context: array.array[int], at: array.array[int], player: array.array[int], "
                   "score: array.array[int], tiebreak: array.array[int], details: list[bytes] | None, seal: bytes) "
                   "-> tuple[int, str] | None"),
           "Insert a commit's events inside a transaction that is open: nothing, or the code and the text of an error.")
      .def("close", &Appender::close);
}
