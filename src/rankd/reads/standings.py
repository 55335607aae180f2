"""Every read of one instance: the rank store is asked, profiles and metadata are joined in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
from rankd.reads.cursor import Cursor, write_cursor
from rankd.reads.joined import Joined
from rankd.reads.looking import Look, Looking
from rankd.reads.meaning import Meaning, Meant, check_since
from rankd.settings import Settings

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


class Standings(Meaning):
    """Reads of what names were found to mean; may be called from any thread."""

    def __init__(
        self,
        applier: Applier,
        find_board: Callable[[str], Board | None],
        clock: Clock,
        joined: Joined,
        settings: Settings,
        *,
        looking: Looking,
        is_due: Callable[[int], bool],
        roll_over: Callable[[], None],
        ledger_time: Callable[[], int],
    ) -> None:
        """`ledger_time` is when the last commit was, by the ledger; the rest is Meaning's."""
        super().__init__(applier, find_board, clock, settings, looking=looking, is_due=is_due, roll_over=roll_over)
        self._joined = joined
        self._ledger_time = ledger_time

    def top_in(self, meant: Meant, limit: int = 10, offset: int = 0) -> answers.Page:
        """Return the first entries, or those behind an offset."""
        asked = read_integer("limit", limit, 1, LIMIT_MAX)
        skipped = read_integer("offset", offset, 0, OFFSET_MAX)
        look = self._look(meant.key)
        # One more than asked for tells whether there is a next page.
        found = look.store.range(meant.key, skipped + 1, skipped + asked + 1, meant.ranking)
        return self._page(meant, found, asked, look)

    def following_in(self, meant: Meant, after: Cursor, limit: int = 10) -> answers.Page:
        """Return the entries behind an earlier page."""
        asked = read_integer("limit", limit, 1, LIMIT_MAX)
        last = (Kept(after.score, after.tie), after.player)
        look = self._look(meant.key)
        return self._page(meant, look.store.following(meant.key, last, asked + 1, meant.ranking), asked, look)

    def range_in(self, meant: Meant, first: int, last: int, names: tuple[str, str] = ("first", "last")) -> answers.Page:
        """Return the entries from one place to another, both included; `names` are what the caller calls them."""
        low = read_integer(names[0], first, 1, OFFSET_MAX)
        high = read_integer(names[1], last, low, low + LIMIT_MAX - 1)
        look = self._look(meant.key)
        found = look.store.range(meant.key, low, high + 1, meant.ranking)
        return self._page(meant, found, high - low + 1, look)

    def rank_in(self, meant: Meant, player: str) -> answers.Standing | Freshness:
        """Return where a player stands; for somebody who does not, how fresh that is."""
        who = check_player(player)
        board, _, key, ranking, now, since = meant
        look = self._look(meant.key)
        found = look.store.rank(key, who, ranking)
        if since is not None:
            check_since(look, since)
        if found is None:
            return Freshness(look.position, now, look.is_stale)
        profile, metadata = self._joined.one(board, key, who, look.noted)
        return answers.Standing(
            board=board.id,
            window=key.window,
            scope=key.scope,
            total=found.total,
            position=look.position,
            as_of=now,
            stale=look.is_stale,
            exact=look.is_exact,
            rank=found.rank,
            rank_min=msgspec.UNSET if found.bounds is None else found.bounds[0],
            rank_max=msgspec.UNSET if found.bounds is None else found.bounds[1],
            player=who,
            score=board.shown_score(found.score, now),
            reached_at=board.reached_at(found.tie),
            tiebreak=board.tiebreak(found.tie),
            percentile=percentile(found.better, found.total),
            top_percent=top_percent(found.better, found.total),
            rank_change=self._rank_change(meant, who, found, look),
            name=None if profile is None else profile.name,
            avatar_url=None if profile is None else profile.avatar_url,
            country=None if profile is None else profile.country,
            metadata=metadata,
        )

    def around_in(self, meant: Meant, player: str, above: int = 5, below: int = 5) -> answers.Around | Freshness:
        """Return a player with those just above and just below; for somebody who is absent, how fresh that is."""
        up = read_integer("above", above, 0, NEIGHBOURS_MAX)
        down = read_integer("below", below, 0, NEIGHBOURS_MAX)
        who = check_player(player)
        look = self._look(meant.key)
        found = look.store.around(meant.key, who, up, down, meant.ranking)
        if found is None:
            if meant.since is not None:
                check_since(look, meant.since)
            return Freshness(look.position, meant.now, look.is_stale)
        middle = port.Entry(found.player.rank, who, found.player.score, found.player.tie)
        entries = self._entries(meant, [*found.above, middle, *found.below], look)
        entries[len(found.above)] = _bounded(entries[len(found.above)], found.player)
        return answers.Around(
            **self._about(meant, found.player.total, look),
            above=entries[: len(found.above)],
            player=entries[len(found.above)],
            below=entries[len(found.above) + 1 :],
        )

    def ranks_in(self, meant: Meant, players: Sequence[str]) -> answers.Ranks:
        """Return where several players stand, in the order asked, each once."""
        asked = check_players(players)
        look = self._look(meant.key)
        found = look.store.ranks(meant.key, asked, meant.ranking)
        standing = [one for one in found if one is not None]
        total = standing[0].total if standing else look.store.total(meant.key)
        listed = [port.Entry(one.rank, one.player, one.score, one.tie) for one in standing]
        entries = self._entries(meant, listed, look)
        if not look.is_exact:
            entries = [_bounded(entry, one) for entry, one in zip(entries, standing, strict=True)]
        missing = [player for player, one in zip(asked, found, strict=True) if one is None]
        return answers.Ranks(**self._about(meant, total, look), entries=entries, missing=missing)

    def friends_in(self, meant: Meant, players: Sequence[str]) -> answers.Friends:
        """Return those of a group who stand there, in standing order."""
        return self._group(meant, check_players(players))

    def _group(self, meant: Meant, asked: list[str]) -> answers.Friends:
        look = self._look(meant.key)
        total = look.store.total(meant.key)
        found = look.store.friends(meant.key, asked, meant.ranking)
        entries = self._entries(meant, [port.Entry(one.rank, one.player, one.score, one.tie) for one in found], look)
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
            for entry, friend in zip(entries, found, strict=True)
        ]
        return answers.Friends(**self._about(meant, total, look), entries=listed)

    def rank_of_score_in(self, meant: Meant, score: int, tiebreak: int = 0) -> answers.Place:
        """Return where a new player would stand who sent this score now."""
        sent = meant.board.check_score(score)
        at = max(meant.now, self._ledger_time())
        tie = meant.board.tie_field(at, check_tiebreak(tiebreak))
        look = self._look(meant.key)
        ranked = meant.board.ranked_score(sent, at)
        place = look.store.rank_of_score(meant.key, ranked, tie, meant.ranking)
        return answers.Place(
            **self._about(meant, place.total, look),
            rank=place.rank,
            rank_min=msgspec.UNSET if place.bounds is None else place.bounds[0],
            rank_max=msgspec.UNSET if place.bounds is None else place.bounds[1],
        )

    def distribution_in(self, meant: Meant, buckets: int = 50) -> answers.Distribution:
        """Return how the scores are spread."""
        asked = read_integer("buckets", buckets, 1, port.HISTOGRAM_BUCKETS_MAX)
        look = self._look(meant.key)
        found = look.store.histogram(meant.key, asked)
        scores = look.store.quantiles(meant.key, list(QUANTILES.values())) or []
        shown = meant.board.shown_score
        return answers.Distribution(
            **self._about(meant, sum(bucket.count for bucket in found), look),
            buckets=[
                answers.Bucket(shown(bucket.low, meant.now), shown(bucket.high, meant.now), bucket.count)
                for bucket in found
            ],
            quantiles={name: shown(score, meant.now) for name, score in zip(QUANTILES, scores, strict=False)},
        )

    def fingerprint_in(self, meant: Meant) -> str:
        """Return what stays the same while reads of an instance answer the same; within one process.

        Beside the scores, answers show names, what events other than scores have done, how many places somebody has
        climbed since midnight, while the window lasts, and whether they are stale.
        """
        look = self._look(meant.key)
        digest = look.store.digest(meant.key)
        fingerprint = self._fingerprint(meant, digest, look.position)
        return f"{fingerprint}-stale" if look.is_stale else fingerprint

    def fingerprints_in(self, meant: Sequence[Meant]) -> Sequence[str | None]:
        """Return the fingerprints of many, asked for at once; None where one cannot be had at present."""
        found = self._looking.digests({one.key for one in meant})
        return [None if one.key not in found else self._fingerprint(one, *found[one.key]) for one in meant]

    def _fingerprint(self, meant: Meant, digest: int, position: str) -> str:
        key, live = meant.key, self._state.boards.get(meant.board.id)
        seen, is_over = "0", False
        if live is not None:
            if key.text in live.metadata:  # which may change while the scores come back to what they were
                seen = position
            if key.text in live.captured:
                is_over = not meant.window.span(key.window).holds(meant.now)
        changes, others = self._joined.changes, self._applier.others
        return f"{key.window}-{digest:x}-{changes:x}-{others:x}-{seen}-{is_over:d}"

    def is_final(self, meant: Meant) -> bool:
        """Tell whether an instance takes no more events; somebody may still be removed from it."""
        live = self._state.boards.get(meant.board.id)
        return live is not None and meant.key.window in live.closed

    # What several of them need

    def _about(self, meant: Meant, total: int, look: Look) -> dict[str, Any]:
        if meant.since is not None:
            check_since(look, meant.since)
        return {
            "board": meant.board.id,
            "window": meant.key.window,
            "scope": meant.key.scope,
            "total": total,
            "position": look.position,
            "as_of": meant.now,
            "stale": look.is_stale,
            "exact": look.is_exact,
        }

    def _page(self, meant: Meant, page: port.Page, asked: int, look: Look) -> answers.Page:
        following, entries = None, page.entries[:asked]
        if len(page.entries) > asked or (page.is_cut and len(entries) == asked):
            last = entries[-1]
            following = write_cursor(meant.key, Kept(last.score, last.tie), last.player)
        # One more was looked for than asked for: what is asked for may be exact though that one is not.
        is_exact = not page.is_cut or len(entries) == asked
        return answers.Page(
            **{**self._about(meant, page.total, look), "exact": is_exact},
            entries=self._entries(meant, entries, look),
            next=following,
        )

    def _entries(self, meant: Meant, entries: list[port.Entry], look: Look) -> list[answers.Entry]:
        return self._joined.entries(meant.board, meant.key, meant.now, entries, look.noted)

    def _rank_change(self, meant: Meant, player: str, found: port.Standing, look: Look) -> int | None:
        live = self._state.boards.get(meant.board.id)
        if live is None or meant.key.text not in live.captured or found.bounds is not None:
            return None
        before = look.store.captured(meant.key, player)
        if before is None or not meant.window.span(meant.key.window).holds(meant.now):
            return None
        now = found.rank if meant.ranking is Ranking.ORDINAL else None
        if now is None:
            ordinal = look.store.rank(meant.key, player)
            if ordinal is None:
                return None
            now = ordinal.rank
        return before - now


def _bounded(entry: answers.Entry, found: port.Standing) -> answers.Entry:
    """Return an entry that says, of a rank that is an estimate, between which places the true one is."""
    if found.bounds is None:
        return entry
    return msgspec.structs.replace(entry, rank_min=found.bounds[0], rank_max=found.bounds[1])


def check_players(players: object) -> list[str]:
    """Return the players of a group, each once."""
    if isinstance(players, str) or not isinstance(players, Sequence):
        raise InvalidValue("players", f"must be a list of ids; got {type(players).__name__}")
    if len(players) > PLAYERS_MAX:
        raise InvalidValue("players", f"must be at most {PLAYERS_MAX}; got {len(players)}: ask in parts")
    checked = [check_player(player, f"players[{index}]") for index, player in enumerate(players)]
    return list(dict.fromkeys(checked))
