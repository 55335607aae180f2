"""Resolve the names in a read to one instance of one board.

Most reads name the same few windows, so a resolved name is cached until a window, a definition or the time changes its
meaning.
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
from rankd.reads.archived import ArchivedReadSession, ArchivedWindows
from rankd.reads.rank_source import RankSource, ReadSession, wait_ranked
from rankd.settings import Settings

CACHED_WINDOWS_MAX = 10_000  # a full cache is emptied


class ReadOptions(TypedDict, total=False):
    """The keyword arguments of every read: which instance, how ranks are counted, how fresh the answer must be."""

    window: str | None  # the board's first by default
    scope: str | None  # global by default
    ranking: str | None  # the board's own by default
    at_least: str | None  # a position from an answer: wait until it is ranked
    as_of: int | None  # ms since 1970: the board as it was at that instant


class InstanceRef(NamedTuple):
    """One instance of one board, how ranks are counted, and the time of the read."""

    board: Board
    window: Window
    key: InstanceKey
    ranking: Ranking
    now: int
    since: Mapping[int, int] | None = None  # the positions, by partition, that the answer must include
    born: int | None = None  # of a window past its retention: the birth of its board, by which it is archived


class _NamedWindow(NamedTuple):
    """A resolved window; valid from `since` to `until` while its board and the state's generation are the same."""

    generation: int
    since: int
    until: int
    board: Board
    window: Window
    key: InstanceKey  # of the global scope
    born: int | None  # as in InstanceRef


class InstanceResolver:
    """Resolves the instance of a read."""

    def __init__(
        self,
        applier: Applier,
        find_board: Callable[[str], Board | None],
        clock: Clock,
        settings: Settings,
        *,
        rank_source: RankSource,
        archive: ArchivedWindows | None,
        is_due: Callable[[int, str], bool],
        roll_over: Callable[[str], None],
    ) -> None:
        """`find_board` returns the current definition; `roll_over` appends a board's due events if it `is_due`."""
        self._rank_source = rank_source
        self._archive = archive
        self._open = rank_source.open
        self._applier = applier
        self._state = applier.state
        self._find_board = find_board
        self._clock = clock
        self._settings = settings
        self._is_due = is_due
        self._roll_over = roll_over
        self._windows: dict[tuple[str, str | None], _NamedWindow] = {}  # by board and name

    def board(self, board: object) -> Board:
        """Return the current definition of a board."""
        definition = self._find_board(board) if isinstance(board, str) else None
        if definition is None:
            raise BoardUnknown(f"board: there is no board {check_board_id(board)!r}; define it first")
        return definition

    def is_due(self, board: str) -> bool:
        """Tell whether a roll-over of a board is due, which the next read of it would append first."""
        return self._is_due(self._clock.now(), board)

    def roll_over(self, board: str) -> None:
        """Append the roll-overs of a board that are due."""
        self._roll_over(board)

    def resolve(
        self,
        board: str,
        window: str | None = None,
        scope: str | None = None,
        ranking: str | None = None,
        at_least: str | None = None,
        **unknown: object,
    ) -> InstanceRef:
        """Return the instance of a read, after roll-overs that are due and after `at_least` is ranked."""
        for name in unknown:
            raise InvalidValue(name, f"is no parameter of this read; {nearest(name, ReadOptions.__annotations__)}")
        if isinstance(board, str):
            self._roll_over(board)
        if at_least is None:
            return self.resolve_now(board, window, scope, ranking)
        self._wait_for(at_least, board)
        return include(self.resolve_now(board, window, scope, ranking), at_least)

    def resolve_now(
        self, board: str, window: str | None = None, scope: str | None = None, ranking: str | None = None
    ) -> InstanceRef:
        """Return the instance of a read, for callers that have rolled over and waited."""
        now = self._clock.now()
        try:
            named = self._windows.get((board, window))
        except TypeError:  # an argument is not text
            named = None
        if (
            named is None
            or not named.since <= now < named.until
            or named.generation != self._state.generation
            or named.board is not self._applier.directory.boards.get(board)
        ):
            named = self._resolve_window(self.board(board), window, now)
        _, _, _, definition, where, key, born = named
        # Keys of scopes are not cached: an attribute may have millions of values.
        if scope is not None or not definition.with_global:
            name = definition.check_scope(GLOBAL if scope is None else scope)
            key = InstanceKey(key.board, key.window, name)
        counted = definition.ranking if ranking is None else read_choice("ranking", ranking, Ranking)
        return InstanceRef(definition, where, key, counted, now, None, born)

    def _resolve_window(self, board: Board, window: str | None, now: int) -> _NamedWindow:
        """Resolve a window's name, and remember it."""
        generation = self._state.generation
        resolved = resolve_window(board, window, now)
        live = self._state.boards.get(board.id)
        born: int | None = None
        if resolved.is_over or (live is not None and resolved.instance in live.retired):
            # What never held anything was not archived.
            if (
                live is None
                or self._archive is None
                or not (resolved.instance in live.retired or resolved.instance in live.windows)
            ):
                raise window_gone(resolved.instance)
            born = live.born
        gone_at = board.gone_at(resolved.window, resolved.instance)
        since, until = 0, AT_MS_END if gone_at is None or born is not None else gone_at
        if window != resolved.instance:  # a name such as `weekly` means another instance later
            current = resolved.window.instance_at(now)
            span = resolved.window.span(current if current is not None else resolved.instance)
            since = since if span.start is None else max(since, span.start)
            until = until if span.end is None else min(until, span.end)
        key = InstanceKey(board.id, resolved.instance)
        named = _NamedWindow(generation, since, until, board, resolved.window, key, born)
        if len(self._windows) >= CACHED_WINDOWS_MAX:
            self._windows.clear()
        self._windows[board.id, window] = named
        return named

    def resolve_cursor(self, board: str, instance: str, where: ReadOptions) -> InstanceRef:
        """Return the instance of the next page: the cursor's, whatever is current now."""
        try:
            key = InstanceKey.parse(instance)
            ref = self.resolve(board, key.window, key.scope, where.get("ranking"), where.get("at_least"))
        except (RankdError, ValueError) as problem:
            if isinstance(problem, RankdError) and not isinstance(problem, InvalidValue):
                raise
            raise InvalidValue("cursor", "must be the `next` of an earlier page, unchanged") from None
        if ref.key.text != instance:
            raise InvalidValue("cursor", f"is about board {key.board}; read that one, or begin without a cursor")
        # The caller may repeat the cursor's window and scope.
        is_named = where.get("window") is not None or where.get("scope") is not None
        if is_named and self.resolve(board, **where).key.text != instance:
            raise InvalidValue("cursor", f"is about {instance}; leave window and scope out, or name the same")
        return ref

    def has_ranked(self, positions: Mapping[int, int], board: str | None = None) -> bool:
        """Tell whether positions, by partition, are ranked: on one board, or on all of them."""
        return self._rank_source.has_ranked(positions, board)

    def _open_ref(self, ref: InstanceRef) -> ReadSession:
        """Begin a read: of the ranks, or of the archive, which may wait."""
        key, born = ref.key, ref.born
        if born is None or self._archive is None:
            return self._open(key)
        standings = self._archive.find(key.board, born, key.window)
        if standings is not None:
            return ArchivedReadSession(standings, key)
        live = self._state.boards.get(key.board)
        if live is None or key.window in live.retired:
            raise window_gone(key.window)
        return self._open(key)  # it leaves the ranks when it has been archived

    def _wait_for(self, at_least: object, board: str) -> None:
        if not wait_ranked(self._rank_source, parse_positions(at_least), board, self._settings.at_least_wait_ms):
            raise not_ranked(at_least)


def include(ref: InstanceRef, at_least: object) -> InstanceRef:
    """Return an instance with the position that an answer must include; what is archived was final long before."""
    since = parse_positions(at_least)
    return ref if ref.born is not None else ref._replace(since=since)


def check_since(session: ReadSession, since: Mapping[int, int]) -> None:
    """Refuse an answer that is older than a position; called after the session's store was read."""
    if not is_upto(parse_positions(session.position), since):
        raise not_ranked(tokens(since))


def not_ranked(at_least: object) -> Behind:
    """Return the error for a position that was not ranked in time."""
    return Behind(f"at_least: {at_least} is not ranked yet; ask again in a moment")
