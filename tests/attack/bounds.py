"""How late the healthy client may be served, and how much memory an attack may cost: the rules, in one place.

Nobody else's request may be answered later than 100 ms. That holds for a server that has two cores for itself; tests
share theirs. So what the machine made server and client wait is taken off each latency (`healthy.py`), the healthy
client measures how late the same server answers it before the attack (its baseline), and

    p99 ≤ max(100 ms, 4 × baseline p99)     one request in a hundred, and at least one, is left out
    max ≤ 3 × that

The short form runs beside other tests, on machines that may be half as fast: 500 ms, and 5 × that.

Memory is the server's resident set. An attack says what it may grow by. Within 10 s after the attack no more than
32 MiB of that may be left: allocators keep a little of what they once had.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.timing import BUSY_MACHINE

from .healthy import ClientRecord

MIB = 1024 * 1024
LATE_MS = 100.0
LATE_SHORT_MS = LATE_MS * BUSY_MACHINE
BASELINES = 4.0
MAX_SHORT = 5.0
MAX_LONG = 3.0
GROWTH_MIB_MAX = 32.0
LEFT_MIB_MAX = 32.0
LEFT_WAIT_S = 10.0 * BUSY_MACHINE
WEB_SOCKET_HELD_MIB_MAX = 64 / 1024  # of one connection, whatever it sends


def late_ms(baseline: ClientRecord, *, is_long: bool) -> float:
    """Return how late all but one in a hundred requests may be."""
    return max(LATE_MS if is_long else LATE_SHORT_MS, BASELINES * baseline.p99_ms)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was seen of an attack, in the order in which the report shows it."""

    attack: str
    baseline: ClientRecord
    healthy: ClientRecord
    before_bytes: int
    peak_bytes: int
    after_bytes: int

    @property
    def grown_mib(self) -> float:
        """By how much the server's memory had grown at most."""
        return (self.peak_bytes - self.before_bytes) / MIB

    @property
    def left_mib(self) -> float:
        """How much of that it still had when the attack was over."""
        return (self.after_bytes - self.before_bytes) / MIB

    def row(self) -> list[str]:
        """Return what the report shows."""
        beside, alone = self.healthy, self.baseline
        times = [alone.p99_ms, beside.p50_ms, beside.p99_ms, beside.max_ms, beside.raw_p99_ms]
        memory = [self.before_bytes, self.peak_bytes, self.after_bytes]
        return [self.attack, *(f"{time:.1f}" for time in times), *(f"{size / MIB:.0f}" for size in memory)]

    def broken(self, growth_mib_max: float, left_mib_max: float, *, is_long: bool) -> list[str]:
        """Return which rules it broke, each with its figures."""
        p99_ms = late_ms(self.baseline, is_long=is_long)
        max_ms = p99_ms * (MAX_LONG if is_long else MAX_SHORT)
        beside = self.healthy
        problems = [f"the healthy client was not served: {'; '.join(beside.failures)}"] if beside.failures else []
        for name, value, bound, unit in (
            ("p99 of the healthy client", beside.p99_ms, p99_ms, "ms"),
            ("max of the healthy client", beside.max_ms, max_ms, "ms"),
            ("growth of the server's memory", self.grown_mib, growth_mib_max, "MiB"),
            ("memory that did not come back", self.left_mib, left_mib_max, "MiB"),
        ):
            if value > bound:
                problems.append(f"{name}: {value:.1f} {unit}, and may be {bound:.1f}")
        return problems


COLUMNS = (
    *("attack", "p99 alone, ms", "p50, ms", "p99, ms", "max, ms", "p99 with the machine's waits, ms"),
    *("memory before, MiB", "at its peak", "after"),
)
