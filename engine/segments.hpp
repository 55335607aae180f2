// The segments of tag tables, and the tags that keep a page of numbers in one segment.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "memory.hpp"

namespace rankd {

inline constexpr std::array<uint16_t, 15> kSparseCapacities{8,   12,  16,  24,  32,  48,  64, 96,
                                                            128, 192, 256, 320, 384, 448, 510};
inline constexpr uint32_t kSegmentHeaderBytes = 16;
inline constexpr uint32_t kPageBits = 10;
inline constexpr uint32_t kPageSlots = 1u << kPageBits;
inline constexpr uint32_t kDenseLeast = 384;  // below this many of a page, sparse is smaller

// A bijection: the number's page, its bits reversed so that neighbouring pages part at the first bit, then the place
// in the page.
inline uint32_t page_tag(uint32_t number) {
  uint32_t bits = number >> kPageBits;
  bits = ((bits >> 1) & 0x55555555u) | ((bits & 0x55555555u) << 1);
  bits = ((bits >> 2) & 0x33333333u) | ((bits & 0x33333333u) << 2);
  bits = ((bits >> 4) & 0x0f0f0f0fu) | ((bits & 0x0f0f0f0fu) << 4);
  bits = __builtin_bswap32(bits);
  return bits | (number & (kPageSlots - 1));
}

class SegmentPools {
 public:
  SegmentPools(Regions& regions, Purpose purpose) : dense(regions, purpose, kSegmentHeaderBytes + 4 * kPageSlots) {
    for (size_t i = 0; i < kSparseCapacities.size(); ++i) {
      sparse[i] = std::make_unique<Pool>(regions, purpose, kSegmentHeaderBytes + 8 * kSparseCapacities[i]);
    }
  }
  std::array<std::unique_ptr<Pool>, kSparseCapacities.size()> sparse;
  Pool dense;
};

}  // namespace rankd
