"""Counts of latencies in fixed buckets: the memory is bounded, and a percentile is off by less than one percent.

Buckets are one microsecond wide up to 256 µs; from there on every power of two is cut into 128.
"""

from __future__ import annotations

from collections.abc import Iterable

_EXACT_BITS = 8
_PARTS = 1 << (_EXACT_BITS - 1)  # of each power of two
MICROSECONDS_MAX = (1 << 40) - 1  # twelve days
_BUCKETS = (40 - _EXACT_BITS + 2) * _PARTS


class Histogram:
    """Collects latencies in microseconds."""

    __slots__ = ("_counts", "count", "max_us")

    def __init__(self) -> None:
        """Empty at first."""
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.max_us = 0

    def add(self, microseconds: int) -> None:
        """Count one; what is below 0 counts as 0."""
        if microseconds > self.max_us:
            self.max_us = microseconds = min(microseconds, MICROSECONDS_MAX)
        shift = microseconds.bit_length() - _EXACT_BITS
        self.count += 1
        if shift > 0:
            self._counts[shift * _PARTS + (microseconds >> shift)] += 1
        else:
            self._counts[microseconds if microseconds > 0 else 0] += 1

    def merge(self, others: Iterable[Histogram]) -> Histogram:
        """Take in what others counted."""
        for other in others:
            self._counts = [mine + theirs for mine, theirs in zip(self._counts, other._counts, strict=True)]
            self.count += other.count
            self.max_us = max(self.max_us, other.max_us)
        return self

    def percentile(self, percent: float) -> int | None:
        """Return the latency that so many percent did not exceed, at most one percent too high; None when empty.

        >>> latencies = Histogram()
        >>> for microseconds in range(1, 101): latencies.add(microseconds)
        >>> latencies.percentile(50), latencies.percentile(99), latencies.percentile(100)
        (50, 99, 100)
        """
        if self.count == 0:
            return None
        needed = max(1, -(-self.count * percent // 100))  # rounded up
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= needed:
                return min(_highest(bucket), self.max_us)
        return self.max_us


def _highest(bucket: int) -> int:
    """Return the largest value that falls into a bucket."""
    shift = max(0, bucket // _PARTS - 1)
    return (((bucket - shift * _PARTS) + 1) << shift) - 1
