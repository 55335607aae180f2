"""Reads while Redis is away: score, top and rank from the standings in PostgreSQL, marked stale; other reads are 503.

RedisReadSession → Breaker → StoredStandings, with the positions they were written at
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking
from rankd.domain.position import tokens
from rankd.errors import LedgerUnavailable, RanksUnavailable
from rankd.projection import arguments
from rankd.projection.port import READ_ENTRIES_MAX, RankedEntry, RankedPage, RankedStanding
from rankd.redis.connection.breaker import Breaker, Servers
from rankd.redis.read.batching import run_in_thread
from rankd.redis.read.high_water import HighWater
from rankd.redis.read.query import Caller
from rankd.redis.read.rank_source import Heartbeat, Layout, RedisRankSource, RedisReadSession
from rankd.registry.postgres.standings import AsOf, StoredStandings

ORDINAL = Ranking.ORDINAL
Result = TypeVar("Result")


class FallbackReadSession(RedisReadSession):
    """One read, answered from stored standings where Redis cannot."""

    def __init__(
        self,
        caller: Caller,
        layout: Layout,
        heartbeat: Heartbeat,
        high_water: HighWater,
        *,
        standings: StoredStandings,
        is_kept: Callable[[InstanceKey], bool],
    ) -> None:
        """`is_kept` returns whether an instance has stored standings."""
        super().__init__(caller, layout, heartbeat, high_water)
        self._standings = standings
        self._is_kept = is_kept
        self._as_of: AsOf | None = None

    @property
    def position(self) -> str:
        """The positions of the last answer."""
        return super().position if self._as_of is None else tokens(self._as_of.sequences)

    @property
    def is_stale(self) -> bool:
        """Whether the projector is behind, or the answer came from stored standings."""
        return self._as_of is not None or super().is_stale

    @property
    def metadata_events(self) -> Mapping[str, int]:
        """The events that carried metadata; stored standings have none."""
        return super().metadata_events if self._as_of is None else {}

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = ORDINAL) -> RankedStanding | None:
        """Return a player's standing; PostgreSQL counts it within a time limit."""
        try:
            return super().rank(instance, player, ranking)
        except RanksUnavailable as problem:
            result = self._fall_back(instance, problem, lambda: self._standings.rank(instance, player, ranking))
            self._as_of = result.as_of
            return None if result.standing is None else RankedStanding(*result.standing)

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score."""
        try:
            return super().score(instance, player)
        except RanksUnavailable as problem:
            result = self._fall_back(instance, problem, lambda: self._standings.score(instance, player))
            self._as_of = result.as_of
            return result.kept

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = ORDINAL) -> RankedPage:
        """Return a range of places; PostgreSQL reads it from the top."""
        try:
            return super().range(instance, first, last, ranking)
        except RanksUnavailable as problem:
            arguments.places(first, last)
            if last > READ_ENTRIES_MAX:
                raise
            result = self._fall_back(instance, problem, lambda: self._standings.top(instance, last, ranking))
            self._as_of = result.as_of
            return RankedPage([RankedEntry(*line) for line in result.lines[first - 1 :]], result.total)

    def _fall_back(self, instance: InstanceKey, problem: RanksUnavailable, read: Callable[[], Result]) -> Result:
        if not self._is_kept(instance):
            raise problem
        try:
            return run_in_thread(read)
        except LedgerUnavailable as other:
            raise RanksUnavailable(f"{problem}; and {other}", public_message=problem.public_message) from None


class FallbackRankSource(RedisRankSource):
    """The ranks of an API process: Redis, or stored standings while it is away."""

    def __init__(
        self,
        client: Servers,
        layout: Layout,
        heartbeat: Heartbeat,
        standings: StoredStandings,
    ) -> None:
        """Each board's first window has stored standings."""
        self._breaker = Breaker(client)
        super().__init__(self._breaker, layout, heartbeat)
        self._standings = standings

    def open(self, _instance: InstanceKey) -> RedisReadSession:
        """Begin a read."""
        return FallbackReadSession(
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
