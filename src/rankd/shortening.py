"""Shorten texts that an error repeats, before anything else is done with them: they may be as long as a request. `…`
marks the cut, and config/masking.py knows that mark.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

NAME_CHARACTERS_MAX = 80  # of a name that was sent
FIELD_CHARACTERS_MAX = 500  # of an error's field: for a setting, its file and line come first
MESSAGE_CHARACTERS_MAX = 2_500  # of an error's message as a whole
NAMES_LISTED_MAX = 20  # in one message
CUT = "…"


def shorten(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Return at most `characters_max` characters of a text, with an ellipsis where it was cut.

    >>> shorten("score", 5), shorten("scores", 5)
    ('score', 'scor…')
    """
    return text if len(text) <= characters_max else text[: characters_max - 1] + CUT


def quote(value: object) -> str:
    """Return a value as a message quotes it; only the part that is shown is formatted.

    >>> quote("weekly"), quote("w" * 1000)[-3:]
    ("'weekly'", 'ww…')
    """
    return shorten(repr(value[: NAME_CHARACTERS_MAX + 1] if isinstance(value, str) else value))


def list_names(names: Collection[str]) -> str:
    """Return names for a message: the first twenty, and how many more there are.

    >>> list_names(["all_time", "weekly"])
    'all_time, weekly'
    >>> list_names([f"s{number}" for number in range(1000)])[-21:]
    's18, s19 and 980 more'
    """
    shown = [shorten(name) for name in islice(names, NAMES_LISTED_MAX)]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
