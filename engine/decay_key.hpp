// The order keys of decaying scores in fixed point: the integers that src/rankd/domain/decay.py defines in decimals.
//
//   key = floor(2^f * log2(score) + rate * at + guard) + 1
//
// Values have 40 bits below one step of the key. The rounding errors are bounded. Where they leave two integers
// possible, there is no answer, and the caller computes the key in decimals: for about one score in 10^11.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace rankd {

using Wide = unsigned __int128;
using SignedWide = __int128;

inline constexpr int kLogBits = 120;    // below the point, of a logarithm
inline constexpr int kBelowStep = 40;   // of what is added up
inline constexpr int kRateBits = 104;   // of the rate, in steps a millisecond: 64 of them are dropped by the product
inline constexpr SignedWide kDoubt = 8;       // in units of 2^-40: 4 are more than all errors, and the guard of 1e-12 is 1.1

// log2 by multiplying what is left with known factors until it is nearly 1, then a short series.
class FixedLog {
 public:
  static constexpr size_t kFirst = 256;
  static constexpr size_t kSecond = 256;
  static constexpr size_t kThird = 512;
  static constexpr size_t kEntries = kFirst + kSecond + kThird;

  // Of the first factors the logarithms of their inverses, of the others their own; `log2_e` less 1 with 128 bits.
  FixedLog(std::vector<Wide> table, Wide log2_e) : table_(std::move(table)), log2_e_(log2_e) {
    if (table_.size() != kEntries) throw std::invalid_argument("a table of logarithms has 1024 entries");
  }

  static uint64_t first_factor(uint64_t index) { return (uint64_t{1} << 18) / (257 + index); }  // of 2^-10

  // Of a number of at least 1, with kLogBits below the point; too small or too large by less than 2^-104, so that the
  // logarithm of 1 may come out below 0.
  SignedWide log2(uint64_t number) const {
    const int exponent = 63 - std::countl_zero(number);
    const uint64_t normal = number << (63 - exponent);  // 1 <= normal / 2^63 < 2
    const uint64_t first = normal >> 55 & 0xff;
    // What is left is 1 - rest, exactly, as long as the product has 128 bits: 63 + 10 + 15 + 22 below the point.
    Wide left = Wide{normal} * first_factor(first);
    Wide rest = (Wide{1} << 73) - left;                       // < 2^-7.4
    const auto second = static_cast<uint64_t>(rest >> 58);    // in steps of 2^-15
    left *= (uint64_t{1} << 15) + second;
    rest = (Wide{1} << 88) - left;                            // < 2^-13.8
    const auto third = static_cast<uint64_t>(rest >> 66);     // in steps of 2^-22
    left *= (uint64_t{1} << 22) + third;
    rest = (Wide{1} << 110) - left;                           // < 2^-21.9
    const Wide natural = series(rest);
    const Wide whole = Wide(static_cast<unsigned>(exponent)) << kLogBits;
    return static_cast<SignedWide>(whole + table_[first] - table_[kFirst + second] - table_[kFirst + kSecond + third] -
                                   natural - high_product(natural, log2_e_));
  }

 private:
  // -ln(1 - rest) with kLogBits, of a rest with 110: rest + rest^2 / 2 + rest^3 / 3 + rest^4 / 4.
  static Wide series(Wide rest) {
    const auto short_rest = static_cast<uint64_t>(rest >> 25);  // 85 bits below the point
    const Wide square = Wide{short_rest} * short_rest;          // 170
    const auto short_square = static_cast<uint64_t>(square >> 64);
    return (rest << 10) + (square >> 51) + ((Wide{short_square} * short_rest) >> 71) / 3 +
           ((Wide{short_square} * short_square) >> 94);
  }

  // The upper half of a product of 256 bits, too small by less than 3.
  static Wide high_product(Wide a, Wide b) {
    const auto a_high = static_cast<uint64_t>(a >> 64);
    const auto a_low = static_cast<uint64_t>(a);
    const auto b_high = static_cast<uint64_t>(b >> 64);
    const auto b_low = static_cast<uint64_t>(b);
    return Wide{a_high} * b_high + (Wide{a_high} * b_low >> 64) + (Wide{a_low} * b_high >> 64);
  }

  std::vector<Wide> table_;
  Wide log2_e_;
};

class DecayKeys {
 public:
  DecayKeys(FixedLog log, int fraction_bits, Wide rate) : log_(std::move(log)), rate_(rate) {
    shift_ = kLogBits - fraction_bits - kBelowStep;
    if (fraction_bits < 0 || shift_ < 0) throw std::invalid_argument("keys have at most 80 bits below the point");
  }

  // False where the rounding errors leave two integers possible. A score is at least 1, an instant at least 0.
  bool key(int64_t score, int64_t at, int64_t& key) const {
    const auto instant = static_cast<uint64_t>(at);
    const Wide faded = Wide{instant} * static_cast<uint64_t>(rate_ >> 64) +
                       (Wide{instant} * static_cast<uint64_t>(rate_) >> 64);
    const SignedWide steps = (log_.log2(static_cast<uint64_t>(score)) >> shift_) + static_cast<SignedWide>(faded);
    const SignedWide low = (steps - kDoubt) >> kBelowStep;
    const SignedWide high = (steps + kDoubt) >> kBelowStep;
    key = static_cast<int64_t>(low) + 1;
    return low == high;
  }

 private:
  FixedLog log_;
  Wide rate_;
  int shift_;
};

}  // namespace rankd
