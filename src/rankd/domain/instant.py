"""Instants: milliseconds since 1970 in UTC, their text forms, and the range that events allow."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from rankd.errors import InvalidValue
from rankd.shortening import quote

AT_MS_END = 7_258_118_400_000  # 2200-01-01T00:00:00Z, exclusive: decay keys and tie fields are sized by it
AHEAD_MS_MAX = 5_000
YEAR_MIN, YEAR_MAX = 1900, 2299  # of instance names: wider than `at`, since a year around 1970 begins before it

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_COMPACT = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d)(\d\d)(\d\d)?Z", re.ASCII)


def check_at(value: object, field: str = "at") -> int:
    """Return an instant if it is an integer of milliseconds from 1970 to 2199."""
    if type(value) is not int:
        raise InvalidValue(field, f"must be integer milliseconds since 1970; got {type(value).__name__}")
    if not 0 <= value < AT_MS_END:
        raise InvalidValue(field, f"must be milliseconds from 1970 to 2199, 0 to {AT_MS_END - 1}")
    return value


def check_sent_at(value: object, now: int, late_by_ms: int | None) -> int:
    """Return the `at` a service sent: not later than now + 5 s and not older than the board's `late_by`.

    With None for `late_by_ms`, an administrator's import, it may go back to 1970.
    """
    at = check_at(value)
    if at > now + AHEAD_MS_MAX:
        raise InvalidValue("at", f"is {at - now} ms ahead of this server; at most {AHEAD_MS_MAX} ms are allowed")
    if late_by_ms is not None and at < now - late_by_ms:
        raise InvalidValue(
            "at", f"is {now - at} ms ago; this board takes events up to {late_by_ms} ms late: import older ones"
        )
    return at


def parse_instant(field: str, value: object) -> int:
    """Parse an instant: milliseconds, RFC 3339 text or a TOML date-time.

    >>> parse_instant("start", "2026-06-01T00:00:00+02:00")
    1780264800000
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidValue(field, "must say its offset from UTC, such as 2026-06-01T00:00:00Z")
        return check_at(_milliseconds(field, value), field)
    if isinstance(value, str):
        if _RFC_3339.fullmatch(value) is None:
            raise InvalidValue(
                field, f'must be milliseconds or RFC 3339 such as "2026-06-01T00:00:00Z"; got {quote(value)}'
            )
        try:
            read = datetime.fromisoformat(value.upper())
        except ValueError as problem:
            raise InvalidValue(field, f"is no date and time: {problem}; got {quote(value)}") from None
        return check_at(_milliseconds(field, read), field)
    return check_at(value, field)


def _milliseconds(field: str, moment: datetime) -> int:
    since = moment - EPOCH
    if since % _MILLISECOND:
        raise InvalidValue(field, "must be a whole millisecond")
    return since // _MILLISECOND


@lru_cache(maxsize=4096)
def compact_utc(at: int) -> str:
    """Return an instant as in the names of window instances, with seconds only where they are not 0.

    >>> compact_utc(1_792_890_000_000)
    '2026-10-25T0100Z'
    """
    moment = EPOCH + timedelta(milliseconds=at)
    return moment.strftime("%Y-%m-%dT%H%M%SZ" if moment.second else "%Y-%m-%dT%H%MZ")


def parse_compact_utc(text: str) -> int | None:
    """Parse a result of `compact_utc`; None for any other text."""
    written = _COMPACT.fullmatch(text)
    if written is None:
        return None
    try:
        moment = datetime(*(int(part or 0) for part in written.groups()), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError:
        return None
    at = (moment - EPOCH) // _MILLISECOND
    return at if YEAR_MIN <= moment.year <= YEAR_MAX and compact_utc(at) == text else None
