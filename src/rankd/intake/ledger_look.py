"""Where several processes define boards, one that is not known here may have been defined a moment ago."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic

from rankd.background import require_thread
from rankd.errors import Closed, LedgerUnavailable

LOOK_EVERY_S = 0.005  # into the ledger, however many ask for boards that there are not
LOOK_WAIT_S = 2.0
_HANGS = "the ledger does not answer, so it cannot be told whether there is such a board; ask again in a moment"


class LedgerLook:
    """Follows the ledger for those who ask for a board that is not known: one look for all who wait.

    Whoever asks is answered once the ledger was followed after they asked. An event loop is refused by ThreadNeeded.
    """

    def __init__(self, follow: Callable[[], object]) -> None:
        """`follow` brings the boards up to date."""
        self._follow = follow
        self._lock = threading.Lock()
        self._next: Future[None] | None = None  # a look that has not begun
        self._began_s = 0.0  # the last that did, by the monotonic clock
        self._is_looking = False
        self._pause = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rankd-boards")

    def look(self) -> None:
        """Follow the ledger; LedgerUnavailable where it does not answer. Not for the committing thread."""
        require_thread()
        if self._is_looking and monotonic() - self._began_s > LOOK_WAIT_S:  # nobody waits behind it
            raise LedgerUnavailable(_HANGS)
        with self._lock:
            look = self._next
            if look is None:
                try:
                    look = self._next = self._thread.submit(self._follow_soon)
                except RuntimeError:
                    raise Closed("the boards were closed; open them again") from None
        try:
            look.result(LOOK_WAIT_S)
        except TimeoutError:
            raise LedgerUnavailable(_HANGS) from None

    def close(self) -> None:
        """Look no more."""
        with self._lock:
            self._thread.shutdown(wait=False)

    def _follow_soon(self) -> None:
        self._pause.wait(max(0.0, self._began_s + LOOK_EVERY_S - monotonic()))
        with self._lock:
            self._next = None  # whoever asks from now on may mean a board that is defined after this look
        self._began_s, self._is_looking = monotonic(), True
        try:
            self._follow()
        finally:
            self._is_looking = False
