"""Servers that are away are left alone for a moment, each by itself: those who ask for them are refused at once.

calls → is a server away that has one of the keys? → refused, or one call looks whether it is back → Client
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from time import monotonic
from typing import Any, Protocol

from rankd.errors import RanksUnavailable
from rankd.projection.redis.client import Call
from rankd.projection.redis.query import EachCaller

AWAY_S = 0.5  # a server is not asked for so long after it did not answer
FORGOTTEN_S = 10.0  # after which nobody asks for what it had: others serve that
_log = logging.getLogger("rankd")


class Servers(EachCaller, Protocol):
    """What of the client is needed."""

    def node_of(self, key: bytes) -> str:
        """Return the name of the server that has a key."""
        ...


class Breaker:
    """Lets calls through to the servers of Redis that are there; from any thread."""

    def __init__(self, servers: Servers, away_s: float = AWAY_S, now: Callable[[], float] = monotonic) -> None:
        """A server that could not be reached is asked again after `away_s`, by one call; `now` is in seconds."""
        self._servers = servers
        self._away_s = away_s
        self._now = now
        self._lock = threading.Lock()
        self._away: dict[str, float] = {}  # servers, by when one call may look whether they are back

    @property
    def away(self) -> Collection[str]:
        """The servers that did not answer when they were asked last."""
        return tuple(self._away)

    def call_all(self, calls: Sequence[Call]) -> list[Any]:
        """Make calls; RanksUnavailable at once where a server is away that has one of their keys."""
        looked_for = self._pass({self._servers.node_of(call.keys[0]) for call in calls}) if self._away else ()
        try:
            answers = self._servers.call_all(calls)
        except RanksUnavailable as problem:
            # A call that a server refused, or whose board it does not have, says nothing against the server.
            if problem.away is not None:
                self._note_away(problem.away, problem)
            raise
        if looked_for:
            self._note_back(looked_for)
        return answers

    def call_each(self, calls: Sequence[Call]) -> list[Any]:
        """Make calls that only read; RanksUnavailable stands in place of an answer that is missing."""
        outcomes: list[Any] = [None] * len(calls)
        allowed: list[int] = []
        looked_for: set[str] = set()
        by_server: dict[str, list[int]] = {}
        for index, call in enumerate(calls):
            by_server.setdefault(self._servers.node_of(call.keys[0]), []).append(index)
        for name, indexes in by_server.items():
            try:
                looked_for.update(self._pass({name}) if self._away else ())
                allowed += indexes
            except RanksUnavailable as problem:
                for index in indexes:
                    outcomes[index] = problem
        if allowed:
            self._call_allowed(calls, allowed, outcomes)
        self._note_back([name for name in looked_for if not _has_failed(outcomes[by_server[name][0]])])
        return outcomes

    def _call_allowed(self, calls: Sequence[Call], allowed: Sequence[int], outcomes: list[Any]) -> None:
        for index, outcome in zip(allowed, self._servers.call_each([calls[one] for one in allowed]), strict=True):
            outcomes[index] = outcome
            if isinstance(outcome, RanksUnavailable) and outcome.away is not None:
                self._note_away(outcome.away, outcome)

    def _pass(self, wanted: AbstractSet[str]) -> Collection[str]:
        """Return those of the servers that a call looks for now; refuse it where others do, or nobody."""
        with self._lock:
            now = self._now()
            for name in [one for one, until in self._away.items() if until + FORGOTTEN_S < now]:
                del self._away[name]
            looked_for = wanted & self._away.keys()
            if any(now < self._away[name] for name in looked_for):
                raise RanksUnavailable("Redis is away; ranks come back when it does")
            for name in looked_for:
                self._away[name] = now + self._away_s
            return looked_for

    def _note_away(self, name: str, problem: RanksUnavailable) -> None:
        with self._lock:
            is_news = name not in self._away
            self._away[name] = self._now() + self._away_s
        if is_news:
            _log.warning("%s is away, and reads of its boards are answered as well as can be: %s", name, problem)

    def _note_back(self, names: Collection[str]) -> None:
        with self._lock:
            back = [name for name in names if self._away.pop(name, None) is not None]
        for name in back:
            _log.warning("%s is back", name)


def _has_failed(outcome: object) -> bool:
    return isinstance(outcome, RanksUnavailable) and outcome.away is not None
