// BLAKE2b (RFC 7693) without a key, at once: what hashlib.blake2b(message, digest_size=...).digest() returns.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace rankd {

static_assert(std::endian::native == std::endian::little);

class Blake2b {
 public:
  static constexpr size_t kBlock = 128;

  explicit Blake2b(size_t digest_size) : state_(kStart) { state_[0] ^= 0x01010000u ^ digest_size; }

  void add(std::string_view message) {
    while (!message.empty()) {
      if (filled_ == kBlock) compress(false);  // the last block waits: it is compressed in another way
      const size_t count = std::min(message.size(), kBlock - filled_);
      std::memcpy(block_.data() + filled_, message.data(), count);
      filled_ += count;
      message.remove_prefix(count);
    }
  }

  // The first bytes of these are the digest.
  const std::array<uint64_t, 8>& finish() {
    std::memset(block_.data() + filled_, 0, kBlock - filled_);
    compress(true);
    return state_;
  }

 private:
  static constexpr std::array<uint64_t, 8> kStart = {
      0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
      0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u};
  static constexpr uint8_t kOrder[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                             {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                             {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                             {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                             {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                             {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                             {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                             {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                             {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                             {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};
  static constexpr int kRounds = 12;

  void compress(bool is_last) {
    total_ += filled_;  // never more than 2^64 bytes
    std::array<uint64_t, 16> words;
    std::memcpy(words.data(), block_.data(), kBlock);
    std::array<uint64_t, 16> v;
    std::copy(state_.begin(), state_.end(), v.begin());
    std::copy(kStart.begin(), kStart.end(), v.begin() + 8);
    v[12] ^= total_;
    if (is_last) v[14] = ~v[14];
    const auto mix = [&v](size_t a, size_t b, size_t c, size_t d, uint64_t x, uint64_t y) {
      v[a] += v[b] + x;
      v[d] = std::rotr(v[d] ^ v[a], 32);
      v[c] += v[d];
      v[b] = std::rotr(v[b] ^ v[c], 24);
      v[a] += v[b] + y;
      v[d] = std::rotr(v[d] ^ v[a], 16);
      v[c] += v[d];
      v[b] = std::rotr(v[b] ^ v[c], 63);
    };
    for (int round = 0; round < kRounds; ++round) {
      const uint8_t* order = kOrder[round % 10];
      for (size_t i = 0; i < 4; ++i) mix(i, i + 4, i + 8, i + 12, words[order[2 * i]], words[order[2 * i + 1]]);
      for (size_t i = 0; i < 4; ++i) {
        mix(i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12, words[order[2 * i + 8]], words[order[2 * i + 9]]);
      }
    }
    for (size_t i = 0; i < 8; ++i) state_[i] ^= v[i] ^ v[i + 8];
    filled_ = 0;
  }

  std::array<uint64_t, 8> state_;
  std::array<char, kBlock> block_;
  size_t filled_ = 0;
  uint64_t total_ = 0;
};

}  // namespace rankd
