// Runs every test, or those whose sentence holds the words given:
//
//   engine_tests [--seed NUMBER] [words]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "testing.hpp"

namespace rankd::testing {
namespace {

struct Test {
  const char* sentence;
  void (*run)();
};

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

uint64_t run_seed = 0;

// Empty when the test passed.
std::string problem_of(const Test& test) {
  try {
    test.run();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

int run(std::string_view words) {
  int passed = 0;
  int failed = 0;
  for (const Test& test : tests()) {
    if (std::string_view(test.sentence).find(words) == std::string_view::npos) continue;
    const std::string problem = problem_of(test);
    if (problem.empty()) {
      ++passed;
      continue;
    }
    ++failed;
    std::printf("FAILED: %s\n  %s\n  again: engine_tests --seed %llu \"%s\"\n", test.sentence, problem.c_str(),
                static_cast<unsigned long long>(run_seed), test.sentence);
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace

Registered::Registered(const char* sentence, void (*run)()) { tests().push_back({sentence, run}); }

uint64_t seed() { return run_seed; }

}  // namespace rankd::testing

int main(int count, char** arguments) {
  using rankd::testing::run_seed;
  int next = 1;
  if (count > next + 1 && std::strcmp(arguments[next], "--seed") == 0) {
    run_seed = std::strtoull(arguments[next + 1], nullptr, 10);
    next += 2;
  } else {
    run_seed = std::random_device()();
    // A sanitizer ends the program where it stands, so the seed must be known before.
    std::printf("seed %llu\n", static_cast<unsigned long long>(run_seed));
    std::fflush(stdout);
  }
  return rankd::testing::run(next < count ? arguments[next] : "");
}
