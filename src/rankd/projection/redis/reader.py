"""Every read of the rank store, answered by Redis: what port.py promises.

    RedisReader.rank → RedisQuery (round trips) → FCALL_RO rankd_read_… on each shard → Standing | None

On a board of one shard every read is one call, so one instant. Over several shards a read takes the round trips its
docstring tells, asks each shard at an instant of its own, and is exact with respect to the positions it names: while
nothing is written, it is what one shard would answer. A shard that is not there is RanksUnavailable, never empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking
from rankd.errors import RanksUnavailable
from rankd.projection import arguments
from rankd.projection.port import Around, Bucket, Friend, Page, Place, Position, Standing
from rankd.projection.redis import estimates, lookups, pages, statistics, tail
from rankd.projection.redis.client import Call
from rankd.projection.redis.forms import Form, read_described
from rankd.projection.redis.heads import least_positions, read_head
from rankd.projection.redis.high_water import HighWater
from rankd.projection.redis.keys import ShardKeys, instance_name, instance_of
from rankd.projection.redis.query import Caller, EachCaller, RedisQuery

ORDINAL = Ranking.ORDINAL


class RedisReader:
    """Reads ranks from Redis. May be used by any number of threads."""

    def __init__(
        self,
        client: Caller,
        shards_of: Callable[[str], int],
        high_water: HighWater | None = None,
        *,
        with_metadata: bool = False,
    ) -> None:
        """`shards_of` returns how many shards a board has; `high_water` notices those that have lost something.

        `with_metadata` queries the events that metadata came with too, and with `rank` the captured place.
        """
        self._client = client
        self._shards_of = shards_of
        self._high_water = high_water
        self._with_metadata = with_metadata

    def _begin(self, instance: InstanceKey) -> RedisQuery:
        """Begin a read; a subclass may keep the query, which knows the positions that the answer is of."""
        return RedisQuery(self._client, instance, self._shards_of(instance.board), self._high_water)

    # Boards

    def positions(self, board: str) -> dict[int, Position]:
        """Return how far every shard of a board is applied, for each partition: one round trip."""
        (found,) = self.positions_of([board])
        if isinstance(found, RanksUnavailable):
            raise found
        return found

    def positions_of(self, boards: Sequence[str]) -> list[dict[int, Position] | RanksUnavailable]:
        """Return how far boards are applied, or why that cannot be told of one of them: one round trip."""
        shards = [(board, shard) for board in boards for shard in range(self._shards_of(board))]
        calls = [Call("rankd_read_positions", (ShardKeys(*one).meta,), read_only=True) for one in shards]
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
        """Return the instances of a board in which somebody stands: one round trip."""
        query = self._begin(InstanceKey(board))
        names = {name for reply in query.every("rankd_read_instances") for name in reply.values[0]}
        return [instance_of(board, name) for name in sorted(names)]

    # Players

    def total(self, instance: InstanceKey) -> int:
        """Return how many players stand in the instance: one round trip."""
        return pages.instance_total(self._begin(instance))

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return many kept scores in request order: one round trip, or two as `ranks` says."""
        arguments.check_players(players)
        return lookups.kept_scores(self._begin(instance), players)

    def kept_of_all(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return kept scores as `scores` does, of a board with exact_top from where everybody's are."""
        arguments.check_players(players)
        return lookups.kept_scores(self._begin(instance), players, of_all=True)

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field: one round trip."""
        arguments.check_player(player)
        return lookups.kept_scores(self._begin(instance), [player])[0]

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = ORDINAL) -> Standing | None:
        """Return where a player stands: one round trip, two over several shards (the key, then the counts)."""
        arguments.check_ranking(ranking)
        arguments.check_player(player)
        extra = self._with_metadata
        return lookups.standings(self._begin(instance), [player], ranking, metadata=extra, captured=extra)[0]

    def ranks(self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = ORDINAL) -> list[Standing | None]:
        """Return where many players stand, in request order: one round trip, two over several shards.

        More than lookups.PLAYERS_PER_CALL of one shard are several calls of that round trip, so that none keeps Redis
        busy for long. Where a write came between them they are asked again in a single call: one instant, and one more
        round trip.
        """
        arguments.check_ranking(ranking)
        arguments.check_players(players)
        return lookups.standings(self._begin(instance), players, ranking, metadata=self._with_metadata)

    def friends(self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = ORDINAL) -> list[Friend]:
        """Return those of many players who are there, in standing order: round trips as for `ranks`."""
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
        """Return how many players, of a board with exact_top, have a score in each step: one round trip."""
        query = self._begin(instance)
        steps = estimates.read_steps(query, is_coarse=is_coarse)
        return steps, query.form if steps else None

    def entries_of_all(self, instance: InstanceKey) -> dict[str, Kept]:
        """Return what is kept of everybody on a board with exact_top: a round trip for some thousands."""
        return dict(tail.scan_all(self._begin(instance)))

    # Pages

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = ORDINAL) -> Page:
        """Return the places `first` … `last`: one round trip.

        Over several shards one as well for a page that begins within pages.TOP_ENTRIES_MAX entries of each shard (one
        in a million takes more), else two: samples, then the entries. Boards whose players a hash does not spread
        evenly may take further ones, each of which makes what is left smaller by selection.SAMPLES / 2 and more.
        """
        arguments.check_ranking(ranking)
        count = arguments.places(first, last)
        return pages.by_place(self._begin(instance), first, count, ranking, metadata=self._with_metadata)

    def following(
        self, instance: InstanceKey, after: tuple[Kept, str] | None, limit: int, ranking: Ranking = ORDINAL
    ) -> Page:
        """Return at most `limit` entries behind a key: one round trip; over shards one in a million takes a second."""
        arguments.check_ranking(ranking)
        arguments.check_after(after)
        arguments.check_limit(limit)
        return pages.behind(self._begin(instance), after, limit, ranking, metadata=self._with_metadata)

    def around(
        self, instance: InstanceKey, player: str, above: int, below: int, ranking: Ranking = ORDINAL
    ) -> Around | None:
        """Return a player with neighbours: one round trip, two over several shards (the key, then a merge)."""
        arguments.check_ranking(ranking)
        arguments.check_player(player)
        arguments.check_neighbours(above, below)
        return pages.around(self._begin(instance), player, above, below, ranking, metadata=self._with_metadata)

    # Statistics

    def rank_of_score(self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = ORDINAL) -> Place:
        """Return where a new player with this score would stand, last by id: one round trip."""
        arguments.check_ranking(ranking)
        arguments.check_score("score", score)
        arguments.check_tie(tie)
        return statistics.place_of_score(self._begin(instance), score, tie, ranking)

    def count(self, instance: InstanceKey, low: int, high: int) -> int:
        """Return how many players have low ≤ score ≤ high: one round trip."""
        arguments.check_score("low", low)
        arguments.check_score("high", high)
        return statistics.count_between(self._begin(instance), low, high)

    def quantiles(self, instance: InstanceKey, ppm: Sequence[int]) -> list[int] | None:
        """Return quantiles: one round trip; over several shards two, with further ones as `range` says."""
        arguments.check_ppm(ppm)
        return statistics.quantiles(self._begin(instance), ppm)

    def histogram(self, instance: InstanceKey, buckets: int) -> list[Bucket]:
        """Return a histogram: one round trip, two over several shards (the ends, then the counts)."""
        arguments.check_buckets(buckets)
        return statistics.histogram(self._begin(instance), buckets)

    def digest(self, instance: InstanceKey) -> int:
        """Return the digest of the whole instance, which shard 0 knows: one round trip."""
        (reply,) = self._begin(instance).some("rankd_read_total", [(0, ())])
        return _digest(reply.described)


def read_digests(caller: EachCaller, instances: Sequence[InstanceKey]) -> dict[InstanceKey, tuple[int, str]]:
    """Return digest and position of many instances, as far as they can be had: one round trip."""
    calls = [
        Call("rankd_read_total", (ShardKeys(one.board, 0).meta,), (instance_name(one),), read_only=True)
        for one in instances
    ]
    found = {}
    for instance, outcome in zip(instances, caller.call_each(calls), strict=True):
        if not isinstance(outcome, RanksUnavailable) and outcome[0]:
            line, described, *_ = outcome
            found[instance] = _digest(described), read_head(line, instance.board, 0).token
    return found


def _digest(described: bytes) -> int:
    return int(read_described(described).digest, 16) if described else 0
