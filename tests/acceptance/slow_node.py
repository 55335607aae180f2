"""`rankd serve` that at its start never comes closer to the head of the ledger while others append.

Each round takes as long as the one before, and is short while writes are held.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic

from rankd.cli.main import main
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node import catching_up
from rankd.node.ranks import EngineRanks
from rankd.operations.hold import WriteHold

ROUND_S, HELD_ROUND_S = 2.5, 1.0  # longer than the lag that tests allow, and shorter
PAUSE_S = 0.05
_catch_up = catching_up._catch_up


class _Chased:
    """The ranks of a process that starts, as `_catch_up` uses them."""

    def __init__(self, ranks: EngineRanks) -> None:
        self._ranks = ranks
        self.has_caught_up = False

    def catch_up(self, step: Callable[[], None] = lambda: None) -> None:
        ends_s, ledger = monotonic() + ROUND_S, self._ranks._ledger
        assert isinstance(ledger, PostgresLedger)
        self._ranks.catch_up(step)
        while monotonic() < ends_s and not ledger.backlog.read().is_held:
            Event().wait(PAUSE_S)
            step()
        Event().wait(min(HELD_ROUND_S, max(0.0, ends_s - monotonic())))


def _catch_up_slowly(ranks: EngineRanks, lag_max_s: float, hold: WriteHold | None) -> None:
    ranks.has_caught_up = False
    chased = _Chased(ranks)
    _catch_up(chased, lag_max_s, hold)  # type: ignore[arg-type]
    ranks.has_caught_up = chased.has_caught_up


if __name__ == "__main__":
    catching_up._catch_up = _catch_up_slowly
    main()
