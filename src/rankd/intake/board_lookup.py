"""Lookup of a board that this process does not know: another process may have defined it a moment ago."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic

from rankd.background import require_thread
from rankd.errors import Closed, LedgerUnavailable

LOOK_EVERY_S = 0.005  # at most one read of the ledger, however many requests name unknown boards
LOOK_WAIT_S = 2.0
_HANGS = "the ledger does not answer, so the board cannot be looked up; try again in a moment"


class BoardLookup:
    """Follows the ledger when a caller names an unknown board; waiting callers share one lookup.

    A caller returns after a lookup that began after its call. An event loop is refused by ThreadNeeded.
    """

    def __init__(self, follow: Callable[[], object]) -> None:
        """`follow` brings the boards up to date."""
        self._follow = follow
        self._lock = threading.Lock()
        self._next: Future[None] | None = None  # a lookup that has not begun
        self._began_s = 0.0  # when the last lookup began, by the monotonic clock
        self._is_looking = False
        self._pause = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rankd-boards")

    def open(self) -> None:
        """Follow the ledger; raises LedgerUnavailable if it does not answer. Not for the committing thread."""
        require_thread()
        if self._is_looking and monotonic() - self._began_s > LOOK_WAIT_S:  # it hangs: do not queue behind it
            raise LedgerUnavailable(_HANGS)
        with self._lock:
            lookup = self._next
            if lookup is None:
                try:
                    lookup = self._next = self._thread.submit(self._follow_soon)
                except RuntimeError:
                    raise Closed("the boards were closed; open them again") from None
        try:
            lookup.result(LOOK_WAIT_S)
        except TimeoutError:
            raise LedgerUnavailable(_HANGS) from None

    def close(self) -> None:
        """Stop the lookup thread."""
        with self._lock:
            self._thread.shutdown(wait=False)

    def _follow_soon(self) -> None:
        self._pause.wait(max(0.0, self._began_s + LOOK_EVERY_S - monotonic()))
        with self._lock:
            self._next = None  # later callers may name a board that is defined after this lookup
        self._began_s, self._is_looking = monotonic(), True
        try:
            self._follow()
        finally:
            self._is_looking = False
