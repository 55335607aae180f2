"""What changed in the engine goes to Redis, board by board, with the positions it is of.

    RecordingStore.take → what is kept of each now → Mirror.write → APPLIED, or what is missing there is sent too

Redis may be behind (it came back with an older log, a replica that lacked something was promoted), or empty. The ledger
says who changed since (missed.py); what is kept of them is in the engine. Only where that is unknown is a board loaded
anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import NamedTuple

from rankd.domain.board import Board
from rankd.errors import RanksUnavailable
from rankd.ledger.port import Ledger
from rankd.projection.port import Verdict
from rankd.projection.redis.changes import Move, Written
from rankd.projection.redis.mirror import Mirror, Moved, Sent
from rankd.projection.redis.writing import OtherFormNeeded
from rankd.projection.state import BoardState
from rankd.scaled.boards_in_redis import change_of, instances_of, is_dense, shards_of, whole_board
from rankd.scaled.known_boards import KnownBoards, Mirrored
from rankd.scaled.missed import Behind, Missed
from rankd.scaled.recorded_follower import RecordedFollower
from rankd.scaled.recording import Changes, Touched
from rankd.scaled.vector import Vector, reaches

NOTED_PLAYERS_MAX = 2_000_000  # who changed and could not be sent; where there are more, boards are loaded anew
ATTEMPTS_MAX = 3
_log = logging.getLogger("rankd")


class Fenced(Exception):
    """Another projector has taken over."""


class _UnderWay(NamedTuple):
    """A write that Redis has not answered yet."""

    sent: Sent
    board: Board
    touched: dict[str, Touched]
    ours: Vector


class _Moving(NamedTuple):
    """Boards that nothing happened on, which Redis has not said yet to have moved on."""

    moved: Moved
    boards: list[Board]
    ours: Vector


class Mirroring:
    """Keeps Redis equal to an engine; used by the projector's thread."""

    def __init__(self, ledger: Ledger, follower: RecordedFollower, mirror: Mirror, epoch: int) -> None:
        """`epoch` is that of the lease: Redis obeys whoever has the highest. The mirror is closed with this."""
        self._ledger = ledger
        self._follower = follower
        self._store = follower.store
        self._mirror = mirror
        self._epoch = epoch
        self._missed = Missed(ledger, follower.applier.catalogue)
        self._known = KnownBoards(follower, mirror, epoch)
        self._to_load: set[str] = set()  # boards of which it is not noted who changed
        self.rows = 0  # sent since the start
        self.loads = 0  # boards that were loaded anew
        self.catch_ups = 0  # boards that were behind in Redis, and sent what they lacked
        self._under_way: dict[str, _UnderWay] = {}  # by board
        self._moving: list[_Moving] = []
        self._is_complete = False  # whether the last `send` left nothing to be sent later
        self._began_ms = 0
        self.complete_as_of: int | None = None  # when all that was ranked had been sent, and is in Redis now

    def send(self, changes: Changes, now_ms: int, idle_ms: int, *, is_all: bool = True) -> None:
        """Send what changed; a board that nothing happened on is moved on when it was not for `idle_ms`.

        Redis works on it while the next events are ranked, and while what they changed is read and encoded: `settle`
        says whether it went well, at the latest when the next is under way. `is_all` tells whether the ledger has been
        followed to its end.
        """
        try:
            self._settle(self._start_next(changes, now_ms))
        except (RanksUnavailable, Fenced):
            self._store.put_behind(changes)
            self._note_for_later(self._store.take())
            raise
        self._store.put_behind(changes)
        changes = self._store.take()  # with what was refused: positions may not pass it over
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
            for board_id in self._move([one for one in idle if one not in changes.boards], now_ms):
                behind += not self._send_board(board_id, {}, now_ms)
        finally:
            self._is_complete = is_all and not changes.boards and not behind
            self._note_for_later(changes)

    def _start_next(self, changes: Changes, now_ms: int) -> dict[str, _UnderWay]:
        """Write to boards that Redis is still at work on, behind that; what is started is taken out of the changes.

        A write follows the one before it or is refused, so nothing is passed over if that one is. What needs another
        form waits until that one is answered.
        """
        started: dict[str, _UnderWay] = {}
        boards = self._follower.applier.state.boards
        for board_id in changes.boards.keys() & self._under_way.keys() & boards.keys() - self._to_load:
            board, live = self._follower.board(board_id)
            before = self._under_way[board_id]
            if board is before.board and self._known.stored_as_left(board) is not None:
                touched = changes.boards[board_id]
                try:
                    started[board_id] = self._started(board, live, before.ours, touched, now_ms, is_behind=True)
                except OtherFormNeeded:
                    continue
                except RanksUnavailable:
                    break
                del changes.boards[board_id]
        return started

    def close(self) -> None:
        """Give the mirror's connections back; what is under way may or may not be written."""
        self._mirror.close()

    def settle(self) -> bool:
        """Wait for Redis; what it did not take is noted to be sent again. Tell whether it took everything."""
        return self._settle({})

    def _settle(self, next_ones: dict[str, _UnderWay]) -> bool:
        """Wait for what is under way; then the next ones are, unless they follow something that was not taken."""
        problems: list[RanksUnavailable | Fenced] = []
        has_all = self._settle_moves(problems)
        refused = self._settle_writes(self._under_way, problems)
        has_all &= not refused
        if has_all:
            self._under_way = next_ones
        else:
            refused += self._settle_writes(next_ones, problems)  # refused too, if they do follow it
            self._under_way = {}
        for changes in reversed(refused):
            self._store.give_back(changes)
        if problems:
            raise next((one for one in problems if isinstance(one, Fenced)), problems[-1])
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
            except (RanksUnavailable, Fenced) as found:
                problems.append(found)
                moved = {}
            for board in moves.boards:
                has_all &= self._settle_board(board, moved.get(board.id, ()), moves.ours)
        return has_all

    def _settle_writes(
        self, under_way: dict[str, _UnderWay], problems: list[RanksUnavailable | Fenced]
    ) -> list[Changes]:
        """Return what Redis did not take."""
        refused = []
        for board_id, one in under_way.items():
            answers: Sequence[Written] = ()
            try:
                if not any(isinstance(found, RanksUnavailable) and found.away for found in problems):
                    answers = one.sent.answers()  # a server that is away would be waited for once for each
                self._check_fenced(board_id, answers)
            except (RanksUnavailable, Fenced) as found:
                problems.append(found)
                answers = ()
            if not self._settle_board(one.board, answers, one.ours):
                refused.append(Changes({board_id: one.touched}, 0))
        return refused

    def _settle_board(self, board: Board, answers: Sequence[Written], ours: Vector) -> bool:
        """Note what became of a write; tell whether every shard took it."""
        if answers and all(answer.verdict is Verdict.APPLIED for answer in answers):
            self._known.note_sent(board, ours)
            return True
        self._is_complete = False
        self._known.forget(board.id)  # it is not where we thought: ask
        return False

    def load(self, board_id: str, now_ms: int) -> None:
        """Load a board anew, beside what is there."""
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
        self._known.note_sent(board, ours)
        self._to_load.discard(board_id)
        self.loads += 1
        _log.info("board %s was loaded into Redis anew", board_id)

    # One board

    def _send_board(self, board_id: str, touched: dict[str, Touched], now_ms: int) -> bool:
        """Send what changed on a board; False when it is to be sent later."""
        if board_id not in self._follower.applier.state.boards:
            return True  # it was taken out of Redis
        board, live = self._follower.board(board_id)
        self._known.drop_former(board)
        if not self._known.is_dense_as_left(board):
            for key, rules in instances_of(board, live):  # each is written anew if it is not so already
                touched.setdefault(key.text, Touched(key, rules))
        for _ in range(ATTEMPTS_MAX):
            self._known.ask([board_id])
            done = self._try_board(board, live, touched, now_ms)
            if done is not None:
                return done
            self._known.forget(board_id)  # it is not where we thought: ask
        return False

    def _try_board(self, board: Board, live: BoardState, touched: dict[str, Touched], now_ms: int) -> bool | None:
        """Send what changed from where Redis is; False when it is to be sent later, None when Redis is elsewhere."""
        known = self._known[board.id]
        ours = self._follower.positions
        stored = [one for one in known.stored if one is not None]
        low, sent = known.low, self._known.sent(board.id)
        if low is not None and not all(reaches(ours, one) for one in stored):
            # Redis has more than we have read: we catch up first, if the ledger has as much.
            return self._load_if_beyond(board.id, stored, now_ms)
        if low is not None and board.id not in self._to_load and not reaches(low, sent):
            self._touch_missed([Behind(board, live, low, sent, touched)])
        if low is None or board.id in self._to_load:
            self.load(board.id, now_ms)
        elif len(set(stored)) == 1:
            self._under_way[board.id] = self._started(board, live, stored[0], touched, now_ms)
        elif self._write(board, live, known, touched, now_ms):
            self._known.note_sent(board, ours)
        else:
            return None
        return True

    def _started(
        self,
        board: Board,
        live: BoardState,
        stored: Vector,
        touched: dict[str, Touched],
        now_ms: int,
        *,
        is_behind: bool = False,
    ) -> _UnderWay:
        """Write to every shard without waiting for the answer."""
        ours = self._follower.positions
        changes = [change_of(self._store, board, live, one) for one in touched.values()]
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
        return _UnderWay(sent, board, touched, ours)

    def _write(self, board: Board, live: BoardState, known: Mirrored, touched: dict[str, Touched], now_ms: int) -> bool:
        """Write to every shard from where it is; False when one of them is somewhere else."""
        ours = self._follower.positions
        changes = [change_of(self._store, board, live, one) for one in touched.values()]
        behind = dict(enumerate(known.stored))
        for stored in {one for one in known.stored if one is not None}:
            # A shard that stands elsewhere says so, and is left alone until its turn.
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

    def _check_fenced(self, board_id: str, answers: Sequence[Written]) -> None:
        if any(answer.verdict is Verdict.FENCED for answer in answers):
            raise Fenced(f"board {board_id} is written by another projector")

    def _load_if_beyond(self, board_id: str, stored: list[Vector], now_ms: int) -> bool:
        """Load a board anew that has events in Redis which the ledger does not have; False when it has them all."""
        self._known.ask_again(board_id)
        ends = self._ledger.heads().sequences
        if all(reaches(ends, one) for one in stored):
            return False
        _log.warning("board %s is ahead of the ledger in Redis: was an older copy of the ledger restored?", board_id)
        self.load(board_id, now_ms)
        return True

    # All boards

    def _find_idle(self, changes: Changes, idle_ms: int) -> list[str]:
        """Return the boards that nothing happened on and that were not moved on for a while, or are to be loaded."""
        before = monotonic() - idle_ms / 1_000
        boards = self._follower.applier.state.boards
        return [
            one
            for one in boards
            if one not in changes.boards
            and one not in self._under_way
            and (one in self._to_load or self._known.is_idle(one, before))
        ]

    def _catch_up(self, board_ids: Iterable[str], changes: Changes) -> None:
        """Have what boards have missed sent too: the ledger is read once for all of them."""
        behind = []
        boards = self._follower.applier.state.boards
        for board_id in board_ids:
            if board_id in boards and board_id not in self._to_load and self._known.is_behind(board_id):
                low, sent = self._known[board_id].low, self._known.sent(board_id)
                touched = changes.boards.setdefault(board_id, {})
                behind.append(Behind(*self._follower.board(board_id), low or (), sent, touched))
        if behind:
            self._touch_missed(behind)

    def _touch_missed(self, behind: Sequence[Behind]) -> None:
        unknown = self._missed.touch(behind)
        self._to_load |= unknown
        for one in behind:
            if one.board.id not in unknown:
                self._known.note_behind(one.board.id, one.after)
                self.catch_ups += 1

    def _move(self, board_ids: Iterable[str], now_ms: int) -> list[str]:
        """Move boards on that nothing happened on, all in one go; return those that are not as we left them."""
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

    def _note_for_later(self, changes: Changes) -> None:
        """Have changes sent later; where there are too many, while Redis is away, their board is loaded anew."""
        boards = self._follower.applier.state.boards
        noted = {one: sum(len(of.players) for of in touched.values()) for one, touched in changes.boards.items()}
        total = sum(noted.values())
        for board_id in sorted(noted, key=noted.__getitem__, reverse=True):
            if total > NOTED_PLAYERS_MAX and board_id in boards and board_id not in self._to_load:
                _log.warning("board %s is loaded into Redis anew when it answers: too much has changed", board_id)
                self._to_load.add(board_id)
            if board_id in self._to_load:
                total -= noted[board_id]
                changes.boards[board_id] = {}
        self._to_load &= boards.keys()
        self._store.give_back(changes)


def _moves(stored: Vector, ours: Vector) -> list[Move]:
    return [Move(partition, *after_upto) for partition, after_upto in enumerate(zip(stored, ours, strict=True))]
