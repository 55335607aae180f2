"""Decay: scores that fade with time, kept as one number that never has to be rewritten.

    effective(t) = score * factor^((t - at) / every)
    key          = floor(2^f * (log2(score) + (at / every) * log2(1 / factor))) + 1

All scores fade alike, so the order of the keys is the order of the effective scores at any time. Precision:
- `f`, the fraction bits, is the largest number with which no key of a score below 2^63 and an `at` before 2200 leaves
  63 bits. It depends on factor and every alone: 49 for 0.9 a day, 56 at most.
- The key's step is 2^-f, a relative difference of ln 2 * 2^-f of the effective score (1.2e-15 for 0.9 a day). Scores
  closer than that have equal keys and stand by player id.
- Keys are rounded up, so an effective score is too high by less than one step and, at t = at, floor(effective) is the
  score itself for every score up to 1.44 * 2^f (8e14 for 0.9 a day). Larger ones show a relative error below a step.
- Logarithms are taken by `decimal`, whose results are correctly rounded: the same on every machine.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal

from rankd.domain.duration import format_duration
from rankd.domain.instant import AT_MS_END
from rankd.errors import InvalidValue

EVERY_MS_MIN = 1_000
FRACTION_BITS_MIN = 24
_KEY_BITS = 63
_SCORE_BITS = 63
_EXACT = Context(prec=40, rounding=ROUND_FLOOR)
_LN_2 = _EXACT.ln(Decimal(2))
# More than the errors of 40-digit arithmetic: they keep a whole number from being floored to the one below.
_GUARD_STEPS = Decimal("1e-12")
_GUARD_FACTOR = 1 + Decimal("1e-25")
_FLOAT_DOUBT = 1e-9


class Decay:
    """How fast the scores of one board fade, and the keys that follow from it."""

    __slots__ = ("_bits_per_ms", "every_ms", "factor", "fraction_bits")

    def __init__(self, factor: float, every_ms: int, field: str = "decay") -> None:
        """Each `every_ms`, a score is worth `factor` of what it was; refused when keys would be too coarse."""
        if not 0 < factor < 1:
            raise InvalidValue(f"{field}.factor", f"must be above 0 and below 1, such as 0.9; got {factor}")
        if every_ms < EVERY_MS_MIN:
            raise InvalidValue(f"{field}.every", f"must be at least {format_duration(EVERY_MS_MIN)}")
        self.factor = factor
        self.every_ms = every_ms
        # The shortest decimal that reads as this float is the number its author wrote.
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
        """Return the order key of a score of at least 1: a larger key stands first, now and at any later time.

        >>> Decay(0.5, 86_400_000).key(2, at=0) == Decay(0.5, 86_400_000).key(1, at=86_400_000)
        True
        """
        bits = _EXACT.add(_EXACT.divide(_EXACT.ln(Decimal(score)), _LN_2), self._faded_bits(at))
        return int(_EXACT.add(_EXACT.multiply(bits, self._steps()), _GUARD_STEPS)) + 1

    def effective(self, key: int, now: int) -> int:
        """Return floor of what a key is worth at an instant.

        >>> daily = Decay(0.5, 86_400_000)
        >>> daily.effective(daily.key(1000, at=0), now=86_400_000)
        500
        """
        bits = _EXACT.subtract(_EXACT.divide(Decimal(key), self._steps()), self._faded_bits(now))
        if bits < 0:
            return 0
        if bits < _SCORE_BITS:
            # A float is right to some 14 digits: near enough, unless the result is close to a whole number.
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
        """Two decays are equal when they fade alike, as they were written."""
        return isinstance(other, Decay) and (self.factor, self.every_ms) == (other.factor, other.every_ms)

    def __hash__(self) -> int:
        """Equal decays hash alike."""
        return hash((self.factor, self.every_ms))

    def __repr__(self) -> str:
        """Show the decay as it was written."""
        return f"Decay(factor={self.factor}, every={format_duration(self.every_ms)!r})"
