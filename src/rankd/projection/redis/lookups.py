"""Certain players: their kept scores and where they stand; asked in calls that keep Redis busy for few milliseconds.

one shard       a call for every PLAYERS_PER_CALL players, all in one round trip
several shards  the same to find their keys, then how many stand before each key on every shard: two round trips

Of boards with exact_top, those below the top are found by the same calls, and counted by steps (estimates.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from rankd.domain.order import Kept, Ranking
from rankd.projection.port import Friend, Standing
from rankd.projection.redis.estimates import Counted, Estimate
from rankd.projection.redis.keys import bucket_hash, shard_of
from rankd.projection.redis.lines import Line, MarkKind, known_distinct, lines_of, mark
from rankd.projection.redis.query import Arguments, RedisQuery, Reply

READ_PLAYERS = "rankd_read_players"
BEFORE_PLAYERS = 3  # arguments of it: the instance, options, how many players
PLAYERS_PER_CALL = 500  # looked up and counted within 5 ms
MARKS_PER_CALL = 500  # counted within 5 ms


class Found(NamedTuple):
    """A player who is there, and how many stand before; 0 for what was not asked for."""

    line: Line
    place: int
    better: int
    distinct: int | None  # None where these are not kept
    level: int | None = None  # below the exact top: how many share the step, where `better` have a better one


def find(query: RedisQuery, players: Sequence[str], options: str, *, captured: bool = False) -> list[Found | None]:
    """Look players up in their own shards, all of one shard at one instant: one round trip.

    More than PLAYERS_PER_CALL of one shard are asked for in several calls; where something was written to the shard
    between these, they are asked for again in a single one, which keeps Redis busy for longer: a second round trip.
    """
    by_shard: dict[int, list[tuple[int, bytes]]] = {}
    for index, player in enumerate(players):
        if (id_bytes := encoded_id(player)) is not None:
            by_shard.setdefault(shard_of(player, query.shards), []).append((index, id_bytes))
    by_shard = by_shard or {0: []}  # one shard at least says how old the answer is

    def question(some: Sequence[tuple[int, bytes]]) -> list[bytes | int | str]:
        buckets = [bucket_hash(players[index]) for index, _ in some] if captured else []
        return [options + ("p" if captured else ""), len(some), *(id_bytes for _, id_bytes in some), *buckets]

    pieces = {
        shard: [
            question(some[first : first + PLAYERS_PER_CALL]) for first in range(0, len(some) or 1, PLAYERS_PER_CALL)
        ]
        for shard, some in by_shard.items()
    }
    found: list[Found | None] = [None] * len(players)
    replies = query.at_once(READ_PLAYERS, pieces, lambda shard: question(by_shard[shard]))
    for shard, some in by_shard.items():
        rest = iter(some)
        for reply in replies[shard]:
            if reply.values:
                part = list(islice(rest, len(reply.values[1])))
                for (index, _), one in zip(part, _read(query, reply, part, players), strict=True):
                    found[index] = one
    return found


def _read(
    query: RedisQuery, reply: Reply, some: Sequence[tuple[int, bytes]], players: Sequence[str]
) -> list[Found | None]:
    _, rows, captured, metadata = reply.values
    if metadata is not None:
        query.note_metadata([players[index] for index, _ in some], metadata)
    if captured is not None:
        query.captured.update(
            (players[index], place) for (index, _), place in zip(some, captured, strict=True) if place is not None
        )
    there = [(id_bytes, row) for (_, id_bytes), row in zip(some, rows, strict=True) if row is not None]
    lines = iter(lines_of(reply.form, [row[1] + id_bytes for id_bytes, row in there], [row[0] for _, row in there]))
    return [None if row is None else Found(next(lines), row[2] or 0, row[3] or 0, *row[4:]) for row in rows]


def kept_scores(query: RedisQuery, players: Sequence[str], *, of_all: bool = False) -> list[Kept | None]:
    """Return kept scores: one round trip. With exact_top, `of_all` looks where everybody is, not into the top."""
    found = find(query, players, "s" if of_all else "")
    return [None if one is None else Kept(one.line.score, one.line.tie) for one in found]


def standings(
    query: RedisQuery, players: Sequence[str], ranking: Ranking, *, metadata: bool = False, captured: bool = False
) -> list[Standing | None]:
    """Return where players stand: one round trip, two over several shards."""
    query.check_dense(ranking)
    extra = "m" if metadata else ""
    if query.shards == 1:
        options = ("rbd" if ranking is Ranking.DENSE else "rb") + extra
        found = find(query, players, options, captured=captured)
    else:
        places = ranking is Ranking.ORDINAL
        found = find(query, players, extra, captured=captured)
        found = _counted_on_all(query, found, places=places, better=True)
    total = query.total
    return [None if one is None else _standing(query, one, total, ranking) for one in found]


def standing_below(
    query: RedisQuery, player: str, ranking: Ranking, found: Found | None = None, *, metadata: bool = False
) -> Standing | None:
    """Return about where somebody stands who is below the exact top: one round trip.

    Over several shards they were `found` there in their own. On one shard, who has come into the top meanwhile has an
    exact place.
    """
    if query.shards == 1:
        (found,) = find(query, [player], "rb" + ("m" if metadata else ""))
    else:
        (found,) = _counted_on_all(query, [found], places=False, better=True)
    return None if found is None else _standing(query, found, query.total, ranking)


def friends(query: RedisQuery, players: Sequence[str], ranking: Ranking, *, metadata: bool = False) -> list[Friend]:
    """Return those who are there in standing order: one round trip, two over several shards."""
    query.check_dense(ranking)
    extra = "m" if metadata else ""
    once = list(dict.fromkeys(players))
    if query.shards == 1:
        options = {Ranking.ORDINAL: "r", Ranking.COMPETITION: "rb", Ranking.DENSE: "rd"}[ranking] + extra
        found = find(query, once, options)
    else:
        places = ranking is Ranking.ORDINAL
        found = _counted_on_all(query, find(query, once, extra), places=places, better=not places)
    group = sorted((one for one in found if one is not None), key=lambda one: one.line)
    answer: list[Friend] = []
    rank, previous = 0, None
    for place, one in enumerate(group, start=1):
        if ranking is Ranking.ORDINAL:
            rank = place
        elif one.line.key != previous:
            rank, previous = (rank + 1 if ranking is Ranking.DENSE else place), one.line.key
        line = one.line
        if one.level is None:
            answer.append(Friend(rank, line.player, line.score, line.tie, _rank(query, one, ranking)))
        else:
            about = _estimate(query, one, ranking)
            answer.append(Friend(rank, line.player, line.score, line.tie, about.guess, about.bounds))
    return answer


def _counted_on_all(query: RedisQuery, found: list[Found | None], *, places: bool, better: bool) -> list[Found | None]:
    """Count how many stand before these players on every shard: one round trip, none where nobody was found."""
    exact = list({one.line: None for one in found if one is not None and one.level is None})
    below = list(dict.fromkeys(one.line.score for one in found if one is not None and one.level is not None))
    if not exact and not below:
        return found
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

    def counted(one: Found) -> Found:
        line = one.line
        if one.level is None:
            return Found(line, place_of.get(line, 0), better_of.get(line.score, 0), None)
        return Found(line, 0, first_of[line.score], None, end_of[line.score] - first_of[line.score])

    return [one and counted(one) for one in found]


def count_before(query: RedisQuery, marks: Sequence[tuple[bytes, bytes]]) -> list[int]:
    """Return how many stand before each mark, each shard asked at one instant: round trips as for `find`."""

    def question(some: Sequence[tuple[bytes, bytes]]) -> Arguments:
        return ["", *(part for one in some for part in one)]

    pieces = [question(marks[first : first + MARKS_PER_CALL]) for first in range(0, len(marks), MARKS_PER_CALL)]
    replies = query.at_once("rankd_read_counts", dict.fromkeys(range(query.shards), pieces), lambda _: question(marks))
    counts = [0] * len(marks)
    for parts in replies.values():
        of_shard = [count for reply in parts if reply.values for count in reply.values[1]]
        if of_shard:
            counts = [one + other for one, other in zip(counts, of_shard, strict=True)]
    return counts


def _standing(query: RedisQuery, one: Found, total: int, ranking: Ranking) -> Standing:
    line = one.line
    if one.level is None:
        return Standing(_rank(query, one, ranking), line.player, line.score, line.tie, one.better, total)
    about, level = _estimate(query, one, ranking), _estimate(query, one, Ranking.COMPETITION)
    better = min(level.guess, total) - 1
    return Standing(about.guess, line.player, line.score, line.tie, better, total, about.bounds)


def _estimate(query: RedisQuery, one: Found, ranking: Ranking) -> Estimate:
    """Return about where somebody below the top stands; all shards have been asked."""
    if ranking is Ranking.DENSE:
        known_distinct(None, query.instance.text)
    query.is_estimated = True
    return Counted(query.form.order, one.line.score, one.better, one.level or 0, query.top).place(ranking)


def _rank(query: RedisQuery, one: Found, ranking: Ranking) -> int:
    match ranking:
        case Ranking.ORDINAL:
            return one.place + 1
        case Ranking.COMPETITION:
            return one.better + 1
        case Ranking.DENSE:
            return known_distinct(one.distinct, query.instance.text) + 1


def encoded_id(player: str) -> bytes | None:
    """Return the bytes of an id; None where they are not UTF-8, so that nobody can have it."""
    try:
        return player.encode()
    except UnicodeEncodeError:
        return None
