"""Where a request came from, as a ledger keeps it with the request's events."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

USER_AGENT_CHARACTERS_MAX = 256
_UNREADABLE = "\ufffd"


class RequestOrigin(msgspec.Struct, frozen=True):
    """The sender's address and what the request said of itself."""

    address: str
    user_agent: str | None = None
    request_id: str | None = None


class OriginSpan(NamedTuple):
    """The origin of `events` events of a draft, from index `first` on."""

    origin: RequestOrigin
    first: int
    events: int


def readable_user_agent(sent: bytes | None) -> str | None:
    r"""Return a User-Agent as one line of bounded length, whatever bytes it has; None where nothing was sent.

    >>> readable_user_agent(b"game/1.2\x00\x1b[31m\xff")
    'game/1.2\ufffd\ufffd[31m\ufffd'
    """
    if not sent:
        return None
    # No character has more than four bytes, so those that are cut off are not needed.
    text = sent[: 4 * USER_AGENT_CHARACTERS_MAX].decode("utf-8", "replace")[:USER_AGENT_CHARACTERS_MAX]
    return "".join(character if character.isprintable() else _UNREADABLE for character in text)
