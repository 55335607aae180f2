"""One score a call from one thread, on boards of several kinds, by turns with a bare append: every score synced.

join → a few calls on each kind of board, a few appends, again and again
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import rankd
from benchmarks.contender import Timed, without_garbage_collection
from benchmarks.disk import file_system_of, folder_on_disk
from benchmarks.embedded_rivals import bare_append
from benchmarks.embedded_subject import WINDOWS, SteadyClock, columns_of, rest
from benchmarks.figures import APPEND, RANKD, Row, Scale, Series
from benchmarks.workload import Workload

PLAIN, SCOPED = "plain", "scoped"
COUNTRIES = 200
BOARD_OF = {"plain": PLAIN, "scope": SCOPED, "keyed": PLAIN}  # by kind


class LoneSubject:
    """The library on a folder with a plain board and one with a scope; all players are on both."""

    def __init__(self, folder: Path, players: int) -> None:
        self._workload = Workload(players)
        self._keys = 0
        self.boards = rankd.open(folder, clock=SteadyClock())
        self.boards.define(PLAIN, keep="latest", windows=list(WINDOWS))
        self.boards.define(SCOPED, keep="latest", windows=list(WINDOWS), scopes=["country"])

    def join(self, batch_rows: int) -> None:
        """Have every player send a score to each board."""
        for events in self._workload.joining(batch_rows):
            players, scores = columns_of(events)
            countries = [self._country(number) for number in events.numbers.tolist()]
            self.boards.submit_many(PLAIN, players=players, scores=scores)
            self.boards.submit_many(SCOPED, players=players, scores=scores, attributes={"country": countries})

    def _country(self, number: int) -> str:
        return f"country-{number % COUNTRIES}"

    def submit_each(self, kind: str, calls: int) -> Timed:
        """Submit one score a call; the checksum is how many changed what is kept."""
        events = self._workload.updates(calls)
        players, scores = columns_of(events)
        options: list[dict[str, Any]] = [{} for _ in players]
        if kind == "scope":
            options = [{"attributes": {"country": self._country(number)}} for number in events.numbers.tolist()]
        elif kind == "keyed":
            options = [{"key": f"score-{self._keys + number}"} for number in range(calls)]
            self._keys += calls
        submit, board = self.boards.submit, BOARD_OF[kind]
        rows = list(zip(players, scores, options, strict=True))
        began_ns = time.perf_counter_ns()
        answers = [submit(board, player, score, **given) for player, score, given in rows]
        elapsed_ns = time.perf_counter_ns() - began_ns
        return Timed(calls, elapsed_ns, sum(answer.changed for answer in answers))


def lone_rows(scale: Scale) -> Iterator[Row]:
    """A row for each kind."""
    series = {kind: Series() for kind in BOARD_OF}
    processor: dict[str, list[float]] = {kind: [] for kind in BOARD_OF}
    calls = scale.embedded_calls_a_turn
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        subject = LoneSubject(folder / "data", scale.kinds_players)
        stack.callback(subject.boards.close)
        subject.join(scale.embedded_batch_rows)
        rest(subject.boards)
        bare = stack.enter_context(bare_append(folder))
        note = f"one thread; append: 64 bytes and fdatasync on the same {file_system_of(folder)}"
        for _ in range(scale.rounds):
            appended_ns = 0
            spent_ns = dict.fromkeys(BOARD_OF, 0)
            with without_garbage_collection():
                for _ in range(scale.embedded_calls // calls):
                    appended_ns += bare.append(calls).elapsed_ns
                    for kind in BOARD_OF:
                        worked_ns = time.thread_time_ns()
                        spent_ns[kind] += subject.submit_each(kind, calls).elapsed_ns
                        processor[kind].append((time.thread_time_ns() - worked_ns) / calls)
            for kind, ns in spent_ns.items():
                series[kind].add(RANKD, ns / scale.embedded_calls)
                series[kind].add(APPEND, appended_ns / scale.embedded_calls)
    for kind, measured in series.items():
        figures = {"processor_ns": median(processor[kind])}
        yield measured.row(f"lone_{kind}", scale.kinds_players, "ns_per_event", figures, note, judged=not scale.smoke)
