"""Every read of the rank store, answered by Redis: what port.py promises, with how old the answer is.

    RedisReader.read_rank → Asking (round trips) → FCALL_RO rankd_read_… on each shard → Seen[Standing | None]
    RedisReader.rank      → the same without how old it is

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
from rankd.projection.redis.asking import Asking, Caller, EachCaller
from rankd.projection.redis.client import Call
from rankd.projection.redis.forms import Form, read_described
from rankd.projection.redis.high_water import HighWater
from rankd.projection.redis.keys import ShardKeys, instance_name, instance_of
from rankd.projection.redis.plain import PlainReads
from rankd.projection.redis.seen import Seen, least_positions, read_head

ORDINAL = Ranking.ORDINAL


class RedisReader(PlainReads):
    """Reads ranks from Redis. May be used by any number of threads."""

    def __init__(self, client: Caller, shards_of: Callable[[str], int], high_water: HighWater | None = None) -> None:
        """`shards_of` tells how many shards a board has; `high_water` notices those that have lost something."""
        self._client = client
        self._shards_of = shards_of
        self._high_water = high_water

    def _ask(self, instance: InstanceKey) -> Asking:
        return Asking(self._client, instance, self._shards_of(instance.board), self._high_water)

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

    def read_instances(self, board: str) -> Seen[list[InstanceKey]]:
        """Return the instances of a board in which somebody stands: one round trip."""
        asking = self._ask(InstanceKey(board))
        names = {name for reply in asking.every("rankd_read_instances") for name in reply.values[0]}
        return asking.seen([instance_of(board, name) for name in sorted(names)])

    # Players

    def read_total(self, instance: InstanceKey) -> Seen[int]:
        """Return how many players stand in the instance: one round trip."""
        asking = self._ask(instance)
        return asking.seen(pages.instance_total(asking))

    def read_scores(self, instance: InstanceKey, players: Sequence[str]) -> Seen[list[Kept | None]]:
        """Return many kept scores in request order: one round trip, or two as `read_ranks` says."""
        arguments.check_players(players)
        asking = self._ask(instance)
        return asking.seen(lookups.kept_scores(asking, players))

    def read_kept(self, instance: InstanceKey, players: Sequence[str]) -> Seen[list[Kept | None]]:
        """Return kept scores as `read_scores` does, of a board with exact_top from where everybody's are."""
        arguments.check_players(players)
        asking = self._ask(instance)
        return asking.seen(lookups.kept_scores(asking, players, of_all=True))

    def read_score(self, instance: InstanceKey, player: str) -> Seen[Kept | None]:
        """Return a player's kept score and tie field: one round trip."""
        arguments.check_player(player)
        asking = self._ask(instance)
        return asking.seen(lookups.kept_scores(asking, [player])[0])

    def read_rank(
        self,
        instance: InstanceKey,
        player: str,
        ranking: Ranking = ORDINAL,
        *,
        metadata: bool = False,
        captured: bool = False,
    ) -> Seen[Standing | None]:
        """Return where a player stands: one round trip, two over several shards (the key, then the counts)."""
        arguments.check_ranking(ranking)
        arguments.check_player(player)
        asking = self._ask(instance)
        found = lookups.standings(asking, [player], ranking, metadata=metadata, captured=captured)
        return asking.seen(found[0])

    def read_ranks(
        self,
        instance: InstanceKey,
        players: Sequence[str],
        ranking: Ranking = ORDINAL,
        *,
        metadata: bool = False,
        captured: bool = False,
    ) -> Seen[list[Standing | None]]:
        """Return where many players stand, in request order: one round trip, two over several shards.

        More than lookups.PLAYERS_PER_CALL of one shard are several calls of that round trip, so that none keeps Redis
        busy for long. Where a write came between them they are asked again in a single call: one instant, and one more
        round trip.
        """
        arguments.check_ranking(ranking)
        arguments.check_players(players)
        asking = self._ask(instance)
        return asking.seen(lookups.standings(asking, players, ranking, metadata=metadata, captured=captured))

    def read_friends(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = ORDINAL, *, metadata: bool = False
    ) -> Seen[list[Friend]]:
        """Return those of many players who are there, in standing order: round trips as for `read_ranks`."""
        arguments.check_ranking(ranking)
        arguments.check_players(players)
        asking = self._ask(instance)
        return asking.seen(lookups.friends(asking, players, ranking, metadata=metadata))

    def read_captured(self, instance: InstanceKey, player: str) -> Seen[int | None]:
        """Return the player's place at the instance's last capture: one round trip."""
        arguments.check_player(player)
        asking = self._ask(instance)
        lookups.find_lines(asking, [player], captured=True)
        return asking.seen(asking.captured.get(player))

    # Below an exact top

    def read_steps(self, instance: InstanceKey, *, is_coarse: bool = False) -> Seen[tuple[dict[int, int], Form | None]]:
        """Return how many players, of a board with exact_top, have a score in each step: one round trip."""
        asking = self._ask(instance)
        steps = estimates.read_steps(asking, is_coarse=is_coarse)
        return asking.seen((steps, asking.form if steps else None))

    def read_all(self, instance: InstanceKey) -> Seen[dict[str, Kept]]:
        """Return what is kept of everybody on a board with exact_top: a round trip for some thousands."""
        asking = self._ask(instance)
        return asking.seen(dict(tail.scan_all(asking)))

    # Pages

    def read_range(
        self, instance: InstanceKey, first: int, last: int, ranking: Ranking = ORDINAL, *, metadata: bool = False
    ) -> Seen[Page]:
        """Return the places `first` … `last`: one round trip.

        Over several shards one as well for a page that begins within pages.TOP_ENTRIES_MAX entries of each shard (one
        in a million takes more), else two: samples, then the entries. Boards whose players a hash does not spread
        evenly may take further ones, each of which makes what is left smaller by selection.SAMPLES / 2 and more.
        """
        arguments.check_ranking(ranking)
        count = arguments.places(first, last)
        asking = self._ask(instance)
        return asking.seen(pages.by_place(asking, first, count, ranking, metadata=metadata))

    def read_following(
        self,
        instance: InstanceKey,
        after: tuple[Kept, str] | None,
        limit: int,
        ranking: Ranking = ORDINAL,
        *,
        metadata: bool = False,
    ) -> Seen[Page]:
        """Return at most `limit` entries behind a key: one round trip; over shards one in a million takes a second."""
        arguments.check_ranking(ranking)
        arguments.check_after(after)
        arguments.check_limit(limit)
        asking = self._ask(instance)
        return asking.seen(pages.behind(asking, after, limit, ranking, metadata=metadata))

    def read_around(
        self,
        instance: InstanceKey,
        player: str,
        above: int,
        below: int,
        ranking: Ranking = ORDINAL,
        *,
        metadata: bool = False,
        captured: bool = False,
    ) -> Seen[Around | None]:
        """Return a player with neighbours: one round trip, two over several shards (the key, then a merge)."""
        arguments.check_ranking(ranking)
        arguments.check_player(player)
        arguments.check_neighbours(above, below)
        asking = self._ask(instance)
        return asking.seen(pages.around(asking, player, above, below, ranking, metadata=metadata, captured=captured))

    # Statistics

    def read_rank_of_score(
        self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = ORDINAL
    ) -> Seen[Place]:
        """Return where a new player with this score would stand, last by id: one round trip."""
        arguments.check_ranking(ranking)
        arguments.check_score("score", score)
        arguments.check_tie(tie)
        asking = self._ask(instance)
        return asking.seen(statistics.place_of_score(asking, score, tie, ranking))

    def read_count(self, instance: InstanceKey, low: int, high: int) -> Seen[int]:
        """Return how many players have low ≤ score ≤ high: one round trip."""
        arguments.check_score("low", low)
        arguments.check_score("high", high)
        asking = self._ask(instance)
        return asking.seen(statistics.count_between(asking, low, high))

    def read_quantiles(self, instance: InstanceKey, ppm: Sequence[int]) -> Seen[list[int] | None]:
        """Return quantiles: one round trip; over several shards two, with further ones as `read_range` says."""
        arguments.check_ppm(ppm)
        asking = self._ask(instance)
        return asking.seen(statistics.quantiles(asking, ppm))

    def read_histogram(self, instance: InstanceKey, buckets: int) -> Seen[list[Bucket]]:
        """Return a histogram: one round trip, two over several shards (the ends, then the counts)."""
        arguments.check_buckets(buckets)
        asking = self._ask(instance)
        return asking.seen(statistics.histogram(asking, buckets))

    def read_digest(self, instance: InstanceKey) -> Seen[int]:
        """Return the digest of the whole instance and the positions of shard 0, which was told it: one round trip."""
        asking = self._ask(instance)
        (reply,) = asking.some("rankd_read_total", [(0, ())])
        return asking.seen(int(read_described(reply.described).digest, 16) if reply.described else 0)


def read_digests(caller: EachCaller, instances: Sequence[InstanceKey]) -> dict[InstanceKey, Seen[int]]:
    """Return digests of many instances, as far as they can be had: one round trip."""
    calls = [
        Call("rankd_read_total", (ShardKeys(one.board, 0).meta,), (instance_name(one),), read_only=True)
        for one in instances
    ]
    found = {}
    for instance, outcome in zip(instances, caller.call_each(calls), strict=True):
        if not isinstance(outcome, RanksUnavailable) and outcome[0]:
            line, described, *_ = outcome
            head = read_head(line, instance.board, 0)
            digest = int(read_described(described).digest, 16) if described else 0
            found[instance] = Seen(digest, head.positions, head.time_ms)
    return found
