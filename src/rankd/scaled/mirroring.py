"""What changed in the engine goes to Redis, board by board, with the positions it is of.

    RecordingStore.take → what is kept of each now → Mirror.write → APPLIED, or what is missing there is sent too

Redis may be behind (it came back with an older log, a replica that lacked something was promoted), or empty. The ledger
says who changed since; what is kept of them is in the engine. Only where that is unknown is a board loaded anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import NamedTuple

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking, Rules
from rankd.domain.window import Window
from rankd.errors import RanksUnavailable
from rankd.ledger.event import Kind, place_of
from rankd.ledger.partitioned import PartitionedLedger
from rankd.projection.placement import visible_scopes
from rankd.projection.port import Verdict
from rankd.projection.redis.changes import (
    InstanceChange,
    Move,
    Written,
    captured_places,
    changed,
    whole_instance,
    with_top,
)
from rankd.projection.redis.mirror import Mirror, Sent
from rankd.projection.state import BoardState
from rankd.scaled.follower import Follower
from rankd.scaled.merging import CONTROLS
from rankd.scaled.recording import Changes, RecordingStore, Touched

MISSED_EVENTS_MAX = 500_000  # more than that, and the board is loaded anew
READ_EVENTS = 20_000
ATTEMPTS_MAX = 3
Vector = tuple[int, ...]  # a sequence for each partition
_log = logging.getLogger("rankd")


class Fenced(Exception):
    """Another projector has taken over."""


class _Mirrored:
    """A board in Redis, as far as we know."""

    __slots__ = ("moved_at", "stored")

    def __init__(self, stored: list[Vector | None]) -> None:
        self.stored = stored  # by shard; None where it is not there
        self.moved_at = monotonic()


class _UnderWay(NamedTuple):
    """A write that Redis has not answered yet."""

    sent: Sent
    board: Board
    touched: dict[str, Touched]
    ours: Vector


class Mirroring:
    """Keeps Redis equal to an engine; used by the projector's thread."""

    def __init__(self, ledger: PartitionedLedger, follower: Follower, mirror: Mirror, epoch: int) -> None:
        """`epoch` is that of the lease: Redis obeys whoever has the highest."""
        self._ledger = ledger
        self._follower = follower
        self._store = follower.store
        self._mirror = mirror
        self._epoch = epoch
        self._boards: dict[str, _Mirrored] = {}
        self._sent: dict[str, Vector] = {}  # up to where a board's changes were sent; what came later is noted
        self._shards: dict[str, int] = {}  # of boards that were there
        self._dense: dict[str, bool] = {}  # whether distinct scores were kept of all instances
        self.rows = 0  # sent since the start
        self.loads = 0  # boards that were loaded anew
        self.catch_ups = 0  # boards that were behind in Redis, and sent what they lacked
        self._under_way: dict[str, _UnderWay] = {}  # by board
        self._is_complete = False  # whether the last `send` left nothing to be sent later
        self._began_ms = 0
        self.complete_as_of: int | None = None  # when all that was ranked had been sent, and is in Redis now

    def send(self, changes: Changes, now_ms: int, idle_ms: int, *, is_all: bool = True) -> None:
        """Send what changed; a board that nothing happened on is moved on when it was not for `idle_ms`.

        Redis works on it while the next events are ranked: `settle` says whether it went well, at the latest before
        the next time. `is_all` tells whether the ledger has been followed to its end.
        """
        try:
            self.settle()
        finally:
            self._store.put_behind(changes)
        changes = self._store.take()  # with what was refused: positions may not pass it over
        self._began_ms, self._is_complete = now_ms, False
        behind = 0
        try:
            for board_id in list(changes.boards):
                if self._send_board(board_id, changes.boards[board_id], now_ms):
                    del changes.boards[board_id]
            for board_id in list(self._follower.applier.state.boards):
                known = self._boards.get(board_id)
                is_idle = known is None or monotonic() - known.moved_at >= idle_ms / 1_000
                if is_idle and board_id not in changes.boards and board_id not in self._under_way:
                    behind += not self._send_board(board_id, {}, now_ms)
        finally:
            self._is_complete = is_all and not changes.boards and not behind
            self._store.give_back(changes)

    def settle(self) -> bool:
        """Wait for Redis; what it did not take is noted to be sent again. Tell whether it took everything."""
        under_way, self._under_way = self._under_way, {}
        problem: Exception | None = None
        has_all = True
        for board_id, one in under_way.items():
            try:
                answers = one.sent.answers()
                self._check_fenced(board_id, answers)
                is_written = all(answer.verdict is Verdict.APPLIED for answer in answers)
            except (RanksUnavailable, Fenced) as found:
                problem, is_written = found, False
            if is_written:
                self._note_sent(one.board, one.ours)
            else:
                self._is_complete = has_all = False
                self._boards.pop(board_id, None)  # it is not where we thought: ask
                self._store.give_back(Changes({board_id: one.touched}, 0))
        if problem is not None:
            raise problem
        if self._is_complete:
            self.complete_as_of = self._began_ms
        return has_all

    def load(self, board_id: str, now_ms: int) -> None:
        """Load a board anew, beside what is there."""
        board, live = self._follower.board(board_id)
        ours = self._follower.positions
        loading = self._mirror.begin(board_id, shards_of(board), self._epoch)
        if loading is None:
            raise Fenced(f"board {board_id} is written by another projector")
        for key, rules in instances_of(board, live):
            is_first = True
            for page in whole_instance(self._store, key, rules, board.tie_resolution_ms):
                if is_first and key.text in live.captured:
                    page.captured = captured_places(self._store, key)
                is_first = False
                page.metadata = metadata_of(live, key, page.players)
                if board.exact_top is not None:
                    page = with_top(self._store, page, board.exact_top, is_whole=True)  # noqa: PLW2901
                loading.load([page], dense=is_dense(board))
                self.rows += len(page.players)
        answers = loading.finish(list(enumerate(ours)), time_ms=now_ms, forced=True)
        self._check_fenced(board_id, answers)
        self._note_sent(board, ours)
        self.loads += 1
        _log.info("board %s was loaded into Redis anew", board_id)

    # One board

    def _send_board(self, board_id: str, touched: dict[str, Touched], now_ms: int) -> bool:
        """Send what changed on a board; False when it is to be sent later."""
        if board_id not in self._follower.applier.state.boards:
            self._drop(board_id)
            return True
        board, live = self._follower.board(board_id)
        shards, sent = shards_of(board), self._sent.get(board_id, self._follower.recorded_since)
        if self._shards.get(board_id, shards) != shards:  # it was deleted and is defined anew
            self._mirror.drop(board_id, self._shards.pop(board_id), self._epoch)
            self._boards.pop(board_id, None)
        if self._dense.get(board_id) is not is_dense(board):
            for key, rules in instances_of(board, live):  # each is written anew if it is not so already
                touched.setdefault(key.text, Touched(key, rules))
        for _ in range(ATTEMPTS_MAX):
            done = self._try_board(board, live, touched, sent, now_ms)
            if done is not None:
                return done
            self._boards.pop(board_id)  # it is not where we thought: ask
        return False

    def _try_board(
        self, board: Board, live: BoardState, touched: dict[str, Touched], sent: Vector, now_ms: int
    ) -> bool | None:
        """Send what changed from where Redis is; False when it is to be sent later, None when Redis is elsewhere."""
        known = self._boards.get(board.id)
        if known is None or len(known.stored) != shards_of(board):
            known = self._boards[board.id] = self._ask(board)
        ours = self._follower.positions
        stored = [one for one in known.stored if one is not None]
        is_there = len(stored) == len(known.stored)
        if is_there and not all(_reaches(ours, one) for one in stored):
            # Redis has more than we have read: we catch up first, if the ledger has as much.
            return self._load_if_beyond(board.id, stored, now_ms)
        low = tuple(map(min, zip(*stored, strict=True))) if is_there else ()
        if not is_there or (not _reaches(low, sent) and not self._touch_missed(board, live, touched, low, sent)):
            self.load(board.id, now_ms)
        elif len(set(stored)) == 1:
            self._start(board, live, stored[0], touched, now_ms)
        elif self._write(board, live, known, touched, now_ms):
            self._note_sent(board, ours)
        else:
            return None
        return True

    def _start(self, board: Board, live: BoardState, stored: Vector, touched: dict[str, Touched], now_ms: int) -> None:
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
        )
        self._under_way[board.id] = _UnderWay(sent, board, touched, ours)
        self._boards[board.id].moved_at = monotonic()
        self.rows += sum(len(change.players) for change in changes)

    def _write(
        self, board: Board, live: BoardState, known: _Mirrored, touched: dict[str, Touched], now_ms: int
    ) -> bool:
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
        self._boards.pop(board_id)  # ask again next time
        ends = self._ledger.heads().sequences
        if all(_reaches(ends, one) for one in stored):
            return False
        _log.warning("board %s is ahead of the ledger in Redis: was an older copy of the ledger restored?", board_id)
        self.load(board_id, now_ms)
        return True

    def _drop(self, board_id: str) -> None:
        self._mirror.drop(board_id, self._shards.pop(board_id, 1), self._epoch)
        self._boards.pop(board_id, None)
        self._sent.pop(board_id, None)
        self._dense.pop(board_id, None)

    def _ask(self, board: Board) -> _Mirrored:
        partitions = range(self._ledger.partitions)
        found = self._mirror.positions(board.id, shards_of(board))
        stored = [
            None if one is None else tuple(one[number].sequence if number in one else 0 for number in partitions)
            for one in found
        ]
        return _Mirrored(stored)

    def _note_sent(self, board: Board, ours: Vector) -> None:
        shards = shards_of(board)
        self._boards[board.id] = _Mirrored([ours] * shards)
        self._sent[board.id] = ours
        self._shards[board.id] = shards
        self._dense[board.id] = is_dense(board)

    # What was missed

    def _touch_missed(
        self, board: Board, live: BoardState, touched: dict[str, Touched], after: Vector, upto: Vector
    ) -> bool:
        """Have everybody sent whom events between two positions were about; False when that is not known."""
        if board.team is not None:
            return False
        missed: dict[str, None] = {}
        removed: dict[str, None] = {}
        read = list(after)
        while not _reaches(read, upto):
            parts = self._ledger.read(read, READ_EVENTS)
            if not parts:
                break
            for part in parts:
                stretch = part.stretch
                read[part.partition] = stretch.first + len(stretch) - 1
                context = self._ledger.context(stretch.context)
                if context.kind in CONTROLS:
                    if context.board == board.id and context.kind is not Kind.CLOSE:
                        return False
                elif board.id in context.boards:
                    missed.update(dict.fromkeys(stretch.players))
                    if context.kind is Kind.REMOVE:
                        removed.update(dict.fromkeys(stretch.players))
            if len(missed) > MISSED_EVENTS_MAX:
                return False
        for key, rules in instances_of(board, live):
            found = touched.setdefault(key.text, Touched(key, rules))
            found.players.update(missed)
            found.removed.update(removed)
        self.catch_ups += 1
        _log.info("board %s: %d players are sent again, Redis was behind", board.id, len(missed))
        return True


def change_of(store: RecordingStore, board: Board, live: BoardState, touched: Touched) -> InstanceChange:
    """Return what is kept now of those who changed in an instance."""
    key = touched.key
    change = changed(
        store,
        key,
        touched.rules or rules_of(board, key),
        list(touched.players),
        board.tie_resolution_ms,
        cleared=touched.cleared,
        returned=list(touched.removed),
    )
    if board.exact_top is not None:
        change = with_top(store, change, board.exact_top)
    if touched.captured:
        change.captured = captured_places(store, key)
        change.forget_captured = not change.captured
    change.metadata = metadata_of(live, key, change.players)
    return change


def window_of(board: Board, key: InstanceKey) -> Window | None:
    """Return the window of an instance; None for one that a board had before it was deleted and defined anew."""
    return board.all_windows.get(key.window) or board.all_windows.get(key.window.partition(":")[0])


def rules_of(board: Board, key: InstanceKey) -> Rules:
    """Return the rules of an instance; any for one that has no window, since it is empty."""
    return board.rules_for(window_of(board, key) or board.first_window)


def metadata_of(live: BoardState, key: InstanceKey, players: Sequence[str]) -> dict[str, tuple[int, int] | None] | None:
    """Return the events that metadata of some players came with; None where no event came with any."""
    noted = live.metadata.get(key.text)
    if noted is None:
        return None
    return {one: place_of(noted[one]) if one in noted else None for one in players}


def is_dense(board: Board) -> bool:
    """Tell whether distinct scores of a board are kept in Redis, to count dense places by."""
    return board.ranking is Ranking.DENSE and shards_of(board) == 1 and board.exact_top is None


def shards_of(board: Board) -> int:
    """Return how many shards a board has in Redis: teams gather players of all of them."""
    return 1 if board.team is not None else board.shards


def instances_of(board: Board, live: BoardState) -> Iterator[tuple[InstanceKey, Rules]]:
    """Go through the instances of a board that are read by anybody."""
    for window, scopes in list(live.windows.items()):
        rules = board.rules_for(board.window_of(window))
        for scope in visible_scopes(scopes):
            yield InstanceKey(board.id, window, scope), rules


def _moves(stored: Vector, ours: Vector) -> list[Move]:
    return [Move(partition, *after_upto) for partition, after_upto in enumerate(zip(stored, ours, strict=True))]


def _reaches(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    return all(one >= other for one, other in zip(ours, theirs, strict=True))
