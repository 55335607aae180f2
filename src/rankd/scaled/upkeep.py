"""What any process that appends to a shared ledger does beside: months to come, newcomers, requests that are old."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic

from rankd.clock import Clock
from rankd.complaints import Complaints
from rankd.errors import LedgerNewer, LedgerUnavailable
from rankd.intake.newcomers import Newcomers
from rankd.ledger.port import Ledger

UPKEEP_EVERY_S = 0.5
MONTHS_EVERY_S = 3_600.0  # how often the ledger is made ready for the months to come
REQUESTS_FORGOTTEN_AT_ONCE = 1_000
FORGETTING_S_MAX = 2.0  # then the rest of the upkeep has its turn
_log = logging.getLogger("rankd")


class LedgerUpkeep:
    """A thread that keeps a shared ledger in order."""

    def __init__(
        self,
        ledger: Ledger,
        newcomers: Newcomers,
        clock: Clock,
        idempotency_ttl_ms: int,
        *,
        meet: Callable[[Sequence[str]], None],
        make_months: Callable[[int], None],
        also: Callable[[], object] = lambda: None,
    ) -> None:
        """`meet` lets players be found who have no profile; `also` is done at each turn, first."""
        self._ledger = ledger
        self._newcomers = newcomers
        self._clock = clock
        self._ttl_ms = idempotency_ttl_ms
        self._meet = meet
        self._make_months = make_months
        self._also = also
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankd-upkeep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End after the turn that is under way."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        complaints, months_made_at = Complaints(_log), -MONTHS_EVERY_S
        while not self._closing.wait(UPKEEP_EVERY_S):
            try:
                self._also()
                if monotonic() - months_made_at >= MONTHS_EVERY_S:
                    self._make_months(self._clock.now())
                    months_made_at = monotonic()
                self._meet_newcomers()
                self._forget_requests()
            except (LedgerUnavailable, LedgerNewer) as problem:
                complaints.tell("upkeep waits: %s", problem)
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
        """Forget all whose time is over, in small steps: as many as come in a second go in one, or the table grows."""
        before, until = self._clock.now() - self._ttl_ms, monotonic() + FORGETTING_S_MAX
        while self._ledger.forget_requests(before, REQUESTS_FORGOTTEN_AT_ONCE) >= REQUESTS_FORGOTTEN_AT_ONCE:
            if self._closing.is_set() or monotonic() > until:
                return
