"""The one applier: events become ranks, the same way when they arrive and when they are replayed years later.

    Stretch (context, columns) → Applier.apply → rows → RankWriter, with the position of the last event

Nothing here can fail for an event that the ledger accepted: whatever could be refused was refused before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rankd._columns import extent
from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.domain.scope import GLOBAL
from rankd.domain.team import TeamBy
from rankd.domain.window import Kind as WindowKind
from rankd.domain.window import Window
from rankd.ledger.event import Context, EventSpan, Kind, Scored, Stretch, rows
from rankd.projection.catalogue import Catalogue
from rankd.projection.clearing import remove_player, reset_windows
from rankd.projection.directory import Directory
from rankd.projection.placement import Placement, Placements
from rankd.projection.port import BATCH_ROWS_MAX, Change, RankWriter, Verdict
from rankd.projection.rows import skip
from rankd.projection.scoring import apply_each, apply_plain, can_apply_plain
from rankd.projection.shares import note_lost_part, take_out_parts, wholes_of
from rankd.projection.state import BoardState, State

DAY_MS = 86_400_000
# Events of a stretch that are worked on at a time where each has rows of its own.
EACH_EVENTS_MAX = 10_000


class Applier:
    """Applies events to a rank store and to the state beside it. Used by one thread at a time."""

    def __init__(
        self, store: RankWriter, state: State, catalogue: Catalogue, context_of: Callable[[int], Context]
    ) -> None:
        """`context_of` tells the context behind a number."""
        self.store = store
        self.state = state
        self.catalogue = catalogue
        self.context_of = context_of
        self.placements = Placements(catalogue, state)
        self.directory = Directory(catalogue.board(one, live.version) for one, live in state.boards.items())
        self._kinds: dict[Kind, Callable[[Context, Scored], None]] = {
            Kind.REMOVE: self._remove,
            Kind.RESET: self._reset,
            Kind.DEFINE: self._define,
            Kind.DELETE: self._delete,
            Kind.CLOSE: self._close,
            Kind.MIDNIGHT: self._midnight,
            Kind.RETIRE: self._retire,
        }
        self.changed = False  # by the last event that was not a score
        self.others = 0  # such events, since the start

    def apply(self, stretch: Stretch) -> None:
        """Apply consecutive events of one context."""
        context = self.context_of(stretch.context)
        if context.kind is Kind.SCORE:
            self._score(stretch, context)
            return
        for event in rows(stretch):
            self._kinds[context.kind](context, event)
            self.placements.forget()
            self.others += 1

    def apply_single(self, stretch: Stretch, ranking: Ranking) -> Change | None:
        """Apply a stretch of one score and return what it did in its board's first window.

        None, and nothing is applied, where it has rows that others of its context do not have: then `apply` takes it.
        """
        context, at, score = self.context_of(stretch.context), stretch.at[0], stretch.score[0]
        placement = self.placements.at(stretch.context, context, at)
        if stretch.detail is not None or not placement.is_plain(score, score) or not placement.has_first_window:
            return None
        ties = placement.ties(at, stretch.tiebreak[0])
        table, player = placement.plain_instances, stretch.players[0]
        change = self.store.apply_one(
            table, player, score, ties, at=stretch.first, ranks=ranking, partition=stretch.partition
        )
        if isinstance(change, Verdict):
            raise AssertionError(f"event {stretch.first} was answered with {change}")
        return change

    # Scores

    def _score(self, stretch: Stretch, context: Context) -> None:
        placement = self.placements.at(stretch.context, context, stretch.at[0])
        first, last = extent(stretch.at)
        same_place = first == last or (placement.holds(first) and placement.holds(last))
        if same_place and can_apply_plain(placement, stretch):
            for part in _parts(stretch, BATCH_ROWS_MAX // _rows_per_event(placement)):
                apply_plain(self.store, placement, part)
            return
        events_max = _events_at_once(placement)
        placed = ((self.placements.at(stretch.context, context, event.at), event) for event in rows(stretch))
        after = stretch.first - 1
        while group := _take(placed, events_max):
            apply_each(self.store, group, EventSpan(stretch.partition, after, after + len(group)))
            after += len(group)

    # Everything else

    def _remove(self, context: Context, event: Scored) -> None:
        board, state = self._live(context)
        self.changed = remove_player(self.store, board, state, event)

    def _reset(self, context: Context, event: Scored) -> None:
        board, state = self._live(context)
        reading = context.boards[board.id].reading(event.at)
        named = event.detail.window
        windows = [
            (window, instance)
            for window, instance in board.instances_of(reading)
            if named is None or window.name == named
        ]
        self.changed = reset_windows(self.store, board, state, windows, event)

    def _define(self, context: Context, event: Scored) -> None:
        version = context.boards[context.board].version
        self.catalogue.add(define_board(context.board, event.detail.definition), version)
        live = self.state.boards.get(context.board)
        if live is None:
            self.state.boards[context.board] = BoardState(version, version, event.at)
        else:
            before, after = (
                self.catalogue.board(context.board, live.version),
                self.catalogue.board(context.board, version),
            )
            live.version = version
            self._start_roll_ups(before, after, live)
        self.state.versions[context.board] = version
        self.directory.put(self.catalogue.board(context.board, version))
        self.state.note_change(context.board)
        self._move_on(event)

    def _start_roll_ups(self, before: Board, after: Board, live: BoardState) -> None:
        """Let roll-ups that are declared now start empty, whatever their parts have."""
        for instance in list(live.windows):
            for whole, whole_instance in wholes_of(after, after.window_of(instance), instance):
                if whole.name not in before.all_windows:
                    take_out_parts(self.store, after, live, whole, whole_instance)

    def _delete(self, context: Context, event: Scored) -> None:
        state = self.state.boards.pop(context.board)
        self.directory.remove(context.board)
        self.state.note_change(context.board)
        for instance in list(state.windows):
            self._drop(context.board, state, instance)
        self._move_on(event)

    def _close(self, context: Context, event: Scored) -> None:
        _, state = self._live(context)
        state.closed.add(_named(event))
        self.state.note_change(context.board)
        self._move_on(event)

    def _retire(self, context: Context, event: Scored) -> None:
        board, state = self._live(context)
        instance = _named(event)
        state.retired.add(instance)
        if instance in state.windows:
            note_lost_part(self.store, board, state, instance)
        self._drop(context.board, state, instance)
        self._move_on(event)

    def _midnight(self, context: Context, event: Scored) -> None:
        board, state = self._live(context)
        for text in state.captured:
            self.store.forget_capture(InstanceKey.parse(text))
        state.captured = set()
        reading = context.boards[board.id].reading(event.at)
        for window, instance in board.instances_of(reading):
            if board.with_global and longer_than_a_day(window, instance):
                key = InstanceKey(board.id, instance, GLOBAL)
                self.store.capture(key)
                state.captured.add(key.text)
        state.midnight = event.at
        self.state.note_change(board.id)
        self._move_on(event)

    def _drop(self, board_id: str, state: BoardState, instance: str) -> None:
        for scope in state.windows.pop(instance, ()):
            key = InstanceKey(board_id, instance, scope)
            self.store.drop(key)
            state.forget_instance(key.text)
            if key.text in state.captured:
                state.captured.discard(key.text)
                self.store.forget_capture(key)
        self.state.note_change(board_id)

    def _live(self, context: Context) -> tuple[Board, BoardState]:
        return self.catalogue.board(context.board, context.boards[context.board].version), self.state.boards[
            context.board
        ]

    def _move_on(self, event: Scored) -> None:
        skip(self.store, event.span)
        self.changed = True


def longer_than_a_day(window: Window, instance: str) -> bool:
    """Tell whether places in a window instance change from day to day."""
    if window.kind in (WindowKind.DAILY, WindowKind.HOURLY):
        return False
    span = window.span(instance)
    return span.start is None or span.end is None or span.end - span.start > DAY_MS


def _named(event: Scored) -> str:
    instance = event.detail.window
    if instance is None:
        raise AssertionError(f"event {event.sequence} closes or retires a window and names none")
    return instance


def _parts(stretch: Stretch, events_max: int) -> Iterator[Stretch]:
    if len(stretch) <= events_max:
        yield stretch
        return
    for start in range(0, len(stretch), events_max):
        yield stretch.part(start, start + events_max)


def _rows_per_event(placement: Placement) -> int:
    return max(1, sum(len(reached.targets) * (1 + len(reached.board.scopes)) for reached in placement.reached))


def _events_at_once(placement: Placement) -> int:
    if any(reached.board.team is not None and reached.board.team.by is TeamBy.BEST for reached in placement.reached):
        return 1  # what is best after each event is known only when they are applied one by one
    return min(EACH_EVENTS_MAX, BATCH_ROWS_MAX // _rows_per_event(placement))


def _take(placed: Iterator[tuple[Placement, Scored]], events_max: int) -> list[tuple[Placement, Scored]]:
    taken = []
    for one in placed:
        taken.append(one)
        if len(taken) == events_max:
            break
    return taken
