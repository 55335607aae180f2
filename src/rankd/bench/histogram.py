"""A latency histogram with fixed buckets: bounded memory, and percentiles within one percent.

Buckets are one microsecond wide up to 256 µs; beyond that every power of two is divided into 128.
"""

from __future__ import annotations

from collections.abc import Iterable

_EXACT_BITS = 8
_PARTS = 1 << (_EXACT_BITS - 1)  # of each power of two
MICROSECONDS_MAX = (1 << 40) - 1  # twelve days
_BUCKETS = (40 - _EXACT_BITS + 2) * _PARTS


class LatencyHistogram:
    """Collects latencies in microseconds."""

    __slots__ = ("_counts", "count", "max_us")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.max_us = 0

    def add(self, microseconds: int) -> None:
        """Count one latency; a negative one counts as 0."""
        if microseconds > self.max_us:
            self.max_us = microseconds = min(microseconds, MICROSECONDS_MAX)
        shift = microseconds.bit_length() - _EXACT_BITS
        self.count += 1
        if shift > 0:
            self._counts[shift * _PARTS + (microseconds >> shift)] += 1
        else:
            self._counts[microseconds if microseconds > 0 else 0] += 1

    def merge(self, others: Iterable[LatencyHistogram]) -> LatencyHistogram:
        """Add the counts of others."""
        for other in others:
            self._counts = [mine + theirs for mine, theirs in zip(self._counts, other._counts, strict=True)]
            self.count += other.count
            self.max_us = max(self.max_us, other.max_us)
        return self

    def percentile(self, percent: float) -> int | None:
        """Return a percentile of the latencies, at most one percent too high; None when empty.

        >>> latencies = LatencyHistogram()
        >>> for microseconds in range(1, 101): latencies.add(microseconds)
        >>> latencies.percentile(50), latencies.percentile(99), latencies.percentile(100)
        (50, 99, 100)
        """
        if self.count == 0:
            return None
        needed = max(1, -(-self.count * percent // 100))  # rounded up
        counted = 0
        for bucket, count in enumerate(self._counts):
            counted += count
            if counted >= needed:
                return min(_highest(bucket), self.max_us)
        return self.max_us


def _highest(bucket: int) -> int:
    """Return the largest latency in a bucket."""
    shift = max(0, bucket // _PARTS - 1)
    return (((bucket - shift * _PARTS) + 1) << shift) - 1
