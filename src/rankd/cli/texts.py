"""Values as text for people: numbers, times, shares."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rankd.domain.text import escaped

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def field(value: object) -> str:
    """Return a value as one field of tab-separated text; None is an empty one.

    >>> field("a\\tb"), field(None), field(True), field(-5)
    ('a\\\\tb', '', 'true', '-5')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return escaped(str(value))


def score_text(score: int, decimals: int = 0) -> str:
    """Return a score with separators and the board's decimals.

    >>> score_text(1234567), score_text(-5, 2), score_text(123456, 2)
    ('1,234,567', '-0.05', '1,234.56')
    """
    sign, digits = ("-" if score < 0 else ""), f"{abs(score):0{decimals + 1}}"
    if decimals == 0:
        return f"{score:,}"
    return f"{sign}{int(digits[:-decimals]):,}.{digits[-decimals:]}"


def instant_text(at: int, time_zone: str = "UTC") -> str:
    """Return an instant in a time zone, with ms only where they are not 0.

    >>> instant_text(1_777_896_000_000, "America/Sao_Paulo"), instant_text(1_777_896_000_250)
    ('2026-05-04 09:00:00', '2026-05-04 12:00:00.250')
    """
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # known to a newer server only
        zone = ZoneInfo("UTC")
    moment = (_EPOCH + timedelta(milliseconds=at)).astimezone(zone)
    return moment.isoformat(sep=" ", timespec="milliseconds" if at % 1_000 else "seconds")[: 23 if at % 1_000 else 19]


def utc_text(at: int) -> str:
    """Return an instant in ISO 8601, UTC.

    >>> utc_text(1_777_896_000_250)
    '2026-05-04T12:00:00.250Z'
    """
    return (_EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def share_text(percent: float) -> str:
    """Return a share in percent, with enough digits to differ from 0 and 100.

    >>> share_text(40.0), share_text(99.9995), share_text(0.00123)
    ('40 %', '99.9995 %', '0.0012 %')
    """
    distance = min(percent, 100 - percent)
    places = 2 if distance >= 0.01 or distance <= 0 else 4
    return f"{percent:.{places}f}".rstrip("0").rstrip(".") + " %"


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "player"), counted(2_000, "player"), counted(3, "entry", "entries")
    ('1 player', '2,000 players', '3 entries')
    """
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"
