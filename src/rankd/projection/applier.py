"""The applier turns events into ranks, the same for new events and for a replay years later.

    EventRun (context, columns) → Applier.apply → rows → RankWriter, with the position of the last event

An event of the ledger always applies: intake refuses bad events before the commit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

from rankd._columns import extent
from rankd.domain.board import Board
from rankd.domain.board_selection import EVERY_BOARD, BoardSelection
from rankd.domain.definition import define_board
from rankd.domain.history import DAY_MS, HOUR_MS
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.domain.scope import GLOBAL
from rankd.domain.window import Window, WindowKind
from rankd.ledger.event import NO_DETAIL, Context, EventKind, EventRun, Scored, rows
from rankd.projection.catalogue import Catalogue
from rankd.projection.clearing import remove_player, reset_windows
from rankd.projection.directory import Directory
from rankd.projection.placement import Placements
from rankd.projection.port import BATCH_ROWS_MAX, RankWriter, RowChange, Verdict
from rankd.projection.rows import skip
from rankd.projection.scoring import PlacedRun, apply_scores
from rankd.projection.shares import note_lost_part, take_out_parts, wholes_of
from rankd.projection.state import BoardState, State
from rankd.projection.teams import can_apply_together

RecordPlaces = Callable[[Board, BoardState, InstanceKey, Scored], None]
LET_GO_AT_ONCE = 200  # instances of dropped windows: about a millisecond


class Applier:
    """Applies events to a rank store and to the state beside it. One thread at a time uses it."""

    def __init__(
        self,
        store: RankWriter,
        state: State,
        catalogue: Catalogue,
        context_of: Callable[[int], Context],
        kept: BoardSelection = EVERY_BOARD,
    ) -> None:
        """`context_of` returns the context with a number; events have no rows on boards that are not kept."""
        self.store = store
        self.state = state
        self.catalogue = catalogue
        self.context_of = context_of
        self.placements = Placements(catalogue, state, kept)
        self._kept = kept
        self.directory = Directory(catalogue.board(board_id, live.version) for board_id, live in state.boards.items())
        self._kinds: dict[EventKind, Callable[[Context, Scored], None]] = {
            EventKind.REMOVE: self._remove,
            EventKind.RESET: self._reset,
            EventKind.DEFINE: self._define,
            EventKind.DELETE: self._delete,
            EventKind.CLOSE: self._close,
            EventKind.MIDNIGHT: self._midnight,
            EventKind.HOUR: self._hour,
            EventKind.RETIRE: self._retire,
        }
        self.record_places: RecordPlaces = lambda _board, _live, _key, _event: None  # of a board with a history
        self.changed = False  # whether the last event that was not a score changed anything
        self.others = 0  # events that were not scores, since the start

    def apply(self, event_run: EventRun) -> None:
        """Apply consecutive events of one context."""
        context = self.context_of(event_run.context)
        if context.kind is EventKind.SCORE:
            self._score(event_run, context)
            self.let_go()
            return
        for event in rows(event_run):
            self.apply_control(context, event)

    def apply_control(self, context: Context, event: Scored) -> None:
        """Apply an event that is not a score."""
        self._kinds[context.kind](context, event)
        self.placements.forget()
        self.others += 1
        self.let_go()

    def apply_single(self, event_run: EventRun, ranking: Ranking) -> RowChange | None:
        """Apply an event run of one score and return what it changed in its board's first window.

        Return None and apply nothing where the score needs more than rows by keep rules: the caller then uses `apply`.
        """
        number, at, score = event_run.context, event_run.at[0], event_run.score[0]
        placement = self.placements.latest.get(number)
        if placement is None or not placement.valid_from <= at < placement.valid_until:
            placement = self.placements.at(number, self.context_of(number), at)
        detail = (None if event_run.detail is None else event_run.detail[0]) or NO_DETAIL
        if not placement.has_first_window or not placement.is_simple(score) or detail.has_metadata:
            return None
        placement.make_room(1)
        plan = placement.plan(detail)
        if not plan.targets:
            return None
        plan.record_all()
        ties = plan.ties(at, event_run.tiebreak[0])
        change = self.store.apply_one(
            plan.table,
            event_run.players[0],
            score,
            ties,
            at=event_run.first,
            ranks=ranking,
            partition=event_run.partition,
        )
        if isinstance(change, Verdict):
            raise AssertionError(f"event {event_run.first} was answered with {change}")
        if self.state.leaving:
            self.let_go()
        return change

    # Scores

    def _score(self, event_run: EventRun, context: Context) -> None:
        placement = self.placements.at(event_run.context, context, event_run.at[0])
        if not placement.reached:
            skip(self.store, event_run.span)
            return
        if can_apply_together(placement):
            self._apply_together(event_run, context)
            return
        for index in range(len(event_run)):
            self._apply_together(event_run.part(index, index + 1), context)

    def _apply_together(self, event_run: EventRun, context: Context) -> None:
        placed = self._placed(event_run, context)
        if placed.rows_max <= BATCH_ROWS_MAX or len(event_run) == 1:
            apply_scores(self.store, placed)
            return
        half = len(event_run) // 2
        self._apply_together(event_run.part(0, half), context)
        self._apply_together(event_run.part(half, len(event_run)), context)

    def _placed(self, event_run: EventRun, context: Context) -> PlacedRun:
        first, last = extent(event_run.at)
        placement = self.placements.at(event_run.context, context, first)
        if placement.holds(last):
            return PlacedRun(event_run, [placement], None)
        instants = sorted(set(event_run.at))
        placements, index = [], 0
        while index < len(instants):
            placements.append(self.placements.at(event_run.context, context, instants[index]))
            index = bisect_left(instants, placements[-1].valid_until, index)
        starts = [placement.valid_from for placement in placements]
        return PlacedRun(event_run, placements, [bisect_right(starts, at) - 1 for at in event_run.at])

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
            self.let_go_all(context.board)  # a deleted board of the same id may still have instances in the store
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
        """Start newly declared roll-ups empty, whatever scores their parts have."""
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
        self.state.note_change(board.id)  # from here on no read waits for this midnight
        self._move_on(event)
        if board.history is not None and board.history.every_ms == DAY_MS:
            for text in sorted(state.captured):
                self.record_places(board, state, InstanceKey.parse(text), event)

    def _hour(self, context: Context, event: Scored) -> None:
        board, state = self._live(context)
        state.hour = event.at
        self.state.note_change(board.id)
        self._move_on(event)
        for window, instance in board.instances_of(context.boards[board.id].reading(event.at)):
            if longer_than(HOUR_MS, window, instance):
                self.record_places(board, state, InstanceKey(board.id, instance, GLOBAL), event)

    def _drop(self, board_id: str, state: BoardState, instance: str) -> None:
        prefix = InstanceKey(board_id, instance, "").text
        state.forget_window(prefix)
        for text in [text for text in state.captured if text.startswith(prefix)]:
            state.captured.discard(text)
            self.store.forget_capture(InstanceKey.parse(text))
        if instance in state.windows:
            state.windows.discard(instance)
            self.state.leaving.append((board_id, instance))
        self.state.note_change(board_id)

    def let_go(self) -> None:
        """Drop removed windows from the store, up to the first with more scopes than one call drops.

        A window may have millions of scopes. Readers lose it at once; the store drops it in steps, one with each
        event run and one whenever the caller is idle.
        """
        leaving = self.state.leaving
        while leaving and self.store.drop_window(*leaving[0], LET_GO_AT_ONCE).is_all:
            del leaving[0]

    def let_go_all(self, board_id: str | None = None) -> None:
        """Drop all removed windows from the store, of one board or of every board."""
        leaving = self.state.leaving
        for removed in [removed for removed in leaving if board_id in (None, removed[0])]:
            self.store.drop_window(*removed)
            leaving.remove(removed)

    def let_go_of_others(self) -> None:
        """Drop what a checkpoint has of boards that are not kept."""
        if self._kept.is_everything:
            return  # what was leaving goes on leaving bit by bit
        for board_id, live in self.state.boards.items():
            if not self._kept.keeps(board_id):
                live.scope_values.clear()
                for instance in list(live.windows):
                    self._drop(board_id, live, instance)
        self.let_go_all()

    def _live(self, context: Context) -> tuple[Board, BoardState]:
        return self.catalogue.board(context.board, context.boards[context.board].version), self.state.boards[
            context.board
        ]

    def _move_on(self, event: Scored) -> None:
        skip(self.store, event.span)
        self.changed = True


def longer_than_a_day(window: Window, instance: str) -> bool:
    """Return whether a window instance lasts longer than a day."""
    return window.kind is not WindowKind.DAILY and longer_than(DAY_MS, window, instance)


def longer_than(duration_ms: int, window: Window, instance: str) -> bool:
    """Return whether a window instance lasts longer than a day, or an hour."""
    if window.kind is WindowKind.HOURLY:
        return False
    span = window.span(instance)
    return span.start is None or span.end is None or span.end - span.start > duration_ms


def _named(event: Scored) -> str:
    instance = event.detail.window
    if instance is None:
        raise AssertionError(f"event {event.sequence} closes or retires a window and names none")
    return instance
