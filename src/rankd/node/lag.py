"""How far ranks are behind the ledger, in milliseconds.

    Ledger.heads, ranked positions, holds → LagMonitor → `lag_ms` of the backend → backpressure, metrics

A sample is the ledger's heads at an instant. The lag is the age of the oldest sample that is not ranked yet. So a
ledger without new events has no lag, however long ago its last one was ranked.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from time import monotonic

from rankd.errors import Behind, RankdError
from rankd.intake.backpressure import Backpressure
from rankd.ledger.backlog import Backlog
from rankd.ledger.vector import reaches
from rankd.throttled_warnings import ThrottledWarnings

LAG_MAX_MS = 10_000
SAMPLE_EVERY_S = 0.25
SAMPLES_MAX = 4_096  # beyond it every second one is dropped: a long lag is measured less finely
_log = logging.getLogger("rankd")


class NodesBacklog:
    """The backlog that nodes share, as a LagMonitor reads it; one thread uses it."""

    def __init__(self, backlog: Backlog, own: Callable[[], Sequence[int]] | None = None) -> None:
        """`own` returns what this process has ranked, for a node to note; None where others rank."""
        self._backlog = backlog
        self._own = own
        self._ranked: Sequence[int] = ()

    def is_held(self) -> bool:
        """Read the backlog, note what is ranked here, and return whether writes are held."""
        state = self._backlog.read()
        self._ranked = state.ranked
        if self._own is not None and not reaches(state.ranked, own := self._own()):
            self._backlog.note_ranked(own)
        return state.is_held

    def ranked(self) -> Sequence[int]:
        """Return the furthest that any node had ranked, as of the last `is_held`."""
        return self._ranked


class LagMonitor:
    """Samples heads and ranked positions in a thread, and warns of a long lag."""

    def __init__(
        self,
        heads: Callable[[], Sequence[int]],
        ranked: Callable[[], Sequence[int] | None],
        lag_max_ms: int,
        now_s: Callable[[], float] = monotonic,
        *,
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        """Both return sequences by partition; `ranked` returns None while they cannot be read.

        `is_held` returns whether writes are to be refused now; it is called before `ranked`.
        """
        self._heads = heads
        self._ranked = ranked
        self._lag_max_ms = lag_max_ms
        self._now_s = now_s
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque()  # not ranked yet: sampled at, heads
        self._since_s: float | None = None  # of the oldest sample
        self._ranked_last: Sequence[int] = ()
        self._is_known = False
        self._is_held = is_held
        self.holds_writes = False
        self.backpressure = Backpressure(lambda: self.lag_ms, lag_max_ms, is_held=lambda: self.holds_writes)
        self._is_long = False
        self._warnings = ThrottledWarnings(_log)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankd-lag", daemon=True)
        self.sample()
        self._thread.start()

    @property
    def lag_ms(self) -> float | None:
        """The lag; None while the ranked positions cannot be read."""
        since_s = self._since_s
        if not self._is_known:
            return None
        return 0.0 if since_s is None else (self._now_s() - since_s) * 1_000

    def close(self) -> None:
        """Stop sampling."""
        self._stop.set()
        self._thread.join()

    def sample(self) -> None:
        """Take one sample; the ledger may be unavailable."""
        at_s, heads, is_held = self._now_s(), None, False
        try:
            heads = tuple(self._heads())
            is_held = self._is_held()
        except RankdError as problem:
            _log.debug("no sample of the ledger's heads: %s", problem)
        self.holds_writes = is_held
        ranked = self._ranked()
        if ranked is not None:
            self._ranked_last = ranked
        while self._samples and reaches(self._ranked_last, self._samples[0][1]):
            self._samples.popleft()
        newest = self._samples[-1][1] if self._samples else self._ranked_last
        if heads is not None and not reaches(newest, heads):
            self._samples.append((at_s, heads))
        if len(self._samples) > SAMPLES_MAX:
            self._samples = deque(islice(self._samples, 0, None, 2))
        self._since_s = self._samples[0][0] if self._samples else None
        self._is_known = ranked is not None

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY_S):
            try:
                self.sample()
                self._warn()
            except Exception:
                _log.exception("measuring the lag failed, and goes on")

    def _warn(self) -> None:
        lag_ms = self.lag_ms or 0.0
        if lag_ms > (self._lag_max_ms or LAG_MAX_MS):
            self._is_long = True
            then = "new scores are refused until they catch up" if self._lag_max_ms else "limits.lag_max_ms is 0"
            self._warnings.warn("%s", Behind(f"ranks are {lag_ms / 1_000:.1f} s behind the ledger: {then}"))
        elif self._is_long:
            self._is_long = False
            _log.info("ranks are within limits.lag_max_ms of the ledger again")
