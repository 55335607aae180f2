"""The writer of a thin process: it appends, and answers with the ranks that another process makes in Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rankd.backend import LedgerFreshness, Read
from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.domain.position import tokens
from rankd.errors import Unavailable
from rankd.intake.queue import Task
from rankd.intake.writer import Writer
from rankd.ledger.port import Heads, Ledger
from rankd.node.late_answers import LateAnswers
from rankd.redis.read.batching import ReadBatcher
from rankd.redis.read.rank_source import RedisRankSource

ShareRates = Callable[[list[tuple[str, str, float]]], Sequence[int]]


class ThinWriter(LateAnswers):
    """The writer of `Boards` where another process ranks."""

    checks_early = True

    def __init__(
        self,
        writer: Writer,
        ledger: Ledger,
        rank_source: RedisRankSource,
        *,
        clock: Clock,
        wait_ms: int,
        share_rates: ShareRates | None = None,
    ) -> None:
        """`wait_ms` limits the wait for a rank; `share_rates` shares rate limits with other processes."""
        super().__init__(writer, rank_source, rank_source.open_ranks, clock=clock, wait_ms=wait_ms)
        self._share_rates = share_rates
        self._ledger = ledger
        self._redis = rank_source
        self.check_open = writer.check_open
        self.find_board = writer.find_board
        self.backpressure = writer.backpressure
        self.read_heads()

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined."""
        return self._writer.boards

    @property
    def at(self) -> int:
        """The ledger's time."""
        return self._writer.at

    def check_ready(self) -> None:
        """Refuse requests to be routed here: after `close`, or when definitions need a newer version."""
        self._writer.check_ready()

    def read_heads(self) -> Heads:
        """Read the ledger's heads, and store them in `ledger_seen`."""
        began_s = time.monotonic()
        heads = self._ledger.heads()
        self.ledger_seen = LedgerFreshness(began_s, dict(enumerate(heads.sequences)))
        return heads

    @property
    def position_token(self) -> str:
        """The ledger's heads when last read."""
        return tokens(self.ledger_seen.sequences)

    def ranked_upto(self, boards: Sequence[str]) -> dict[str, Mapping[int, int]]:
        """Return the ranked positions of boards, without unavailable ones: one round trip."""
        return self._redis.ranked_upto(boards)

    def read_batcher(self, on_done: Callable[[list[Read]], None]) -> ReadBatcher:
        """Start a batcher for concurrent reads."""
        return ReadBatcher(on_done)

    def is_due(self, _now: int, _board_id: str) -> bool:
        """Return False: the projector rolls over."""
        return False

    def roll_over(self, _board_id: str) -> None:
        """Do nothing: the projector rolls over."""

    def enqueue(self, tasks: Sequence[Task], on_done: Callable[[list[Task], float], None]) -> None:
        """Queue scores without waiting; their results are Accepted."""
        self._writer.enqueue(tasks, on_done)

    def share_rates(self, spent: list[tuple[str, str, float]]) -> Sequence[int]:
        """Add this process's spending of rate limits to the shared sums; return what each caller owes."""
        if self._share_rates is None:
            return ()
        try:
            return self._share_rates(spent)
        except Unavailable:
            return ()
