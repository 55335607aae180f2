"""How far ranks are behind the ledger, in milliseconds.

    Ledger.heads, ranked positions → LagMonitor → `lag_ms` of the backend → backpressure, metrics

A sample is the ledger's heads at an instant. The lag is the age of the oldest sample that is not ranked yet. So a
ledger without new events has no lag, however long ago its last one was ranked.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, zip_longest
from time import monotonic

from rankd.errors import Behind, RankdError
from rankd.throttled_warnings import ThrottledWarnings

LAG_MAX_MS = 10_000
SAMPLE_EVERY_S = 0.25
SAMPLES_MAX = 4_096  # beyond it every second one is dropped: a long lag is measured less finely
_log = logging.getLogger("rankd")


class LagMonitor:
    """Samples heads and ranked positions in a thread, and warns of a long lag."""

    def __init__(
        self,
        heads: Callable[[], Sequence[int]],
        ranked: Callable[[], Sequence[int] | None],
        lag_max_ms: int,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        """Both return sequences by partition; `ranked` returns None while they cannot be read."""
        self._heads = heads
        self._ranked = ranked
        self._lag_max_ms = lag_max_ms
        self._now_s = now_s
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque()  # not ranked yet: sampled at, heads
        self._since_s: float | None = None  # of the oldest sample
        self._ranked_last: Sequence[int] = ()
        self._is_known = False
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
        at_s, heads = self._now_s(), None
        try:
            heads = tuple(self._heads())
        except RankdError as problem:
            _log.debug("no sample of the ledger's heads: %s", problem)
        ranked = self._ranked()
        if ranked is not None:
            self._ranked_last = ranked
        while self._samples and _has_reached(self._ranked_last, self._samples[0][1]):
            self._samples.popleft()
        newest = self._samples[-1][1] if self._samples else self._ranked_last
        if heads is not None and not _has_reached(newest, heads):
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


def _has_reached(ranked: Sequence[int], heads: Sequence[int]) -> bool:
    return all(position >= head for position, head in zip_longest(ranked, heads, fillvalue=0))
