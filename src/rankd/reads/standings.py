"""Every read of one instance: asks the rank store, then joins profiles and metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.domain.fields import read_integer
from rankd.domain.order import Kept, Ranking, percentile, top_percent
from rankd.domain.player import check_player
from rankd.domain.score import check_tiebreak
from rankd.errors import Freshness, InvalidValue
from rankd.projection import port
from rankd.projection.applier import Applier
from rankd.reads import answers
from rankd.reads.archived import ARCHIVE, ArchivedReadSession, ArchivedWindows
from rankd.reads.cursor import Cursor, write_cursor
from rankd.reads.instance_ref import InstanceRef, InstanceResolver, check_since
from rankd.reads.joined import Joined
from rankd.reads.rank_source import RankSource, ReadSession
from rankd.settings import Settings

Fingerprint = tuple[object, ...]  # to compare and to hash

LIMIT_MAX = 1_000
NEIGHBOURS_MAX = 100
PLAYERS_MAX = 1_000
OFFSET_MAX = 2**53
QUANTILES = {
    "0.01": 10_000,
    "0.1": 100_000,
    "0.25": 250_000,
    "0.5": 500_000,
    "0.75": 750_000,
    "0.9": 900_000,
    "0.99": 990_000,
}


class Standings(InstanceResolver):
    """Reads of resolved instances; may be called from any thread."""

    def __init__(
        self,
        applier: Applier,
        find_board: Callable[[str], Board | None],
        clock: Clock,
        joined: Joined,
        settings: Settings,
        *,
        rank_source: RankSource,
        archive: ArchivedWindows | None,
        is_due: Callable[[int, str], bool],
        roll_over: Callable[[str], None],
        ledger_time: Callable[[], int],
    ) -> None:
        """`ledger_time` is the ledger's time of the last commit; the rest as for InstanceResolver."""
        super().__init__(
            applier,
            find_board,
            clock,
            settings,
            rank_source=rank_source,
            archive=archive,
            is_due=is_due,
            roll_over=roll_over,
        )
        self._joined = joined
        self._ledger_time = ledger_time

    def top_in(self, ref: InstanceRef, limit: int = 10, offset: int = 0) -> answers.Page:
        """Return the first entries, or those after an offset."""
        count = read_integer("limit", limit, 1, LIMIT_MAX)
        skipped = read_integer("offset", offset, 0, OFFSET_MAX)
        session = self._open_ref(ref)
        # One more entry tells whether there is a next page.
        page = session.store.range(ref.key, skipped + 1, skipped + count + 1, ref.ranking)
        return self._page(ref, page, count, session)

    def following_in(self, ref: InstanceRef, after: Cursor, limit: int = 10) -> answers.Page:
        """Return the entries after an earlier page."""
        count = read_integer("limit", limit, 1, LIMIT_MAX)
        last = (Kept(after.score, after.tie), after.player)
        session = self._open_ref(ref)
        return self._page(ref, session.store.following(ref.key, last, count + 1, ref.ranking), count, session)

    def range_in(
        self, ref: InstanceRef, first: int, last: int, names: tuple[str, str] = ("first", "last")
    ) -> answers.Page:
        """Return the entries from one place to another, both inclusive; `names` are the fields in an error."""
        low = read_integer(names[0], first, 1, OFFSET_MAX)
        high = read_integer(names[1], last, low, low + LIMIT_MAX - 1)
        session = self._open_ref(ref)
        page = session.store.range(ref.key, low, high + 1, ref.ranking)
        return self._page(ref, page, high - low + 1, session)

    def rank_in(self, ref: InstanceRef, player: str) -> answers.Standing | Freshness:
        """Return a player's standing; for a player without one, the freshness of that answer."""
        check_player(player)
        board, _, key, ranking, now, since, born = ref
        session = self._open(key) if born is None else self._open_ref(ref)
        ranked = session.store.rank(key, player, ranking)
        if since is not None:
            check_since(session, since)
        if ranked is None:
            return Freshness(session.position, now, session.is_stale)
        standing = answers.Standing(  # CPython passes up to 15 keywords without a dict, five times as fast
            board=board.id,
            window=key.window,
            scope=key.scope,
            total=ranked.total,
            position=session.position,
            as_of=now,
            stale=session.is_stale,
            exact=session.is_exact,
            rank=ranked.rank,
            player=player,
            score=board.shown_score(ranked.score, now),
            reached_at=board.reached_at(ranked.tie),
            percentile=percentile(ranked.better, ranked.total),
            top_percent=top_percent(ranked.better, ranked.total),
            rank_change=self._rank_change(ref, player, ranked, session),
        )
        profile, metadata = self._joined.player(board, key, player, session.metadata_events)
        tiebreak = board.tiebreak(ranked.tie)
        if profile is None and metadata is None and tiebreak is None and ranked.bounds is None and born is None:
            return standing  # most boards
        return msgspec.structs.replace(
            standing,
            rank_min=msgspec.UNSET if ranked.bounds is None else ranked.bounds[0],
            rank_max=msgspec.UNSET if ranked.bounds is None else ranked.bounds[1],
            tiebreak=tiebreak,
            name=None if profile is None else profile.name,
            avatar_url=None if profile is None else profile.avatar_url,
            country=None if profile is None else profile.country,
            metadata=metadata,
            source=_source_of(session),
        )

    def around_in(self, ref: InstanceRef, player: str, above: int = 5, below: int = 5) -> answers.Around | Freshness:
        """Return a player with the neighbours above and below; for an absent player, the freshness of that answer."""
        up = read_integer("above", above, 0, NEIGHBOURS_MAX)
        down = read_integer("below", below, 0, NEIGHBOURS_MAX)
        check_player(player)
        session = self._open_ref(ref)
        around = session.store.around(ref.key, player, up, down, ref.ranking)
        if around is None:
            if ref.since is not None:
                check_since(session, ref.since)
            return Freshness(session.position, ref.now, session.is_stale)
        middle = port.RankedEntry(around.player.rank, player, around.player.score, around.player.tie)
        entries = self._entries(ref, [*around.above, middle, *around.below], session)
        index = len(around.above)
        return answers.Around(
            *self._about(ref, around.player.total, session),
            above=entries[:index],
            player=_with_bounds(entries[index], around.player),
            below=entries[index + 1 :],
        )

    def ranks_in(self, ref: InstanceRef, players: Sequence[str]) -> answers.Ranks:
        """Return the standings of several players, in the order of the request, each once."""
        ids = check_players(players)
        session = self._open_ref(ref)
        ranked = session.store.ranks(ref.key, ids, ref.ranking)
        standings = [standing for standing in ranked if standing is not None]
        total = standings[0].total if standings else session.store.total(ref.key)
        listed = [
            port.RankedEntry(standing.rank, standing.player, standing.score, standing.tie) for standing in standings
        ]
        entries = self._entries(ref, listed, session)
        if not session.is_exact:
            entries = [_with_bounds(entry, standing) for entry, standing in zip(entries, standings, strict=True)]
        missing = [player for player, standing in zip(ids, ranked, strict=True) if standing is None]
        return answers.Ranks(*self._about(ref, total, session), entries=entries, missing=missing)

    def friends_in(self, ref: InstanceRef, players: Sequence[str]) -> answers.Friends:
        """Return the players of a group who have a standing, in standing order."""
        return self._group(ref, check_players(players))

    def _group(self, ref: InstanceRef, players: list[str]) -> answers.Friends:
        session = self._open_ref(ref)
        total = session.store.total(ref.key)
        friends = session.store.friends(ref.key, players, ref.ranking)
        ranked = [port.RankedEntry(friend.rank, friend.player, friend.score, friend.tie) for friend in friends]
        entries = self._entries(ref, ranked, session)
        listed = [
            answers.Friend(
                entry.rank,
                entry.player,
                entry.score,
                entry.reached_at,
                friend.global_rank,
                entry.tiebreak,
                entry.name,
                entry.avatar_url,
                entry.country,
                entry.metadata,
                *(friend.bounds or (None, None)),
            )
            for entry, friend in zip(entries, friends, strict=True)
        ]
        return answers.Friends(*self._about(ref, total, session), entries=listed)

    def rank_of_score_in(self, ref: InstanceRef, score: int, tiebreak: int = 0) -> answers.Place:
        """Return the rank of a new player who sends this score now."""
        sent = ref.board.check_score(score)
        at = max(ref.now, self._ledger_time())
        tie = ref.board.tie_field(at, check_tiebreak(tiebreak))
        session = self._open_ref(ref)
        ranked = ref.board.ranked_score(sent, at)
        place = session.store.rank_of_score(ref.key, ranked, tie, ref.ranking)
        return answers.Place(
            *self._about(ref, place.total, session),
            rank=place.rank,
            rank_min=msgspec.UNSET if place.bounds is None else place.bounds[0],
            rank_max=msgspec.UNSET if place.bounds is None else place.bounds[1],
        )

    def distribution_in(self, ref: InstanceRef, buckets: int = 50) -> answers.Distribution:
        """Return a histogram and quantiles of the scores."""
        count = read_integer("buckets", buckets, 1, port.HISTOGRAM_BUCKETS_MAX)
        session = self._open_ref(ref)
        histogram = session.store.histogram(ref.key, count)
        scores = session.store.quantiles(ref.key, list(QUANTILES.values())) or []
        shown = ref.board.shown_score
        return answers.Distribution(
            *self._about(ref, sum(bucket.count for bucket in histogram), session),
            buckets=[
                answers.Bucket(shown(bucket.low, ref.now), shown(bucket.high, ref.now), bucket.count)
                for bucket in histogram
            ],
            quantiles={name: shown(score, ref.now) for name, score in zip(QUANTILES, scores, strict=False)},
        )

    def fingerprint_in(self, ref: InstanceRef) -> Fingerprint:
        """Return a fingerprint that stays the same while reads of an instance answer the same; within one process.

        Beside scores, answers depend on profiles, on events other than scores, on the rank changes since midnight while
        the window lasts, and on staleness.
        """
        key = ref.key
        session = self._open(key)
        fingerprint = self._fingerprint(ref, session.store.digest(key), session.position)
        return (*fingerprint, "stale") if session.is_stale else fingerprint

    def fingerprints_in(self, refs: Sequence[InstanceRef]) -> Sequence[Fingerprint | None]:
        """Return the fingerprints of many instances in one call; None where one is unavailable."""
        digests = self._rank_source.digests({ref.key for ref in refs})
        return [None if ref.key not in digests else self._fingerprint(ref, *digests[ref.key]) for ref in refs]

    def _fingerprint(self, ref: InstanceRef, digest: int, position: str) -> Fingerprint:
        key, live = ref.key, self._state.boards.get(ref.board.id)
        metadata_position, is_over = None, False
        if live is not None:
            if key.text in live.metadata:  # metadata may change while the scores return to earlier values
                metadata_position = position
            if key.text in live.captured:
                is_over = not ref.window.span(key.window).holds(ref.now)
        return key.window, digest, self._joined.changes, self._applier.others, metadata_position, is_over

    def is_final(self, ref: InstanceRef) -> bool:
        """Tell whether an instance takes no more events; a player may still be removed from it."""
        if ref.born is not None:
            return True
        live = self._state.boards.get(ref.board.id)
        return live is not None and ref.key.window in live.closed

    def _about(
        self, ref: InstanceRef, total: int, session: ReadSession, *, is_exact: bool | None = None
    ) -> tuple[str, str, str, int, str, int, bool, bool, str | msgspec.UnsetType]:
        """Return the fields of every answer, in their order."""
        if ref.since is not None:
            check_since(session, ref.since)
        key, exact = ref.key, session.is_exact if is_exact is None else is_exact
        return (
            ref.board.id,
            key.window,
            key.scope,
            total,
            session.position,
            ref.now,
            session.is_stale,
            exact,
            _source_of(session),
        )

    def _page(self, ref: InstanceRef, page: port.RankedPage, count: int, session: ReadSession) -> answers.Page:
        following, entries = None, page.entries[:count]
        if len(page.entries) > count or (page.is_cut and len(entries) == count):
            last = entries[-1]
            following = write_cursor(ref.key, Kept(last.score, last.tie), last.player)
        # The store was asked for one entry more: the page may be exact though that entry is not.
        is_exact = not page.is_cut or len(entries) == count
        about = self._about(ref, page.total, session, is_exact=is_exact)
        return answers.Page(*about, entries=self._entries(ref, entries, session), next=following)

    def _entries(self, ref: InstanceRef, entries: list[port.RankedEntry], session: ReadSession) -> list[answers.Entry]:
        return self._joined.entries(ref.board, ref.key, ref.now, entries, session.metadata_events)

    def _rank_change(
        self, ref: InstanceRef, player: str, ranked: port.RankedStanding, session: ReadSession
    ) -> int | None:
        live = self._state.boards.get(ref.board.id)
        if live is None or ref.key.text not in live.captured or ranked.bounds is not None:
            return None
        before = session.store.captured(ref.key, player)
        if before is None or not ref.window.span(ref.key.window).holds(ref.now):
            return None
        now = ranked.rank if ref.ranking is Ranking.ORDINAL else None
        if now is None:
            ordinal = session.store.rank(ref.key, player)
            if ordinal is None:
                return None
            now = ordinal.rank
        return before - now


def _source_of(session: ReadSession) -> str | msgspec.UnsetType:
    """Return where an answer comes from, if not from the ranks."""
    return ARCHIVE if isinstance(session, ArchivedReadSession) else msgspec.UNSET


def _with_bounds(entry: answers.Entry, standing: port.RankedStanding) -> answers.Entry:
    """Add the bounds of the true rank to an entry with an estimated one."""
    if standing.bounds is None:
        return entry
    return msgspec.structs.replace(entry, rank_min=standing.bounds[0], rank_max=standing.bounds[1])


def check_players(players: object) -> list[str]:
    """Return the players of a group, each once."""
    if isinstance(players, str) or not isinstance(players, Sequence):
        raise InvalidValue("players", f"must be a list of ids; got {type(players).__name__}")
    if len(players) > PLAYERS_MAX:
        raise InvalidValue("players", f"must be at most {PLAYERS_MAX}; got {len(players)}: split the request")
    checked = [check_player(player, f"players[{index}]") for index, player in enumerate(players)]
    return list(dict.fromkeys(checked))
