"""Events of the past, where the ledger finds them: a player's own, and who did what."""

from __future__ import annotations

from rankd.errors import Refused
from rankd.ledger.audit import AuditMark, AuditQuery
from rankd.ledger.port import Ledger, PastEvent
from rankd.reads.audit import Auditor, AuditPage


def past_events(ledger: Ledger, player: str, limit: int, before: int | None, board: str | None) -> list[PastEvent]:
    """Return a player's own events, the newest first; Refused where that would read the whole ledger."""
    _check_finds_history(ledger, "a player's events; read the present standing")
    return ledger.history(player, limit, before, board)


def audit(ledger: Ledger, query: AuditQuery, before: AuditMark | None) -> AuditPage:
    """Return who did what, the newest first; Refused where that would read the whole ledger."""
    _check_finds_history(ledger, "who did what; use the tools of Kafka on its topics")
    return Auditor(ledger).page(query, before)


def _check_finds_history(ledger: Ledger, what: str) -> None:
    if not ledger.capabilities.finds_history:
        raise Refused(
            f"the ledger of this installation is a log, which does not find {what}, or keep the ledger in PostgreSQL"
        )
