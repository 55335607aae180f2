"""The ranks of an API process: read from Redis, each answer with its positions.

RedisRankSource.open → RedisReadSession → FCALL_RO → the answer, its positions, the events of its metadata
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.domain.position import is_upto
from rankd.errors import RanksUnavailable
from rankd.ledger.event import event_id
from rankd.projection.port import RankReads
from rankd.redis.heartbeat import read_beat
from rankd.redis.read.high_water import HighWater
from rankd.redis.read.query import Caller, EachCaller, RedisQuery
from rankd.redis.read.reader import RedisReader, read_digests
from rankd.redis.write.boards import shards_of

BEAT_EVERY_S = 0.25
AWAY_AFTER_S = 2.0  # without a beat that can be read, the projector's positions are unknown
DIGESTS_AT_ONCE = 1_000
ORDINAL = Ranking.ORDINAL
_log = logging.getLogger("rankd")


class Heartbeat:
    """Reads the projector's heartbeat in a thread, to know its lag and what every shard has."""

    def __init__(self, client: Caller, stale_after_ms: int, now: Callable[[], int]) -> None:
        """Read the first beat at once."""
        self._client = client
        self._stale_after_ms = stale_after_ms
        self._now = now
        self._time_ms = 0
        self._positions: tuple[int, ...] = ()
        self._read_s = -AWAY_AFTER_S  # monotonic
        self.floor: dict[int, int] = {}  # sequences by partition that every shard has, without those at 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="rankd-heartbeat", daemon=True)
        self._read()
        self._thread.start()

    @property
    def is_stale(self) -> bool:
        """Whether the projector lags by more than `stale_after_ms`."""
        return self._now() - self._time_ms > self._stale_after_ms

    @property
    def positions(self) -> tuple[int, ...] | None:
        """The projector's positions, none without a projector; None while Redis is unavailable."""
        return self._positions if monotonic() - self._read_s <= AWAY_AFTER_S else None

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join()

    def _listen(self) -> None:
        while not self._stop.wait(BEAT_EVERY_S):
            self._read()

    def _read(self) -> None:
        try:
            beat = read_beat(self._client)
            self._time_ms = 0 if beat is None else beat.time_ms
            self._positions = () if beat is None else beat.positions
            self._read_s = monotonic()
            # A Redis that has lost writes has an older beat: the floor never falls.
            mirrored = enumerate(() if beat is None else beat.mirrored)
            self.floor = self.floor | {
                number: max(self.floor.get(number, 0), least) for number, least in mirrored if least
            }
        except RanksUnavailable as problem:
            _log.debug("no heartbeat: %s", problem)


class Layout:
    """The layout of boards in Redis, by their current definitions."""

    def __init__(self, boards: Callable[[], Mapping[str, Board]]) -> None:
        """`boards` returns the current definitions."""
        self.boards = boards

    def shards_of(self, board_id: str) -> int:
        """Return the number of shards of a board."""
        board = self.boards().get(board_id)
        return 1 if board is None else shards_of(board)


class RedisReadSession(RedisReader):
    """One read, with its positions and staleness."""

    def __init__(self, client: Caller, layout: Layout, heartbeat: Heartbeat, high_water: HighWater) -> None:
        """Nothing is read yet."""
        super().__init__(client, layout.shards_of, high_water, with_metadata=True)
        self._heartbeat = heartbeat
        self._query: RedisQuery | None = None
        self._had_lost = False  # in earlier queries
        self._was_estimated = False  # in earlier queries

    def _begin(self, instance: InstanceKey) -> RedisQuery:
        self._was_estimated, self._had_lost = not self.is_exact, self._has_lost
        self._query = super()._begin(instance)
        return self._query

    @property
    def is_exact(self) -> bool:
        """Whether no part of the answers is an estimate."""
        return not self._was_estimated and (self._query is None or not self._query.is_estimated)

    @property
    def store(self) -> RankReads:
        """The reads of this session."""
        return self

    @property
    def position(self) -> str:
        """The positions of the last answer."""
        if self._query is None:
            raise AssertionError("nothing was read yet, so there is no position")
        return self._query.position

    @property
    def is_stale(self) -> bool:
        """Whether the projector lags, or Redis has lost writes."""
        return self._has_lost or self._heartbeat.is_stale

    @property
    def _has_lost(self) -> bool:
        return self._had_lost or (self._query is not None and self._query.has_lost)

    @property
    def metadata_events(self) -> Mapping[str, int]:
        """The events that carried the players' metadata."""
        events = {} if self._query is None else self._query.metadata
        return {player: event_id(*place) for player, place in events.items()}

    def captured(self, instance: InstanceKey, player: str) -> int | None:
        """Return the player's place at the last capture, which `rank` has read."""
        if self._query is not None and self._query.instance == instance and player in self._query.captured:
            return self._query.captured[player]
        return None


class RedisRankSource:
    """The ranks of an API process, in Redis."""

    def __init__(self, client: EachCaller, layout: Layout, heartbeat: Heartbeat) -> None:
        """Start without known positions."""
        self._client = client
        self._layout = layout
        self._heartbeat = heartbeat
        self._high_water = HighWater(lambda: heartbeat.floor)
        self._reader = RedisReader(client, layout.shards_of, self._high_water)

    def open(self, _instance: InstanceKey) -> RedisReadSession:
        """Begin a read."""
        return RedisReadSession(self._client, self._layout, self._heartbeat, self._high_water)

    def open_ranks(self, _instance: InstanceKey) -> RedisReadSession:
        """Begin a read without a fallback."""
        return RedisReadSession(self._client, self._layout, self._heartbeat, self._high_water)

    def has_ranked(self, positions: Mapping[int, int], board: str | None) -> bool:
        """Return whether events up to these positions are ranked on a board."""
        if board is None:
            raise AssertionError("Redis has positions per board, so a board is required")
        return is_upto(self.ranked_upto([board]).get(board, {}), positions)

    def ranked_upto(self, boards: Sequence[str]) -> dict[str, Mapping[int, int]]:
        """Return the ranked positions of boards, without missing ones; one round trip while all servers answer."""
        try:
            by_board = dict(zip(boards, self._reader.positions_of(boards), strict=True))
        except RanksUnavailable as problem:
            if len(boards) > 1:  # other servers may answer
                return {name: upto for board in boards for name, upto in self.ranked_upto([board]).items()}
            _log.debug("the ranked positions of %s cannot be read: %s", boards[0], problem)
            return {}
        return {
            board: {partition: position.sequence for partition, position in positions.items()}
            for board, positions in by_board.items()
            if not isinstance(positions, RanksUnavailable)  # a board defined a moment ago is not in Redis yet
        }

    def digests(self, instances: Collection[InstanceKey]) -> Mapping[InstanceKey, tuple[int, str]]:
        """Return digest and position of many instances, without unavailable ones: one round trip per thousand."""
        listed = list(instances)
        digests: dict[InstanceKey, tuple[int, str]] = {}
        for start in range(0, len(listed), DIGESTS_AT_ONCE):
            digests.update(read_digests(self._client, listed[start : start + DIGESTS_AT_ONCE]))
        return digests
