"""Roll-ups: a longer window that adds up the kept scores of the shorter ones in it, `keep = "sum_of_daily"`."""

from __future__ import annotations

from enum import StrEnum

from rankd.domain.order import Keep
from rankd.domain.window import Window, WindowKind


class RollUp(StrEnum):
    """The sum of a player's kept scores in the hours, days or weeks of a longer window."""

    SUM_OF_HOURLY = "sum_of_hourly"
    SUM_OF_DAILY = "sum_of_daily"
    SUM_OF_WEEKLY = "sum_of_weekly"

    @property
    def part(self) -> WindowKind:
        """The shorter window whose kept scores are added up."""
        return WindowKind(self.removeprefix("sum_of_"))


WindowKeep = Keep | RollUp

_NESTS_IN = {
    WindowKind.HOURLY: (
        WindowKind.DAILY,
        WindowKind.WEEKLY,
        WindowKind.MONTHLY,
        WindowKind.YEARLY,
        WindowKind.ALL_TIME,
    ),
    WindowKind.DAILY: (WindowKind.WEEKLY, WindowKind.MONTHLY, WindowKind.YEARLY, WindowKind.ALL_TIME),
    WindowKind.WEEKLY: (WindowKind.ALL_TIME,),
}


def why_not_nested(part: Window, whole: Window) -> str | None:
    """Return why instances of `part` do not lie within those of `whole`; None when they all do.

    Hours nest in days in every time zone: the board's clock ends an hour with its day.
    """
    if whole.kind in _NESTS_IN.get(part.kind, ()):
        return None
    if whole.kind is WindowKind.PERIOD:
        return _why_not_in_period(part, whole)
    if part.kind is WindowKind.WEEKLY and whole.kind in (WindowKind.MONTHLY, WindowKind.YEARLY):
        return f"a week may begin in one {whole.name.removesuffix('ly')} and end in the next"
    if whole.kind is WindowKind.CRON:
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

    Readers clamp it (`score.clamped`).

    >>> rolled_up(100, before=30, after=45)
    115
    """
    return total - (before or 0) + (after or 0)
