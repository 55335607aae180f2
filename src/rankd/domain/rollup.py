"""Roll-ups: a longer window that adds up what each shorter one in it kept, `keep = "sum_of_daily"`."""

from __future__ import annotations

from enum import StrEnum

from rankd.domain.order import Keep
from rankd.domain.window import Kind, Window


class RollUp(StrEnum):
    """The sum of a player's kept scores in the hours, days or weeks of a longer window."""

    SUM_OF_HOURLY = "sum_of_hourly"
    SUM_OF_DAILY = "sum_of_daily"
    SUM_OF_WEEKLY = "sum_of_weekly"

    @property
    def part(self) -> Kind:
        """The shorter window whose kept scores are added up."""
        return Kind(self.removeprefix("sum_of_"))


WindowKeep = Keep | RollUp

_NESTS_IN = {
    Kind.HOURLY: (Kind.DAILY, Kind.WEEKLY, Kind.MONTHLY, Kind.YEARLY, Kind.ALL_TIME),
    Kind.DAILY: (Kind.WEEKLY, Kind.MONTHLY, Kind.YEARLY, Kind.ALL_TIME),
    Kind.WEEKLY: (Kind.ALL_TIME,),
}


def why_not_nested(part: Window, whole: Window) -> str | None:
    """Return why instances of `part` do not lie within those of `whole`; None when they all do.

    Hours nest in days in every time zone, since the board's clock cuts an hour where its day ends.
    """
    if whole.kind in _NESTS_IN.get(part.kind, ()):
        return None
    if whole.kind is Kind.PERIOD:
        return _why_not_in_period(part, whole)
    if part.kind is Kind.WEEKLY and whole.kind in (Kind.MONTHLY, Kind.YEARLY):
        return f"a week may begin in one {whole.name.removesuffix('ly')} and end in the next"
    if whole.kind is Kind.CRON:
        return f"{whole.name} resets by a cron expression, which may fall inside one of the {part.name} windows"
    return f"{whole.name} is not longer than {part.name}"


def _why_not_in_period(part: Window, period: Window) -> str | None:
    span = period.span(period.name)
    for edge, at in (("start", span.start), ("end", span.end)):
        if at is not None and not part.begins_at(at):
            return f"the {edge} of {period.name} falls inside one of the {part.name} windows"
    return None


def rolled_up(total: int, before: int | None, after: int | None) -> int:
    """Return the wide total after one part went from `before` to `after`; None is a part without a score.

    Clamp it only when it is read (`score.clamped`).

    >>> rolled_up(100, before=30, after=45)
    115
    """
    return total - (before or 0) + (after or 0)
