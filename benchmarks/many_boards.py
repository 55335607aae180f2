"""One folder with many boards beside one with few: what a further board, its first score and its top cost.

    define → first score → top, each on boards that are new in the round, by turns with the folder of few boards
    midnight: the first score of the local day on each of some boards, while the roll-overs of all are appended

Processor time of the whole process, since every call but the last waits for the disk. Other threads have nothing to do
meanwhile but upkeep, which is a part of what boards cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

import rankd
from benchmarks.contender import without_garbage_collection
from benchmarks.disk import folder_on_disk
from benchmarks.embedded_subject import BEGIN_MS
from benchmarks.figures import RANKD, SMALLER, Row, Scale, Series
from rankd.node.open_embedded import embedded_of

WINDOWS = ["all_time", "weekly", "daily"]
TIME_ZONE = "America/Sao_Paulo"
UNIT = "processor_ns_per_call"
FILLED_TOGETHER = 1_000
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Subject:
    """A folder with some boards, and its clock."""

    boards: rankd.Boards
    clock: rankd.ManualClock


Asked = Callable[[Subject, str, int], int]


def many_board_rows(scale: Scale) -> Iterator[Row]:
    """All rows, for each number of boards."""
    for boards in scale.many_boards:
        yield from _rows_of(scale, boards)


def _rows_of(scale: Scale, boards: int) -> Iterator[Row]:
    series: dict[str, Series] = {name: Series() for name in (*CALLS, MIDNIGHT)}
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        subjects = {
            RANKD: _opened(stack, folder / "many", boards),
            SMALLER: _opened(stack, folder / "few", scale.many_boards_smaller),
        }
        for number in range(scale.rounds):
            names = [f"round-{number}-{index}" for index in range(scale.many_boards_calls)]
            for name, asked in CALLS.items():
                for side, subject in subjects.items():
                    series[name].add(side, *_turn(subject, names, asked))
        first = [f"round-0-{index}" for index in range(scale.many_boards_calls)]
        waits_ms: dict[str, list[float]] = {side: [] for side in subjects}
        rolled_s: dict[str, list[float]] = {side: [] for side in subjects}
        for _ in range(scale.rounds):
            for side, subject in subjects.items():
                subject.clock.advance(DAY_MS)
                series[MIDNIGHT].add(side, *_turn(subject, first, _first_score))
                longest_ms, roll_over_s = _beside_roll_overs(subject, first)
                waits_ms[side].append(longest_ms)
                rolled_s[side].append(roll_over_s)
    note = f"smaller: the same with {scale.many_boards_smaller} boards"
    for name, row_series in series.items():
        extra = {}
        if name == MIDNIGHT:
            extra = {f"longest_wait_ms_{side}": median(waits) for side, waits in waits_ms.items()}
            extra |= {f"roll_over_s_{side}": median(spent) for side, spent in rolled_s.items()}
        yield row_series.row(name, boards, UNIT, extra, note, judged=not scale.smoke)


def _opened(stack: ExitStack, folder: Path, number: int) -> Subject:
    clock = rankd.ManualClock(BEGIN_MS)
    boards = stack.enter_context(rankd.open(folder, clock=clock))
    names = [f"board-{index}" for index in range(number)]
    for name in names:
        boards.define(name, windows=WINDOWS, time_zone=TIME_ZONE)
    for first in range(0, number, FILLED_TOGETHER):
        some = names[first : first + FILLED_TOGETHER]
        boards.submit_events([{"board": name, "player": "alice", "score": 1} for name in some])
    boards.snapshot()
    return Subject(boards, clock)


def _turn(subject: Subject, names: Sequence[str], asked: Asked) -> tuple[float, int]:
    """Return the cost of a call, and the sum of what all answered."""
    checksum = 0
    with without_garbage_collection():
        began_ns = time.process_time_ns()
        for score, name in enumerate(names, start=1):
            checksum += asked(subject, name, score)
        spent_ns = time.process_time_ns() - began_ns
    return spent_ns / len(names), checksum


def _beside_roll_overs(subject: Subject, names: Sequence[str]) -> tuple[float, float]:
    """Append all roll-overs as upkeep does; return the longest wait of a score or a read meanwhile, and the seconds."""
    subject.clock.advance(DAY_MS)
    began_s = time.perf_counter()
    longest_s = 0.0
    with ThreadPoolExecutor(1) as upkeep:
        settled = upkeep.submit(embedded_of(subject.boards).append_roll_overs)
        for turn in count():
            asked_s = time.perf_counter()
            if settled.done():
                break
            name = names[turn // 2 % len(names)]
            (_first_score if turn % 2 else _top)(subject, name, turn)
            longest_s = max(longest_s, time.perf_counter() - asked_s)
        settled.result()
    return longest_s * 1_000, time.perf_counter() - began_s


def _define(subject: Subject, board: str, _score: int) -> int:
    return int(subject.boards.define(board, windows=WINDOWS, time_zone=TIME_ZONE).changed)


def _first_score(subject: Subject, board: str, score: int) -> int:
    submitted = subject.boards.submit(board, "bob", score)
    return score + submitted.rank if submitted.rank is not None else 0


def _top(subject: Subject, board: str, _score: int) -> int:
    return sum(entry.score for entry in subject.boards.top(board, 10).entries)


CALLS: dict[str, Asked] = {
    "many_boards_define": _define,
    "many_boards_first_score": _first_score,
    "many_boards_top": _top,
}
MIDNIGHT = "many_boards_midnight"
