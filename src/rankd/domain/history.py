"""What a board remembers of its past: how often, how many places, for how long."""

from __future__ import annotations

import msgspec

from rankd.domain.duration import UNITS_MS, format_duration, parse_duration
from rankd.domain.fields import read_integer, read_object, type_name
from rankd.errors import InvalidValue
from rankd.shortening import quote

DAY_MS, HOUR_MS = UNITS_MS["d"], UNITS_MS["h"]
EVERY = {"1d": DAY_MS, "1h": HOUR_MS}  # at each local midnight, or hour
TOP_MAX = 1_000_000_000
TOP_DEFAULT = 1_000
KEEP_MS_DEFAULT = 730 * UNITS_MS["d"]
ALL = "all"


class History(msgspec.Struct, frozen=True):
    """Places and scores are kept of the first `top` players, or of all where it is None, for `keep_ms`."""

    every_ms: int = DAY_MS
    top: int | None = TOP_DEFAULT
    keep_ms: int = KEEP_MS_DEFAULT


def read_history(value: object) -> History | None:
    """Return the history of a definition; None where nothing is kept."""
    if value is None:
        return None
    given = read_object("history", value, ("every", "top", "keep"), '{"every": "1d", "top": 1000, "keep": "730d"}')
    every_ms = parse_duration("history.every", given.get("every", "1d"))
    if every_ms not in EVERY.values():
        raise InvalidValue(
            "history.every", f'must be "1d", at each local midnight, or "1h"; got {quote(str(given["every"]))}'
        )
    keep_ms = parse_duration("history.keep", given.get("keep", format_duration(KEEP_MS_DEFAULT)), at_least_ms=DAY_MS)
    return History(every_ms, _top(given.get("top", TOP_DEFAULT)), keep_ms)


def history_of(history: History | None) -> dict[str, object] | None:
    """Return a history as it is written."""
    if history is None:
        return None
    return {
        "every": format_duration(history.every_ms),
        "top": ALL if history.top is None else history.top,
        "keep": format_duration(history.keep_ms),
    }


def _top(value: object) -> int | None:
    if value == ALL:
        return None
    if isinstance(value, str):
        raise InvalidValue("history.top", f'must be a number of players, or "all"; got {quote(value)}')
    if type(value) is not int:
        raise InvalidValue("history.top", f'must be a number of players, or "all"; got {type_name(value)}')
    return read_integer("history.top", value, 1, TOP_MAX)
