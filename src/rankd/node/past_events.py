"""A player's own events, where the ledger finds them."""

from __future__ import annotations

from rankd.errors import Refused
from rankd.ledger.port import Ledger, PastEvent


def past_events(ledger: Ledger, player: str, limit: int, before: int | None, board: str | None) -> list[PastEvent]:
    """Return a player's own events, the newest first; Refused where that would read the whole ledger."""
    if not ledger.capabilities.finds_history:
        raise Refused(
            "the ledger of this installation is a log, which does not find a player's events; "
            "read the present standing, or keep the ledger in PostgreSQL"
        )
    return ledger.history(player, limit, before, board)
