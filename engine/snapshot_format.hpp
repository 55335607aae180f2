// The file format of a whole engine.
//
//   file     = magic, version, block*
//   block    = type (4 bytes), length (4), checksum (8), payload; everything little-endian
//   checksum = SipHash-1-3 of type, length, the block's number and the payload: flipped bits and cut, moved or repeated
//              blocks are detected before they are used
//
//   begin       players (8), boards (8), the hash key (16): with it, players in the order of their hashes fill the
//               index from one end to the other. It is a secret like the file itself
//   positions   partition, epoch, sequence (8 bytes each), any number
//   players     count, lengths (2 bytes each), bytes; numbered from 0 over all blocks
//   board       entries (4), order, ties, whether there is a capture (1 each), name
//   entries     of the board before: count, scores (8 each), ties (4 + 2), players (4), in standing order; with a
//               capture, places in it (4), 0 where there is none
//   end         empty; a file without it is incomplete
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hash.hpp"

namespace rankd::snapshot {

inline constexpr char kMagic[8] = {'r', 'a', 'n', 'k', 'd', 's', 'n', 'p'};
inline constexpr uint32_t kVersion = 2;  // 1 had no captures, and was never released
inline constexpr HashKey kChecksumKey{0x6b6e6172ULL, 0x746f687370616e73ULL};
inline constexpr size_t kPayloadBytesMax = size_t{1} << 20;

enum class Type : uint32_t { begin = 1, positions = 2, players = 3, board = 4, entries = 5, end = 6 };

struct BlockHead {
  uint32_t type;
  uint32_t length;
  uint64_t checksum;
};

inline uint64_t checksum(uint32_t type, uint64_t number, std::string_view payload) {
  SipHash13 hash(kChecksumKey, false);
  hash.absorb(uint64_t{type} << 32 | payload.size());
  hash.absorb(number);
  hash.absorb_tail(payload.data(), payload.size(), payload.size() + 16);
  return hash.finish();
}

}  // namespace rankd::snapshot
