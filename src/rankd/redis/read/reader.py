"""The rank store's reads (projection/port.py), answered by Redis.

    RedisReader.rank → RedisQuery (round trips) → FCALL_RO rankd_read_… on each shard → RankedStanding | None

On a board of one shard every read is one call, so one consistent state. Over several shards a read takes the round
trips its docstring names and reads each shard at its own instant; while nothing is written, the answer is what one
shard would give. A missing shard is RanksUnavailable, never empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking
from rankd.errors import RanksUnavailable
from rankd.projection import arguments
from rankd.projection.port import (
    Position,
    RankedAround,
    RankedBucket,
    RankedFriend,
    RankedPage,
    RankedPlace,
    RankedStanding,
)
from rankd.redis import estimates
from rankd.redis.connection.client import FunctionCall
from rankd.redis.forms import Form, read_described
from rankd.redis.heads import least_positions, read_head
from rankd.redis.keys import ShardKeys, instance_name, instance_of
from rankd.redis.read import lookups, pages, statistics, tail
from rankd.redis.read.high_water import HighWater
from rankd.redis.read.query import Caller, EachCaller, RedisQuery

ORDINAL = Ranking.ORDINAL


class RedisReader:
    """Reads ranks from Redis; from any thread."""

    def __init__(
        self,
        client: Caller,
        shards_of: Callable[[str], int],
        high_water: HighWater | None = None,
        *,
        with_metadata: bool = False,
    ) -> None:
        """`shards_of` returns the number of shards of a board; `high_water` detects shards that have lost writes.

        `with_metadata` also reads the events that carried metadata, and in `rank` the captured place.
        """
        self._client = client
        self._shards_of = shards_of
        self._high_water = high_water
        self._with_metadata = with_metadata

    def _begin(self, instance: InstanceKey) -> RedisQuery:
        """Begin a read; a subclass may keep the query, which has the positions of the answer."""
        return RedisQuery(self._client, instance, self._shards_of(instance.board), self._high_water)

    # Boards

    def positions(self, board: str) -> dict[int, Position]:
        """Return the lowest positions over the shards of a board: one round trip."""
        (positions,) = self.positions_of([board])
        if isinstance(positions, RanksUnavailable):
            raise positions
        return positions

    def positions_of(self, boards: Sequence[str]) -> list[dict[int, Position] | RanksUnavailable]:
        """Return the lowest positions of each board, or why they are unavailable: one round trip."""
        shards = [(board, shard) for board in boards for shard in range(self._shards_of(board))]
        calls = [FunctionCall("rankd_read_positions", (ShardKeys(*shard).meta,), read_only=True) for shard in shards]
        lines: dict[str, list[tuple[int, bytes]]] = {board: [] for board in boards}
        for (board, shard), (line, _) in zip(shards, self._client.call_all(calls), strict=True):
            lines[board].append((shard, line))
        return [self._least_of(board, lines[board]) for board in boards]

    def _least_of(self, board: str, lines: Sequence[tuple[int, bytes]]) -> dict[int, Position] | RanksUnavailable:
        try:
            heads = {shard: read_head(line, board, shard) for shard, line in lines}
        except RanksUnavailable as problem:
            return problem
        if self._high_water is not None:
            for shard, head in heads.items():
                self._high_water.note(board, shard, head, None)
        return least_positions(heads.values())

    def instances_of(self, board: str) -> list[InstanceKey]:
        """Return the instances of a board that have players: one round trip."""
        query = self._begin(InstanceKey(board))
        names = {name for reply in query.every("rankd_read_instances") for name in reply.values[0]}
        return [instance_of(board, name) for name in sorted(names)]

    # Players

    def total(self, instance: InstanceKey) -> int:
        """Return the number of players in the instance: one round trip."""
        return pages.instance_total(self._begin(instance))

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return many kept scores in request order: round trips as for `ranks` on one shard."""
        arguments.check_players(players)
        return lookups.kept_scores(self._begin(instance), players)

    def kept_of_all(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return kept scores as `scores` does, on a board with exact_top from the scores of all players."""
        arguments.check_players(players)
        return lookups.kept_scores(self._begin(instance), players, of_all=True)

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field: one round trip."""
        arguments.check_player(player)
        return lookups.kept_scores(self._begin(instance), [player])[0]

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = ORDINAL) -> RankedStanding | None:
        """Return a player's standing: one round trip, two over several shards (the key, then the counts)."""
        arguments.check_ranking(ranking)
        arguments.check_player(player)
        extra = self._with_metadata
        return lookups.standings(self._begin(instance), [player], ranking, metadata=extra, captured=extra)[0]

    def ranks(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = ORDINAL
    ) -> list[RankedStanding | None]:
        """Return the standings of many players, in request order: one round trip, two over several shards.

        If a write comes between the calls of one shard (`lookups.find`), one round trip more.
        """
        arguments.check_ranking(ranking)
        arguments.check_players(players)
        return lookups.standings(self._begin(instance), players, ranking, metadata=self._with_metadata)

    def friends(self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = ORDINAL) -> list[RankedFriend]:
        """Return the present ones of many players, in standing order: round trips as for `ranks`."""
        arguments.check_ranking(ranking)
        arguments.check_players(players)
        return lookups.friends(self._begin(instance), players, ranking, metadata=self._with_metadata)

    def captured(self, instance: InstanceKey, player: str) -> int | None:
        """Return the player's place at the instance's last capture: one round trip."""
        arguments.check_player(player)
        query = self._begin(instance)
        lookups.find(query, [player], "", captured=True)
        return query.captured.get(player)

    # Below an exact top

    def steps(self, instance: InstanceKey, *, is_coarse: bool = False) -> tuple[dict[int, int], Form | None]:
        """Return the players in each score step of a board with exact_top: one round trip."""
        query = self._begin(instance)
        steps = estimates.read_steps(query, is_coarse=is_coarse)
        return steps, query.form if steps else None

    def entries_of_all(self, instance: InstanceKey) -> dict[str, Kept]:
        """Return the kept scores of all players of a board with exact_top: a round trip for some thousands."""
        return dict(tail.scan_all(self._begin(instance)))

    # Pages

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = ORDINAL) -> RankedPage:
        """Return the places `first` … `last`: one round trip.

        Over several shards also one for a page within pages.TOP_ENTRIES_MAX entries of each shard (one in a million
        takes more), else two: samples, then the entries. Unevenly spread players may take further ones, each of which
        narrows the search by selection.SAMPLES / 2 and more.
        """
        arguments.check_ranking(ranking)
        count = arguments.places(first, last)
        return pages.by_place(self._begin(instance), first, count, ranking, metadata=self._with_metadata)

    def following(
        self, instance: InstanceKey, after: tuple[Kept, str] | None, limit: int, ranking: Ranking = ORDINAL
    ) -> RankedPage:
        """Return at most `limit` entries behind a key: one round trip; over shards one in a million takes a second."""
        arguments.check_ranking(ranking)
        arguments.check_after(after)
        arguments.check_limit(limit)
        return pages.behind(self._begin(instance), after, limit, ranking, metadata=self._with_metadata)

    def around(
        self, instance: InstanceKey, player: str, above: int, below: int, ranking: Ranking = ORDINAL
    ) -> RankedAround | None:
        """Return a player with neighbours: one round trip, two over several shards (the key, then a merge)."""
        arguments.check_ranking(ranking)
        arguments.check_player(player)
        arguments.check_neighbours(above, below)
        return pages.around(self._begin(instance), player, above, below, ranking, metadata=self._with_metadata)

    # Statistics

    def rank_of_score(self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = ORDINAL) -> RankedPlace:
        """Return the place of a new player with this score, last by id: one round trip."""
        arguments.check_ranking(ranking)
        arguments.check_score("score", score)
        arguments.check_tie(tie)
        return statistics.place_of_score(self._begin(instance), score, tie, ranking)

    def count(self, instance: InstanceKey, low: int, high: int) -> int:
        """Return the number of players with low ≤ score ≤ high: one round trip."""
        arguments.check_score("low", low)
        arguments.check_score("high", high)
        return statistics.count_between(self._begin(instance), low, high)

    def quantiles(self, instance: InstanceKey, ppm: Sequence[int]) -> list[int] | None:
        """Return quantiles: one round trip; over several shards two, rarely more as for `range`."""
        arguments.check_ppm(ppm)
        return statistics.quantiles(self._begin(instance), ppm)

    def histogram(self, instance: InstanceKey, buckets: int) -> list[RankedBucket]:
        """Return a histogram: one round trip, two over several shards (the ends, then the counts)."""
        arguments.check_buckets(buckets)
        return statistics.histogram(self._begin(instance), buckets)

    def digest(self, instance: InstanceKey) -> int:
        """Return the digest of the whole instance, from shard 0: one round trip."""
        (reply,) = self._begin(instance).some("rankd_read_total", [(0, ())])
        return _digest(reply.described)


def read_digests(caller: EachCaller, instances: Sequence[InstanceKey]) -> dict[InstanceKey, tuple[int, str]]:
    """Return digest and position of many instances, without unavailable ones: one round trip."""
    calls = [
        FunctionCall("rankd_read_total", (ShardKeys(key.board, 0).meta,), (instance_name(key),), read_only=True)
        for key in instances
    ]
    digests = {}
    for instance, outcome in zip(instances, caller.call_each(calls), strict=True):
        if not isinstance(outcome, RanksUnavailable) and outcome[0]:
            line, described, *_ = outcome
            digests[instance] = _digest(described), read_head(line, instance.board, 0).token
    return digests


def _digest(described: bytes) -> int:
    return int(read_described(described).digest, 16) if described else 0
