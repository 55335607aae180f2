"""What a read means: names become one instance of one board, as it is now.

Most reads name the same few instances again and again, so what a name means is remembered until a window, a definition
or the time makes it mean something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypedDict

from rankd.clock import Clock
from rankd.domain.board import Board, check_board_id
from rankd.domain.fields import nearest, read_choice
from rankd.domain.instance import InstanceKey
from rankd.domain.instant import AT_MS_END
from rankd.domain.order import Ranking
from rankd.domain.position import is_upto, parse_positions, tokens
from rankd.domain.resolve import resolve_window, window_gone
from rankd.domain.scope import GLOBAL
from rankd.domain.window import Window
from rankd.errors import Behind, BoardUnknown, InvalidValue, RankdError
from rankd.projection.applier import Applier
from rankd.reads.looking import Look, Looking, wait_ranked
from rankd.settings import Settings

MEANINGS_MAX = 10_000  # remembered; when it is full it is emptied


class Where(TypedDict, total=False):
    """What every read takes by keyword: which instance it means, how ranks are counted, how fresh it must be."""

    window: str | None  # the board's first by default
    scope: str | None  # global by default
    ranking: str | None  # the board's own by default
    at_least: str | None  # a position that an answer gave: wait until it is ranked


class Meant(NamedTuple):
    """What a read is about: one instance of one board, how ranks are counted, and the time it is read at."""

    board: Board
    window: Window
    key: InstanceKey
    ranking: Ranking
    now: int
    since: Mapping[int, int] | None = None  # what has to be ranked in what is shown, by partition


class _Meaning(NamedTuple):
    """What names meant, for as long as its board and these windows are there and until an instant."""

    generation: int
    since: int
    until: int
    meant: Meant


class Meaning:
    """Finds out which instance a read means."""

    def __init__(
        self,
        applier: Applier,
        find_board: Callable[[str], Board | None],
        clock: Clock,
        settings: Settings,
        *,
        looking: Looking,
        is_due: Callable[[int], bool],
        roll_over: Callable[[], None],
    ) -> None:
        """`find_board` returns a board as it is defined now; `roll_over` does what is due, if `is_due` says so."""
        self._looking = looking
        self._look = looking.look
        self._applier = applier
        self._state = applier.state
        self._find_board = find_board
        self._clock = clock
        self._settings = settings
        self._is_due = is_due
        self._roll_over = roll_over
        self._meanings: dict[tuple[object, ...], _Meaning] = {}

    def board(self, board: object) -> Board:
        """Return a board as it is defined now."""
        found = self._find_board(board) if isinstance(board, str) else None
        if found is None:
            raise BoardUnknown(f"board: there is no board {check_board_id(board)!r}; define it first")
        return found

    def is_due(self) -> bool:
        """Tell whether the clock has made something due, which the next read would do first."""
        return self._is_due(self._clock.now())

    def roll_over(self) -> None:
        """Do what the clock has made due, if anything."""
        self._roll_over()

    def meant(
        self,
        board: str,
        window: str | None = None,
        scope: str | None = None,
        ranking: str | None = None,
        at_least: str | None = None,
        **unknown: object,
    ) -> Meant:
        """Return what a read is about, once what is due is done and what it waits for is ranked."""
        for name in unknown:
            raise InvalidValue(name, f"is no parameter of this read; {nearest(name, Where.__annotations__)}")
        self._roll_over()
        if at_least is None:
            return self.meant_now(board, window, scope, ranking)
        self._wait_for(at_least, board)
        return self.meant_now(board, window, scope, ranking)._replace(since=parse_positions(at_least))

    def meant_now(
        self, board: str, window: str | None = None, scope: str | None = None, ranking: str | None = None
    ) -> Meant:
        """Return what a read is about, for those who have seen to the rest."""
        now = self._clock.now()
        names = (board, window, scope, ranking)
        try:
            known = self._meanings.get(names)
        except TypeError:  # some of it is no text
            known = None
        if (
            known is not None
            and known.since <= now < known.until
            and known.generation == self._state.generation
            and known.meant.board is self._applier.directory.boards.get(board)
        ):
            found, where, key, counted, _, _ = known.meant
            return Meant(found, where, key, counted, now)
        return self._find_meaning(names, now)

    def _find_meaning(self, names: tuple[str, str | None, str | None, str | None], now: int) -> Meant:
        board, window, scope, ranking = names
        generation = self._state.generation
        found = self.board(board)
        resolved = resolve_window(found, window, now)
        live = self._state.boards.get(found.id)
        if live is not None and resolved.instance in live.retired:  # whatever its retention is now
            raise window_gone(resolved.instance)
        name = found.check_scope(GLOBAL if scope is None else scope)
        counted = found.ranking if ranking is None else read_choice("ranking", ranking, Ranking)
        meant = Meant(found, resolved.window, InstanceKey(found.id, resolved.instance, name), counted, now)
        gone_at = found.gone_at(resolved.window, resolved.instance)
        since, until = 0, AT_MS_END if gone_at is None else gone_at
        if window != resolved.instance:  # what is current now may not be later
            current = resolved.window.instance_at(now)
            span = resolved.window.span(current if current is not None else resolved.instance)
            since = since if span.start is None else max(since, span.start)
            until = until if span.end is None else min(until, span.end)
        if len(self._meanings) >= MEANINGS_MAX:
            self._meanings.clear()
        self._meanings[names] = _Meaning(generation, since, until, meant)
        return meant

    def meant_by_cursor(self, board: str, instance: str, where: Where) -> Meant:
        """Return what the page after another is about: the same instance, whatever is current now."""
        try:
            key = InstanceKey.parse(instance)
            meant = self.meant(board, key.window, key.scope, where.get("ranking"), where.get("at_least"))
        except (RankdError, ValueError) as problem:
            if isinstance(problem, RankdError) and not isinstance(problem, InvalidValue):
                raise
            raise InvalidValue("cursor", "must be the `next` of an earlier page, unchanged") from None
        if meant.key.text != instance:
            raise InvalidValue("cursor", f"is about board {key.board}; read that one, or begin without a cursor")
        # A window or a scope may be named beside the cursor when it is the same.
        is_named = where.get("window") is not None or where.get("scope") is not None
        if is_named and self.meant(board, **where).key.text != instance:
            raise InvalidValue("cursor", f"is about {instance}; leave window and scope out, or name the same")
        return meant

    def has_ranked(self, positions: Mapping[int, int], board: str | None = None) -> bool:
        """Tell whether positions, by partition, are ranked: on a board, or on all of them."""
        return self._looking.has_ranked(positions, board)

    def _wait_for(self, at_least: object, board: str) -> None:
        if not wait_ranked(self._looking, parse_positions(at_least), board, self._settings.at_least_wait_ms):
            raise not_ranked(at_least)


def check_since(look: Look, since: Mapping[int, int]) -> None:
    """Refuse an answer from before a position, once the look's store has been asked."""
    if not is_upto(parse_positions(look.position), since):
        raise not_ranked(tokens(since))


def not_ranked(at_least: object) -> Behind:
    """Return the error for a position that was waited for in vain."""
    return Behind(f"at_least: {at_least} is not ranked yet; ask again in a moment")
