"""Pages: by place, behind a key, around a player; on one shard a single call, over several a merge of their blocks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from rankd.domain.order import Kept, Ranking
from rankd.errors import RanksUnavailable
from rankd.projection.port import Around, Entry, Page, Standing
from rankd.projection.redis.asking import Arguments, Asking
from rankd.projection.redis.keys import bucket_hash
from rankd.projection.redis.lines import Line, MarkKind, mark
from rankd.projection.redis.lookups import Found, encoded_id, find, standing_below
from rankd.projection.redis.selection import Bracket, bracket_of_place
from rankd.projection.redis.window import NO_BLOCK, Window, block_of, quota

TOP_ENTRIES_MAX = 2_000  # of each shard; a page that begins deeper is looked for by samples
ENTRIES_PER_CALL = 2_000  # sent within 5 ms
ATTEMPTS_MAX = 5
_SLACK = 16  # entries that may come or go between two round trips
_COUNTING = {Ranking.ORDINAL: "", Ranking.COMPETITION: "b", Ranking.DENSE: "d"}

Origin = tuple[bytes | int | str, ...]


def options_of(ranking: Ranking, *, better: bool = False, metadata: bool = False, captured: bool = False) -> str:
    """Return the letters by which a function knows what is wanted."""
    letters = _COUNTING[ranking] + ("m" if metadata else "") + ("p" if captured else "")
    return letters + "b" if better and ranking is not Ranking.COMPETITION else letters


def by_place(asking: Asking, first: int, count: int, ranking: Ranking, *, metadata: bool = False) -> Page:
    """Return `count` entries from place `first` on."""
    asking.check_dense(ranking)
    options = options_of(ranking, metadata=metadata)
    start, stop = first - 1, first - 1 + count
    if count == 0:
        return Page([], instance_total(asking))
    if asking.shards == 1:
        return _page(asking, _all(asking, options, 0, count, ("index", start)), start, stop, ranking)
    if quota(start, asking.shards) <= TOP_ENTRIES_MAX:
        window = _all(asking, options, 0, quota(stop, asking.shards), ("index", 0))
        if window.has(start, stop):
            return _page(asking, window, start, stop, ranking)
    for _ in range(ATTEMPTS_MAX):
        bracket = bracket_of_place(asking, start)
        if start >= bracket.total:
            return _made(asking, [], start, stop)
        window = _around_bracket(asking, options, bracket, quota(count, asking.shards))
        if window.has(start, stop):
            return _page(asking, window, start, stop, ranking)
        window = _around_bracket(asking, options, bracket, count)
        if window.has(start, stop):
            return _page(asking, window, start, stop, ranking)
    raise _restless(asking)


def behind(
    asking: Asking, after: tuple[Kept, str] | None, limit: int, ranking: Ranking, *, metadata: bool = False
) -> Page:
    """Return at most `limit` entries behind a key."""
    if after is None:
        return by_place(asking, 1, limit, ranking, metadata=metadata)
    asking.check_dense(ranking)
    options = options_of(ranking, metadata=metadata)
    (score, tie), player = after
    origin = ("mark", *mark(MarkKind.BEHIND, score, tie, player.encode()))
    window = _enough(asking, options, 0, limit, origin)
    return _page(asking, window, window.origin, window.origin + limit, ranking)


def around(
    asking: Asking,
    player: str,
    above: int,
    below: int,
    ranking: Ranking,
    *,
    metadata: bool = False,
    captured: bool = False,
) -> Around | None:
    """Return a player with neighbours; None when the player is absent. Who is below an exact top comes alone."""
    asking.check_dense(ranking)
    options = options_of(ranking, better=True, metadata=metadata, captured=captured and asking.shards == 1)
    id_bytes = encoded_id(player)
    if id_bytes is None:
        instance_total(asking)  # only for how old the answer is
        return None
    for _ in range(ATTEMPTS_MAX):
        with suppress(_Moved):
            if asking.shards == 1:
                bucket = (bucket_hash(player),) if captured else ()
                window = _all(asking, options, above, below + 1, ("player", id_bytes, *bucket))
                if window.lines:
                    return _around(asking, window, above, below, ranking)
                return _alone(asking, player, ranking, metadata=metadata) if asking.has_exact_top else None
            (found,) = find(asking, [player], "m" if metadata else "", captured=captured)
            if found is None or found.level is not None:
                return None if found is None else _alone(asking, player, ranking, found)
            window = _enough(asking, options, above, below + 1, ("mark", *_mark_of(found.line)))
            if window.between(window.origin, window.origin + 1) == [found.line]:  # else the player moved meanwhile
                return _around(asking, window, above, below, ranking)
    raise _restless(asking)


class _Moved(Exception):
    """The player who is asked for has moved between two round trips."""


def _alone(
    asking: Asking, player: str, ranking: Ranking, found: Found | None = None, *, metadata: bool = False
) -> Around | None:
    """Return somebody who is below an exact top, where nobody knows neighbours."""
    alone = standing_below(asking, player, ranking, found, metadata=metadata)
    if alone is not None and alone.bounds is None:
        raise _Moved
    return None if alone is None else Around([], alone, [], is_cut=True)


def _mark_of(line: Line) -> tuple[bytes, bytes]:
    return mark(MarkKind.AT, line.score, line.tie, line.player_bytes)


def _around(asking: Asking, window: Window, above: int, below: int, ranking: Ranking) -> Around:
    place, instance = window.origin, asking.instance
    (entry,) = window.entries(place, place + 1, ranking, instance)
    is_cut = asking.is_cut and place + 1 + below > asking.top
    asking.is_estimated |= is_cut
    return Around(
        window.entries(place - above, place, ranking, instance),
        Standing(entry.rank, entry.player, entry.score, entry.tie, window.better(place), asking.total),
        window.entries(place + 1, place + 1 + below, ranking, instance),
        is_cut,
    )


def _page(asking: Asking, window: Window, start: int, stop: int, ranking: Ranking) -> Page:
    return _made(asking, window.entries(start, stop, ranking, asking.instance), start, stop)


def _made(asking: Asking, entries: list[Entry], start: int, stop: int) -> Page:
    """Return a page that was to have the indices from `start` to before `stop`; all shards have been asked."""
    is_cut = max(start, asking.top) < min(stop, asking.total)
    asking.is_estimated |= is_cut
    return Page(entries, asking.total, is_cut)


def _all(asking: Asking, options: str, above: int, below: int, origin: Origin) -> Window:
    return _window(asking, lambda _: (options, above, below), origin)


def _window(asking: Asking, stretch: Callable[[int], tuple[str, int, int]], origin: Origin) -> Window:
    """Ask each shard for its stretch, options and entries before and from the origin on, and merge what comes."""
    pieces: dict[int, list[Arguments]] = {}
    for shard in range(asking.shards):
        options, above, below = stretch(shard)
        starts = range(-above, max(below, 1 - above), ENTRIES_PER_CALL)
        pieces[shard] = [(options, -start, min(start + ENTRIES_PER_CALL, below), *origin) for start in starts]
    replies = asking.at_once("rankd_read_page", pieces, lambda shard: (*stretch(shard), *origin))
    blocks = [block_of(replies[shard], asking) for shard in range(asking.shards)]
    return Window([NO_BLOCK if block is None else block for block in blocks])


def _enough(asking: Asking, options: str, above: int, below: int, origin: Origin) -> Window:
    """Return a window with all that is asked for around a mark: one round trip, two where chance is against it."""
    shards = asking.shards
    if shards == 1:
        return _all(asking, options, above, below, origin)
    window = _all(asking, options, quota(above, shards) + 1, quota(below, shards) + 1, origin)
    if not window.has(window.origin - above, window.origin + below):
        window = _all(asking, options, above + 1, below + 1, origin)
    return window


def _around_bracket(asking: Asking, options: str, bracket: Bracket, more: int) -> Window:
    low: Line | None = bracket.low
    origin: Origin = ("index", 0)
    if low is not None:
        origin = ("mark", *_mark_of(low))
    return _window(asking, lambda shard: (options, _SLACK, bracket.spans[shard] + more + _SLACK), origin)


def _restless(asking: Asking) -> RanksUnavailable:
    return RanksUnavailable(
        f"{asking.instance.text} changes faster than its shards can be asked; try again in a moment"
    )


def instance_total(asking: Asking) -> int:
    """Return how many stand in the instance: one round trip."""
    asking.every("rankd_read_total")
    return asking.total
