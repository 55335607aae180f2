"""A hold: API processes refuse writes for a moment, so that a rebuild or a comparison ends under every load.

    Rebuild, Verification → WriteHold.ask → Redis → Heartbeat of each API process → 429 `behind`

It expires by itself, should the process that asked for it die.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from rankd.ledger.port import Ledger

HOLD_MS = 5_000
STILL_S = 0.3  # without a new event, the ledger stands still
STILL_WAIT_S_MAX = 3.0
_POLL_S = 0.05
_log = logging.getLogger("rankd")


class WriteHold:
    """Asks for a hold, and ends it with its context; used by one thread."""

    def __init__(self, ledger: Ledger, publish: Callable[[int], None] = lambda _hold_ms: None) -> None:
        """`publish` tells the API processes for how many ms to refuse writes; 0 ends the hold."""
        self._ledger = ledger
        self._publish = publish
        self.is_held = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def ask(self, reason: str) -> None:
        """Have writes refused for HOLD_MS from now on; the first time, wait until the ledger stands still."""
        self._publish(HOLD_MS)
        if not self.is_held:
            self.is_held = True
            _log.info("writes are refused for a moment: %s", reason)
            self._wait_until_still()

    def renew(self) -> None:
        """Hold writes for HOLD_MS from now on, if they are held."""
        if self.is_held:
            self._publish(HOLD_MS)

    def release(self) -> None:
        """End the hold, if there is one."""
        if self.is_held:
            self.is_held = False
            self._publish(0)

    def _wait_until_still(self) -> None:
        now_s = still_since_s = monotonic()
        deadline_s, heads = now_s + STILL_WAIT_S_MAX, self._ledger.heads().sequences
        while now_s < deadline_s and now_s - still_since_s < STILL_S:
            sleep(_POLL_S)
            before, heads, now_s = heads, self._ledger.heads().sequences, monotonic()
            if heads != before:
                still_since_s = now_s
