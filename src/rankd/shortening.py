"""How much of a text an error repeats. What comes from outside may be as long as a request, so it is cut here, before
anything else is done with it; `…` stands where it was cut, and whatever masks secrets knows that mark.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

NAME_CHARACTERS_MAX = 80  # of a name that was sent
FIELD_CHARACTERS_MAX = 500  # of what an error is about: the file and the line of a setting stand before its name
MESSAGE_CHARACTERS_MAX = 2_500  # of an error's message as a whole
NAMES_LISTED_MAX = 20  # in one message
CUT = "…"


def shorten(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Return a text of at most so many characters, with an ellipsis where it was cut.

    >>> shorten("score", 5), shorten("scores", 5)
    ('score', 'scor…')
    """
    return text if len(text) <= characters_max else text[: characters_max - 1] + CUT


def quote(value: object) -> str:
    """Return what was sent as a message repeats it, in quotes; nothing is made of more than is shown.

    >>> quote("weekly"), quote("w" * 1000)[-3:]
    ("'weekly'", 'ww…')
    """
    return shorten(repr(value[: NAME_CHARACTERS_MAX + 1] if isinstance(value, str) else value))


def list_names(names: Collection[str]) -> str:
    """Return names as a message lists them: the first twenty, and how many more there are.

    >>> list_names(["all_time", "weekly"])
    'all_time, weekly'
    >>> list_names([f"s{number}" for number in range(1000)])[-21:]
    's18, s19 and 980 more'
    """
    shown = [shorten(name) for name in islice(names, NAMES_LISTED_MAX)]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
