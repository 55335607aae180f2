"""A circuit breaker per Redis server: after a failure, calls to that server fail at once for a moment.

calls → is the server of a key open-circuit? → RanksUnavailable, or one probe call when the pause is over → client
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from time import monotonic
from typing import Any, Protocol

from rankd.errors import RanksUnavailable
from rankd.redis.connection.client import FunctionCall
from rankd.redis.read.query import EachCaller

AWAY_S = 0.5  # pause after a server did not answer
FORGOTTEN_S = 10.0  # without a probe for so long, its keys have moved to another server
_log = logging.getLogger("rankd")


class Servers(EachCaller, Protocol):
    """The part of the client that the breaker uses."""

    def node_of(self, key: bytes) -> str:
        """Return the name of the server that has a key."""
        ...


class Breaker:
    """Passes calls to reachable Redis servers; from any thread."""

    def __init__(self, servers: Servers, away_s: float = AWAY_S, now: Callable[[], float] = monotonic) -> None:
        """After `away_s`, one call probes a server that could not be reached; `now` is in seconds."""
        self._servers = servers
        self._away_s = away_s
        self._now = now
        self._lock = threading.Lock()
        self._away: dict[str, float] = {}  # server → time of the next probe

    @property
    def away(self) -> Collection[str]:
        """The servers that did not answer their last call."""
        return tuple(self._away)

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Make calls; RanksUnavailable at once where the server of a key is away."""
        probed = self._admit({self._servers.node_of(call.keys[0]) for call in calls}) if self._away else ()
        try:
            answers = self._servers.call_all(calls)
        except RanksUnavailable as problem:
            # A server that refused a call, or lacks the board, is reachable.
            if problem.away is not None:
                self._mark_away(problem.away, problem)
            raise
        if probed:
            self._mark_back(probed)
        return answers

    def call_each(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Make read-only calls; RanksUnavailable stands in place of each missing answer."""
        outcomes: list[Any] = [None] * len(calls)
        allowed: list[int] = []
        probed: set[str] = set()
        by_server: dict[str, list[int]] = {}
        for index, call in enumerate(calls):
            by_server.setdefault(self._servers.node_of(call.keys[0]), []).append(index)
        for name, indexes in by_server.items():
            try:
                probed.update(self._admit({name}) if self._away else ())
                allowed += indexes
            except RanksUnavailable as problem:
                for index in indexes:
                    outcomes[index] = problem
        if allowed:
            self._call_allowed(calls, allowed, outcomes)
        self._mark_back([name for name in probed if not _has_failed(outcomes[by_server[name][0]])])
        return outcomes

    def _call_allowed(self, calls: Sequence[FunctionCall], allowed: Sequence[int], outcomes: list[Any]) -> None:
        for index, outcome in zip(allowed, self._servers.call_each([calls[index] for index in allowed]), strict=True):
            outcomes[index] = outcome
            if isinstance(outcome, RanksUnavailable) and outcome.away is not None:
                self._mark_away(outcome.away, outcome)

    def _admit(self, wanted: AbstractSet[str]) -> Collection[str]:
        """Return the servers that this call probes; refuse it where a server's pause is not over."""
        with self._lock:
            now = self._now()
            for name in [server for server, until in self._away.items() if until + FORGOTTEN_S < now]:
                del self._away[name]
            probed = wanted & self._away.keys()
            if any(now < self._away[name] for name in probed):
                raise RanksUnavailable("Redis is away; ranks come back when it does")
            for name in probed:
                self._away[name] = now + self._away_s
            return probed

    def _mark_away(self, name: str, problem: RanksUnavailable) -> None:
        with self._lock:
            is_news = name not in self._away
            self._away[name] = self._now() + self._away_s
        if is_news:
            _log.warning("%s is away; reads of its boards fall back to stored standings: %s", name, problem)

    def _mark_back(self, names: Collection[str]) -> None:
        with self._lock:
            back = [name for name in names if self._away.pop(name, None) is not None]
        for name in back:
            _log.warning("%s is back", name)


def _has_failed(outcome: object) -> bool:
    return isinstance(outcome, RanksUnavailable) and outcome.away is not None
