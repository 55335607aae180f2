"""Upkeep by every process that appends to a shared ledger: what is to come, new players, expired request keys."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic

from rankd.clock import Clock
from rankd.errors import LedgerNewer, LedgerUnavailable
from rankd.intake.newcomers import Newcomers
from rankd.ledger.port import SharedLedger
from rankd.throttled_warnings import ThrottledWarnings

UPKEEP_EVERY_S = 0.5
PREPARE_EVERY_S = 3_600.0
REQUESTS_FORGOTTEN_AT_ONCE = 1_000
FORGETTING_S_MAX = 2.0  # per round of upkeep
_log = logging.getLogger("rankd")


class LedgerUpkeep:
    """A thread that keeps a shared ledger in order."""

    def __init__(
        self,
        ledger: SharedLedger,
        newcomers: Newcomers,
        clock: Clock,
        idempotency_ttl_ms: int,
        *,
        meet: Callable[[Sequence[str]], None],
        also: Callable[[], object] = lambda: None,
    ) -> None:
        """`meet` registers players without a profile, for search; `also` runs first in each round."""
        self._ledger = ledger
        self._newcomers = newcomers
        self._clock = clock
        self._ttl_ms = idempotency_ttl_ms
        self._meet = meet
        self._also = also
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankd-upkeep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End after the current round."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        warnings, prepared_at = ThrottledWarnings(_log), -PREPARE_EVERY_S
        while not self._closing.wait(UPKEEP_EVERY_S):
            try:
                self._also()
                if monotonic() - prepared_at >= PREPARE_EVERY_S:
                    self._ledger.prepare(self._clock.now())
                    prepared_at = monotonic()
                self._meet_newcomers()
                self._forget_requests()
            except (LedgerUnavailable, LedgerNewer) as problem:
                warnings.warn("upkeep waits: %s", problem)
            except Exception:
                _log.exception("upkeep failed, and goes on")

    def _meet_newcomers(self) -> None:
        newcomers = self._newcomers.take()
        try:
            self._meet(newcomers)
        except BaseException:
            self._newcomers.put_back(newcomers)
            raise

    def _forget_requests(self) -> None:
        """Delete expired keys in small steps, faster than they arrive, so that the table does not grow."""
        before, until = self._clock.now() - self._ttl_ms, monotonic() + FORGETTING_S_MAX
        while self._ledger.forget_requests(before, REQUESTS_FORGOTTEN_AT_ONCE) >= REQUESTS_FORGOTTEN_AT_ONCE:
            if self._closing.is_set() or monotonic() > until:
                return
