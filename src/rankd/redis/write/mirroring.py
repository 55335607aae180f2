"""Sends the engine's changes to Redis, board by board, with their positions.

    RecordingStore.take → current rows of the changed players → Mirror.send → APPLIED, or backfill of what Redis lacks

Redis may lag (it restarted from an older log, or promoted a replica that lagged) or be empty. The ledger says which
players changed since (backfill.py), and the engine has their rows. Only where that is unknown is a board reloaded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import NamedTuple

from rankd.domain.board import Board
from rankd.errors import RanksUnavailable
from rankd.ledger.port import Ledger
from rankd.ledger.vector import Vector, reaches
from rankd.projection.port import Verdict
from rankd.projection.state import BoardState
from rankd.redis.write.backfill import Backfill, LaggingBoard
from rankd.redis.write.boards import change_of, instances_of, is_dense, shards_of, whole_board
from rankd.redis.write.changes import PartitionMove, WriteReply
from rankd.redis.write.mirror import Mirror, MovedBoards, PendingWrite
from rankd.redis.write.mirror_state import MirroredBoard, MirrorState
from rankd.redis.write.recorded_follower import RecordedFollower
from rankd.redis.write.recording import DirtyInstance, RecordedChanges
from rankd.redis.write.writing import OtherFormNeeded

BACKLOG_PLAYERS_MAX = 2_000_000  # changes that could not be sent yet; with more, boards are reloaded
ATTEMPTS_MAX = 3
_log = logging.getLogger("rankd")


class Fenced(Exception):
    """Another projector has taken over."""


class _InFlight(NamedTuple):
    """A write that Redis has not answered yet."""

    sent: PendingWrite
    board: Board
    dirty: dict[str, DirtyInstance]
    ours: Vector


class _Moving(NamedTuple):
    """An advance of boards without changes that Redis has not answered yet."""

    moved: MovedBoards
    boards: list[Board]
    ours: Vector


class MirrorSync:
    """Keeps Redis equal to an engine; used by the projector's thread."""

    def __init__(self, ledger: Ledger, follower: RecordedFollower, mirror: Mirror, epoch: int) -> None:
        """`epoch` is the lease's: Redis accepts the highest. `close` closes the mirror."""
        self._ledger = ledger
        self._follower = follower
        self._store = follower.store
        self._mirror = mirror
        self._epoch = epoch
        self._backfill = Backfill(ledger, follower.applier.catalogue)
        self._known = MirrorState(follower, mirror, epoch)
        self._to_load: set[str] = set()  # boards whose changes were not all recorded
        self.rows = 0  # sent since the start
        self.loads = 0  # boards reloaded since the start
        self.catch_ups = 0  # boards backfilled since the start
        self._in_flight: dict[str, _InFlight] = {}  # by board
        self._moving: list[_Moving] = []
        self._is_complete = False  # whether the last `send` left no backlog
        self._began_ms = 0
        self.complete_as_of: int | None = None  # start of the last `send` after which Redis had everything

    @property
    def mirrored(self) -> Vector:
        """The positions that every shard of every board has, by Redis' answers; () while some are unknown."""
        return self._known.mirrored()

    def send(self, changes: RecordedChanges, now_ms: int, idle_ms: int, *, is_all: bool = True) -> None:
        """Send changes; a board without changes is advanced once every `idle_ms`.

        Redis works on them while the next events are ranked, read and encoded: `settle`, or the next `send`, takes the
        verdicts. `is_all` means that the ledger has been followed to its head.
        """
        try:
            self._settle(self._start_next(changes, now_ms))
        except (RanksUnavailable, Fenced):
            self._store.put_behind(changes)
            self._defer(self._store.take())
            raise
        self._store.put_behind(changes)
        changes = self._store.take()  # with refused changes: positions must not skip them
        self._began_ms, self._is_complete = now_ms, False
        behind = 0
        try:
            if not self._known.drop_deleted():
                raise Fenced("a board that was deleted is written by another projector")
            idle = self._find_idle(changes, idle_ms)
            self._known.ask([*changes.boards, *idle])
            self._catch_up([*changes.boards, *idle], changes)
            for board_id in list(changes.boards):
                if self._send_board(board_id, changes.boards[board_id], now_ms):
                    del changes.boards[board_id]
            for board_id in self._move([board_id for board_id in idle if board_id not in changes.boards], now_ms):
                behind += not self._send_board(board_id, {}, now_ms)
        finally:
            self._is_complete = is_all and not changes.boards and not behind
            self._defer(changes)

    def _start_next(self, changes: RecordedChanges, now_ms: int) -> dict[str, _InFlight]:
        """Write to boards with a write in flight, behind that write, and remove what is sent from the changes.

        If Redis refuses a write it refuses the next one too, so none is skipped. A change of form waits for the answer.
        """
        started: dict[str, _InFlight] = {}
        boards = self._follower.applier.state.boards
        for board_id in changes.boards.keys() & self._in_flight.keys() & boards.keys() - self._to_load:
            board, live = self._follower.board(board_id)
            before = self._in_flight[board_id]
            if board is before.board and self._known.stored_as_left(board) is not None:
                dirty = changes.boards[board_id]
                try:
                    started[board_id] = self._start(board, live, before.ours, dirty, now_ms, is_behind=True)
                except OtherFormNeeded:
                    continue
                except RanksUnavailable:
                    break
                del changes.boards[board_id]
        return started

    def close(self) -> None:
        """Close the mirror; writes in flight may or may not take effect."""
        self._mirror.close()

    def settle(self) -> bool:
        """Wait for the answers; return whether Redis applied everything. Refused changes are recorded again."""
        return self._settle({})

    def _settle(self, next_writes: dict[str, _InFlight]) -> bool:
        """Wait for the writes in flight; `next_writes` become those in flight, unless a write was refused."""
        problems: list[RanksUnavailable | Fenced] = []
        has_all = self._settle_moves(problems)
        refused = self._settle_writes(self._in_flight, problems)
        has_all &= not refused
        if has_all:
            self._in_flight = next_writes
        else:
            refused += self._settle_writes(next_writes, problems)
            self._in_flight = {}
        for changes in reversed(refused):
            self._store.give_back(changes)
        if problems:
            raise next((problem for problem in problems if isinstance(problem, Fenced)), problems[-1])
        if self._is_complete:
            self.complete_as_of = self._began_ms
        return has_all

    def _settle_moves(self, problems: list[RanksUnavailable | Fenced]) -> bool:
        has_all = True
        moving, self._moving = self._moving, []
        for moves in moving:
            try:
                moved = moves.moved.answers()
                for board_id, answers in moved.items():
                    self._check_fenced(board_id, answers)
            except (RanksUnavailable, Fenced) as problem:
                problems.append(problem)
                moved = {}
            for board in moves.boards:
                has_all &= self._settle_board(board, moved.get(board.id, ()), moves.ours)
        return has_all

    def _settle_writes(
        self, writes: dict[str, _InFlight], problems: list[RanksUnavailable | Fenced]
    ) -> list[RecordedChanges]:
        """Wait for writes and return the changes that Redis did not apply."""
        refused = []
        for board_id, write in writes.items():
            answers: Sequence[WriteReply] = ()
            try:
                # With a server away, each further board would wait for its timeout again.
                if not any(isinstance(problem, RanksUnavailable) and problem.away for problem in problems):
                    answers = write.sent.answers()
                self._check_fenced(board_id, answers)
            except (RanksUnavailable, Fenced) as problem:
                problems.append(problem)
                answers = ()
            if not self._settle_board(write.board, answers, write.ours):
                refused.append(RecordedChanges({board_id: write.dirty}, 0))
        return refused

    def _settle_board(self, board: Board, answers: Sequence[WriteReply], ours: Vector) -> bool:
        """Store the outcome of a write; return whether every shard applied it."""
        if answers and all(answer.verdict is Verdict.APPLIED for answer in answers):
            self._known.mark_sent(board, ours)
            return True
        self._is_complete = False
        self._known.forget(board.id)
        return False

    def load(self, board_id: str, now_ms: int) -> None:
        """Reload a board, in a new generation."""
        board, live = self._follower.board(board_id)
        ours = self._follower.positions
        loading = self._mirror.begin(board_id, shards_of(board), self._epoch)
        if loading is None:
            raise Fenced(f"board {board_id} is written by another projector")
        with loading:
            for page in whole_board(self._store, board, live):
                loading.load([page], dense=is_dense(board))
                self.rows += len(page.players)
            answers = loading.finish(list(enumerate(ours)), time_ms=now_ms, forced=True)
        self._check_fenced(board_id, answers)
        self._known.mark_sent(board, ours)
        self._to_load.discard(board_id)
        self.loads += 1
        _log.info("board %s was reloaded into Redis", board_id)

    # One board

    def _send_board(self, board_id: str, dirty: dict[str, DirtyInstance], now_ms: int) -> bool:
        """Send the changes of a board; False when they are to be sent later."""
        if board_id not in self._follower.applier.state.boards:
            return True  # `drop_deleted` removed it
        board, live = self._follower.board(board_id)
        self._known.drop_former(board)
        if not self._known.is_dense_as_left(board):
            for key, rules in instances_of(self._store, board, live):  # each is written anew if it is not so already
                dirty.setdefault(key.text, DirtyInstance(key, rules))
        for _ in range(ATTEMPTS_MAX):
            self._known.ask([board_id])
            done = self._try_board(board, live, dirty, now_ms)
            if done is not None:
                return done
            self._known.forget(board_id)
        return False

    def _try_board(self, board: Board, live: BoardState, dirty: dict[str, DirtyInstance], now_ms: int) -> bool | None:
        """Send changes from the known positions; False: send later, None: the known positions were wrong."""
        known = self._known[board.id]
        ours = self._follower.positions
        stored = [positions for positions in known.stored if positions is not None]
        low, sent = known.low, self._known.sent(board.id)
        if low is not None and not all(reaches(ours, positions) for positions in stored):
            # Redis is ahead of the follower, which catches up first if the ledger has as much.
            return self._load_if_beyond(board.id, stored, now_ms)
        if low is not None and board.id not in self._to_load and not reaches(low, sent):
            self._mark_backfill([LaggingBoard(board, live, low, sent, dirty)])
        if low is None or board.id in self._to_load:
            self.load(board.id, now_ms)
        elif len(set(stored)) == 1:
            self._in_flight[board.id] = self._start(board, live, stored[0], dirty, now_ms)
        elif self._write(board, live, known, dirty, now_ms):
            self._known.mark_sent(board, ours)
        else:
            return None
        return True

    def _start(
        self,
        board: Board,
        live: BoardState,
        stored: Vector,
        dirty: dict[str, DirtyInstance],
        now_ms: int,
        *,
        is_behind: bool = False,
    ) -> _InFlight:
        """Write to every shard without waiting for the answer."""
        ours = self._follower.positions
        changes = [change_of(self._store, board, live, instance) for instance in dirty.values()]
        sent = self._mirror.send(
            board.id,
            shards_of(board),
            self._epoch,
            _moves(stored, ours),
            changes,
            time_ms=now_ms,
            dense=is_dense(board),
            is_behind=is_behind,
        )
        self._known[board.id].moved_at = monotonic()
        self.rows += sum(len(change.players) for change in changes)
        return _InFlight(sent, board, dirty, ours)

    def _write(
        self, board: Board, live: BoardState, known: MirroredBoard, dirty: dict[str, DirtyInstance], now_ms: int
    ) -> bool:
        """Write to shards with different positions; return whether every shard applied it."""
        ours = self._follower.positions
        changes = [change_of(self._store, board, live, instance) for instance in dirty.values()]
        behind = dict(enumerate(known.stored))
        for stored in {positions for positions in known.stored if positions is not None}:
            # Shards with other positions refuse this write until their turn.
            answers = self._mirror.write(
                board.id,
                shards_of(board),
                self._epoch,
                _moves(stored, ours),
                changes,
                time_ms=now_ms,
                dense=is_dense(board),
            )
            self._check_fenced(board.id, answers)
            for shard, answer in enumerate(answers):
                if answer.verdict is Verdict.APPLIED:
                    behind.pop(shard, None)
        self.rows += sum(len(change.players) for change in changes)
        return not behind

    def _check_fenced(self, board_id: str, answers: Sequence[WriteReply]) -> None:
        if any(answer.verdict is Verdict.FENCED for answer in answers):
            raise Fenced(f"board {board_id} is written by another projector")

    def _load_if_beyond(self, board_id: str, stored: list[Vector], now_ms: int) -> bool:
        """Reload a board that is ahead of the ledger in Redis; False when the ledger has all its events."""
        self._known.ask_again(board_id)
        ends = self._ledger.heads().sequences
        if all(reaches(ends, positions) for positions in stored):
            return False
        _log.warning("board %s is ahead of the ledger in Redis: was an older copy of the ledger restored?", board_id)
        self.load(board_id, now_ms)
        return True

    # All boards

    def _find_idle(self, changes: RecordedChanges, idle_ms: int) -> list[str]:
        """Return the boards without changes that were not advanced for `idle_ms`, or are to be reloaded."""
        before = monotonic() - idle_ms / 1_000
        return [
            board_id
            for board_id in self._follower.applier.state.boards
            if board_id not in changes.boards
            and board_id not in self._in_flight
            and (board_id in self._to_load or self._known.is_idle(board_id, before))
        ]

    def _catch_up(self, board_ids: Iterable[str], changes: RecordedChanges) -> None:
        """Add the backfill of lagging boards to the changes: the ledger is read once for all of them."""
        lagging = []
        boards = self._follower.applier.state.boards
        for board_id in board_ids:
            if board_id in boards and board_id not in self._to_load and self._known.is_behind(board_id):
                low, sent = self._known[board_id].low, self._known.sent(board_id)
                dirty = changes.boards.setdefault(board_id, {})
                lagging.append(LaggingBoard(*self._follower.board(board_id), low or (), sent, dirty))
        if lagging:
            self._mark_backfill(lagging)

    def _mark_backfill(self, lagging: Sequence[LaggingBoard]) -> None:
        unknown = self._backfill.mark(lagging)
        self._to_load |= unknown
        for lag in lagging:
            if lag.board.id not in unknown:
                self._known.mark_behind(lag.board.id, lag.after)
                self.catch_ups += 1

    def _move(self, board_ids: Iterable[str], now_ms: int) -> list[str]:
        """Advance boards without changes, all in one round trip; return those that need a write of their own."""
        rest: list[str] = []
        ours = self._follower.positions
        boards: dict[Vector, list[Board]] = {}
        for board_id in board_ids:
            board, _ = self._follower.board(board_id)
            stored = self._known.stored_as_left(board)
            if stored is None or board_id in self._to_load or not reaches(ours, stored):
                rest.append(board_id)
            else:
                boards.setdefault(stored, []).append(board)
        for stored, some in boards.items():
            shards = {board.id: shards_of(board) for board in some}
            moved = self._mirror.move(shards, self._epoch, _moves(stored, ours), time_ms=now_ms)
            self._moving.append(_Moving(moved, some, ours))
        return rest

    def _defer(self, changes: RecordedChanges) -> None:
        """Record changes again, to be sent later; boards with too many of them are reloaded instead."""
        boards = self._follower.applier.state.boards
        rows = {
            board_id: sum(len(instance.players) for instance in dirty.values())
            for board_id, dirty in changes.boards.items()
        }
        total = sum(rows.values())
        for board_id in sorted(rows, key=rows.__getitem__, reverse=True):
            if total > BACKLOG_PLAYERS_MAX and board_id in boards and board_id not in self._to_load:
                _log.warning("board %s will be reloaded when Redis answers: too much has changed", board_id)
                self._to_load.add(board_id)
            if board_id in self._to_load:
                total -= rows[board_id]
                changes.boards[board_id] = {}
        self._to_load &= boards.keys()
        self._store.give_back(changes)


def _moves(stored: Vector, ours: Vector) -> list[PartitionMove]:
    return [
        PartitionMove(partition, *after_upto) for partition, after_upto in enumerate(zip(stored, ours, strict=True))
    ]
