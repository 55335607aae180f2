// What the engine is made of, piece by piece: hashes, the order, blocks. Memory is in pieces.cpp, tables in tables.cpp.
#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "block.hpp"
#include "hash.hpp"
#include "order.hpp"
#include "testing.hpp"

namespace rankd {
namespace {

using testing::Random;

// --------------------------------------------------------------------------------------------------------- hashes

// As src/rankd/domain/digest.py computes them for the key 00 01 … 0f and the messages "", 00, 00 01, …
struct Hashed {
  uint64_t narrow;
  Digest wide;
};
constexpr Hashed kHashes[] = {
    {0xabac0158050fc4dc, {0xbea58827b2bc7ee7, 0x013030dd6adb62fd}},
    {0xc9f49bf37d57ca93, {0xa8edd36004376ffc, 0x63f02f2bcc73055e}},
    {0x82cb9b024dc7d44d, {0x9b836905097f7875, 0x95ea6a8c54c95b85}},
    {0x8bf80ab8e7ddf7fb, {0x9ff7dc1efaccc56b, 0x43d7eb1277182348}},
    {0xcf75576088d38328, {0x5a282bac714e780c, 0x252cbf8fe7928e9f}},
    {0xdef9d52f49533b67, {0x0c625b3489db28f3, 0x3e849526a4295279}},
    {0xc50d2b50c59f22a7, {0x10e743f7293dd0dc, 0xf8a68539e8b05109}},
    {0xd3927d989bb11140, {0xc3e0aaf223b98410, 0x77ab4808c82e2fa6}},
    {0x369095118d299a8e, {0xb4dae3d5e1fe12aa, 0x99c7f935ab164f72}},
    {0x25a48eb36c063de4, {0x9439f32c04b8dd81, 0x427c1394000e72f4}},
    {0x79de85ee92ff097f, {0x898e495d1d54aa4f, 0xb42fb287c3a40eba}},
    {0x70c118c1f94dc352, {0xdb914455f39a3b72, 0x4e0c6efc3d63d6b1}},
    {0x78a384b157b4d9a2, {0xa819489e85923fe5, 0x658cea9f739506dc}},
    {0x306f760c1229ffa7, {0x1d80eac9c758f8b2, 0x4478656d5903d653}},
    {0x605aa111c0f95d34, {0x7222c9db6862e787, 0x78e3645f66cab026}},
    {0xd320d86d2a519956, {0x6c52bdb205557ec1, 0x09017e1eeccd2129}},
    {0xcc4fdd1a7d908b66, {0xeb8e511557d9a8d0, 0x93179e3df8b013b5}},
    {0x9cf2689063dbd80c, {0x8d66bb3ff9264123, 0xecf7bdfee8125197}},
    {0x8ffc389cb473e63e, {0x4d708fb73df042ef, 0x2b09b7169f443c02}},
    {0xf21f9de58d297d1c, {0x61f10ac23862f7ab, 0xe9bc26554d4b31b2}},
    {0xc0dc2f46a6cce040, {0x0bcf90bb112f2c3c, 0xb7e9912e9bca35e3}},
};
constexpr HashKey kCountingKey{0x0706050403020100, 0x0f0e0d0c0b0a0908};

TEST("SipHash gives the values of the Python implementation") {
  std::string message;
  for (const Hashed& hashed : kHashes) {
    CHECK_EQUAL(hash_bytes(kCountingKey, message), hashed.narrow);
    SipHash13 wide(kCountingKey, true);
    wide.absorb_tail(message.data(), message.size(), message.size());
    CHECK(wide.finish_wide() == hashed.wide);
    message.push_back(static_cast<char>(message.size()));
  }
}

TEST("an entry's digest is that of the Python implementation") {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  CHECK(entry_digest(0, 0, "") == (Digest{0xc615fcd1e5566366, 0xc6666304c810fb62}));
  CHECK(entry_digest(0, 0, "a") == (Digest{0x1c2f6f09e0196a7e, 0xd022212e52a00d19}));
  CHECK(entry_digest(976, 5, "alice") == (Digest{0xe6acc957ccbdbd19, 0xd4d2c9352be16bbf}));
  CHECK(entry_digest(-5, 7, "Zo\xc3\xab") == (Digest{0xb73f453a63fb3d9d, 0x6f49076a2e357ea3}));
  CHECK(entry_digest(kHighest, kTieFieldMax, "player-000001") == (Digest{0x7137f8bd74dc609f, 0xaddef20d79e07148}));
  CHECK(entry_digest(kLowest, 1, "日本語のなまえ") == (Digest{0x9f256aef01fe28ec, 0x3f0064b9f4f4b413}));
  CHECK(entry_digest(42, uint64_t{1} << 40, std::string(128, 'x')) == (Digest{0xa10ce2e27ffb37f0, 0xfffb9384457bbd2e}));
}

TEST("a digest is a 128-bit sum that carries, wraps and can be taken apart") {
  Digest sum;
  sum += entry_digest(1, 2, "a");
  sum += entry_digest(-1, 3, "b");
  sum += entry_digest(std::numeric_limits<int64_t>::max(), 0, "c");
  sum += entry_digest(std::numeric_limits<int64_t>::min(), kTieFieldMax, "d");
  CHECK(sum == (Digest{0x0c4cc481ccc9a27e, 0x910aa233a7b48eb6}));

  Digest all_ones{~uint64_t{0}, ~uint64_t{0}};
  all_ones += Digest{1, 0};
  CHECK(all_ones == Digest{});
  all_ones -= Digest{1, 0};
  CHECK(all_ones == (Digest{~uint64_t{0}, ~uint64_t{0}}));

  Random random;
  using Wide = unsigned __int128;
  const auto wide = [](const Digest& digest) { return Wide{digest.high} << 64 | digest.low; };
  for (int i = 0; i < 2'000; ++i) {
    // Few bits, so that words are often equal, 0 or all ones.
    const auto word = [&] { return random.once_in(3) ? random.bits() : uint64_t{0} - random.below(3); };
    const Digest one{word(), word()};
    const Digest other{word(), word()};
    Digest both = one;
    both += other;
    CHECK(wide(both) == static_cast<Wide>(wide(one) + wide(other)));
    both -= one;
    CHECK(both == other);
    both -= one;
    CHECK(wide(both) == static_cast<Wide>(wide(other) - wide(one)));
  }
}

// ---------------------------------------------------------------------------------------------------------- order

TEST("sort keys ascend in standing order and turn back into what they were made of") {
  Random random;
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> scores{kLowest, kLowest + 1, -1, 0, 1, kHighest - 1, kHighest};
  for (int i = 0; i < 100; ++i) scores.push_back(random.between(kLowest, kHighest));
  for (const int64_t one : scores) {
    CHECK_EQUAL(score_of_key(Order::desc, score_key(Order::desc, one)), one);
    CHECK_EQUAL(score_of_key(Order::asc, score_key(Order::asc, one)), one);
    for (const int64_t other : scores) {
      CHECK_EQUAL(score_key(Order::asc, one) < score_key(Order::asc, other), one < other);
      CHECK_EQUAL(score_key(Order::desc, one) < score_key(Order::desc, other), one > other);
    }
  }
  for (const uint64_t tie : {uint64_t{0}, uint64_t{1}, uint64_t{0xffffffff}, uint64_t{0x100000000}, kTieFieldMax}) {
    for (const Ties ties : {Ties::earliest, Ties::latest, Ties::value}) {
      CHECK_EQUAL(tie_key(ties, tie_key(ties, tie)), tie);
      CHECK(tie_key(ties, tie) <= kTieFieldMax);
    }
    CHECK_EQUAL(tie_key(Ties::player, tie), 0);
  }
  CHECK(tie_key(Ties::earliest, 1) < tie_key(Ties::earliest, 2));
  CHECK(tie_key(Ties::latest, 1) > tie_key(Ties::latest, 2));
  CHECK(tie_key(Ties::value, 1) > tie_key(Ties::value, 2));
}

// --------------------------------------------------------------------------------------------------------- blocks

// Names that are numbers, so that ids can be compared without an interner.
struct FakeNames {
  std::vector<std::string> names;
  std::string_view name(uint32_t player) const { return names[player]; }
};

struct OwnBlock {
  explicit OwnBlock(uint32_t capacity) : memory(block_bytes(capacity)), block(block_at(memory.data(), capacity)) {}
  std::vector<std::byte> memory;
  Block block;
};

TEST("words below a bound and numbers in a row are counted right for every small size") {
  for (uint32_t size = 0; size <= 70; ++size) {
    std::vector<uint64_t> words(size);
    // 0, 0, 2, 2, 4, 4, …: every bound between, before and behind, hit and missed.
    for (uint32_t i = 0; i < size; ++i) words[i] = i / 2 * 2;
    for (uint64_t bound = 0; bound <= size + 2; ++bound) {
      const auto expected = std::lower_bound(words.begin(), words.end(), bound) - words.begin();
      CHECK_EQUAL(count_less(words.data(), size, bound), expected);
    }
    CHECK_EQUAL(count_less(words.data(), size, ~uint64_t{0}), size);
    CHECK_EQUAL(count_equal(Block{words.data(), nullptr, nullptr, nullptr}, 0, size, 0), std::min(size, 2u));
    for (uint64_t& word : words) word = ~uint64_t{0};
    CHECK_EQUAL(count_equal(Block{words.data(), nullptr, nullptr, nullptr}, 0, size, ~uint64_t{0}), size);
    CHECK_EQUAL(count_less(words.data(), size, ~uint64_t{0}), 0);

    std::vector<uint32_t> numbers(size);
    for (uint32_t i = 0; i < size; ++i) numbers[i] = i * 7;
    for (uint32_t i = 0; i < size; ++i) CHECK_EQUAL(index_of(numbers.data(), size, i * 7), i);
    CHECK_EQUAL(index_of(numbers.data(), size, 3), size);
    CHECK_EQUAL(index_of(numbers.data(), size, ~uint32_t{0}), size);
  }
}

TEST("the first of equal numbers in a row is found") {
  for (uint32_t size = 1; size <= 40; ++size) {
    for (uint32_t first = 0; first < size; ++first) {
      std::vector<uint32_t> numbers(size, 0x8000'0001u);  // packing to 16 bits must not confuse it
      std::fill(numbers.begin(), numbers.begin() + first, 1u);
      CHECK_EQUAL(index_of(numbers.data(), size, 0x8000'0001u), first);
    }
  }
}

TEST("a place in a block is found for every size, key and id") {
  FakeNames names;
  for (const char* name : {"b", "d", "f", "h", "j", "l", "n", "p"}) names.names.emplace_back(name);
  const auto count = static_cast<uint32_t>(names.names.size());
  constexpr uint64_t kTieStep = uint64_t{1} << 31;  // so that both halves of the tie field decide
  for (uint32_t scores = 1; scores <= 4; ++scores) {
    for (uint32_t ties = 1; ties <= 4; ++ties) {
      for (uint32_t size = 0; size <= count; ++size) {
        OwnBlock own(8);
        std::vector<uint32_t> order(size);
        std::iota(order.begin(), order.end(), 0u);
        const auto key_of_player = [&](uint32_t player) {
          return Key{1 + player % scores, (1 + player / 2 % ties) * kTieStep};
        };
        const auto stands = [&](uint32_t player) {
          const Key key = key_of_player(player);
          return std::tuple(key.score, key.tie, names.name(player));
        };
        std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return stands(a) < stands(b); });
        for (uint32_t i = 0; i < size; ++i) own.block.set(i, key_of_player(order[i]), order[i]);

        const auto before = [&](auto counts) {
          return static_cast<uint32_t>(std::count_if(order.begin(), order.end(), counts));
        };
        for (uint64_t score = 0; score <= scores + 1; ++score) {
          CHECK_EQUAL(position(own.block, size, AtScore{{score, 0}}),
                      before([&](uint32_t player) { return key_of_player(player).score < score; }));
          for (uint64_t tie = 0; tie <= (ties + 1) * kTieStep; tie += kTieStep) {
            const Key key{score, tie};
            CHECK_EQUAL(position(own.block, size, BehindTies{key}), before([&](uint32_t player) {
                          const Key other = key_of_player(player);
                          return std::pair(other.score, other.tie) <= std::pair(score, tie);
                        }));
            for (char letter = 'a'; letter <= 'q'; ++letter) {
              const std::string id(1, letter);
              const std::tuple<uint64_t, uint64_t, std::string_view> place(score, tie, id);
              CHECK_EQUAL(position(own.block, size, NewEntry<FakeNames>{key, id, names}),
                          before([&](uint32_t player) { return stands(player) < place; }));
              CHECK_EQUAL(position(own.block, size, BehindEntry<FakeNames>{key, id, names}),
                          before([&](uint32_t player) { return stands(player) <= place; }));
            }
          }
        }
      }
    }
  }
}

TEST("a block keeps its columns together through insertions, removals and copies") {
  Random random;
  constexpr uint32_t kCapacity = 48;
  OwnBlock own(kCapacity);
  std::vector<std::pair<Key, uint32_t>> expected;
  const auto random_entry = [&] {
    return std::pair(Key{random.bits(), random.below(kTieFieldMax + 1)}, static_cast<uint32_t>(random.bits()));
  };
  const auto matches = [&](const Block& block) {
    for (uint32_t i = 0; i < expected.size(); ++i) {
      CHECK(block.key(i) == expected[i].first);
      CHECK_EQUAL(block.player[i], expected[i].second);
    }
  };
  for (int step = 0; step < 3'000; ++step) {
    const auto size = static_cast<uint32_t>(expected.size());
    if (size < kCapacity && (size == 0 || random.once_in(2))) {
      const auto at = static_cast<uint32_t>(random.below(size + 1));
      expected.insert(expected.begin() + at, random_entry());
      own.block.insert(size, at, expected[at].first, expected[at].second);
    } else {
      const auto at = static_cast<uint32_t>(random.below(size));
      expected.erase(expected.begin() + at);
      own.block.erase(size, at);
    }
    matches(own.block);
    OwnBlock larger(kCapacity * 2);
    larger.block.copy(0, own.block, 0, static_cast<uint32_t>(expected.size()));
    matches(larger.block);
  }
}

TEST("score changes are counted") {
  uint64_t scores[] = {5, 5, 6, 7, 7, 7, 8};
  const Block block{scores, nullptr, nullptr, nullptr};
  const uint32_t changes[] = {0, 0, 0, 1, 2, 2, 2, 3};
  for (uint32_t end = 0; end <= 7; ++end) CHECK_EQUAL(score_changes(block, end), changes[end]);
}

}  // namespace
}  // namespace rankd
