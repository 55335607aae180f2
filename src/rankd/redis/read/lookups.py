"""Lookups of named players: their kept scores and standings, in calls of a few milliseconds each.

one shard       a call for every PLAYERS_PER_CALL players, all in one round trip
several shards  the same to find their keys, then the count of players before each key on every shard: two round trips

On boards with exact_top, the same calls find players below the top, whose places are estimated (estimates.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from rankd.domain.order import Kept, Ranking
from rankd.projection.port import RankedFriend, RankedStanding
from rankd.redis.estimates import Estimate, StepCount
from rankd.redis.keys import bucket_hash, shard_of
from rankd.redis.read.lines import EntryLine, MarkKind, known_distinct, lines_of, mark
from rankd.redis.read.query import Arguments, RedisQuery, ShardReply

READ_PLAYERS = "rankd_read_players"
BEFORE_PLAYERS = 3  # its arguments before the players: the instance, options, number of players
PLAYERS_PER_CALL = 500  # looked up and counted within 5 ms
MARKS_PER_CALL = 500  # counted within 5 ms


class FoundPlayer(NamedTuple):
    """A present player, and counts of players before; 0 where not requested."""

    line: EntryLine
    place: int
    better: int
    distinct: int | None  # None where Redis does not keep distinct scores
    level: int | None = None  # below the exact top: players in the same step; `better` are in better steps


def find(
    query: RedisQuery, players: Sequence[str], options: str, *, captured: bool = False
) -> list[FoundPlayer | None]:
    """Look players up in their own shards, consistently within a shard: one round trip.

    More than PLAYERS_PER_CALL players of one shard take several calls. If a write came between them, a second round
    trip reads them again in a single call, which keeps Redis busy for longer.
    """
    by_shard: dict[int, list[tuple[int, bytes]]] = {}
    for index, player in enumerate(players):
        if (id_bytes := encoded_id(player)) is not None:
            by_shard.setdefault(shard_of(player, query.shards), []).append((index, id_bytes))
    by_shard = by_shard or {0: []}  # at least one reply, for the positions of the answer

    def question(some: Sequence[tuple[int, bytes]]) -> list[bytes | int | str]:
        buckets = [bucket_hash(players[index]) for index, _ in some] if captured else []
        return [options + ("p" if captured else ""), len(some), *(id_bytes for _, id_bytes in some), *buckets]

    pieces = {
        shard: [
            question(some[first : first + PLAYERS_PER_CALL]) for first in range(0, len(some) or 1, PLAYERS_PER_CALL)
        ]
        for shard, some in by_shard.items()
    }
    matches: list[FoundPlayer | None] = [None] * len(players)
    replies = query.at_once(READ_PLAYERS, pieces, lambda shard: question(by_shard[shard]))
    for shard, some in by_shard.items():
        rest = iter(some)
        for reply in replies[shard]:
            if reply.values:
                part = list(islice(rest, len(reply.values[1])))
                for (index, _), match in zip(part, _read(query, reply, part, players), strict=True):
                    matches[index] = match
    return matches


def _read(
    query: RedisQuery, reply: ShardReply, some: Sequence[tuple[int, bytes]], players: Sequence[str]
) -> list[FoundPlayer | None]:
    _, rows, captured, metadata = reply.values
    if metadata is not None:
        query.note_metadata([players[index] for index, _ in some], metadata)
    if captured is not None:
        query.captured.update(
            (players[index], place) for (index, _), place in zip(some, captured, strict=True) if place is not None
        )
    present = [(id_bytes, row) for (_, id_bytes), row in zip(some, rows, strict=True) if row is not None]
    lines = iter(lines_of(reply.form, [row[1] + id_bytes for id_bytes, row in present], [row[0] for _, row in present]))
    return [None if row is None else FoundPlayer(next(lines), row[2] or 0, row[3] or 0, *row[4:]) for row in rows]


def kept_scores(query: RedisQuery, players: Sequence[str], *, of_all: bool = False) -> list[Kept | None]:
    """Return kept scores: one round trip. With exact_top, `of_all` reads the scores of all players, not the top."""
    matches = find(query, players, "s" if of_all else "")
    return [None if player is None else Kept(player.line.score, player.line.tie) for player in matches]


def standings(
    query: RedisQuery, players: Sequence[str], ranking: Ranking, *, metadata: bool = False, captured: bool = False
) -> list[RankedStanding | None]:
    """Return the standings of players: one round trip, two over several shards."""
    query.check_dense(ranking)
    extra = "m" if metadata else ""
    if query.shards == 1:
        options = ("rbd" if ranking is Ranking.DENSE else "rb") + extra
        matches = find(query, players, options, captured=captured)
    else:
        places = ranking is Ranking.ORDINAL
        matches = find(query, players, extra, captured=captured)
        matches = _counted_on_all(query, matches, places=places, better=True)
    total = query.total
    return [None if player is None else _standing(query, player, total, ranking) for player in matches]


def standing_below(
    query: RedisQuery, player: str, ranking: Ranking, match: FoundPlayer | None = None, *, metadata: bool = False
) -> RankedStanding | None:
    """Estimate the standing of a player below the exact top: one round trip.

    Over several shards, `match` is the player in their own shard. On one shard, a player who has entered the top
    meanwhile has an exact place.
    """
    if query.shards == 1:
        (match,) = find(query, [player], "rb" + ("m" if metadata else ""))
    else:
        (match,) = _counted_on_all(query, [match], places=False, better=True)
    return None if match is None else _standing(query, match, query.total, ranking)


def friends(
    query: RedisQuery, players: Sequence[str], ranking: Ranking, *, metadata: bool = False
) -> list[RankedFriend]:
    """Return the present players in standing order: one round trip, two over several shards."""
    query.check_dense(ranking)
    extra = "m" if metadata else ""
    once = list(dict.fromkeys(players))
    if query.shards == 1:
        options = {Ranking.ORDINAL: "r", Ranking.COMPETITION: "rb", Ranking.DENSE: "rd"}[ranking] + extra
        matches = find(query, once, options)
    else:
        places = ranking is Ranking.ORDINAL
        matches = _counted_on_all(query, find(query, once, extra), places=places, better=not places)
    group = sorted((player for player in matches if player is not None), key=lambda player: player.line)
    answer: list[RankedFriend] = []
    rank, previous = 0, None
    for place, friend in enumerate(group, start=1):
        line = friend.line
        if ranking is Ranking.ORDINAL:
            rank = place
        elif line.key != previous:
            rank, previous = (rank + 1 if ranking is Ranking.DENSE else place), line.key
        if friend.level is None:
            answer.append(RankedFriend(rank, line.player, line.score, line.tie, _rank(query, friend, ranking)))
        else:
            estimate = _estimate(query, friend, ranking)
            answer.append(RankedFriend(rank, line.player, line.score, line.tie, estimate.guess, estimate.bounds))
    return answer


def _counted_on_all(
    query: RedisQuery, matches: list[FoundPlayer | None], *, places: bool, better: bool
) -> list[FoundPlayer | None]:
    """Count the players before each of these on every shard: one round trip, none where no player was found."""
    present = [player for player in matches if player is not None]
    exact = list({player.line: None for player in present if player.level is None})
    below = list(dict.fromkeys(player.line.score for player in present if player.level is not None))
    if not exact and not below:
        return matches
    keys = exact if places else []
    scores = list(dict.fromkeys(line.score for line in exact)) if better else []
    marks = [mark(MarkKind.AT, line.score, line.tie, line.player_bytes) for line in keys]
    marks += [mark(MarkKind.FIRST, score) for score in scores]
    marks += [mark(kind, score) for kind in (MarkKind.STEP, MarkKind.STEP_END) for score in below]
    counts = iter(count_before(query, marks))
    place_of = dict(zip(keys, counts, strict=False))
    better_of = dict(zip(scores, counts, strict=False))
    first_of = dict(zip(below, counts, strict=False))
    end_of = dict(zip(below, counts, strict=True))

    def counted(player: FoundPlayer) -> FoundPlayer:
        line = player.line
        if player.level is None:
            return FoundPlayer(line, place_of.get(line, 0), better_of.get(line.score, 0), None)
        return FoundPlayer(line, 0, first_of[line.score], None, end_of[line.score] - first_of[line.score])

    return [player and counted(player) for player in matches]


def count_before(query: RedisQuery, marks: Sequence[tuple[bytes, bytes]]) -> list[int]:
    """Return the number of players before each mark, consistently within a shard: round trips as for `find`."""

    def question(some: Sequence[tuple[bytes, bytes]]) -> Arguments:
        return ["", *(argument for encoded in some for argument in encoded)]

    pieces = [question(marks[first : first + MARKS_PER_CALL]) for first in range(0, len(marks), MARKS_PER_CALL)]
    replies = query.at_once("rankd_read_counts", dict.fromkeys(range(query.shards), pieces), lambda _: question(marks))
    counts = [0] * len(marks)
    for parts in replies.values():
        of_shard = [count for reply in parts if reply.values for count in reply.values[1]]
        if of_shard:
            counts = [total + count for total, count in zip(counts, of_shard, strict=True)]
    return counts


def _standing(query: RedisQuery, player: FoundPlayer, total: int, ranking: Ranking) -> RankedStanding:
    line = player.line
    if player.level is None:
        return RankedStanding(_rank(query, player, ranking), line.player, line.score, line.tie, player.better, total)
    estimate, level = _estimate(query, player, ranking), _estimate(query, player, Ranking.COMPETITION)
    better = min(level.guess, total) - 1
    return RankedStanding(estimate.guess, line.player, line.score, line.tie, better, total, estimate.bounds)


def _estimate(query: RedisQuery, player: FoundPlayer, ranking: Ranking) -> Estimate:
    """Estimate the place of a player below the top; the query has replies of all shards."""
    if ranking is Ranking.DENSE:
        known_distinct(None, query.instance.text)
    query.is_estimated = True
    return StepCount(query.form.order, player.line.score, player.better, player.level or 0, query.top).place(ranking)


def _rank(query: RedisQuery, player: FoundPlayer, ranking: Ranking) -> int:
    match ranking:
        case Ranking.ORDINAL:
            return player.place + 1
        case Ranking.COMPETITION:
            return player.better + 1
        case Ranking.DENSE:
            return known_distinct(player.distinct, query.instance.text) + 1


def encoded_id(player: str) -> bytes | None:
    """Return the UTF-8 bytes of an id; None where it has none, so that no player can have it."""
    try:
        return player.encode()
    except UnicodeEncodeError:
        return None
