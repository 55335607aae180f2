"""Pages: by place, behind a key, around a player; on one shard a single call, over several a merge of their blocks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from rankd.domain.order import Kept, Ranking
from rankd.errors import RanksUnavailable
from rankd.projection.port import Around, Entry, Page, Standing
from rankd.projection.redis.lines import Line, MarkKind, mark
from rankd.projection.redis.lookups import Found, encoded_id, find, standing_below
from rankd.projection.redis.query import Arguments, RedisQuery
from rankd.projection.redis.selection import Bracket, bracket_of_place
from rankd.projection.redis.window import NO_BLOCK, Window, block_of, quota

TOP_ENTRIES_MAX = 2_000  # of each shard; a page that begins deeper is looked for by samples
ENTRIES_PER_CALL = 2_000  # sent within 5 ms
ATTEMPTS_MAX = 5
_SLACK = 16  # entries that may come or go between two round trips
_COUNTING = {Ranking.ORDINAL: "", Ranking.COMPETITION: "b", Ranking.DENSE: "d"}

Origin = tuple[bytes | int | str, ...]


def options_of(ranking: Ranking, *, better: bool = False, metadata: bool = False) -> str:
    """Return the letters by which a function knows what is wanted."""
    letters = _COUNTING[ranking] + ("m" if metadata else "")
    return letters + "b" if better and ranking is not Ranking.COMPETITION else letters


def by_place(query: RedisQuery, first: int, count: int, ranking: Ranking, *, metadata: bool = False) -> Page:
    """Return `count` entries from place `first` on."""
    query.check_dense(ranking)
    options = options_of(ranking, metadata=metadata)
    start, stop = first - 1, first - 1 + count
    if count == 0:
        return Page([], instance_total(query))
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
    raise _restless(query)


def behind(
    query: RedisQuery, after: tuple[Kept, str] | None, limit: int, ranking: Ranking, *, metadata: bool = False
) -> Page:
    """Return at most `limit` entries behind a key."""
    if after is None:
        return by_place(query, 1, limit, ranking, metadata=metadata)
    query.check_dense(ranking)
    options = options_of(ranking, metadata=metadata)
    (score, tie), player = after
    origin = ("mark", *mark(MarkKind.BEHIND, score, tie, player.encode()))
    window = _enough(query, options, 0, limit, origin)
    return _page(query, window, window.origin, window.origin + limit, ranking)


def around(
    query: RedisQuery,
    player: str,
    above: int,
    below: int,
    ranking: Ranking,
    *,
    metadata: bool = False,
) -> Around | None:
    """Return a player with neighbours; None when the player is absent. Who is below an exact top comes alone."""
    query.check_dense(ranking)
    options = options_of(ranking, better=True, metadata=metadata)
    id_bytes = encoded_id(player)
    if id_bytes is None:
        instance_total(query)  # only for how old the answer is
        return None
    for _ in range(ATTEMPTS_MAX):
        with suppress(_Moved):
            if query.shards == 1:
                window = _all(query, options, above, below + 1, ("player", id_bytes))
                if window.lines:
                    return _around(query, window, above, below, ranking)
                return _alone(query, player, ranking, metadata=metadata) if query.has_exact_top else None
            (found,) = find(query, [player], "m" if metadata else "")
            if found is None or found.level is not None:
                return None if found is None else _alone(query, player, ranking, found)
            window = _enough(query, options, above, below + 1, ("mark", *_mark_of(found.line)))
            if window.between(window.origin, window.origin + 1) == [found.line]:  # else the player moved meanwhile
                return _around(query, window, above, below, ranking)
    raise _restless(query)


class _Moved(Exception):
    """The player who is asked for has moved between two round trips."""


def _alone(
    query: RedisQuery, player: str, ranking: Ranking, found: Found | None = None, *, metadata: bool = False
) -> Around | None:
    """Return somebody who is below an exact top, where nobody knows neighbours."""
    alone = standing_below(query, player, ranking, found, metadata=metadata)
    if alone is not None and alone.bounds is None:
        raise _Moved
    return None if alone is None else Around([], alone, [], is_cut=True)


def _mark_of(line: Line) -> tuple[bytes, bytes]:
    return mark(MarkKind.AT, line.score, line.tie, line.player_bytes)


def _around(query: RedisQuery, window: Window, above: int, below: int, ranking: Ranking) -> Around:
    place, instance = window.origin, query.instance
    (entry,) = window.entries(place, place + 1, ranking, instance)
    is_cut = query.is_cut and place + 1 + below > query.top
    query.is_estimated |= is_cut
    return Around(
        window.entries(place - above, place, ranking, instance),
        Standing(entry.rank, entry.player, entry.score, entry.tie, window.better(place), query.total),
        window.entries(place + 1, place + 1 + below, ranking, instance),
        is_cut,
    )


def _page(query: RedisQuery, window: Window, start: int, stop: int, ranking: Ranking) -> Page:
    return _made(query, window.entries(start, stop, ranking, query.instance), start, stop)


def _made(query: RedisQuery, entries: list[Entry], start: int, stop: int) -> Page:
    """Return a page that was to have the indices from `start` to before `stop`; all shards have been asked."""
    is_cut = max(start, query.top) < min(stop, query.total)
    query.is_estimated |= is_cut
    return Page(entries, query.total, is_cut)


def _all(query: RedisQuery, options: str, above: int, below: int, origin: Origin) -> Window:
    return _window(query, lambda _: (options, above, below), origin)


def _window(query: RedisQuery, stretch: Callable[[int], tuple[str, int, int]], origin: Origin) -> Window:
    """Ask each shard for its stretch, options and entries before and from the origin on, and merge what comes."""
    pieces: dict[int, list[Arguments]] = {}
    for shard in range(query.shards):
        options, above, below = stretch(shard)
        starts = range(-above, max(below, 1 - above), ENTRIES_PER_CALL)
        pieces[shard] = [(options, -start, min(start + ENTRIES_PER_CALL, below), *origin) for start in starts]
    replies = query.at_once("rankd_read_page", pieces, lambda shard: (*stretch(shard), *origin))
    blocks = [block_of(replies[shard], query) for shard in range(query.shards)]
    return Window([NO_BLOCK if block is None else block for block in blocks])


def _enough(query: RedisQuery, options: str, above: int, below: int, origin: Origin) -> Window:
    """Return a window with all that is asked for around a mark: one round trip, two where chance is against it."""
    shards = query.shards
    if shards == 1:
        return _all(query, options, above, below, origin)
    window = _all(query, options, quota(above, shards) + 1, quota(below, shards) + 1, origin)
    if not window.has(window.origin - above, window.origin + below):
        window = _all(query, options, above + 1, below + 1, origin)
    return window


def _around_bracket(query: RedisQuery, options: str, bracket: Bracket, more: int) -> Window:
    low: Line | None = bracket.low
    origin: Origin = ("index", 0)
    if low is not None:
        origin = ("mark", *_mark_of(low))
    return _window(query, lambda shard: (options, _SLACK, bracket.spans[shard] + more + _SLACK), origin)


def _restless(query: RedisQuery) -> RanksUnavailable:
    return RanksUnavailable(f"{query.instance.text} changes faster than its shards can be asked; try again in a moment")


def instance_total(query: RedisQuery) -> int:
    """Return how many stand in the instance: one round trip."""
    query.every("rankd_read_total")
    return query.total
