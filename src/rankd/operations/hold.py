"""A hold: every process that appends refuses writes for a moment, so that others come close to the head of the ledger.

    rebuild, verification, start of a node → WriteHold → Backlog → every process that appends: 429 `behind`, or a pause

Senders are slowed down and never cut off for long: a hold lasts HOLD_MS at most, and the next one, whoever asks, begins
a pause later. All holds of one WriteHold together last HELD_S_MAX at most. A hold expires by itself, should the process
that asked for it die.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from rankd.errors import RanksUnavailable
from rankd.ledger.port import SharedLedger

HOLD_MS = 5_000
PAUSE_MS, PAUSE_MS_MIN = 5_000, 1_000  # halved after each hold, as long as holds do not suffice
HELD_S_MAX = 600.0
GAIN_MIN = 0.9  # a round that takes more of the time of the one before gains nothing
STILL_S = 0.3  # without a new event, the ledger stands still
STILL_WAIT_S_MAX = 2.0
_POLL_S = 0.05
Follow = Callable[[], object]
_log = logging.getLogger("rankd")


def catch_up(follow: Follow, close_s: float, is_chased: Callable[[], None]) -> None:
    """Follow a ledger in rounds, each to where its head was at the beginning, until one takes no longer than `close_s`.

    `is_chased` is called after each round that gains nothing, since others append as fast as it follows.
    """
    before_s = inf
    while True:
        began_s = monotonic()
        follow()
        took_s = monotonic() - began_s
        if took_s <= close_s:
            return
        if took_s > GAIN_MIN * before_s:
            is_chased()
        before_s = took_s


class WriteHold:
    """Holds writes, and ends that with its context; used by one thread."""

    def __init__(self, ledger: SharedLedger) -> None:
        """Nothing is held yet."""
        self._ledger = ledger
        self._reason: str | None = None  # for which writes are slowed down
        self._pause_ms = PAUSE_MS
        self._held_until_s = self._ask_again_s = 0.0
        self.held_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def is_held(self) -> bool:
        """Whether a hold of ours is under way."""
        return monotonic() < self._held_until_s

    def catch_up(self, follow: Follow, close_s: float, reason: str) -> None:
        """Follow the ledger in rounds until one takes no longer than `close_s`; RanksUnavailable where none does.

        `follow` follows it to where its head was at the call, and calls `renew` now and then. Where rounds do not get
        shorter, since others append as fast as it follows, writes are slowed down.
        """

        def slow_down() -> None:
            self._reason = reason
            self._ask(reason)

        catch_up(follow, close_s, slow_down)
        self.release()

    def stop_writes(self, follow: Follow, close_s: float, reason: str) -> None:
        """Hold writes once the head of the ledger is no further than `close_s` away, and wait until it stands still."""
        self.catch_up(follow, close_s, reason)
        while not self._ask(reason):
            follow()
            sleep(_POLL_S)
        self._wait_until_still()

    def renew(self) -> None:
        """Begin the next hold if writes are slowed down and its time has come."""
        if self._reason is not None:
            self._ask(self._reason)

    def release(self) -> None:
        """Slow writes down no longer, and end the hold under way."""
        self._reason, self._pause_ms = None, PAUSE_MS
        left_s = self._held_until_s - monotonic()
        if left_s > 0:
            self.held_s -= left_s
            self._held_until_s = 0.0
            self._ledger.backlog.release()

    def _ask(self, reason: str) -> bool:
        """Begin a hold if there is none and its time has come; return whether writes are held."""
        now_s = monotonic()
        if now_s < self._held_until_s:
            return True
        if now_s < self._ask_again_s:
            return False
        if self.held_s + HOLD_MS / 1_000 > HELD_S_MAX:
            raise RanksUnavailable(
                f"{reason}, though writes were refused for {self.held_s:.0f} s; run it again when less is written"
            )
        self._ask_again_s = now_s + _POLL_S
        if not self._ledger.backlog.hold(HOLD_MS, self._pause_ms):
            return False
        if not self.held_s:
            _log.info("writes are refused for a moment: %s", reason)
        self._pause_ms = max(self._pause_ms // 2, PAUSE_MS_MIN)
        self._held_until_s = now_s + HOLD_MS / 1_000
        self.held_s += HOLD_MS / 1_000
        return True

    def _wait_until_still(self) -> None:
        now_s = still_since_s = monotonic()
        deadline_s, heads = now_s + STILL_WAIT_S_MAX, self._ledger.heads().sequences
        while now_s < deadline_s and now_s - still_since_s < STILL_S:
            sleep(_POLL_S)
            before, heads, now_s = heads, self._ledger.heads().sequences, monotonic()
            if heads != before:
                still_since_s = now_s
