"""Durations, written `<int>ms|s|m|h|d` and held as whole milliseconds."""

from __future__ import annotations

import re

from rankd.errors import InvalidValue
from rankd.shortening import quote

UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
DURATION_MS_MAX = 36_500 * UNITS_MS["d"]
_WRITTEN = re.compile(r"(0|[1-9][0-9]{0,14})(ms|s|m|h|d)")


def parse_duration(field: str, value: object, at_least_ms: int = 0) -> int:
    """Parse a duration such as `5m` into milliseconds.

    >>> parse_duration("late_by", "5m")
    300000
    """
    if not isinstance(value, str):
        raise InvalidValue(field, f'must be text such as "5m" or "30d"; got {type(value).__name__}')
    written = _WRITTEN.fullmatch(value)
    if written is None:
        raise InvalidValue(field, f'must be a whole number and ms, s, m, h or d, such as "5m"; got {quote(value)}')
    duration_ms = int(written[1]) * UNITS_MS[written[2]]
    if not at_least_ms <= duration_ms <= DURATION_MS_MAX:
        low, high = format_duration(at_least_ms), format_duration(DURATION_MS_MAX)
        raise InvalidValue(field, f"must be from {low} to {high}; got {value}")
    return duration_ms


def format_duration(duration_ms: int) -> str:
    """Write a duration in its largest whole unit, so that equal durations read alike.

    >>> format_duration(300_000), format_duration(90_000), format_duration(0)
    ('5m', '90s', '0s')
    """
    if duration_ms == 0:
        return "0s"
    for unit, unit_ms in UNITS_MS.items():
        if duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms}{unit}"
    raise AssertionError("every whole number is divisible by one millisecond")
