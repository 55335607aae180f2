"""The report of a run, for people and programs."""

from __future__ import annotations

import msgspec

from rankd.bench.histogram import LatencyHistogram
from rankd.bench.load import Load, RequestKind

LATE_MS_MAX = 5.0  # of the generator's own delay, at the 99th percentile
PROCESSOR_SHARE_MAX = 0.9  # of one core, which is all the generator can use
RATE_SHARE_MIN = 0.99
UNSENT, UNANSWERED, TIMED_OUT = "unsent", "unanswered", "timeout"


class Latencies(msgspec.Struct, frozen=True):
    """Percentiles of latencies in milliseconds; None where nothing was counted."""

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None

    @classmethod
    def of(cls, histogram: LatencyHistogram) -> Latencies:
        """Return the percentiles of a histogram."""
        percentiles = [histogram.percentile(percent) for percent in (50, 95, 99, 100)]
        return cls(*(None if us is None else us / 1_000 for us in percentiles))


class Tally:
    """The counts of one kind of requests during a run."""

    __slots__ = ("answered", "errors", "latency", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.answered = 0  # with a status of 2xx
        self.errors = 0
        self.latency = LatencyHistogram()


class KindReport(msgspec.Struct, frozen=True):
    """The results of one kind of requests; latencies count from the instant each was due.

    The latencies leave out refusals, which may be quick, and include unanswered requests with the time they waited.
    """

    sent: int
    answered: int
    errors: int
    latencies: Latencies


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one run."""

    duration_s: float
    rate_asked: float | None  # None: as fast as answers came
    rate: float  # sent a second, within the duration
    sent: int
    answered: int
    errors: dict[str, int]  # by status, or by what happened in place of an answer
    first_errors: dict[str, str]  # the server's first answer of each
    kinds: dict[str, KindReport]
    latencies: Latencies  # of all kinds
    after_sending: Latencies  # of all kinds, counted from the send
    generator_late: Latencies  # how late requests were sent though a connection was free
    waited_for_connection: int  # requests that were due while all connections were busy
    reconnected: int  # connections that replaced lost ones
    processor_share: float  # of one core, used by the generator
    warnings: list[str]


class RunTotals(msgspec.Struct, kw_only=True):
    """The counts of a run at its end."""

    tallies: dict[RequestKind, Tally]
    after_sending: LatencyHistogram
    late: LatencyHistogram
    sent_in_time: int
    errors: dict[str, int]
    first_errors: dict[str, str]
    waited_for_connection: int
    reconnected: int
    processor_s: float
    elapsed_s: float


def report_of(load: Load, totals: RunTotals) -> LoadReport:
    """Return the report of a run."""
    late = Latencies.of(totals.late)
    rate = totals.sent_in_time / load.duration_s
    share = totals.processor_s / totals.elapsed_s
    return LoadReport(
        duration_s=load.duration_s,
        rate_asked=load.rate or None,
        rate=rate,
        sent=sum(tally.sent for tally in totals.tallies.values()),
        answered=sum(tally.answered for tally in totals.tallies.values()),
        errors=dict(sorted(totals.errors.items())),
        first_errors=totals.first_errors,
        kinds={
            kind.value: KindReport(tally.sent, tally.answered, tally.errors, Latencies.of(tally.latency))
            for kind, tally in totals.tallies.items()
        },
        latencies=Latencies.of(LatencyHistogram().merge(tally.latency for tally in totals.tallies.values())),
        after_sending=Latencies.of(totals.after_sending),
        generator_late=late,
        waited_for_connection=totals.waited_for_connection,
        reconnected=totals.reconnected,
        processor_share=share,
        warnings=_warnings(load, totals, rate, share, late.p99_ms or 0.0),
    )


def _warnings(load: Load, totals: RunTotals, rate: float, share: float, late_ms: float) -> list[str]:
    """Return what makes the figures doubtful."""
    warnings = []
    is_short = bool(load.rate) and totals.sent_in_time < RATE_SHARE_MIN * _due(totals)
    is_full = share > PROCESSOR_SHARE_MAX
    if is_full and (is_short or late_ms > LATE_MS_MAX or not load.rate):
        warnings.append(
            f"the generator itself is at its limit: it used {share:.0%} of a core, and sent up to {late_ms:.1f} ms "
            "late. The server may be faster than this report; choose a lower rate, or run several generators"
        )
    elif late_ms > LATE_MS_MAX:
        warnings.append(
            f"the generator is late: it sent up to {late_ms:.1f} ms after the schedule, though it used only "
            f"{share:.0%} of a core. The machine is busy; give the generator a core of its own"
        )
    elif is_short:
        warnings.append(
            f"the rate was not kept: {rate:,.0f}/s of {load.rate:,.0f}/s were sent in time, since all "
            f"{load.connections} connections waited for answers; latencies include the wait. Where answers are quick, "
            "use more connections"
        )
    return warnings


def _due(totals: RunTotals) -> int:
    return sum(tally.sent for tally in totals.tallies.values()) + totals.errors.get(UNSENT, 0)
