"""Backpressure on writes while ranks are behind the ledger.

    lag below half of `lag_max_ms`   writes pass
    above half                       each waits up to DELAY_S_MAX, in proportion to the lag
    above three quarters             senders of more than their share are refused
    above `lag_max_ms`               every write is refused
    held                             every write is refused, for the moment in which a rebuild ends, or a node starts

It is the one place of this decision: the server asks it before it queues a request, the writer for callers with a
thread of their own (the library, an import, a consumer of topics). So ranking keeps a part of the bound free for small
senders while large ones fill the rest. A share is measured against the other senders of this process: at most
OVER_SHARE times their mean.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import ceil

from rankd.errors import Behind

SLOW_FROM, LARGE_REFUSED_FROM = 0.5, 0.75  # of `lag_max_ms`
DELAY_S_MAX = 1.0
OVER_SHARE = 2.0
HALVED_EVERY_S = 5.0  # counts of events by sender
FORGOTTEN_BELOW = 0.1  # events
SENDERS_MAX = 10_000  # counted; further ones are taken for small
RETRY_AFTER_S_MAX = 10


class Backpressure:
    """Decides whether a write passes, waits or is refused; from any thread."""

    def __init__(
        self,
        lag_ms: Callable[[], float | None] = lambda: None,
        lag_max_ms: int = 0,
        now_s: Callable[[], float] = time.monotonic,
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        """`lag_ms` returns None where ranks cannot lag; a `lag_max_ms` of 0 is no limit."""
        self._is_held = is_held
        self._lag_ms = lag_ms
        self._lag_max_ms = lag_max_ms
        self._now_s = now_s
        self._lock = threading.Lock()
        self._events: dict[str, float] = {}  # by sender, halved now and then
        self._total = 0.0
        self._halved_s = now_s()
        self.refusals = 0

    def admit(self, account: str, events: int) -> None:
        """Wait as long as a write of so many events has to; raise Behind where it is refused."""
        delay_s = self.delay_s(account, events)
        if delay_s:
            time.sleep(delay_s)

    def delay_s(self, account: str, events: int) -> float:
        """Return how long a write of so many events has to wait; raise Behind where it is refused."""
        lag_ms, lag_max_ms = self._lag_ms(), self._lag_max_ms
        if self._is_held():
            self.refusals += 1
            raise Behind(
                "writes are held for a moment, in which ranks are rebuilt, verified or loaded; send it again in 1 s, "
                "with the same key",
                1,
            )
        slow_from_ms = lag_max_ms * SLOW_FROM
        if lag_ms is None or not lag_max_ms or lag_ms <= slow_from_ms:
            return 0.0
        allowed_ms = lag_max_ms * (LARGE_REFUSED_FROM if self._is_large(account, events) else 1.0)
        if lag_ms > allowed_ms:
            self.refusals += 1
            retry_after_s = min(max(ceil((lag_ms - allowed_ms) / 1_000), 1), RETRY_AFTER_S_MAX)
            raise Behind(
                f"ranks are {lag_ms / 1_000:.1f} s behind, more than limits.lag_max_ms allows this sender "
                f"({allowed_ms / 1_000:g} s); send it again in {retry_after_s} s, with the same key",
                retry_after_s,
            )
        return DELAY_S_MAX * (lag_ms - slow_from_ms) / (lag_max_ms - slow_from_ms)

    def count(self, account: str, events: int) -> None:
        """Count events of a write that had passed before their number was known."""
        lag_ms = self._lag_ms()
        if lag_ms is not None and lag_ms > self._lag_max_ms * SLOW_FROM:
            with self._lock:
                self._count(account, events)

    def _count(self, account: str, events: int) -> None:
        self._halve()
        if account in self._events or len(self._events) < SENDERS_MAX:
            self._events[account] = self._events.get(account, 0.0) + events
            self._total += events

    def _is_large(self, account: str, events: int) -> bool:
        """Count events, refused ones too, and return whether the sender is over its share."""
        with self._lock:
            self._count(account, events)
            return self._is_over_share(account)

    def _is_over_share(self, account: str) -> bool:
        own, others = self._events.get(account, 0.0), len(self._events) - 1
        return others > 0 and own * others > OVER_SHARE * (self._total - own)

    def _halve(self) -> None:
        now_s = self._now_s()
        if now_s - self._halved_s < HALVED_EVERY_S:
            return
        halved = 0.5 ** int((now_s - self._halved_s) / HALVED_EVERY_S)
        self._halved_s = now_s
        self._events = {
            sender: left for sender, had in self._events.items() if (left := had * halved) >= FORGOTTEN_BELOW
        }
        self._total = sum(self._events.values())
