"""Ranks as an API process serves them: from Redis, each answer with the positions it is of.

Standings → LookAtRedis.look → one FCALL_RO → the answer, its positions, the metadata it points to
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.domain.position import is_upto
from rankd.errors import RanksUnavailable
from rankd.ledger.event import event_id
from rankd.projection.port import RankReads
from rankd.projection.redis.heartbeat import read_beat
from rankd.projection.redis.high_water import HighWater
from rankd.projection.redis.query import Caller, EachCaller, RedisQuery
from rankd.projection.redis.reader import RedisReader, read_digests
from rankd.scaled.boards_in_redis import shards_of

BEAT_EVERY_S = 0.25
BEATS_MAX = 10_000  # remembered until they are old enough
FLOOR_AGE_MS_MIN = 1_000  # a board that nothing happens on is moved on four times a second
DIGESTS_AT_ONCE = 1_000
ORDINAL = Ranking.ORDINAL
_log = logging.getLogger("rankd")


class Heartbeat:
    """Whether the projector keeps up: it says so in Redis, a few times a second; asked for in a thread.

    `floor` is how far the ledger was ranked `stale_after_ms` ago: what a shard lacks of that is stale, whoever lost it.
    """

    def __init__(self, client: Caller, stale_after_ms: int, now: Callable[[], int]) -> None:
        """Nothing is known before the first beat is read, which is at once."""
        self._client = client
        self._stale_after_ms = stale_after_ms
        self._now = now
        self._time_ms = 0
        self.floor: tuple[int, ...] = ()  # by partition
        self._beats: deque[tuple[int, tuple[int, ...]]] = deque()  # when they were read, and their positions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="rankd-heartbeat", daemon=True)
        self._ask()
        self._thread.start()

    @property
    def is_stale(self) -> bool:
        """Whether what is ranked may lack what was accepted longer ago than anybody should notice."""
        return self._now() - self._time_ms > self._stale_after_ms

    def close(self) -> None:
        """Stop query."""
        self._stop.set()
        self._thread.join()

    def _listen(self) -> None:
        while not self._stop.wait(BEAT_EVERY_S):
            self._ask()

    def _ask(self) -> None:
        try:
            beat = read_beat(self._client)
            self._time_ms = 0 if beat is None else beat.time_ms
            self._raise_floor(None if beat is None else beat.positions)
        except RanksUnavailable as problem:
            _log.debug("no heartbeat: %s", problem)

    def _raise_floor(self, positions: tuple[int, ...] | None) -> None:
        now = self._now()
        if positions is not None and len(self._beats) < BEATS_MAX:
            self._beats.append((now, positions))
        while self._beats and now - self._beats[0][0] > max(self._stale_after_ms, FLOOR_AGE_MS_MIN):
            _, upto = self._beats.popleft()
            # A Redis that has lost something has an older beat: what was ranked stays ranked.
            self.floor = tuple(map(max, zip_longest(self.floor, upto, fillvalue=0)))


class Layout:
    """How boards are written in Redis, as they are defined now."""

    def __init__(self, boards: Callable[[], Mapping[str, Board]]) -> None:
        """`boards` are those defined now."""
        self.boards = boards

    def shards_of(self, board_id: str) -> int:
        """Return how many shards a board has."""
        board = self.boards().get(board_id)
        return 1 if board is None else shards_of(board)


class RedisLook(RedisReader):
    """One read, and what it saw."""

    def __init__(self, client: Caller, layout: Layout, heartbeat: Heartbeat, high_water: HighWater) -> None:
        """Nothing is asked yet."""
        super().__init__(client, layout.shards_of, high_water, with_metadata=True)
        self._heartbeat = heartbeat
        self._query: RedisQuery | None = None
        self._had_lost = False  # by what was asked before
        self._was_estimated = False  # by what was asked before

    def _begin(self, instance: InstanceKey) -> RedisQuery:
        self._was_estimated, self._had_lost = not self.is_exact, self._has_lost
        self._query = super()._begin(instance)
        return self._query

    @property
    def is_exact(self) -> bool:
        """Whether nothing of what was asked is an estimate."""
        return not self._was_estimated and (self._query is None or not self._query.is_estimated)

    @property
    def store(self) -> RankReads:
        """Where to ask."""
        return self

    @property
    def position(self) -> str:
        """What was ranked in what was asked last."""
        if self._query is None:
            raise AssertionError("ask before you say as of when")
        return self._query.position

    @property
    def is_stale(self) -> bool:
        """Whether the projector is behind, or Redis lacks what it has had."""
        return self._has_lost or self._heartbeat.is_stale

    @property
    def _has_lost(self) -> bool:
        return self._had_lost or (self._query is not None and self._query.has_lost)

    @property
    def noted(self) -> Mapping[str, int]:
        """The events that metadata came with."""
        found = {} if self._query is None else self._query.metadata
        return {player: event_id(*place) for player, place in found.items()}

    def captured(self, instance: InstanceKey, player: str) -> int | None:
        """Return the player's place at the last capture; `rank` has asked for it already."""
        if self._query is not None and self._query.instance == instance and player in self._query.captured:
            return self._query.captured[player]
        return None


class LookAtRedis:
    """Where reads of an API process look."""

    def __init__(self, client: EachCaller, layout: Layout, heartbeat: Heartbeat) -> None:
        """`layout` tells how boards are written in Redis."""
        self._client = client
        self._layout = layout
        self._heartbeat = heartbeat
        self._high_water = HighWater(lambda: heartbeat.floor)
        self._reader = RedisReader(client, layout.shards_of, self._high_water)

    def look(self, _instance: InstanceKey) -> RedisLook:
        """Begin a read."""
        return RedisLook(self._client, self._layout, self._heartbeat, self._high_water)

    def look_at_ranks(self, _instance: InstanceKey) -> RedisLook:
        """Begin a read that nothing but Redis answers."""
        return RedisLook(self._client, self._layout, self._heartbeat, self._high_water)

    def has_ranked(self, positions: Mapping[int, int], board: str | None) -> bool:
        """Tell whether events are ranked on a board."""
        if board is None:
            raise AssertionError("where boards are ranked apart, one is named")
        return is_upto(self.ranked_upto([board]).get(board, {}), positions)

    def ranked_upto(self, boards: Sequence[str]) -> dict[str, Mapping[int, int]]:
        """Return how far boards are ranked, of those that are there; one round trip, while all servers are."""
        try:
            found = dict(zip(boards, self._reader.positions_of(boards), strict=True))
        except RanksUnavailable as problem:
            if len(boards) > 1:  # that one server is away says nothing of the others
                return {board: upto for one in boards for board, upto in self.ranked_upto([one]).items()}
            _log.debug("nobody knows how far %s is ranked: %s", boards[0], problem)
            return {}
        return {
            board: {partition: one.sequence for partition, one in positions.items()}
            for board, positions in found.items()
            if not isinstance(positions, RanksUnavailable)  # a board that was defined a moment ago is not there yet
        }

    def digests(self, instances: Collection[InstanceKey]) -> Mapping[InstanceKey, tuple[int, str]]:
        """Return digest and position of many instances, in one round trip; without those that cannot be asked."""
        listed = list(instances)
        found: dict[InstanceKey, tuple[int, str]] = {}
        for start in range(0, len(listed), DIGESTS_AT_ONCE):
            found.update(read_digests(self._client, listed[start : start + DIGESTS_AT_ONCE]))
        return found
