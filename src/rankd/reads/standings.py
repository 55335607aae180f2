"""Every read of one instance: the rank store is asked, profiles and metadata are joined in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.domain.fields import read_integer
from rankd.domain.order import Kept, Ranking, percentile, top_percent
from rankd.domain.player import check_player
from rankd.domain.score import check_tiebreak
from rankd.errors import InvalidValue
from rankd.projection import port
from rankd.projection.applier import Applier
from rankd.reads import answers
from rankd.reads.cursor import Cursor, write_cursor
from rankd.reads.joined import Joined
from rankd.reads.meaning import Meaning, Meant
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
        boards: Callable[[], Mapping[str, Board]],
        clock: Clock,
        joined: Joined,
        settings: Settings,
        *,
        ranked: Callable[[], int],
        is_due: Callable[[int], bool],
        roll_over: Callable[[], None],
        ledger_time: Callable[[], int],
    ) -> None:
        """`ledger_time` is when the last commit was, by the ledger; the rest is Meaning's."""
        super().__init__(applier, boards, clock, settings, ranked=ranked, is_due=is_due, roll_over=roll_over)
        self._joined = joined
        self._ledger_time = ledger_time

    def top_in(self, meant: Meant, limit: int = 10, offset: int = 0) -> answers.Page:
        """Return the first entries, or those behind an offset."""
        asked = read_integer("limit", limit, 1, LIMIT_MAX)
        skipped = read_integer("offset", offset, 0, OFFSET_MAX)
        position = self._position()  # before the read: what is shown may be newer, never older
        # One more than asked for tells whether there is a next page.
        found = self._store.range(meant.key, skipped + 1, skipped + asked + 1, meant.ranking)
        return self._page(meant, found, asked, position)

    def following_in(self, meant: Meant, after: Cursor, limit: int = 10) -> answers.Page:
        """Return the entries behind an earlier page."""
        asked = read_integer("limit", limit, 1, LIMIT_MAX)
        last = (Kept(after.score, after.tie), after.player)
        position = self._position()
        return self._page(meant, self._store.following(meant.key, last, asked + 1, meant.ranking), asked, position)

    def range_in(self, meant: Meant, first: int, last: int) -> answers.Page:
        """Return the entries from one place to another, both included."""
        low = read_integer("from", first, 1, OFFSET_MAX)
        high = read_integer("to", last, low, low + LIMIT_MAX - 1)
        position = self._position()
        found = self._store.range(meant.key, low, high + 1, meant.ranking)
        return self._page(meant, found, high - low + 1, position)

    def rank_in(self, meant: Meant, player: str) -> answers.Standing | None:
        """Return where a player stands; None for somebody who does not."""
        who = check_player(player)
        board, _, key, ranking, now = meant
        position = self._position()
        found = self._store.rank(key, who, ranking)
        if found is None:
            return None
        profile, metadata = self._joined.one(board, key, who)
        return answers.Standing(
            board=board.id,
            window=key.window,
            scope=key.scope,
            total=found.total,
            position=position,
            as_of=now,
            rank=found.rank,
            player=who,
            score=board.shown_score(found.score, now),
            reached_at=board.reached_at(found.tie),
            tiebreak=board.tiebreak(found.tie),
            percentile=percentile(found.better, found.total),
            top_percent=top_percent(found.better, found.total),
            rank_change=self._rank_change(meant, who, found),
            name=None if profile is None else profile.name,
            avatar_url=None if profile is None else profile.avatar_url,
            country=None if profile is None else profile.country,
            metadata=metadata,
        )

    def around_in(self, meant: Meant, player: str, above: int = 5, below: int = 5) -> answers.Around | None:
        """Return a player with those just above and just below; None for somebody who does not stand there."""
        up = read_integer("above", above, 0, NEIGHBOURS_MAX)
        down = read_integer("below", below, 0, NEIGHBOURS_MAX)
        who = check_player(player)
        position = self._position()
        found = self._store.around(meant.key, who, up, down, meant.ranking)
        if found is None:
            return None
        middle = port.Entry(found.player.rank, who, found.player.score, found.player.tie)
        entries = self._entries(meant, [*found.above, middle, *found.below])
        return answers.Around(
            **self._about(meant, found.player.total, position),
            above=entries[: len(found.above)],
            player=entries[len(found.above)],
            below=entries[len(found.above) + 1 :],
        )

    def ranks_in(self, meant: Meant, players: Sequence[str]) -> answers.Ranks:
        """Return where several players stand, in the order asked, each once."""
        asked = check_players(players)
        position = self._position()
        found = self._store.ranks(meant.key, asked, meant.ranking)
        standing = [one for one in found if one is not None]
        total = standing[0].total if standing else self._store.total(meant.key)
        entries = self._entries(meant, [port.Entry(one.rank, one.player, one.score, one.tie) for one in standing])
        missing = [player for player, one in zip(asked, found, strict=True) if one is None]
        return answers.Ranks(**self._about(meant, total, position), entries=entries, missing=missing)

    def friends_in(self, meant: Meant, players: Sequence[str]) -> answers.Friends:
        """Return those of a group who stand there, in standing order."""
        return self._group(meant, check_players(players))

    def _group(self, meant: Meant, asked: list[str]) -> answers.Friends:
        position = self._position()
        total = self._store.total(meant.key)
        found = self._store.friends(meant.key, asked, meant.ranking)
        entries = self._entries(meant, [port.Entry(one.rank, one.player, one.score, one.tie) for one in found])
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
            )
            for entry, friend in zip(entries, found, strict=True)
        ]
        return answers.Friends(**self._about(meant, total, position), entries=listed)

    def rank_of_score_in(self, meant: Meant, score: int, tiebreak: int = 0) -> answers.Place:
        """Return where a new player would stand who sent this score now."""
        sent = meant.board.check_score(score)
        at = max(meant.now, self._ledger_time())
        tie = meant.board.tie_field(at, check_tiebreak(tiebreak))
        position = self._position()
        ranked = meant.board.ranked_score(sent, at)
        place = self._store.rank_of_score(meant.key, ranked, tie, meant.ranking)
        return answers.Place(**self._about(meant, place.total, position), rank=place.rank)

    def distribution_in(self, meant: Meant, buckets: int = 50) -> answers.Distribution:
        """Return how the scores are spread."""
        asked = read_integer("buckets", buckets, 1, port.HISTOGRAM_BUCKETS_MAX)
        position = self._position()
        found = self._store.histogram(meant.key, asked)
        scores = self._store.quantiles(meant.key, list(QUANTILES.values())) or []
        shown = meant.board.shown_score
        return answers.Distribution(
            **self._about(meant, sum(bucket.count for bucket in found), position),
            buckets=[
                answers.Bucket(shown(bucket.low, meant.now), shown(bucket.high, meant.now), bucket.count)
                for bucket in found
            ],
            quantiles={name: shown(score, meant.now) for name, score in zip(QUANTILES, scores, strict=False)},
        )

    def fingerprint_in(self, meant: Meant) -> str:
        """Return what stays the same while reads of an instance answer the same; within one process.

        Beside the scores, answers show names, what events other than scores have done, and how many places somebody has
        climbed since midnight, while the window lasts.
        """
        key, live = meant.key, self._state.boards.get(meant.board.id)
        seen, is_over = 0, False
        if live is not None:
            if key.text in live.metadata:  # which may change while the scores come back to what they were
                seen = self._store.position().sequence
            if key.text in live.captured:
                is_over = not meant.window.span(key.window).holds(meant.now)
        digest, changes, others = self._store.digest(key), self._joined.changes, self._applier.others
        return f"{key.window}-{digest:x}-{changes:x}-{others:x}-{seen:x}-{is_over:d}"

    def is_final(self, meant: Meant) -> bool:
        """Tell whether an instance takes no more events; somebody may still be removed from it."""
        live = self._state.boards.get(meant.board.id)
        return live is not None and meant.key.window in live.closed

    # What several of them need

    def _about(self, meant: Meant, total: int, position: str) -> dict[str, Any]:
        return {
            "board": meant.board.id,
            "window": meant.key.window,
            "scope": meant.key.scope,
            "total": total,
            "position": position,
            "as_of": meant.now,
        }

    def _page(self, meant: Meant, page: port.Page, asked: int, position: str) -> answers.Page:
        following, entries = None, page.entries[:asked]
        if len(page.entries) > asked:
            last = entries[-1]
            following = write_cursor(meant.key, Kept(last.score, last.tie), last.player)
        return answers.Page(
            **self._about(meant, page.total, position),
            entries=self._entries(meant, entries),
            next=following,
        )

    def _entries(self, meant: Meant, entries: list[port.Entry]) -> list[answers.Entry]:
        return self._joined.entries(meant.board, meant.key, meant.now, entries)

    def _rank_change(self, meant: Meant, player: str, found: port.Standing) -> int | None:
        live = self._state.boards.get(meant.board.id)
        if live is None or meant.key.text not in live.captured:
            return None
        before = self._store.captured(meant.key, player)
        if before is None or not meant.window.span(meant.key.window).holds(meant.now):
            return None
        now = found.rank if meant.ranking is Ranking.ORDINAL else None
        if now is None:
            ordinal = self._store.rank(meant.key, player)
            if ordinal is None:
                return None
            now = ordinal.rank
        return before - now


def check_players(players: object) -> list[str]:
    """Return the players of a group, each once."""
    if isinstance(players, str) or not isinstance(players, Sequence):
        raise InvalidValue("players", f"must be a list of ids; got {type(players).__name__}")
    if len(players) > PLAYERS_MAX:
        raise InvalidValue("players", f"must be at most {PLAYERS_MAX}; got {len(players)}: ask in parts")
    checked = [check_player(player, f"players[{index}]") for index, player in enumerate(players)]
    return list(dict.fromkeys(checked))
