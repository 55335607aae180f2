"""What a run found out, for people and programs."""

from __future__ import annotations

import msgspec

from rankd.bench.histogram import Histogram
from rankd.bench.load import Kind, Load

LATE_MS_MAX = 5.0  # how late the generator itself may send, by the 99th percentile
PROCESSOR_SHARE_MAX = 0.9  # of one core, which is all the generator can use
RATE_SHARE_MIN = 0.99
UNSENT, UNANSWERED, TIMED_OUT = "unsent", "unanswered", "timeout"


class Latencies(msgspec.Struct, frozen=True):
    """How long things took, in milliseconds; None where nothing was counted."""

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None

    @classmethod
    def of(cls, counted: Histogram) -> Latencies:
        """Read them off what was counted."""
        found = [counted.percentile(percent) for percent in (50, 95, 99, 100)]
        return cls(*(None if us is None else us / 1_000 for us in found))


class Tally:
    """What became of the requests of one kind, while a run goes on."""

    __slots__ = ("answered", "errors", "latency", "sent")

    def __init__(self) -> None:
        """Nothing was sent yet."""
        self.sent = 0
        self.answered = 0  # as asked: with a status of 2xx
        self.errors = 0
        self.latency = Histogram()


class KindReport(msgspec.Struct, frozen=True):
    """What became of the requests of one kind; latencies count from the instant each was due.

    A refusal is not in the latencies, since it may be quick; what was never answered is, with as long as it waited.
    """

    sent: int
    answered: int
    errors: int
    latencies: Latencies


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    duration_s: float
    rate_asked: float | None  # None: as fast as answers came
    rate: float  # sent within the duration, a second
    sent: int
    answered: int
    errors: dict[str, int]  # by status, or by what happened in place of an answer
    first_errors: dict[str, str]  # what the server said the first time
    kinds: dict[str, KindReport]
    latencies: Latencies  # of all kinds
    after_sending: Latencies  # of all kinds, counted from when they were sent
    generator_late: Latencies  # how late requests were sent though a connection was free
    waited_for_connection: int  # requests that were due while all connections were busy
    reconnected: int  # connections made in place of some that ended
    processor_share: float  # of one core, used by the generator
    warnings: list[str]


class Found(msgspec.Struct, kw_only=True):
    """What a run has counted when it ends."""

    tallies: dict[Kind, Tally]
    after_sending: Histogram
    late: Histogram
    sent_in_time: int
    errors: dict[str, int]
    first_errors: dict[str, str]
    waited_for_connection: int
    reconnected: int
    processor_s: float
    elapsed_s: float


def report_of(load: Load, found: Found) -> Report:
    """Sum a run up."""
    late = Latencies.of(found.late)
    rate = found.sent_in_time / load.duration_s
    share = found.processor_s / found.elapsed_s
    return Report(
        duration_s=load.duration_s,
        rate_asked=load.rate or None,
        rate=rate,
        sent=sum(tally.sent for tally in found.tallies.values()),
        answered=sum(tally.answered for tally in found.tallies.values()),
        errors=dict(sorted(found.errors.items())),
        first_errors=found.first_errors,
        kinds={
            kind.value: KindReport(tally.sent, tally.answered, tally.errors, Latencies.of(tally.latency))
            for kind, tally in found.tallies.items()
        },
        latencies=Latencies.of(Histogram().merge(tally.latency for tally in found.tallies.values())),
        after_sending=Latencies.of(found.after_sending),
        generator_late=late,
        waited_for_connection=found.waited_for_connection,
        reconnected=found.reconnected,
        processor_share=share,
        warnings=_warnings(load, found, rate, share, late.p99_ms or 0.0),
    )


def _warnings(load: Load, found: Found, rate: float, share: float, late_ms: float) -> list[str]:
    """Say what a reader must know before trusting the figures."""
    warnings = []
    is_short = bool(load.rate) and found.sent_in_time < RATE_SHARE_MIN * _due(found)
    is_full = share > PROCESSOR_SHARE_MAX
    if is_full and (is_short or late_ms > LATE_MS_MAX or not load.rate):
        warnings.append(
            f"the generator itself cannot do more: it used {share:.0%} of a core, and sent up to {late_ms:.1f} ms "
            "late. The server may be faster than this says; ask for a lower rate, or run several"
        )
    elif late_ms > LATE_MS_MAX:
        warnings.append(
            f"the generator cannot keep the instants: it sent up to {late_ms:.1f} ms late, though it used only "
            f"{share:.0%} of a core. The machine is busy; give the generator a core of its own"
        )
    elif is_short:
        warnings.append(
            f"the rate was not kept: {rate:,.0f}/s of {load.rate:,.0f}/s were sent in time, since all "
            f"{load.connections} connections waited for answers; latencies count the wait. Where answers are quick, "
            "give it more connections"
        )
    return warnings


def _due(found: Found) -> int:
    return sum(tally.sent for tally in found.tallies.values()) + found.errors.get(UNSENT, 0)
