"""Decay: scores that fade with time, kept as one number that never has to be rewritten.

    effective(t) = score * factor^((t - at) / every)
    key          = floor(2^f * (log2(score) + (at / every) * log2(1 / factor))) + 1

All scores fade alike, so the order of the keys is the order of the effective scores at any time. Precision:
- `f`, the fraction bits, is the largest number with which no key of a score below 2^63 and an `at` before 2200 leaves
  63 bits. It depends on factor and every alone: 49 for 0.9 a day, 56 at most.
- The key's step is 2^-f, a relative difference of ln 2 * 2^-f of the effective score (1.2e-15 for 0.9 a day). Scores
  closer than that have equal keys and are ordered by player id.
- Keys are rounded up, so an effective score is too high by less than one step and, at t = at, floor(effective) is the
  score itself for every score up to 1.44 * 2^f (8e14 for 0.9 a day). Larger ones show a relative error below a step.
- `decimal` computes logarithms, correctly rounded and so equal on every machine. Columns of keys are computed in fixed
  point (engine/decay_key.hpp) with an error bound; keys in doubt are left to `decimal`, so both give the same integers.
"""

from __future__ import annotations

from array import array
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cache, cached_property

from rankd._columns import DecayKeys
from rankd.domain.duration import format_duration
from rankd.domain.instant import AT_MS_END
from rankd.errors import InvalidValue

EVERY_MS_MIN = 1_000
FRACTION_BITS_MIN = 24
_KEY_BITS = 63
_SCORE_BITS = 63
_EXACT = Context(prec=40, rounding=ROUND_FLOOR)
_LN_2 = _EXACT.ln(Decimal(2))
# Larger than the errors of 40-digit arithmetic: a whole number is not floored to the one below.
_GUARD_STEPS = Decimal("1e-12")
_GUARD_FACTOR = 1 + Decimal("1e-25")
_FLOAT_DOUBT = 1e-9
# Of the fixed-point arithmetic of engine/decay_key.hpp.
_PRECISE = Context(prec=60, rounding=ROUND_FLOOR)
_WIDE_BYTES = 16
_LOG_BITS = 120
_RATE_BITS = 104


class Decay:
    """The decay rate of one board, and its order keys."""

    def __init__(self, factor: float, every_ms: int, field: str = "decay") -> None:
        """Every `every_ms` a score is multiplied by `factor`; raises InvalidValue if keys would be too coarse."""
        if not 0 < factor < 1:
            raise InvalidValue(f"{field}.factor", f"must be above 0 and below 1, such as 0.9; got {factor}")
        if every_ms < EVERY_MS_MIN:
            raise InvalidValue(f"{field}.every", f"must be at least {format_duration(EVERY_MS_MIN)}")
        self.factor = factor
        self.every_ms = every_ms
        # The shortest decimal of a float is the number that its author wrote.
        halvings = _EXACT.divide(-_EXACT.ln(Decimal(repr(factor))), _LN_2)
        self._bits_per_ms = _EXACT.divide(halvings, Decimal(every_ms))
        largest = _SCORE_BITS + int(_EXACT.multiply(self._bits_per_ms, Decimal(AT_MS_END))) + 1
        self.fraction_bits = _KEY_BITS - largest.bit_length()
        if self.fraction_bits < FRACTION_BITS_MIN:
            raise InvalidValue(
                field,
                f"fades too fast to be ordered in 64 bits until 2200: {factor} every {format_duration(every_ms)}; "
                "take a larger factor or a longer every",
            )

    def key(self, score: int, at: int) -> int:
        """Return the order key of a score of at least 1: a larger key ranks first, now and later.

        >>> Decay(0.5, 86_400_000).key(2, at=0) == Decay(0.5, 86_400_000).key(1, at=86_400_000)
        True
        """
        bits = _EXACT.add(_EXACT.divide(_EXACT.ln(Decimal(score)), _LN_2), self._faded_bits(at))
        return int(_EXACT.add(_EXACT.multiply(bits, self._steps()), _GUARD_STEPS)) + 1

    def keys(self, scores: array[int], instants: array[int]) -> array[int]:
        """Return the order keys of many scores, each equal to `key`; undefined for a score below 1."""
        made, doubtful = self._fixed.keys(scores, instants)
        keys = array("q", made)
        for index in doubtful:
            keys[index] = self.key(scores[index], instants[index])
        return keys

    @cached_property
    def _fixed(self) -> DecayKeys:
        steps_per_ms = _PRECISE.multiply(self._bits_per_ms, Decimal(1 << self.fraction_bits))
        rate = _fixed_point(steps_per_ms, _RATE_BITS)
        return DecayKeys(_logarithms(), _log2_e(), self.fraction_bits, rate)

    def effective(self, key: int, now: int) -> int:
        """Return the floor of a key's effective score at an instant.

        >>> daily = Decay(0.5, 86_400_000)
        >>> daily.effective(daily.key(1000, at=0), now=86_400_000)
        500
        """
        bits = _EXACT.subtract(_EXACT.divide(Decimal(key), self._steps()), self._faded_bits(now))
        if bits < 0:
            return 0
        if bits < _SCORE_BITS:
            # A float has some 14 correct digits: enough, unless the result is close to a whole number.
            near = 2.0 ** float(bits)
            doubt = near * _FLOAT_DOUBT
            if int(near - doubt) == int(near + doubt):
                return int(near)
        exact = _EXACT.multiply(_EXACT.exp(_EXACT.multiply(bits, _LN_2)), _GUARD_FACTOR)
        return int(exact)

    def _faded_bits(self, at: int) -> Decimal:
        return _EXACT.multiply(self._bits_per_ms, Decimal(at))

    def _steps(self) -> Decimal:
        return Decimal(1 << self.fraction_bits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decay) and (self.factor, self.every_ms) == (other.factor, other.every_ms)

    def __hash__(self) -> int:
        return hash((self.factor, self.every_ms))

    def __repr__(self) -> str:
        return f"Decay(factor={self.factor}, every={format_duration(self.every_ms)!r})"


def _fixed_point(number: Decimal, bits: int) -> bytes:
    return int(_PRECISE.multiply(number, Decimal(1 << bits))).to_bytes(_WIDE_BYTES, "little")


@cache
def _logarithms() -> bytes:
    """Return the table for `FixedLog` of engine/decay_key.hpp: the logarithms of three sets of factors."""
    first = [-_log2(Decimal((1 << 18) // (257 + index)) / 1024) for index in range(256)]
    second = [_log2(1 + _PRECISE.divide(Decimal(index), Decimal(1 << 15))) for index in range(256)]
    third = [_log2(1 + _PRECISE.divide(Decimal(index), Decimal(1 << 22))) for index in range(512)]
    return b"".join(_fixed_point(number, _LOG_BITS) for number in (*first, *second, *third))


def _log2(number: Decimal) -> Decimal:
    return _PRECISE.divide(_PRECISE.ln(number), _PRECISE.ln(Decimal(2)))


@cache
def _log2_e() -> bytes:
    return _fixed_point(_PRECISE.divide(Decimal(1), _PRECISE.ln(Decimal(2))) - 1, 8 * _WIDE_BYTES)
