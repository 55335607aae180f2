// The keys of a log's partition beside a map that never forgets when a key came.
#include <map>
#include <utility>
#include <vector>

#include "recent_keys.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using testing::Random;
using Verdict = RecentKeys::Verdict;

constexpr int64_t kTtlMs = 86'400'000;

RecentKeys::Key made_key(uint64_t number, uint64_t fingerprint) {
  return {{number * 0x9e3779b97f4a7c15u, number + 1}, {fingerprint << 8, fingerprint}};
}

struct Expected {
  uint64_t fingerprint;
  int64_t time;
};

// Steps of milliseconds, hours, days and a year: sweeps of some parts, of all, and of everything at once.
int64_t passed(Random& random) {
  const std::vector<int64_t> steps{0, 0, 1, 40, 3'000, 60'000, 3'600'000, kTtlMs - 1, kTtlMs, kTtlMs + 1, 365 * kTtlMs};
  return random.below(50) == 0 ? random.pick(steps) : random.below(2'000);
}

TEST("recent keys judge as a map does, whatever expires, grows, is saved or loaded") {
  Random random;
  const HashKey key{random.bits(), random.bits()};
  RecentKeys recent(key, kTtlMs);
  std::map<uint64_t, Expected> expected;
  std::vector<std::pair<RecentKeys::Parts, std::string>> snapshots;
  const auto dumped = [](const RecentKeys::Parts& parts) {
    std::string all;
    for (const auto& part : parts) all += RecentKeys::dump(part.get());
    return all;
  };
  int64_t time = 1'777'896'000'000;
  for (uint64_t step = 0; step < testing::scaled(150'000); ++step) {
    time += passed(random);
    const uint64_t number = random.below(60'000);
    const uint64_t fingerprint = random.once_in(10) ? 2 : 1;
    const RecentKeys::Key sent = made_key(number, fingerprint);
    const auto found = expected.find(number);
    Verdict verdict = Verdict::kFresh;
    if (found != expected.end() && time - found->second.time < kTtlMs) {
      verdict = found->second.fingerprint == fingerprint ? Verdict::kRepeat : Verdict::kReused;
    } else {
      expected[number] = {fingerprint, time};
    }
    CHECK_EQUAL(static_cast<int>(recent.admit(recent.name(sent), sent, time)), static_cast<int>(verdict));
    if (random.below(20'000) == 0) recent.check();
    if (random.below(20'000) == 0) snapshots.emplace_back(recent.snapshot(), dumped(recent.snapshot()));
    if (random.below(20'000) == 0) {
      RecentKeys loaded(key, kTtlMs);
      loaded.reserve(recent.size());
      for (const auto& part : recent.snapshot()) loaded.restore(RecentKeys::dump(part.get()), recent.time());
      CHECK_EQUAL(loaded.size(), recent.size());
      loaded.check();
      recent = std::move(loaded);
    }
  }
  for (const auto& [parts, bytes] : snapshots) CHECK(dumped(parts) == bytes);
}

TEST("a key is a repeat until the last millisecond of its time to live, and fresh after it, swept or not") {
  const RecentKeys::Key sent = made_key(7, 7);
  const RecentKeys::Key other = made_key(8, 8);
  for (const int64_t first : {RecentKeys::kSweepMs - 500, RecentKeys::kSweepMs + 500}) {
    for (const int64_t later : {kTtlMs - 1, kTtlMs}) {
      RecentKeys recent({1, 2}, kTtlMs);
      recent.admit(recent.name(other), other, 0);
      CHECK(recent.admit(recent.name(sent), sent, first) == Verdict::kFresh);
      // The only part is swept on the hour: an hour before the key expires, or in time.
      for (int64_t hour = 2; hour * RecentKeys::kSweepMs < first + later; ++hour) {
        recent.admit(recent.name(other), other, hour * RecentKeys::kSweepMs);
      }
      const Verdict verdict = recent.admit(recent.name(sent), sent, first + later);
      CHECK(verdict == (later < kTtlMs ? Verdict::kRepeat : Verdict::kFresh));
    }
  }
}

TEST("a time that jumps by weeks forgets all keys, whatever is left of it in 32 bits") {
  for (const int64_t later : {kTtlMs, int64_t{1} << 32, (int64_t{1} << 32) + 5, int64_t{3} << 32}) {
    RecentKeys recent({1, 2}, kTtlMs);
    const RecentKeys::Key sent = made_key(7, 7);
    CHECK(recent.admit(recent.name(sent), sent, 1'000) == Verdict::kFresh);
    CHECK(recent.admit(recent.name(sent), sent, 1'000 + later) == Verdict::kFresh);
    CHECK_EQUAL(recent.size(), 1u);
  }
}

TEST("a repeat does not make its key live longer") {
  RecentKeys recent({1, 2}, kTtlMs);
  const RecentKeys::Key sent = made_key(7, 7);
  CHECK(recent.admit(recent.name(sent), sent, 1) == Verdict::kFresh);
  CHECK(recent.admit(recent.name(sent), sent, kTtlMs) == Verdict::kRepeat);
  CHECK(recent.admit(recent.name(sent), sent, kTtlMs + 1) == Verdict::kFresh);
}

TEST("a key takes at most 32 bytes, and what has expired takes none two hours later") {
  RecentKeys recent({3, 4}, kTtlMs);
  const uint64_t count = testing::scaled(400'000);
  int64_t time = 0;
  for (uint64_t number = 1; number <= count; ++number) {
    const RecentKeys::Key sent = made_key(number, 1);
    time = static_cast<int64_t>(number * 250);
    recent.admit(recent.name(sent), sent, time);
    if (number > 20'000 && number % 1'000 == 0) CHECK(recent.bytes() <= recent.size() * 32);
    CHECK(recent.size() <= (kTtlMs + 2 * RecentKeys::kSweepMs) / 250 + 1);
  }
  recent.check();
}

}  // namespace
}  // namespace rankd
