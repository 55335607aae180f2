"""Wait for positions to be ranked, without holding a thread.

    a commit of this process → CommitNotifier ─┐
                                               ├→ PositionWaiter.move → the waiters whose positions are reached
    one call to Redis for all → RankPoller ────┘

Waiters are queued by the sequence that they wait for, so the cost of a move is that of the waiters it wakes. One timer
ends the waits that take too long.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from time import monotonic

from rankd.backend import Remote
from rankd.domain.position import is_upto
from rankd.errors import Overloaded

WAITERS_MAX = 10_000
POLL_MIN_S, POLL_MAX_S = 0.002, 0.02
POLL_SHARE = 0.25  # of the time that the last waiter has waited
EVERY_BOARD = ""  # where all boards are ranked up to the same position
_log = logging.getLogger("rankd")


class _Waiter:
    """One wait for positions of a board; queued for one partition after the other."""

    __slots__ = ("board", "deadline_s", "number", "partition", "ranked", "since_s", "wanted")

    def __init__(
        self, number: int, wanted: Mapping[int, int], board: str, ranked: asyncio.Future[bool], deadline_s: float
    ) -> None:
        self.number = number  # unique, in the order of arrival
        self.wanted = wanted
        self.board = board
        self.ranked = ranked  # False after a timeout
        self.deadline_s = deadline_s  # by the event loop's clock
        self.since_s = monotonic()
        self.partition: int | None = None  # of its queue


_Queue = list[tuple[float, int, _Waiter]]  # sorted; the number breaks ties


class PositionWaiter:
    """All waits of a process for positions to be ranked; on the event loop."""

    def __init__(self, waiters_max: int = WAITERS_MAX) -> None:
        """`move` reports how far boards are ranked."""
        self._waiters_max = waiters_max
        self._loop = asyncio.get_running_loop()
        self._numbers = count()
        self._queues: dict[str, dict[int, _Queue]] = {}  # by board and partition, in the order of sequences
        self._deadlines: _Queue = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self.arrived: Callable[[], None] = lambda: None  # called for each new waiter
        self.arrived_at_s = 0.0  # of the last waiter

    @property
    def waiting(self) -> int:
        """How many waiters there are."""
        return len(self._deadlines)

    @property
    def boards(self) -> list[str]:
        """The boards of all waiters."""
        return [*self._queues]

    async def wait(self, wanted: Mapping[int, int], board: str, wait_ms: int) -> bool:
        """Wait until sequences, by partition, are ranked on a board; False after a timeout."""
        if self._is_stopping:
            return False
        if self.waiting >= self._waiters_max:
            raise Overloaded("too many requests wait for ranks; try again in a moment")
        ranked: asyncio.Future[bool] = self._loop.create_future()
        waiter = _Waiter(next(self._numbers), wanted, board, ranked, self._loop.time() + wait_ms / 1_000)
        self._enqueue(waiter, next(iter(wanted)))
        insort(self._deadlines, (waiter.deadline_s, waiter.number, waiter))
        if self._deadlines[0][2] is waiter:
            self._set_timer()
        self.arrived_at_s = waiter.since_s
        self.arrived()
        try:
            return await ranked
        finally:
            self._leave(waiter)

    def move(self, board: str, upto: Mapping[int, int]) -> None:
        """Wake the waiters whose positions are reached, now that a board is ranked up to these sequences."""
        for partition in [*self._queues.get(board, {})]:
            for waiter in self._take_reached(board, partition, upto.get(partition, -1)):
                missing = (number for number, wanted in waiter.wanted.items() if upto.get(number, -1) < wanted)
                further = next(missing, None)
                if further is None:
                    _settle(waiter.ranked, True)
                else:
                    self._enqueue(waiter, further)

    def refuse_beyond(self, ledger: Mapping[int, int], read_at_s: float) -> None:
        """End the waits that began before the ledger was read, for positions beyond its end."""
        for _, _, waiter in self._deadlines:
            if waiter.since_s < read_at_s and not is_upto(ledger, waiter.wanted):
                _settle(waiter.ranked, False)

    def stop(self) -> None:
        """End all waits."""
        self._is_stopping = True
        for _, _, waiter in self._deadlines:
            _settle(waiter.ranked, False)

    def _take_reached(self, board: str, partition: int, sequence: int) -> list[_Waiter]:
        queue = self._queues[board][partition]
        end = bisect_left(queue, (sequence + 1,))
        reached = [waiter for _, _, waiter in queue[:end]]
        del queue[:end]
        self._drop_empty(board, partition)
        for waiter in reached:
            waiter.partition = None
        return reached

    def _enqueue(self, waiter: _Waiter, partition: int) -> None:
        waiter.partition = partition
        queue = self._queues.setdefault(waiter.board, {}).setdefault(partition, [])
        insort(queue, (waiter.wanted[partition], waiter.number, waiter))

    def _dequeue(self, waiter: _Waiter) -> None:
        if waiter.partition is None:
            return
        queue = self._queues[waiter.board][waiter.partition]
        del queue[bisect_left(queue, (waiter.wanted[waiter.partition], waiter.number))]
        self._drop_empty(waiter.board, waiter.partition)
        waiter.partition = None

    def _drop_empty(self, board: str, partition: int) -> None:
        queues = self._queues[board]
        if not queues[partition]:
            del queues[partition]
        if not queues:
            del self._queues[board]

    def _leave(self, waiter: _Waiter) -> None:
        self._dequeue(waiter)
        del self._deadlines[bisect_left(self._deadlines, (waiter.deadline_s, waiter.number))]
        if not self._deadlines:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        pending = next((waiter for _, _, waiter in self._deadlines if not waiter.ranked.done()), None)
        if pending is not None:
            self._timer = self._loop.call_at(pending.deadline_s, self._expire)

    def _expire(self) -> None:
        now_s = self._loop.time()
        for deadline_s, _, waiter in self._deadlines:
            if deadline_s > now_s:
                break
            _settle(waiter.ranked, False)
        self._set_timer()


class CommitNotifier:
    """Moves the waiters after commits of this process; coalesces commits into one move per turn of the event loop."""

    def __init__(self, waiter: PositionWaiter, ranked: Callable[[], Mapping[int, int]]) -> None:
        """`ranked` returns the last ranked sequence, by partition."""
        self._waiter = waiter
        self._ranked = ranked
        self._loop = asyncio.get_running_loop()
        self._is_move_due = False
        # A commit between the reader's check of the position and its wait is noticed by this move.
        waiter.arrived = self._move

    def committed(self) -> None:
        """Schedule a move; called in the thread that has committed."""
        if self._waiter.waiting and not self._is_move_due:
            self._is_move_due = True
            self._loop.call_soon_threadsafe(self._move)

    def _move(self) -> None:
        self._is_move_due = False
        self._waiter.move(EVERY_BOARD, self._ranked())


class RankPoller:
    """Moves the waiters as another process ranks: polls Redis for all of them, as long as there are any."""

    def __init__(self, waiter: PositionWaiter, remote: Remote) -> None:
        """It polls while there are waiters."""
        self._waiter = waiter
        self._remote = remote
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rankd-positions")
        self._polling: asyncio.Task[None] | None = None
        self._ledger_read_at_s = 0.0
        waiter.arrived = self._start

    def stop(self) -> None:
        """Stop polling; blocks, so not for the event loop."""
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.shutdown()

    def _cancel(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    def _start(self) -> None:
        if self._polling is None:
            self._polling = self._loop.create_task(self._poll())

    async def _poll(self) -> None:
        try:
            while boards := self._waiter.boards:
                try:
                    upto = await self._loop.run_in_executor(self._thread, self._remote.ranked_upto, boards)
                except Exception:
                    _log.exception("polling the ranked positions failed")
                    upto = {}
                self._take(upto)
                if self._waiter.waiting:
                    await asyncio.sleep(self._pause_s())
        finally:
            self._polling = None

    def _take(self, upto: Mapping[str, Mapping[int, int]]) -> None:
        for board, ranked in upto.items():
            self._waiter.move(board, ranked)
        read_at_s, ledger = self._remote.ledger_seen
        if read_at_s != self._ledger_read_at_s:
            self._ledger_read_at_s = read_at_s
            self._waiter.refuse_beyond(ledger, read_at_s)

    def _pause_s(self) -> float:
        """Return the pause before the next poll: short after a new waiter, longer after a long wait."""
        youngest_s = monotonic() - self._waiter.arrived_at_s
        return min(max(youngest_s * POLL_SHARE, POLL_MIN_S), POLL_MAX_S)


def _settle(ranked: asyncio.Future[bool], is_ranked: bool) -> None:
    if not ranked.done():
        ranked.set_result(is_ranked)
