"""Whoever waits until something is ranked waits here, and holds no thread.

    a commit of this process → CommitNotifier ─┐
                                               ├→ PositionWaiter.move → those whose positions have come, and no others
    one question to Redis for all → RankPoller ┘

Waiters stand in line by the sequence that they wait for, so a position that moves costs as much as it wakes. One timer
lets those go who have waited long enough.
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
POLL_SHARE = 0.25  # of the time that the last who came has waited
EVERY_BOARD = ""  # where all boards are ranked up to the same position
_log = logging.getLogger("rankd")


class _Waiter:
    """Somebody who waits for positions of a board; in line for one partition after the other."""

    __slots__ = ("board", "deadline_s", "number", "partition", "ranked", "since_s", "wanted")

    def __init__(
        self, number: int, wanted: Mapping[int, int], board: str, ranked: asyncio.Future[bool], deadline_s: float
    ) -> None:
        self.number = number  # in the order of arrival; no two have the same
        self.wanted = wanted
        self.board = board
        self.ranked = ranked  # whether it is; False when it was waited for in vain
        self.deadline_s = deadline_s  # by the event loop's clock
        self.since_s = monotonic()
        self.partition: int | None = None  # whose line it stands in


_Line = list[tuple[float, int, _Waiter]]  # in order: the number decides where the first is equal


class PositionWaiter:
    """Everybody of a process who waits for positions to be ranked; on the event loop."""

    def __init__(self, waiters_max: int = WAITERS_MAX) -> None:
        """Nobody waits; whoever knows how far boards are ranked says so by `move`."""
        self._waiters_max = waiters_max
        self._loop = asyncio.get_running_loop()
        self._numbers = count()
        self._lines: dict[str, dict[int, _Line]] = {}  # by board and partition, in the order of sequences
        self._deadlines: _Line = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self.arrived: Callable[[], None] = lambda: None  # called when somebody has begun to wait
        self.arrived_at_s = 0.0  # when the last one came

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._deadlines)

    @property
    def boards(self) -> list[str]:
        """The boards that somebody waits for."""
        return [*self._lines]

    async def wait(self, wanted: Mapping[int, int], board: str, wait_ms: int) -> bool:
        """Wait until sequences, by partition, are ranked on a board; tell whether they are."""
        if self._is_stopping:
            return False
        if self.waiting >= self._waiters_max:
            raise Overloaded("more wait for ranks than the server takes; ask again in a moment")
        ranked: asyncio.Future[bool] = self._loop.create_future()
        waiter = _Waiter(next(self._numbers), wanted, board, ranked, self._loop.time() + wait_ms / 1_000)
        self._stand_in_line(waiter, next(iter(wanted)))
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
        """Wake those who have what they wait for, now that a board is ranked up to these sequences."""
        lines = self._lines.get(board, {})
        for partition in [*lines]:
            for waiter in self._take_reached(board, partition, upto.get(partition, -1)):
                further = next((one for one, wanted in waiter.wanted.items() if upto.get(one, -1) < wanted), None)
                if further is None:
                    _settle(waiter.ranked, True)
                else:
                    self._stand_in_line(waiter, further)

    def refuse_beyond(self, ledger: Mapping[int, int], looked_at_s: float) -> None:
        """Let those go who came before the ledger was looked at, and wait for positions that it had not given out."""
        for _, _, waiter in self._deadlines:
            if waiter.since_s < looked_at_s and not is_upto(ledger, waiter.wanted):
                _settle(waiter.ranked, False)

    def stop(self) -> None:
        """Let everybody go."""
        self._is_stopping = True
        for _, _, waiter in self._deadlines:
            _settle(waiter.ranked, False)

    def _take_reached(self, board: str, partition: int, sequence: int) -> list[_Waiter]:
        line = self._lines[board][partition]
        end = bisect_left(line, (sequence + 1,))
        reached = [waiter for _, _, waiter in line[:end]]
        del line[:end]
        self._drop_empty(board, partition)
        for waiter in reached:
            waiter.partition = None
        return reached

    def _stand_in_line(self, waiter: _Waiter, partition: int) -> None:
        waiter.partition = partition
        line = self._lines.setdefault(waiter.board, {}).setdefault(partition, [])
        insort(line, (waiter.wanted[partition], waiter.number, waiter))

    def _leave_line(self, waiter: _Waiter) -> None:
        if waiter.partition is None:
            return
        line = self._lines[waiter.board][waiter.partition]
        del line[bisect_left(line, (waiter.wanted[waiter.partition], waiter.number))]
        self._drop_empty(waiter.board, waiter.partition)
        waiter.partition = None

    def _drop_empty(self, board: str, partition: int) -> None:
        lines = self._lines[board]
        if not lines[partition]:
            del lines[partition]
        if not lines:
            del self._lines[board]

    def _leave(self, waiter: _Waiter) -> None:
        self._leave_line(waiter)
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
    """Moves a waiter on as this process commits: at most one look is due at a time, however many commits there are."""

    def __init__(self, waiter: PositionWaiter, ranked: Callable[[], Mapping[int, int]]) -> None:
        """`ranked` returns the last sequence that is ranked, by partition."""
        self._waiter = waiter
        self._ranked = ranked
        self._loop = asyncio.get_running_loop()
        self._is_look_due = False
        # A commit between a reader's look at the position and its waiting is seen by this look.
        waiter.arrived = self._look

    def committed(self) -> None:
        """Have the waiter moved on; called in the thread that has committed."""
        if self._waiter.waiting and not self._is_look_due:
            self._is_look_due = True
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._is_look_due = False
        self._waiter.move(EVERY_BOARD, self._ranked())


class RankPoller:
    """Moves a waiter on as another process ranks: one question after the other asks for all, while somebody waits."""

    def __init__(self, waiter: PositionWaiter, remote: Remote) -> None:
        """It begins to ask when somebody waits."""
        self._waiter = waiter
        self._remote = remote
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rankd-positions")
        self._polling: asyncio.Task[None] | None = None
        self._ledger_seen_at_s = 0.0
        waiter.arrived = self._start

    def stop(self) -> None:
        """Ask no more; blocks, so not for the event loop."""
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
                    _log.exception("how far boards are ranked could not be asked")
                    upto = {}
                self._take(upto)
                if self._waiter.waiting:
                    await asyncio.sleep(self._pause_s())
        finally:
            self._polling = None

    def _take(self, upto: Mapping[str, Mapping[int, int]]) -> None:
        for board, ranked in upto.items():
            self._waiter.move(board, ranked)
        looked_at_s, ledger = self._remote.ledger_seen
        if looked_at_s != self._ledger_seen_at_s:
            self._ledger_seen_at_s = looked_at_s
            self._waiter.refuse_beyond(ledger, looked_at_s)

    def _pause_s(self) -> float:
        """Return when to ask again: soon for who has just come, and not as often for who has waited long."""
        youngest_s = monotonic() - self._waiter.arrived_at_s
        return min(max(youngest_s * POLL_SHARE, POLL_MIN_S), POLL_MAX_S)


def _settle(ranked: asyncio.Future[bool], is_ranked: bool) -> None:
    if not ranked.done():
        ranked.set_result(is_ranked)
