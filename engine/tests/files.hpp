// Engines in files that nobody else sees.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

#include "engine.hpp"
#include "testing.hpp"

namespace rankd::testing {

// A file without a name, gone when it is closed.
class OwnFile {
 public:
  OwnFile() : file_(std::tmpfile()) { CHECK(file_ != nullptr); }
  ~OwnFile() { std::fclose(file_); }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  int descriptor() const { return fileno(file_); }
  void write(const std::string& bytes) const {
    CHECK_EQUAL(pwrite(descriptor(), bytes.data(), bytes.size(), 0), bytes.size());
  }
  std::string read() const {
    std::string bytes(static_cast<size_t>(lseek(descriptor(), 0, SEEK_END)), '\0');
    CHECK_EQUAL(pread(descriptor(), bytes.data(), bytes.size(), 0), bytes.size());
    return bytes;
  }

 private:
  std::FILE* file_;
};

inline void save(Engine& engine, int file) { engine.write_save(engine.begin_save().number, file); }

inline std::string saved(Engine& engine) {
  const OwnFile file;
  save(engine, file.descriptor());
  return file.read();
}

inline void load(Engine& engine, const std::string& bytes) {
  const OwnFile file;
  file.write(bytes);
  lseek(file.descriptor(), 0, SEEK_SET);
  engine.load(file.descriptor());
}

}  // namespace rankd::testing
