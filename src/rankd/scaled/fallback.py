"""Reads while Redis is away: own score, top and rank from the standings in PostgreSQL, marked stale; the rest is 503.

RedisLook → Breaker (a server that is away is left alone for a moment) → Standings → positions of what was written last
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking
from rankd.domain.position import tokens
from rankd.errors import LedgerUnavailable, RanksUnavailable
from rankd.projection import arguments
from rankd.projection.port import READ_ENTRIES_MAX, Entry, Page, Standing
from rankd.projection.redis.breaker import Breaker, Servers
from rankd.projection.redis.high_water import HighWater
from rankd.projection.redis.query import Caller
from rankd.registry.standings import AsOf, Standings
from rankd.scaled.lane import elsewhere
from rankd.scaled.served import Heartbeat, Layout, LookAtRedis, RedisLook

ORDINAL = Ranking.ORDINAL
Found = TypeVar("Found")


class FallbackLook(RedisLook):
    """One read, answered from standings where Redis cannot."""

    def __init__(
        self,
        caller: Caller,
        layout: Layout,
        heartbeat: Heartbeat,
        high_water: HighWater,
        *,
        standings: Standings,
        is_kept: Callable[[InstanceKey], bool],
    ) -> None:
        """`is_kept` tells whether an instance is among the standings."""
        super().__init__(caller, layout, heartbeat, high_water)
        self._standings = standings
        self._is_kept = is_kept
        self._as_of: AsOf | None = None

    @property
    def position(self) -> str:
        """What was ranked in what was asked last."""
        return super().position if self._as_of is None else tokens(self._as_of.sequences)

    @property
    def is_stale(self) -> bool:
        """Whether the projector is behind, or the answer is of what it wrote for a time like this."""
        return self._as_of is not None or super().is_stale

    @property
    def noted(self) -> Mapping[str, int]:
        """The events that metadata came with; standings know none."""
        return super().noted if self._as_of is None else {}

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = ORDINAL) -> Standing | None:
        """Return where a player stands; counted within a time limit where Redis is away."""
        try:
            return super().rank(instance, player, ranking)
        except RanksUnavailable as problem:
            found = self._instead(instance, problem, lambda: self._standings.rank(instance, player, ranking))
            self._as_of = found.as_of
            return None if found.standing is None else Standing(*found.standing)

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score."""
        try:
            return super().score(instance, player)
        except RanksUnavailable as problem:
            found = self._instead(instance, problem, lambda: self._standings.score(instance, player))
            self._as_of = found.as_of
            return found.kept

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = ORDINAL) -> Page:
        """Return the places from one to another; from the top, where Redis is away."""
        try:
            return super().range(instance, first, last, ranking)
        except RanksUnavailable as problem:
            arguments.places(first, last)
            if last > READ_ENTRIES_MAX:
                raise
            found = self._instead(instance, problem, lambda: self._standings.top(instance, last, ranking))
            self._as_of = found.as_of
            return Page([Entry(*line) for line in found.lines[first - 1 :]], found.total)

    def _instead(self, instance: InstanceKey, problem: RanksUnavailable, ask: Callable[[], Found]) -> Found:
        if not self._is_kept(instance):
            raise problem
        try:
            return elsewhere(ask)
        except LedgerUnavailable as other:
            raise RanksUnavailable(f"{problem}; and {other}", told=problem.told) from None


class LookWithFallback(LookAtRedis):
    """Where reads of an API process look: Redis, or while it is away the standings."""

    def __init__(
        self,
        client: Servers,
        layout: Layout,
        heartbeat: Heartbeat,
        standings: Standings,
    ) -> None:
        """Standings are kept of each board's first window."""
        self._breaker = Breaker(client)
        super().__init__(self._breaker, layout, heartbeat)
        self._standings = standings

    def look(self, _instance: InstanceKey) -> RedisLook:
        """Begin a read."""
        return FallbackLook(
            self._breaker,
            self._layout,
            self._heartbeat,
            self._high_water,
            standings=self._standings,
            is_kept=self._is_kept,
        )

    def _is_kept(self, key: InstanceKey) -> bool:
        board = self._layout.boards().get(key.board)
        return board is not None and board.window_of(key.window) is board.first_window
