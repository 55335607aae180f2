// Tables from tags to values, and the names that are interned with them.
#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "interner.hpp"
#include "tag_table.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using testing::Random;

// --------------------------------------------------------------------------------------------------------- tables

[[noreturn]] void broken(const char* text) { throw testing::Failure(text); }

// A table with all that it needs, beside a map that says what it should hold.
template <bool kDense>
struct Compared {
  Regions regions;
  SegmentPools pools{regions, Purpose::maps};
  TagTable<kDense> table{regions, pools, Purpose::maps};
  std::unordered_map<uint32_t, uint32_t> expected;
  std::vector<uint32_t> tags;  // those of `expected`, in no order

  void insert(uint32_t tag, uint32_t value) {
    if (!expected.emplace(tag, value).second) return;
    tags.push_back(tag);
    table.insert(tag, value);
  }
  void erase_at(size_t index) {
    std::swap(tags[index], tags.back());
    const uint32_t tag = tags.back();
    tags.pop_back();
    table.erase(tag, expected[tag]);
    expected.erase(tag);
  }
  uint32_t find(uint32_t tag) const {
    return table.find(tag, [](uint32_t) { return true; });
  }

  // The table's memory, counted anew: its segments, and a directory of 2^n entries unless there is one segment only.
  void check_memory() const {
    size_t bytes = pools.dense.used() * pools.dense.slot_bytes();
    for (const auto& pool : pools.sparse) bytes += pool->used() * pool->slot_bytes();
    const size_t directory = regions.bytes(Purpose::maps) - bytes;
    CHECK(directory == 0 || (directory >= 16 && std::has_single_bit(directory)));
  }

  void check(Random& random) const {
    CHECK_EQUAL(table.size(), expected.size());
    table.check(broken);
    check_memory();
    for (const auto& [tag, value] : expected) {
      table.prefetch_tag(tag);
      CHECK_EQUAL(find(tag), value);
    }
    for (int i = 0; i < 200; ++i) {
      // Beside tags that are there, and anywhere.
      const auto tag = static_cast<uint32_t>(tags.empty() || random.once_in(2) ? random.bits()
                                                                               : tags[random.below(tags.size())] + 1);
      const auto found = expected.find(tag);
      CHECK_EQUAL(find(tag), found == expected.end() ? kNone : found->second);
    }
    std::unordered_map<uint32_t, uint32_t> visited;
    for (uint64_t from = 0; from != table.kTagsEnd;) {
      from = table.visit_some(from, 1 + static_cast<uint32_t>(random.below(500)), [&](uint32_t tag, uint32_t value) {
        CHECK(visited.emplace(tag, value).second);
      });
    }
    CHECK(visited == expected);
  }
  void check_empty() const {
    CHECK_EQUAL(table.size(), 0);
    table.check(broken);
    CHECK_EQUAL(regions.bytes(Purpose::maps), 0);
    CHECK_EQUAL(find(0), kNone);
    CHECK_EQUAL(find(kNone), kNone);
  }
};

// Grows, changes and shrinks a table with tags from next(i), in waves.
template <bool kDense, class NextTag>
void compare_waves(NextTag next_tag, uint32_t most) {
  Random random(kDense);
  Compared<kDense> compared;
  compared.check_empty();
  for (int wave = 0; wave < 3; ++wave) {
    for (uint32_t i = 0; i < most; ++i) {
      compared.insert(next_tag(random, i), static_cast<uint32_t>(random.below(kNone)));
      if (i % (most / 3) == 0) compared.check(random);
    }
    compared.check(random);
    if constexpr (kDense) {
      for (uint32_t i = 0; i < most / 4; ++i) {
        const uint32_t tag = random.pick(compared.tags);
        compared.expected[tag] = static_cast<uint32_t>(random.below(kNone));
        compared.table.assign(tag, compared.expected[tag]);
      }
    }
    const size_t left = wave == 0 ? compared.tags.size() / 2 : wave == 1 ? 3 : 0;
    while (compared.tags.size() > left) {
      compared.erase_at(random.below(compared.tags.size()));
      if (compared.tags.size() % (most / 3) == 1) compared.check(random);
    }
    if (left > 0) compared.check(random);
  }
  compared.check_empty();
}

TEST("a table of hashes holds what a map holds, whatever the tags") {
  const auto anything = [](Random& random, uint32_t) { return static_cast<uint32_t>(random.bits()); };
  const auto strided = [](Random&, uint32_t i) { return i << 17; };
  const auto from_the_end = [](Random&, uint32_t i) { return ~(i << 17); };
  const auto with_equal_low_bits = [](Random& random, uint32_t) {
    return static_cast<uint32_t>(random.bits()) & 0xffff0000u;
  };
  compare_waves<false>(anything, 12'000);
  compare_waves<false>(anything, 9);
  compare_waves<false>(strided, 8'000);
  compare_waves<false>(from_the_end, 8'000);
  compare_waves<false>(with_equal_low_bits, 8'000);
}

TEST("a table of numbers holds what a map holds, dense, sparse or strided") {
  const auto dense = [](Random&, uint32_t i) { return page_tag(i); };
  const auto sparse = [](Random& random, uint32_t) { return page_tag(static_cast<uint32_t>(random.bits())); };
  const auto strided = [](Random&, uint32_t i) { return page_tag(i * 7); };
  const auto one_a_page = [](Random&, uint32_t i) { return page_tag(i << kPageBits); };
  const auto mostly = [](Random& random, uint32_t) { return page_tag(static_cast<uint32_t>(random.below(16'000))); };
  const auto half_dense = [](Random& random, uint32_t i) {
    return page_tag(random.once_in(2) ? i : static_cast<uint32_t>(random.below(1u << 20)));
  };
  compare_waves<true>(dense, 12'000);
  compare_waves<true>(dense, 9);
  compare_waves<true>(dense, kPageSlots);
  compare_waves<true>(sparse, 10'000);
  compare_waves<true>(strided, 10'000);
  compare_waves<true>(one_a_page, 6'000);
  compare_waves<true>(mostly, 12'000);
  compare_waves<true>(half_dense, 10'000);
}

TEST("page tags are a bijection and part neighbouring pages at the first bit") {
  std::set<uint32_t> tags;
  for (uint32_t page = 0; page < 4'096; ++page) tags.insert(page_tag(page << kPageBits));
  CHECK_EQUAL(tags.size(), 4'096);
  CHECK_EQUAL(page_tag(0) >> 31, 0);
  CHECK_EQUAL(page_tag(1u << kPageBits) >> 31, 1);
  Random random;
  for (int i = 0; i < 1'000; ++i) {
    const auto number = static_cast<uint32_t>(random.bits());
    // Reversing the page's bits twice gives the page.
    const uint32_t page = page_tag(number) & ~(kPageSlots - 1);
    CHECK_EQUAL(page_tag(page_tag(page >> 10 << 10)) >> 10, page >> 10);
    CHECK_EQUAL(page_tag(number) % kPageSlots, number % kPageSlots);
  }
}

TEST("equal tags with different values are kept apart by what they mean") {
  Regions regions;
  {
    SegmentPools pools(regions, Purpose::players);
    TagTable<false> table(regions, pools, Purpose::players);
    constexpr uint32_t kTwins = 300;
    for (uint32_t value = 0; value < kTwins; ++value) table.insert(77, value);
    for (uint32_t value = 0; value < 2'000; ++value) table.insert(value * 0x9e3779b1u, 1'000 + value);
    table.check(broken);
    for (uint32_t value = 0; value < kTwins; ++value) {
      CHECK_EQUAL(table.find(77, [&](uint32_t other) { return other == value; }), value);
    }
    CHECK_EQUAL(table.find(77, [](uint32_t) { return false; }), kNone);
    for (uint32_t value = 0; value < kTwins; value += 2) table.erase(77, value);
    table.check(broken);
    for (uint32_t value = 0; value < kTwins; ++value) {
      const uint32_t found = table.find(77, [&](uint32_t other) { return other == value; });
      CHECK_EQUAL(found, value % 2 == 0 ? kNone : value);
    }
  }
  CHECK_EQUAL(regions.bytes(Purpose::players), 0);
}

TEST("pages made ahead hold numbers, grow beyond and are given back where nobody came") {
  Random random;
  for (const uint32_t reserved : {1u, 1'000u, 1'024u, 1'025u, 5'000u, 20'000u}) {
    for (const uint32_t share : {0u, 1u, 10u, 60u, 100u}) {
      Compared<true> compared;
      compared.table.reserve_pages(reserved);
      for (uint32_t number = 0; number < reserved; ++number) {
        if (random.below(100) < share) compared.insert(page_tag(number), number);
      }
      CHECK(compared.table.settle_pages());
      if (compared.tags.empty()) {
        compared.check_empty();
      } else {
        compared.check(random);
      }
      // Numbers above those that were announced, and wherever pages are missing now.
      for (int i = 0; i < 3'000; ++i) {
        const auto number = static_cast<uint32_t>(random.below(uint64_t{reserved} * 3));
        compared.insert(page_tag(number), number);
      }
      compared.check(random);
      while (!compared.tags.empty()) compared.erase_at(random.below(compared.tags.size()));
      compared.check_empty();
    }
  }
}

TEST("a number that came twice into pages made ahead is noticed") {
  Random random;
  for (int round = 0; round < 20; ++round) {
    Compared<true> compared;
    compared.table.reserve_pages(5'000);
    for (uint32_t number = 0; number < 5'000; ++number) compared.table.insert(page_tag(number), number);
    compared.table.insert(page_tag(static_cast<uint32_t>(random.below(5'000))), 7);
    CHECK(!compared.table.settle_pages());
  }
}

TEST("segments made ahead for hashes hold them, and more of them than announced") {
  Random random;
  for (const uint32_t announced : {1u, 256u, 257u, 3'000u, 10'000u}) {
    Compared<false> compared;
    compared.table.reserve(announced);
    for (uint32_t i = 0; i < 4'000; ++i) compared.insert(static_cast<uint32_t>(random.bits()), i);
    compared.check(random);
    while (!compared.tags.empty()) compared.erase_at(random.below(compared.tags.size()));
    compared.check_empty();
  }
}

TEST("a table that is thrown away gives its segments back a few at a time") {
  Random random;
  Compared<true> compared;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < 9'000; ++i) {
      const auto number = static_cast<uint32_t>(random.once_in(3) ? random.below(1u << 22) : i);
      compared.insert(page_tag(number), i);
    }
    const size_t bytes = compared.regions.bytes(Purpose::maps);
    CHECK(!compared.table.clear_some(1));
    CHECK(compared.regions.bytes(Purpose::maps) < bytes);
    int steps = 1;
    while (!compared.table.clear_some(3)) ++steps;
    CHECK(steps > 2);
    compared.expected.clear();
    compared.tags.clear();
    compared.check_empty();
  }
}

TEST("a walk meets every pair that stays exactly once, whatever comes and goes meanwhile") {
  Random random;
  for (int round = 0; round < 6; ++round) {
    Compared<false> compared;
    for (uint32_t i = 0; i < 3'000; ++i) compared.insert(static_cast<uint32_t>(random.bits()), i);
    std::set<uint32_t> stay(compared.tags.begin(), compared.tags.begin() + 1'500);
    std::map<uint32_t, int> seen;
    for (uint64_t from = 0; from != compared.table.kTagsEnd;) {
      from = compared.table.visit_some(from, 20, [&](uint32_t tag, uint32_t) { ++seen[tag]; });
      const bool grows = round % 2 == 0;
      for (int i = 0; i < (grows ? 300 : 30); ++i) compared.insert(static_cast<uint32_t>(random.bits()), 5);
      for (int i = 0; i < (grows ? 0 : 100); ++i) {
        const size_t index = random.below(compared.tags.size());
        if (!stay.contains(compared.tags[index])) compared.erase_at(index);
      }
    }
    for (const uint32_t tag : stay) CHECK_EQUAL(seen[tag], 1);
    for (const auto& [tag, times] : seen) CHECK_EQUAL(times, 1);
  }
}

TEST("a walk begins at any tag and meets none before it") {
  Random random;
  Compared<false> compared;
  for (uint32_t i = 0; i < 2'000; ++i) compared.insert(static_cast<uint32_t>(random.bits()), i);
  for (int round = 0; round < 50; ++round) {
    const uint64_t begin = random.below(compared.table.kTagsEnd);
    size_t seen = 0;
    for (uint64_t from = begin; from != compared.table.kTagsEnd;) {
      from = compared.table.visit_some(from, 100, [&](uint32_t tag, uint32_t) {
        CHECK(tag >= begin);
        ++seen;
      });
    }
    const auto is_met = [&](uint32_t tag) { return tag >= begin; };
    CHECK_EQUAL(seen, std::count_if(compared.tags.begin(), compared.tags.end(), is_met));
  }
}

// -------------------------------------------------------------------------------------------------------- interner

TEST("names are found under their numbers until they are forgotten") {
  Random random;
  Regions regions;
  {
    Interner<Nothing> names(regions, Purpose::players, {random.bits(), random.bits()});
    std::map<std::string, uint32_t> expected;
    // Every length up to the longest, bytes of every kind.
    const auto some_name = [&] {
      std::string name(1 + random.below(random.once_in(20) ? names.kLengthMax : 24), 'x');
      for (char& byte : name) byte = static_cast<char>(random.once_in(4) ? random.bits() : 'a' + random.below(3));
      return name;
    };
    for (int step = 0; step < 12'000; ++step) {
      if (expected.empty() || random.below(100) < (step < 6'000 ? 70u : 30u)) {
        const std::string name = some_name();
        const uint32_t found = names.find(names.hash(name), name);
        const auto known = expected.find(name);
        CHECK_EQUAL(found, known == expected.end() ? kNone : known->second);
        if (found == kNone) expected[name] = names.add(names.hash(name), name);
      } else {
        auto gone = expected.lower_bound(some_name());
        if (gone == expected.end()) gone = expected.begin();
        names.forget(gone->second);
        CHECK_EQUAL(names.find(names.hash(gone->first), gone->first), kNone);
        expected.erase(gone);
      }
      if (step % 1'000 != 0) continue;
      names.check(broken);
      CHECK_EQUAL(names.size(), expected.size());
      std::set<uint32_t> numbers;
      for (const auto& [name, number] : expected) {
        CHECK(names.name(number) == name);
        CHECK_EQUAL(names.find(names.hash(name), name), number);
        numbers.insert(number);
      }
      CHECK_EQUAL(numbers.size(), expected.size());
      size_t visited = 0;
      names.each([&](uint32_t number) { visited += numbers.count(number); });
      CHECK_EQUAL(visited, expected.size());
    }
    for (const auto& [name, number] : expected) names.forget(number);
    names.check(broken);
    CHECK_EQUAL(names.size(), 0);
    CHECK_EQUAL(regions.bytes(Purpose::players), 0);
  }
}

TEST("the longest name and the shortest are kept whole") {
  Regions regions;
  Interner<Nothing> names(regions, Purpose::players, {1, 2});
  const std::string longest(names.kLengthMax, '\xff');
  const std::string shortest(1, '\0');
  const uint32_t one = names.add(names.hash(longest), longest);
  const uint32_t two = names.add(names.hash(shortest), shortest);
  CHECK(names.name(one) == longest);
  CHECK(names.name(two) == shortest);
  CHECK_EQUAL(names.find(names.hash(""), ""), kNone);
}

TEST("a name is distinguished from another with the same hash") {
  Regions regions;
  Interner<Nothing> names(regions, Purpose::players, {1, 2});
  // Hashes are the caller's: here they are all alike.
  constexpr uint64_t kSame = 0x1234567890abcdef;
  const uint32_t one = names.add(kSame, "one");
  const uint32_t two = names.add(kSame, "two");
  CHECK_EQUAL(names.find(kSame, "one"), one);
  CHECK_EQUAL(names.find(kSame, "two"), two);
  CHECK_EQUAL(names.find(kSame, "three"), kNone);
  CHECK(names.likely_number(kSame) == one || names.likely_number(kSame) == two);
}

TEST("numbers of forgotten names are used again") {
  Regions regions;
  Interner<Nothing> names(regions, Purpose::players, {1, 2});
  uint32_t highest = 0;
  for (int wave = 0; wave < 20; ++wave) {
    std::vector<uint32_t> numbers;
    for (int i = 0; i < 100; ++i) {
      const std::string name = std::to_string(wave * 1'000 + i);
      numbers.push_back(names.add(names.hash(name), name));
    }
    highest = std::max(highest, *std::max_element(numbers.begin(), numbers.end()));
    for (const uint32_t number : numbers) names.forget(number);
  }
  CHECK(highest < 100);
}

TEST("references are counted, and a count at its maximum stays there") {
  Regions regions;
  Interner<Nothing> names(regions, Purpose::players, {1, 2});
  const uint32_t number = names.add(names.hash("name"), "name");
  CHECK_EQUAL(names.references(number), 0);
  names.retain(number);
  names.retain(number);
  CHECK(!names.release(number));
  CHECK(names.release(number));
  constexpr uint32_t kMost = (1u << 25) - 1;
  for (uint32_t i = 0; i < kMost - 1; ++i) names.retain(number);
  CHECK_EQUAL(names.references(number), kMost - 1);
  CHECK(!names.release(number));
  for (int i = 0; i < 5; ++i) names.retain(number);
  CHECK_EQUAL(names.references(number), kMost);
  CHECK(!names.release(number));
  CHECK_EQUAL(names.references(number), kMost);
  CHECK(names.name(number) == "name");
}

}  // namespace
}  // namespace rankd
