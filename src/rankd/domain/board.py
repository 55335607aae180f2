"""A board: one definition, and the rules derived from it for events and reads.

`definition.py` makes boards from written definitions and refuses bad ones; a Board is always consistent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from rankd.domain.calendar import Calendar, WeekStarts
from rankd.domain.decay import Decay
from rankd.domain.history import History
from rankd.domain.order import (
    SCORE_BOUND_DEFAULT,
    SCORE_MAX_POSSIBLE,
    SCORE_MIN_POSSIBLE,
    Keep,
    Order,
    Ranking,
    Rules,
    Ties,
)
from rankd.domain.reset import Hourly, ResetSchedule
from rankd.domain.rollup import RollUp, WindowKeep
from rankd.domain.scope import check_scope, scopes_of
from rankd.domain.score import check_score
from rankd.domain.team import Team
from rankd.domain.text import check_name
from rankd.domain.window import AllTime, ClockReading, Period, Window, WindowKind
from rankd.domain.zone import Zone, zone_named

TIE_RESOLUTION_MS_DEFAULT = 1_000
LATE_BY_MS_DEFAULT = 300_000


class Writes(StrEnum):
    """Who may send scores: the game's servers, or the players themselves too."""

    SERVER = "server"
    PLAYERS = "players"


@dataclass(frozen=True, slots=True)
class CronWindow:
    """A declared window that resets by a cron expression."""

    name: str
    reset: str


@dataclass(frozen=True, slots=True)
class DeclaredPeriod:
    """A declared period with start ≤ at < end, in ms."""

    name: str
    start: int
    end: int


BY_TIME = (Ties.EARLIEST, Ties.LATEST)
_BY_VALUE = Ties.VALUE  # looked up once: a member of an enumeration takes ten times as long as a name


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board's definition in canonical form: equal definitions make equal boards."""

    id: str
    title: str
    description: str | None = None
    keep: Mapping[str, WindowKeep] = field(default_factory=lambda: {"all_time": Keep.BEST})  # every window and period
    order: Order = Order.DESC
    ties: Ties = Ties.EARLIEST
    tie_resolution_ms: int = TIE_RESOLUTION_MS_DEFAULT
    ranking: Ranking = Ranking.ORDINAL
    windows: tuple[WindowKind | CronWindow, ...] = (WindowKind.ALL_TIME,)  # the first is the default of reads
    periods: tuple[DeclaredPeriod, ...] = ()  # by name
    time_zone: str = "UTC"
    week_starts: WeekStarts = WeekStarts.MONDAY
    scopes: tuple[str, ...] = ()  # by name
    with_global: bool = True
    score_min: int = -SCORE_BOUND_DEFAULT
    score_max: int = SCORE_BOUND_DEFAULT
    decimals: int = 0
    late_by_ms: int = LATE_BY_MS_DEFAULT
    retention_ms: Mapping[str, int] = field(default_factory=dict)  # by window or period; missing is forever
    history: History | None = None
    archive_keep_ms: Mapping[str, int] = field(default_factory=dict)  # by window or period; missing is forever
    archive_top: int | None = None  # entries of each scope in the archive; None is all
    feeds: tuple[str, ...] = ()  # by id
    team: Team | None = None
    decay: Decay | None = None
    writes: Writes = Writes.SERVER
    signing: str | None = None
    open: bool = True
    shards: int = 1
    exact_top: int | None = None
    scope_values_max: int | None = None  # of each attribute; None is the setting of the same name

    @property
    def zone(self) -> Zone:
        """The board's clock."""
        return zone_named(self.time_zone)

    @cached_property
    def all_windows(self) -> Mapping[str, Window]:
        """Windows and then periods, by name, in the order of declaration."""
        made = [self._make(declared) for declared in self.windows]
        made += [Period(period.name, period.start, period.end) for period in self.periods]
        return {window.name: window for window in made}

    @property
    def scope_count(self) -> int:
        """The number of scopes that an event with all attributes counts in."""
        return self.with_global + len(self.scopes)

    @cached_property
    def first_window(self) -> Window:
        """The default window of reads."""
        return next(iter(self.all_windows.values()))

    @cached_property
    def _recurring(self) -> tuple[Window, ...]:
        return tuple(window for window in self.all_windows.values() if window.kind is not WindowKind.PERIOD)

    @cached_property
    def _period_edges(self) -> list[int]:
        return sorted({edge for period in self.periods for edge in (period.start, period.end)})

    @cached_property
    def _periods_between(self) -> dict[int, tuple[Window, ...]]:
        return {}

    @cached_property
    def _resetting(self) -> tuple[ResetSchedule, ...]:
        return tuple(window for window in self.all_windows.values() if isinstance(window, ResetSchedule))

    def _make(self, declared: WindowKind | CronWindow) -> Window:
        if isinstance(declared, CronWindow):
            return ResetSchedule(declared.name, declared.reset, self.zone)
        if declared is WindowKind.ALL_TIME:
            return AllTime()
        if declared is WindowKind.HOURLY:
            return Hourly(self.zone)
        return Calendar(declared, self.zone, self.week_starts)

    def read_clock(self, at: int) -> ClockReading:
        """Return the clock reading to store with an event, which names its windows for ever."""
        resets = {window.name: window.start_at(at) for window in self._resetting}
        return ClockReading(at, self.zone.offset_at(at), resets)

    def clock_holds(self, at: int) -> tuple[int, int]:
        """Return the span (ms, end exclusive) around an instant in which `read_clock` returns the same."""
        start, end = self.zone.offset_holds(at)
        for window in self._resetting:
            last, following = window.bounds_at(at)
            start, end = max(start, last), min(end, following)
        return start, end

    def instances_of(self, reading: ClockReading) -> list[tuple[Window, str]]:
        """Return each window an event counts in, with the name of its instance."""
        named = ((window, window.instance_of(reading)) for window in self._recurring)
        instances = [(window, instance) for window, instance in named if instance is not None]
        instances.extend((period, period.name) for period in self._periods_at(reading.at))
        return instances

    def _periods_at(self, at: int) -> tuple[Window, ...]:
        # Periods add up over the years, but between two edges the same few are active.
        gap = bisect_right(self._period_edges, at)
        lasting = self._periods_between.get(gap)
        if lasting is None:
            periods = (window for window in self.all_windows.values() if window.kind is WindowKind.PERIOD)
            lasting = tuple(period for period in periods if period.instance_at(at) is not None)
            self._periods_between[gap] = lasting
        return lasting

    def window_of(self, instance: str) -> Window:
        """Return the declared window that an instance belongs to."""
        return self.all_windows.get(instance) or self.all_windows[instance.partition(":")[0]]

    def final_at(self, window: Window, instance: str) -> int | None:
        """Return when an instance closes: its end + late_by; None if it never ends."""
        end = window.span(instance).end
        return None if end is None else end + self.late_by_ms

    def gone_at(self, window: Window, instance: str) -> int | None:
        """Return when an instance is dropped: its end + late_by + retention; None for never."""
        final = self.final_at(window, instance)
        retention_ms = self.retention_ms.get(window.name)
        return None if final is None or retention_ms is None else final + retention_ms

    def archived_until(self, window: Window, closed_at: int) -> int | None:
        """Return when an instance that closed leaves the archive; None for never."""
        keep_ms = self.archive_keep_ms.get(window.name)
        return None if keep_ms is None else closed_at + keep_ms

    def rules_for(self, window: Window) -> Rules:
        """Return the rules of a window's ranked instances.

        Roll-ups and teams rank totals that the applier computes; the newest replaces the last: `latest`.
        """
        own = self.contribution_rules_for(window)
        keep = Keep.LATEST if self.team is not None else own.keep
        return Rules(keep, own.order, own.ties, own.score_min, own.score_max)

    def contribution_rules_for(self, window: Window) -> Rules:
        """Return the rules that keep a player's score; on a team board, within a team."""
        keep = self.keep[window.name]
        low, high = self.score_min, self.score_max
        if self.decay is not None:
            low, high = SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE  # decay keys are kept, not scores
        return Rules(Keep.LATEST if isinstance(keep, RollUp) else keep, self.order, self.ties, low, high)

    def check_score(self, value: object, field: str = "score") -> int:
        """Return a score that this board accepts, or refuse it."""
        if type(value) is int and self.score_min <= value <= self.score_max:
            return value
        return check_score(value, self.score_min, self.score_max, field, self.decimals)

    def ranked_score(self, score: int, at: int) -> int:
        """Return the number to keep and order: the score itself, or the key of a decaying score."""
        return score if self.decay is None else self.decay.key(score, at)

    def shown_score(self, ranked: int, now: int) -> int:
        """Return the current score of a kept number."""
        # A key is rounded up, so that a fresh score shows unchanged; above 2^50 it may show a few more. The board's
        # bounds do not apply: they may have changed since the score was accepted.
        return ranked if self.decay is None else min(SCORE_MAX_POSSIBLE, self.decay.effective(ranked, now))

    def tie_field(self, at: int, tiebreak: int = 0) -> int:
        """Return the tie field of an event: its step of time, its tiebreak, or 0 where only the id decides.

        A board with other ties ignores a tiebreak: the boards it feeds may use it.
        """
        if self.ties in BY_TIME:
            return at // self.tie_resolution_ms
        return tiebreak if self.ties == Ties.VALUE else 0

    def reached_at(self, tie: int) -> int | None:
        """Return when a kept score was reached, floored to `tie_resolution`; None where ties are not by time."""
        return tie * self.tie_resolution_ms if self.ties in BY_TIME else None

    def tiebreak(self, tie: int) -> int | None:
        """Return the tiebreak of a kept score; None where ties are not by value."""
        return tie if self.ties is _BY_VALUE else None

    def scopes_of(self, attributes: Mapping[str, str]) -> list[str]:
        """Return the scopes an event with these attributes counts in."""
        return scopes_of(attributes, self.scopes, self.with_global)

    def check_scope(self, value: object, field: str = "scope") -> str:
        """Return the scope of a read, or refuse one that this board does not declare."""
        return check_scope(value, self.scopes, self.with_global, field)


def check_board_id(value: object, field: str = "board") -> str:
    """Return the id of a board: 1 to 64 of a-z, 0-9, `_`, `.` and `-`, beginning with a letter or a digit."""
    return check_name(field, value)
