"""What a log needs from one process: the holder of the lease has it completed, a few times a second."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rankd.errors import Closed, RankdError
from rankd.ledger.port import TEND_EVERY_MS, SharedLedger
from rankd.throttled_warnings import ThrottledWarnings

_log = logging.getLogger("rankd")


class LedgerTending:
    """A thread that tends a log while this process holds the lease; other ledgers need none.

    It is a thread of its own: a partition whose leader is away keeps commits waiting, and must not keep the others.
    """

    def __init__(
        self, ledger: SharedLedger, holds_lease: Callable[[], bool], awaited: Callable[[], int | None]
    ) -> None:
        """`awaited` returns the newest time that a waiting event needs the other partitions to have passed."""
        self._ledger = ledger
        self._holds_lease = holds_lease
        self._awaited = awaited
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if not ledger.capabilities.appends_conditionally:
            self._thread = threading.Thread(target=self._run, name="rankd-tending", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End after the current round."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        warnings = ThrottledWarnings(_log)
        while not self._closing.wait(TEND_EVERY_MS / 1_000):
            if not self._holds_lease():
                continue
            try:
                self._ledger.tend(self._awaited())
            except Closed:
                return
            except RankdError as problem:
                warnings.warn("the ledger is not tended now: %s", problem)
            except Exception:
                _log.exception("tending the ledger failed, and goes on")
