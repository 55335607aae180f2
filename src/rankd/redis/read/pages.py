"""Pages by place, behind a key, and around a player: one call on one shard, a merge of blocks over several."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from rankd.domain.order import Kept, Ranking
from rankd.errors import RanksUnavailable
from rankd.projection.port import RankedAround, RankedEntry, RankedPage, RankedStanding
from rankd.redis.read.lines import EntryLine, MarkKind, mark
from rankd.redis.read.lookups import FoundPlayer, encoded_id, find, standing_below
from rankd.redis.read.query import Arguments, RedisQuery
from rankd.redis.read.selection import Bracket, bracket_of_place
from rankd.redis.read.window import NO_BLOCK, MergedEntries, block_of, quota

TOP_ENTRIES_MAX = 2_000  # per shard; a page that begins deeper is located by samples
ENTRIES_PER_CALL = 2_000  # sent within 5 ms
ATTEMPTS_MAX = 5
_SLACK = 16  # entries that may come or go between two round trips
_COUNTING = {Ranking.ORDINAL: "", Ranking.COMPETITION: "b", Ranking.DENSE: "d"}

Origin = tuple[bytes | int | str, ...]


def options_of(ranking: Ranking, *, better: bool = False, metadata: bool = False) -> str:
    """Return the option letters of a page function."""
    letters = _COUNTING[ranking] + ("m" if metadata else "")
    return letters + "b" if better and ranking is not Ranking.COMPETITION else letters


def by_place(query: RedisQuery, first: int, count: int, ranking: Ranking, *, metadata: bool = False) -> RankedPage:
    """Return `count` entries from place `first` on."""
    query.check_dense(ranking)
    options = options_of(ranking, metadata=metadata)
    start, stop = first - 1, first - 1 + count
    if count == 0:
        return RankedPage([], instance_total(query))
    if query.shards == 1:
        return _page(query, _all(query, options, 0, count, ("index", start)), start, stop, ranking)
    if quota(start, query.shards) <= TOP_ENTRIES_MAX:
        window = _all(query, options, 0, quota(stop, query.shards), ("index", 0))
        if window.has(start, stop):
            return _page(query, window, start, stop, ranking)
    for _ in range(ATTEMPTS_MAX):
        bracket = bracket_of_place(query, start)
        if start >= bracket.total:
            return _made(query, [], start, stop)
        window = _around_bracket(query, options, bracket, quota(count, query.shards))
        if window.has(start, stop):
            return _page(query, window, start, stop, ranking)
        window = _around_bracket(query, options, bracket, count)
        if window.has(start, stop):
            return _page(query, window, start, stop, ranking)
    raise _changing(query)


def behind(
    query: RedisQuery, after: tuple[Kept, str] | None, limit: int, ranking: Ranking, *, metadata: bool = False
) -> RankedPage:
    """Return at most `limit` entries behind a key."""
    if after is None:
        return by_place(query, 1, limit, ranking, metadata=metadata)
    query.check_dense(ranking)
    options = options_of(ranking, metadata=metadata)
    (score, tie), player = after
    origin = ("mark", *mark(MarkKind.BEHIND, score, tie, player.encode()))
    window = _complete_window(query, options, 0, limit, origin)
    return _page(query, window, window.origin, window.origin + limit, ranking)


def around(
    query: RedisQuery,
    player: str,
    above: int,
    below: int,
    ranking: Ranking,
    *,
    metadata: bool = False,
) -> RankedAround | None:
    """Return a player with neighbours; None when the player is absent. A player below an exact top has none."""
    query.check_dense(ranking)
    options = options_of(ranking, better=True, metadata=metadata)
    id_bytes = encoded_id(player)
    if id_bytes is None:
        instance_total(query)  # for the positions of the answer
        return None
    for _ in range(ATTEMPTS_MAX):
        with suppress(_Moved):
            if query.shards == 1:
                window = _all(query, options, above, below + 1, ("player", id_bytes))
                if window.lines:
                    return _around(query, window, above, below, ranking)
                return _without_neighbours(query, player, ranking, metadata=metadata) if query.has_exact_top else None
            (match,) = find(query, [player], "m" if metadata else "")
            if match is None or match.level is not None:
                return None if match is None else _without_neighbours(query, player, ranking, match)
            window = _complete_window(query, options, above, below + 1, ("mark", *_mark_of(match.line)))
            if window.between(window.origin, window.origin + 1) == [match.line]:  # the player has not moved
                return _around(query, window, above, below, ranking)
    raise _changing(query)


class _Moved(Exception):
    """The requested player moved between two round trips."""


def _without_neighbours(
    query: RedisQuery, player: str, ranking: Ranking, match: FoundPlayer | None = None, *, metadata: bool = False
) -> RankedAround | None:
    """Return a player below an exact top, without neighbours."""
    standing = standing_below(query, player, ranking, match, metadata=metadata)
    if standing is not None and standing.bounds is None:
        raise _Moved
    return None if standing is None else RankedAround([], standing, [], is_cut=True)


def _mark_of(line: EntryLine) -> tuple[bytes, bytes]:
    return mark(MarkKind.AT, line.score, line.tie, line.player_bytes)


def _around(query: RedisQuery, window: MergedEntries, above: int, below: int, ranking: Ranking) -> RankedAround:
    place, instance = window.origin, query.instance
    (entry,) = window.entries(place, place + 1, ranking, instance)
    is_cut = query.is_cut and place + 1 + below > query.top
    query.is_estimated |= is_cut
    return RankedAround(
        window.entries(place - above, place, ranking, instance),
        RankedStanding(entry.rank, entry.player, entry.score, entry.tie, window.better(place), query.total),
        window.entries(place + 1, place + 1 + below, ranking, instance),
        is_cut,
    )


def _page(query: RedisQuery, window: MergedEntries, start: int, stop: int, ranking: Ranking) -> RankedPage:
    return _made(query, window.entries(start, stop, ranking, query.instance), start, stop)


def _made(query: RedisQuery, entries: list[RankedEntry], start: int, stop: int) -> RankedPage:
    """Return the page of the indices from `start` to before `stop`; the query has replies of all shards."""
    is_cut = max(start, query.top) < min(stop, query.total)
    query.is_estimated |= is_cut
    return RankedPage(entries, query.total, is_cut)


def _all(query: RedisQuery, options: str, above: int, below: int, origin: Origin) -> MergedEntries:
    return _window(query, lambda _: (options, above, below), origin)


def _window(query: RedisQuery, extent: Callable[[int], tuple[str, int, int]], origin: Origin) -> MergedEntries:
    """Read and merge the entries around the origin; `extent` returns a shard's options, entries before, and from it."""
    pieces: dict[int, list[Arguments]] = {}
    for shard in range(query.shards):
        options, above, below = extent(shard)
        starts = range(-above, max(below, 1 - above), ENTRIES_PER_CALL)
        pieces[shard] = [(options, -start, min(start + ENTRIES_PER_CALL, below), *origin) for start in starts]
    replies = query.at_once("rankd_read_page", pieces, lambda shard: (*extent(shard), *origin))
    blocks = [block_of(replies[shard], query) for shard in range(query.shards)]
    return MergedEntries([NO_BLOCK if block is None else block for block in blocks])


def _complete_window(query: RedisQuery, options: str, above: int, below: int, origin: Origin) -> MergedEntries:
    """Return a window that has all requested entries around a mark: one round trip, rarely two."""
    shards = query.shards
    if shards == 1:
        return _all(query, options, above, below, origin)
    window = _all(query, options, quota(above, shards) + 1, quota(below, shards) + 1, origin)
    if not window.has(window.origin - above, window.origin + below):
        window = _all(query, options, above + 1, below + 1, origin)
    return window


def _around_bracket(query: RedisQuery, options: str, bracket: Bracket, more: int) -> MergedEntries:
    low: EntryLine | None = bracket.low
    origin: Origin = ("index", 0)
    if low is not None:
        origin = ("mark", *_mark_of(low))
    return _window(query, lambda shard: (options, _SLACK, bracket.spans[shard] + more + _SLACK), origin)


def _changing(query: RedisQuery) -> RanksUnavailable:
    return RanksUnavailable(f"{query.instance.text} changes faster than its shards can be asked; try again in a moment")


def instance_total(query: RedisQuery) -> int:
    """Return the number of players in the instance: one round trip."""
    query.every("rankd_read_total")
    return query.total
