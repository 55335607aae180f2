"""Player ids: any short text, kept to the byte."""

from __future__ import annotations

from rankd.domain.text import check_text
from rankd.errors import InvalidValue

PLAYER_BYTES_MAX = 128


def check_player(value: object, field: str = "player") -> str:
    """Return a player's id unchanged: 1 to 128 bytes of UTF-8, no control characters, not `.` or `..`.

    >>> check_player("Zoë")
    'Zoë'
    """
    # Most ids are plain ASCII: a fast test spares them the whole check.
    if (
        type(value) is str
        and 0 < len(value) <= PLAYER_BYTES_MAX
        and value.isascii()
        and value.isprintable()
        and value[0] != "."
    ):
        return value
    player = check_text(field, value, PLAYER_BYTES_MAX)
    if player in (".", ".."):
        raise InvalidValue(field, f"must not be {player!r}, which means a folder in a path; choose another id")
    return player
