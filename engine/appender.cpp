// One event appended to the ledger by one call: sealed, inserted by a transaction of its own, and the witness told.
//
// The driver has its SQLite inside it, where nobody can link to it. But SQLite hands the table of its functions to
// whatever it loads as an extension, so this module is loaded as one too. What it does is what SqliteLedger does by the
// driver, too: for players who are new, and where this module cannot be built or loaded. The tests compare them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <sqlite3ext.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

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

    const std::array<int64_t, 6> columns = {sequence, context, at, player, score, tiebreak};
    for (size_t i = 0; i < columns.size(); ++i) sqlite3_bind_int64(insert_, static_cast<int>(i) + 1, columns[i]);
    // The detail, parameter 7, was never bound, so it is null.
    sqlite3_bind_blob(insert_, kColumns, seal.data(), kSealBytes, SQLITE_STATIC);
    int code = SQLITE_OK;
    std::string problem;
    {
      const nb::gil_scoped_release others;
      code = sqlite3_step(insert_);
      if (code != SQLITE_DONE) {
        code = sqlite3_extended_errcode(connection_);
        problem = sqlite3_errmsg(connection_);
      }
      sqlite3_reset(insert_);
      sqlite3_bind_null(insert_, kColumns);  // it was ours
    }
    if (PyErr_Occurred() != nullptr) nb::raise_python_error();  // from a file system that is written in Python
    if (code != SQLITE_DONE) return nb::make_tuple(code, problem);
    witness_.tell(sequence);
    return nb::bytes(seal.data(), seal.size());
  }

  void close() {
    if (insert_ != nullptr) sqlite3_finalize(insert_);
    insert_ = nullptr;
    witness_.release();
  }

 private:
  sqlite3* connection_;
  WitnessBytes witness_;
  sqlite3_stmt* insert_ = nullptr;
};

}  // namespace
}  // namespace rankd

NB_MODULE(_appender, module) {
  using rankd::Appender;
  nb::set_leak_warnings(false);
  module.doc() = "One event inserted in the driver's own SQLite; use rankd.ledger.direct.";
  nb::class_<Appender>(module, "Appender", "Inserts events, each in a transaction; used by one thread at a time.")
      .def(nb::init<uintptr_t, const std::string&, nb::handle>(), "connection"_a, "text"_a, "witness"_a,
           nb::sig("def __init__(self, connection: int, text: str, witness: object) -> None"))
      .def("append", &Appender::append, "before"_a, "context_text"_a, "sequence"_a, "context"_a, "at"_a, "player"_a,
           "score"_a, "tiebreak"_a,
           nb::sig("def append(self, before: bytes, context_text: bytes, sequence: int, context: int, at: int, "
                   "player: int, score: int, tiebreak: int) -> bytes | tuple[int, str]"),
           "The seal, or the code and the text of an error.")
      .def("close", &Appender::close);
}
