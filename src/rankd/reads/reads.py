"""The reading side of the boards: names are resolved, the rank store is asked, profiles and metadata are joined in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from rankd.clock import Clock
from rankd.domain.board import Board, check_board_id
from rankd.domain.fields import read_choice, read_integer
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking, percentile, top_percent
from rankd.domain.player import check_player
from rankd.domain.position import LedgerPosition, parse_position
from rankd.domain.resolve import resolve_window, window_gone
from rankd.domain.scope import GLOBAL
from rankd.domain.score import check_tiebreak
from rankd.domain.window import Window
from rankd.errors import Behind, BoardUnknown, InvalidValue, RankdError
from rankd.projection import port
from rankd.projection.applier import Applier
from rankd.reads import answers
from rankd.reads.cursor import read_cursor, write_cursor
from rankd.reads.joined import Joined
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
_POLL_S = 0.001


class Where(TypedDict, total=False):
    """What every read takes by keyword: which instance it means, how ranks are counted, how fresh it must be."""

    window: str | None  # the board's first by default
    scope: str | None  # global by default
    ranking: str | None  # the board's own by default
    at_least: str | None  # a position that an answer gave: wait until it is ranked


class Meant:
    """What a read is about: one instance of one board, how ranks are counted, and the time it is read at."""

    __slots__ = ("board", "key", "now", "ranking", "window")

    def __init__(self, board: Board, window: Window, key: InstanceKey, ranking: Ranking, now: int) -> None:
        """All of it has been checked."""
        self.board = board
        self.window = window
        self.key = key
        self.ranking = ranking
        self.now = now


class Reads:
    """Every read of the library; may be called from any thread."""

    def __init__(
        self,
        applier: Applier,
        boards: Callable[[], Mapping[str, Board]],
        clock: Clock,
        joined: Joined,
        settings: Settings,
        *,
        roll_over: Callable[[], None],
        ledger_time: Callable[[], int],
    ) -> None:
        """`boards` are those defined now; `roll_over` does what the clock has made due."""
        self._store = applier.store
        self._state = applier.state
        self._boards = boards
        self._clock = clock
        self._joined = joined
        self._settings = settings
        self._roll_over = roll_over
        self._ledger_time = ledger_time

    def top(
        self,
        board: str,
        limit: int = 10,
        *,
        offset: int = 0,
        cursor: str | None = None,
        **where: Unpack[Where],
    ) -> answers.Page:
        """Return the first entries, those behind an offset, or those behind an earlier page."""
        asked = read_integer("limit", limit, 1, LIMIT_MAX)
        skipped = read_integer("offset", offset, 0, OFFSET_MAX)
        if cursor is None:
            meant = self._meant(board, **where)
            # One more than asked for tells whether there is a next page.
            found = self._store.range(meant.key, skipped + 1, skipped + asked + 1, meant.ranking)
            return self._page(meant, found, asked)
        if skipped:
            raise InvalidValue("offset", "must be left out where a cursor says how to go on")
        after = read_cursor(cursor)
        meant = self._meant_by_cursor(board, after.instance, where)
        page = self._store.following(meant.key, (Kept(after.score, after.tie), after.player), asked + 1, meant.ranking)
        return self._page(meant, page, asked)

    def range(
        self,
        board: str,
        first: int,
        last: int,
        **where: Unpack[Where],
    ) -> answers.Page:
        """Return the entries from one place to another, both included."""
        low = read_integer("from", first, 1, OFFSET_MAX)
        high = read_integer("to", last, low, low + LIMIT_MAX - 1)
        meant = self._meant(board, **where)
        return self._page(meant, self._store.range(meant.key, low, high + 1, meant.ranking), high - low + 1)

    def rank(
        self,
        board: str,
        player: str,
        **where: Unpack[Where],
    ) -> answers.Standing | None:
        """Return where a player stands; None for somebody who does not."""
        meant = self._meant(board, **where)
        who = check_player(player)
        position = self._position()
        found = self._store.rank(meant.key, who, meant.ranking)
        if found is None:
            return None
        profile, metadata = self._joined.one(meant.board, meant.key, who)
        return answers.Standing(
            **self._about(meant, found.total, position),
            rank=found.rank,
            player=who,
            score=meant.board.shown_score(found.score, meant.now),
            reached_at=meant.board.reached_at(found.tie),
            tiebreak=meant.board.tiebreak(found.tie),
            percentile=percentile(found.better, found.total),
            top_percent=top_percent(found.better, found.total),
            rank_change=self._rank_change(meant, who, found),
            name=None if profile is None else profile.name,
            avatar_url=None if profile is None else profile.avatar_url,
            country=None if profile is None else profile.country,
            metadata=metadata,
        )

    def around(
        self,
        board: str,
        player: str,
        above: int = 5,
        below: int = 5,
        **where: Unpack[Where],
    ) -> answers.Around | None:
        """Return a player with those just above and just below; None for somebody who does not stand there."""
        up = read_integer("above", above, 0, NEIGHBOURS_MAX)
        down = read_integer("below", below, 0, NEIGHBOURS_MAX)
        meant = self._meant(board, **where)
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

    def ranks(
        self,
        board: str,
        players: Sequence[str],
        **where: Unpack[Where],
    ) -> answers.Ranks:
        """Return where several players stand, in the order asked, each once."""
        asked = self._players(players)
        meant = self._meant(board, **where)
        position = self._position()
        found = self._store.ranks(meant.key, asked, meant.ranking)
        standing = [one for one in found if one is not None]
        total = standing[0].total if standing else self._store.total(meant.key)
        entries = self._entries(meant, [port.Entry(one.rank, one.player, one.score, one.tie) for one in standing])
        missing = [player for player, one in zip(asked, found, strict=True) if one is None]
        return answers.Ranks(**self._about(meant, total, position), entries=entries, missing=missing)

    def friends(
        self,
        board: str,
        players: Sequence[str],
        **where: Unpack[Where],
    ) -> answers.Friends:
        """Return those of a group who stand there, in standing order."""
        asked = self._players(players)
        return self._group(self._meant(board, **where), asked)

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

    def rank_of_score(
        self,
        board: str,
        score: int,
        *,
        tiebreak: int = 0,
        **where: Unpack[Where],
    ) -> answers.Place:
        """Return where a new player would stand who sent this score now."""
        meant = self._meant(board, **where)
        sent = meant.board.check_score(score)
        at = max(meant.now, self._ledger_time())
        tie = meant.board.tie_field(at, check_tiebreak(tiebreak))
        position = self._position()
        ranked = meant.board.ranked_score(sent, at)
        place = self._store.rank_of_score(meant.key, ranked, tie, meant.ranking)
        return answers.Place(**self._about(meant, place.total, position), rank=place.rank)

    def distribution(
        self,
        board: str,
        buckets: int = 50,
        *,
        window: str | None = None,
        scope: str | None = None,
        at_least: str | None = None,
    ) -> answers.Distribution:
        """Return how the scores are spread."""
        asked = read_integer("buckets", buckets, 1, port.HISTOGRAM_BUCKETS_MAX)
        meant = self._meant(board, window, scope, at_least=at_least)
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

    # What every read needs

    def board(self, board: object) -> Board:
        """Return a board as it is defined now."""
        found = self._boards().get(board) if isinstance(board, str) else None
        if found is None:
            raise BoardUnknown(f"board: there is no board {check_board_id(board)!r}; define it first")
        return found

    def _meant(
        self,
        board: str,
        window: str | None = None,
        scope: str | None = None,
        ranking: str | None = None,
        at_least: str | None = None,
    ) -> Meant:
        self._roll_over()
        found = self.board(board)
        if at_least is not None:
            self._wait_for(at_least)
        now = self._clock.now()
        resolved = resolve_window(found, window, now)
        live = self._state.boards.get(found.id)
        if live is not None and resolved.instance in live.retired:  # whatever its retention is now
            raise window_gone(resolved.instance)
        name = found.check_scope(GLOBAL if scope is None else scope)
        counted = found.ranking if ranking is None else read_choice("ranking", ranking, Ranking)
        return Meant(found, resolved.window, InstanceKey(found.id, resolved.instance, name), counted, now)

    def _meant_by_cursor(self, board: str, instance: str, where: Where) -> Meant:
        try:
            key = InstanceKey.parse(instance)
            meant = self._meant(board, key.window, key.scope, where.get("ranking"), where.get("at_least"))
        except (RankdError, ValueError) as problem:
            if isinstance(problem, RankdError) and not isinstance(problem, InvalidValue):
                raise
            raise InvalidValue("cursor", "must be the `next` of an earlier page, unchanged") from None
        if meant.key.text != instance:
            raise InvalidValue("cursor", f"is about board {key.board}; read that one, or begin without a cursor")
        # A window or a scope may be named beside the cursor when it is the same.
        is_named = where.get("window") is not None or where.get("scope") is not None
        if is_named and self._meant(board, **where).key.text != instance:
            raise InvalidValue("cursor", f"is about {instance}; leave window and scope out, or name the same")
        return meant

    def _wait_for(self, at_least: object) -> None:
        wanted = parse_position(at_least)
        deadline = time.monotonic() + self._settings.at_least_wait_ms / 1_000
        while self._store.position(wanted.partition).sequence < wanted.sequence:
            if time.monotonic() >= deadline:
                raise Behind(f"at_least: {at_least} is not ranked yet; ask again in a moment")
            time.sleep(_POLL_S)

    def _players(self, players: object) -> list[str]:
        if isinstance(players, str) or not isinstance(players, Sequence):
            raise InvalidValue("players", f"must be a list of ids; got {type(players).__name__}")
        if len(players) > PLAYERS_MAX:
            raise InvalidValue("players", f"must be at most {PLAYERS_MAX}; got {len(players)}: ask in parts")
        checked = [check_player(player, f"players[{index}]") for index, player in enumerate(players)]
        return list(dict.fromkeys(checked))

    def _position(self) -> str:
        return LedgerPosition(0, self._store.position().sequence).token

    def _about(self, meant: Meant, total: int, position: str) -> dict[str, Any]:
        return {
            "board": meant.board.id,
            "window": meant.key.window,
            "scope": meant.key.scope,
            "total": total,
            "position": position,
            "as_of": meant.now,
        }

    def _page(self, meant: Meant, page: port.Page, asked: int) -> answers.Page:
        following, entries = None, page.entries[:asked]
        if len(page.entries) > asked:
            last = entries[-1]
            following = write_cursor(meant.key, Kept(last.score, last.tie), last.player)
        return answers.Page(
            **self._about(meant, page.total, self._position()),
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
