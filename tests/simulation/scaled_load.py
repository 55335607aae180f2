"""Load on a scaled-out installation: scores that are sent until they are acknowledged, and reads that are checked.

A request that is not acknowledged is sent again under its key, so in the end everything that was sent counts once. What
readers saw meanwhile is compared with the ledger at the end: each answer names a position, and must show what was kept
there, or later.
"""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.servers.load_bound import REQUESTS_MAX, LoadBound
from tests.servers.waiting import join_all, wait_until
from tests.timing import BUSY_MACHINE

from rankd.domain.position import parse_positions
from rankd.errors import RankdError, Unavailable
from rankd.ledger.event import EventKind
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.open_thin import open_thin
from rankd.node.shared_stores import SharedStores
from rankd.reads.answers import Page

from .scaled_installation import recomputed, wait_until_mirrored

BOARDS: dict[str, dict[str, Any]] = {
    "guilds": {"team": {"attribute": "guild", "by": "sum"}, "keep": "sum"},
    "counts": {"keep": "sum", "windows": ["all_time", "daily"], "scopes": ["country"], "feeds": ["guilds"]},
    "cut": {"keep": "sum", "shards": 3},
}
SUMMED = ("counts", "cut")
PLAYERS = 150
GUILDS = ["red", "blue", "green"]
WRITERS = 3
ROWS = 20
PAUSE_S = 0.05  # a slow machine keeps up with what comes: the faults are under test, not the rate
EQUAL_WITHIN_S = 10.0 * BUSY_MACHINE
SEEN_MAX = 3_000
READ_EVENTS = 50_000
PAGE = 1_000


class ReadPage(NamedTuple):
    """A page that somebody got."""

    board: str
    position: dict[int, int]
    stale: bool
    total: int
    scores: list[tuple[str, int]]


class Load:
    """Writers and a reader, in threads of one API process."""

    def __init__(self, ledger_url: str, ranks_url: str, rows: int = ROWS, pause_s: float = PAUSE_S) -> None:
        self._ledger_url = ledger_url
        self._ranks_url = ranks_url
        self._rows = rows
        self._pause_s = pause_s
        self._events_max = 0  # 0: as many as come
        self._stop = threading.Event()
        self._bound = LoadBound(REQUESTS_MAX)
        self._lock = threading.Lock()
        self._failures: list[BaseException] = []
        self.sums: dict[str, Counter[str]] = {board: Counter() for board in SUMMED}  # acknowledged
        self.acknowledged = 0
        self._marks = 0
        self.refused_writes = 0
        self.seen: list[ReadPage] = []
        self.boards = open_thin(SharedStores(ledger_url), ranks_url)
        for board, definition in BOARDS.items():
            self.boards.define(board, definition)
        self._threads = [threading.Thread(target=self._run, args=(self._write, number)) for number in range(WRITERS)]
        self._threads.append(threading.Thread(target=self._run, args=(self._read, 0)))
        for thread in self._threads:
            thread.start()

    def _run(self, work: object, number: int) -> None:
        try:
            assert callable(work)
            work(number)
        except BaseException as problem:
            self._failures.append(problem)

    # What is sent and read

    def _write(self, writer: int) -> None:
        rng = random.Random(writer)
        number = 0
        while self._bound.take() and not self._stop.wait(self._pause_s):
            if 0 < self._events_max <= self.acknowledged:
                continue
            number += 1
            board = SUMMED[number % len(SUMMED)]
            players = [f"player-{rng.randrange(PLAYERS)}" for _ in range(self._rows - 1)]
            # Whoever comes once is not brought back by what comes later.
            rows = [
                {
                    "player": player,
                    "score": rng.randint(1, 9),
                    "attributes": {"country": rng.choice(["BR", "AR"]), "guild": rng.choice(GUILDS)},
                }
                for player in (*players, f"once-{writer}-{number}")
            ]
            self._send(board, rows, f"{writer}-{number}")

    def _send(self, board: str, rows: list[dict[str, object]], key: str) -> None:
        """Send a request until it is acknowledged; the last ones also when the load is to end."""
        attempts = LoadBound(REQUESTS_MAX)
        while not self._is_acknowledged(board, rows, key):
            assert attempts.take(), "a request is never acknowledged"
            self.refused_writes += 1
            threading.Event().wait(PAUSE_S)
        with self._lock:
            for row in rows:
                self.sums[board][str(row["player"])] += int(str(row["score"]))
            self.acknowledged += len(rows)

    def _is_acknowledged(self, board: str, rows: list[dict[str, object]], key: str) -> bool:
        try:
            self.boards.submit_many(board, rows, key=key)
        except Unavailable:
            return False
        return True

    def _read(self, _number: int) -> None:
        turn = 0
        while self._bound.take() and not self._stop.wait(PAUSE_S / 2):
            turn += 1
            board = SUMMED[turn % len(SUMMED)]
            try:
                page = self.boards.top(board, PLAYERS)
            except Unavailable:
                continue
            except RankdError as problem:
                raise AssertionError(f"a read was answered with {problem.code}") from problem
            scores = [(entry.player, entry.score) for entry in page.entries]
            assert [entry.rank for entry in page.entries] == list(range(1, len(scores) + 1))
            assert sorted((-score for _, score in scores)) == [-score for _, score in scores]
            if len(self.seen) < SEEN_MAX:
                self.seen.append(ReadPage(board, dict(parse_positions(page.position)), page.stale, page.total, scores))

    def go_on_to(self, events_max: int) -> None:
        """Send so many events and no more: on a busy machine writers can be quicker than whoever follows them."""
        self._events_max = events_max

    def renew(self) -> None:
        """Let the load go on for as long again."""
        self._bound.renew()

    def mark(self) -> None:
        """Send scores of players who come once, and return when they are ranked."""
        self._marks += 1
        for board in SUMMED:
            name = f"mark-{self._marks}"
            self._send(board, [{"player": name, "score": 1, "attributes": {"guild": "red"}}], f"{board}-{name}")
            wait_until(lambda board=board, name=name: self._is_ranked(board, name))  # type: ignore[misc]

    def _is_ranked(self, board: str, player: str) -> bool:
        try:
            return self.boards.rank(board, player) is not None
        except Unavailable:
            return False

    # The end

    def finish(self) -> float:
        """Stop sending once everything is acknowledged; return when that was."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "something hangs"
        for failure in self._failures:
            raise failure
        return time.monotonic()

    def close(self) -> None:
        self._stop.set()
        join_all(self._threads)
        self.boards.close()

    def check(self, since: float, within_s: float = EQUAL_WITHIN_S) -> None:
        """Compare everything with the ledger: Redis soon after `since`, what was acknowledged, what readers saw."""
        anew = recomputed(self._ledger_url)
        wait_until_mirrored(anew, self._ranks_url, since + within_s)
        for board, sums in self.sums.items():
            scores = self._everybody(board)
            wrong = [player for player in {*scores, *sums} if scores.get(player) != sums[player]]
            assert not wrong, (
                f"{board}: lost or doubled, {[(player, scores.get(player), sums[player]) for player in wrong[:5]]}"
            )
        totals = self.boards.top("guilds", 10)
        assert sum(entry.score for entry in totals.entries) == self.sums["counts"].total()
        self._check_seen()

    def _everybody(self, board: str) -> dict[str, int]:
        """Return all scores, once they come from Redis: for a moment after an outage, stale ones are shown."""
        pages: list[Page] = []

        def are_fresh() -> bool:
            pages[:] = self._pages(board)
            return not any(page.stale for page in pages)

        wait_until(are_fresh)
        return {entry.player: entry.score for page in pages for entry in page.entries}

    def _pages(self, board: str) -> Iterator[Page]:
        page = self.boards.top(board, PAGE)
        yield page
        while page.next is not None:
            page = self.boards.top(board, PAGE, cursor=page.next)
            yield page

    def _check_seen(self) -> None:
        kept = self._kept()
        for board, position, _, total, scores in self.seen:
            of_board = kept[board]
            there = sum(sequences[0] <= position[partition] for partition, sequences, _ in of_board.values())
            assert total >= there, f"{board} had {there} players at {position}, and {total} were shown"
            for player, score in scores:
                partition, sequences, sums = of_board[player]
                right = sums[max(0, bisect_right(sequences, position[partition]) - 1) :]
                assert score in right, f"{player} has {score} on {board} at {position}; right were {right[:3]} …"

    def _kept(self) -> dict[str, dict[str, tuple[int, list[int], list[int]]]]:
        """Return, by board and player, their partition, the sequences of their events, and their sum at each."""
        kept: dict[str, dict[str, tuple[int, list[int], list[int]]]] = {board: {} for board in SUMMED}
        ledger = PostgresLedger(self._ledger_url)
        try:
            after = [0] * ledger.partitions
            while parts := ledger.read(after, READ_EVENTS):
                for partition, event_run, *_ in parts:
                    after[partition] = event_run.first + len(event_run) - 1
                    context = ledger.context(event_run.context)
                    if context.kind is not EventKind.SCORE:
                        continue
                    for offset, (player, score) in enumerate(zip(event_run.players, event_run.score, strict=True)):
                        _, sequences, sums = kept[context.board].setdefault(player, (partition, [], []))
                        sequences.append(event_run.first + offset)
                        sums.append((sums[-1] if sums else 0) + score)
        finally:
            ledger.close()
        return kept
