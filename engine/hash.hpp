// SipHash-1-3: keyed, so that no client can choose ids that collide; portable, so that every backend computes the same
// digest (src/rankd/domain/digest.py states it).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace rankd {

struct HashKey {
  uint64_t k0;
  uint64_t k1;
  bool operator==(const HashKey&) const = default;
};

// A secret key: without it, no client can choose texts that share a hash.
inline HashKey random_key() {
  std::random_device device;
  const auto word = [&] { return uint64_t{device()} << 32 | device(); };
  return {word(), word()};
}

// A 128-bit sum: addition wraps, so entries can be taken out of a digest as they were put in.
struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;

  Digest& operator+=(const Digest& other) {
    low += other.low;
    high += other.high + (low < other.low ? 1 : 0);
    return *this;
  }
  Digest& operator-=(const Digest& other) {
    const uint64_t borrow = low < other.low ? 1 : 0;
    low -= other.low;
    high -= other.high + borrow;
    return *this;
  }
  bool operator==(const Digest&) const = default;
};

static_assert(std::endian::native == std::endian::little, "blocks are read, and columns saved, as they are in memory");

class SipHash13 {
 public:
  SipHash13(HashKey key, bool wide)
      : v0_(key.k0 ^ 0x736f6d6570736575ULL),
        v1_(key.k1 ^ 0x646f72616e646f6dULL ^ (wide ? 0xee : 0)),
        v2_(key.k0 ^ 0x6c7967656e657261ULL),
        v3_(key.k1 ^ 0x7465646279746573ULL) {}

  void absorb(uint64_t block) {
    v3_ ^= block;
    round();
    v0_ ^= block;
  }

  // Absorbs the last bytes of a message of `total` bytes, after whole blocks.
  void absorb_tail(const char* bytes, size_t length, size_t total) {
    while (length >= 8) {
      absorb(load(bytes));
      bytes += 8;
      length -= 8;
    }
    uint64_t last = static_cast<uint64_t>(total) << 56;
    for (size_t i = 0; i < length; ++i) last |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    absorb(last);
  }

  uint64_t finish() {
    v2_ ^= 0xff;
    return squeeze();
  }

  Digest finish_wide() {
    Digest digest;
    v2_ ^= 0xee;
    digest.low = squeeze();
    v1_ ^= 0xdd;
    digest.high = squeeze();
    return digest;
  }

  static uint64_t load(const char* bytes) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    return word;
  }

 private:
  static uint64_t rotate(uint64_t word, int bits) { return (word << bits) | (word >> (64 - bits)); }

  void round() {
    v0_ += v1_;
    v1_ = rotate(v1_, 13) ^ v0_;
    v0_ = rotate(v0_, 32);
    v2_ += v3_;
    v3_ = rotate(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = rotate(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = rotate(v1_, 17) ^ v2_;
    v2_ = rotate(v2_, 32);
  }

  uint64_t squeeze() {
    round();
    round();
    round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

  uint64_t v0_, v1_, v2_, v3_;
};

inline uint64_t hash_bytes(HashKey key, std::string_view bytes) {
  SipHash13 hash(key, false);
  hash.absorb_tail(bytes.data(), bytes.size(), bytes.size());
  return hash.finish();
}

// The 16 bytes "rankd digest  v1", read as two little-endian words.
inline constexpr HashKey kDigestKey{0x696420646b6e6172ULL, 0x3176202074736567ULL};

inline Digest entry_digest(int64_t score, uint64_t tie, std::string_view player) {
  SipHash13 hash(kDigestKey, true);
  hash.absorb(static_cast<uint64_t>(score));
  hash.absorb(tie);
  hash.absorb_tail(player.data(), player.size(), player.size() + 16);
  return hash.finish_wide();
}

}  // namespace rankd
