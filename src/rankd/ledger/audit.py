"""What is asked of a ledger to find out who did what, and what it answers; port.py says which ledgers answer."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rankd.ledger.event import Context, EventKind, EventRun
from rankd.ledger.origin import RequestOrigin

LOOKED_AT_MAX = 500_000  # events, for one page
OF_PLAYER_MAX = 10_000  # events of a player, for one page
CONTROLS_OF_MAX = 10_000  # control events of a board


class AuditMark(NamedTuple):
    """Where a page ended: what follows is older. A ledger with one partition knows it by the sequence alone."""

    committed: int
    partition: int
    sequence: int


class AuditQuery(msgspec.Struct, frozen=True):
    """Which events are asked for; None does not narrow them."""

    limit: int
    player: str | None = None
    board: str | None = None
    kind: EventKind | None = None
    sender: str | None = None
    since: int | None = None  # the first commit time, in ms
    until: int | None = None  # and the last

    @property
    def is_about_contexts(self) -> bool:
        """Whether contexts decide."""
        return not (self.board is None and self.kind is None and self.sender is None)

    def matches(self, context: Context) -> bool:
        """Return whether events of a context are asked for."""
        return (
            (self.board is None or context.board == self.board)
            and (self.kind is None or context.kind is self.kind)
            and (self.sender is None or context.sender == self.sender)
        )


class AuditedEvent(msgspec.Struct, frozen=True):
    """One event, and what the ledger knows of its request."""

    event_run: EventRun  # a run of one
    context: Context
    committed: int  # the ledger's time at its commit
    origin: RequestOrigin | None


class AuditedPage(msgspec.Struct, frozen=True):
    """Events, the newest first; `next` is None when no older ones were left to look at."""

    events: list[AuditedEvent]
    next: AuditMark | None
