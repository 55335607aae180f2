"""The resets of a five-field cron expression on the wall clock of a time zone.

It behaves like Debian's cron: a fixed time that the clock repeats resets once, the first time, and one that it skips
resets at the change. An expression whose minute or hour begins with `*` follows real time: it resets in both repeated
hours and in no skipped one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError
from cronsim.cronsim import SYMBOLIC_DAYS, SYMBOLIC_MONTHS

from rankd.domain.zone import OFFSET_S_MAX, Zone
from rankd.errors import InvalidValue
from rankd.shortening import quote

EXPRESSION_CHARACTERS_MAX = 200
_SECOND = timedelta(seconds=1)
_LOCAL_ZERO = datetime(1970, 1, 1)  # a wall clock's reading, without offset
_FIELDS = "minute hour day-of-month month day-of-week"
_NAMED = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_STEPS_MAX = (59, 23, 31, 12, 7)  # of each field
_NUMBERS = {
    name: number
    for first, names in ((1, SYMBOLIC_MONTHS), (0, SYMBOLIC_DAYS))
    for number, name in enumerate(names, first)
}
_RANGE = re.compile(r"([0-9]+|[A-Z]+)-([0-9]+|[A-Z]+)(?:/[0-9]+)?")
_DAY_OR_MONTH = re.compile(
    r"\b(?:(JAN)UARY|(FEB)RUARY|(MAR)CH|(APR)IL|(JUN)E|(JUL)Y|(AUG)UST|(SEP)TEMBER|(OCT)OBER|(NOV)EMBER|(DEC)EMBER"
    r"|(SUN)DAY|(MON)DAY|(TUE)SDAY|(WED)NESDAY|(THU)RSDAY|(FRI)DAY|(SAT)URDAY)\b"
)


def check_cron(field: str, value: object) -> str:
    """Return a cron expression as five fields in one spelling; docs/glossary.md has the syntax.

    >>> check_cron("windows[1].reset", "0 18  * * friday")
    '0 18 * * FRI'
    >>> check_cron("windows[1].reset", "@daily")
    '0 0 * * *'
    """
    if not isinstance(value, str):
        raise InvalidValue(field, f'must be a cron expression such as "0 18 * * 5"; got {type(value).__name__}')
    if len(value) > EXPRESSION_CHARACTERS_MAX:
        raise InvalidValue(field, f"must have at most {EXPRESSION_CHARACTERS_MAX} characters; got {quote(value)}")
    written = value.strip().upper()
    parts = _DAY_OR_MONTH.sub(lambda name: name[0][:3], _NAMED.get(written, written)).split()
    if len(parts) != 5:
        raise InvalidValue(
            field, f'must have five fields, {_FIELDS}, such as "0 18 * * 5", or be such as @daily; got {quote(value)}'
        )
    expression = " ".join(map(_one_spelling, parts))
    for part, step_max in zip(parts, _STEPS_MAX, strict=True):
        for step in re.findall(r"/([0-9]+)", part):
            if not 1 <= int(step) <= step_max:
                raise InvalidValue(field, f"a step of {part!r:.40} must be from 1 to {step_max}; got {step!r:.10}")
    try:
        next(CronSim(expression, _LOCAL_ZERO))
    except (CronSimError, AssertionError) as problem:
        raise InvalidValue(field, f"is no cron expression ({problem}): {_FIELDS}; got {quote(value)}") from None
    except StopIteration:
        raise InvalidValue(field, f"never resets; give it a date that exists; got {quote(value)}") from None
    return expression


def _one_spelling(part: str) -> str:
    """Return a field with each range of one value, whatever its step, as that value: `3-3/2` is 3, `FRI-5` is FRI."""
    return ",".join(map(_collapsed, part.split(",")))


def _collapsed(term: str) -> str:
    ends = _RANGE.fullmatch(term)
    return ends[1] if ends and _number(ends[1]) == _number(ends[2]) else term


def _number(value: str) -> int | str:
    return int(value) if value.isdigit() else _NUMBERS.get(value, value)


class Cron:
    """The resets of one expression in one zone, as instants in ms."""

    def __init__(self, expression: str, zone: Zone) -> None:
        """`expression` is a result of `check_cron`."""
        minute, hour, *_ = expression.split()
        self._expression = expression
        self._follows_real_time = minute.startswith("*") or hour.startswith("*")
        self._periods = zone.wall
        self._starts = [period.start for period in zone.wall]

    def last(self, at: int) -> int:
        """Return the last reset up to and including an instant."""
        seconds = at // 1000
        index = self._index(seconds)
        while True:
            period = self._periods[index]
            low, gap = self._new_readings(index)
            match = self._match_before(min(seconds, period.end - 1) + period.offset)
            if match >= low or index == 0:
                return (match - period.offset) * 1000
            if gap <= match < low:
                return period.start * 1000
            # Nothing resets between the match and here: continue where the clock may have read it.
            index = min(index - 1, self._index(match + OFFSET_S_MAX))

    def next(self, at: int) -> int:
        """Return the first reset after an instant."""
        seconds = at // 1000 + 1
        index = self._index(seconds)
        while True:
            period = self._periods[index]
            low, gap = self._new_readings(index)
            begin = max(seconds + period.offset, low)
            if seconds <= period.start:
                begin = min(begin, gap)
            match = self._match_from(begin)
            if match < low:
                return period.start * 1000
            if match < period.end + period.offset:
                return (match - period.offset) * 1000
            index = max(index + 1, self._index(match - OFFSET_S_MAX))

    def _new_readings(self, index: int) -> tuple[int, int]:
        """Return the first reading of an offset period that counts, and the start of readings skipped before it."""
        period = self._periods[index]
        first = period.start + period.offset
        if index == 0 or self._follows_real_time:
            return first, first
        reached = period.start + self._periods[index - 1].offset
        return max(first, reached), reached

    def _match_before(self, reading: int) -> int:
        moment = next(CronSim(self._expression, _clock(reading) + _SECOND, reverse=True))
        return (moment - _LOCAL_ZERO) // _SECOND

    def _match_from(self, reading: int) -> int:
        moment = next(CronSim(self._expression, _clock(reading) - _SECOND))
        return (moment - _LOCAL_ZERO) // _SECOND

    def _index(self, seconds: int) -> int:
        return max(0, bisect_right(self._starts, seconds) - 1)


def _clock(reading: int) -> datetime:
    return _LOCAL_ZERO + timedelta(seconds=reading)
