"""Answers without a struct in the library."""

from __future__ import annotations

from typing import Any

import msgspec

from rankd.backup.archiver import ArchiveStatus
from rankd.ledger.port import PastEvent
from rankd.registry.port import Profile


class BoardList(msgspec.Struct, frozen=True):
    """Definitions of boards with their ids; `next` is the `cursor` of the next page, null at the end."""

    boards: list[dict[str, Any]]
    next: str | None


class PlayerList(msgspec.Struct, frozen=True):
    """The players a search found."""

    players: list[Profile]


class Events(msgspec.Struct, frozen=True):
    """A player's events, the newest first; `next` is the `before` of the next page, null at the end."""

    events: list[PastEvent]
    next: int | None


class AcceptedScore(msgspec.Struct, frozen=True):
    """A score that is durable and will be ranked: a read `at_least` at its position waits for that."""

    position: str
    status: str = "accepted"
    repeated: bool = False


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the server."""

    status: str
    version: str
    position: str | None = None
    archive: ArchiveStatus | None = None  # how far it is behind, where an embedded ledger is sent to one
