"""Answers that the library has no struct for."""

from __future__ import annotations

from typing import Any

import msgspec

from rankd.ledger.port import PastEvent
from rankd.registry.port import Profile


class BoardList(msgspec.Struct, frozen=True):
    """Boards by their definitions and ids; `next` is the `cursor` of the next page, null at the end."""

    boards: list[dict[str, Any]]
    next: str | None


class Found(msgspec.Struct, frozen=True):
    """The players a search found."""

    players: list[Profile]


class Events(msgspec.Struct, frozen=True):
    """A player's events, the newest first; `next` is the `before` of those that are older, null at the end."""

    events: list[PastEvent]
    next: int | None


class Waiting(msgspec.Struct, frozen=True):
    """A score that is durable and will be ranked: `at_least` with its position waits for that."""

    position: str
    status: str = "accepted"
    repeated: bool = False


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the server is."""

    status: str
    version: str
    position: str | None = None
