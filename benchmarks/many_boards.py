"""One folder with many boards beside one with few: what a further board, its first score and its top cost.

    define → first score → top, each on boards that are new in the round, by turns with the folder of few boards

Processor time of the whole process, since every call but the last waits for the disk. Other threads have nothing to do
meanwhile but upkeep, which is a part of what boards cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import rankd
from benchmarks.contender import without_garbage_collection
from benchmarks.disk import folder_on_disk
from benchmarks.figures import RANKD, SMALLER, Row, Scale, Series

WINDOWS = ["all_time", "weekly", "daily"]
UNIT = "processor_ns_per_call"
Asked = Callable[[rankd.Boards, str, int], int]


def many_board_rows(scale: Scale) -> Iterator[Row]:
    """All rows of one number of boards."""
    series: dict[str, Series] = {name: Series() for name in CALLS}
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        subjects = {
            RANKD: _opened(stack, folder / "many", scale.many_boards),
            SMALLER: _opened(stack, folder / "few", scale.many_boards_smaller),
        }
        for number in range(scale.rounds):
            boards = [f"round-{number}-{index}" for index in range(scale.many_boards_calls)]
            for name, asked in CALLS.items():
                for side, subject in subjects.items():
                    series[name].add(side, *_turn(subject, boards, asked))
    note = f"smaller: the same with {scale.many_boards_smaller} boards"
    for name, found in series.items():
        yield found.row(name, scale.many_boards, UNIT, note=note, judged=not scale.smoke)


def _opened(stack: ExitStack, folder: Path, boards: int) -> rankd.Boards:
    opened = stack.enter_context(rankd.open(folder))
    for number in range(boards):
        opened.define(f"board-{number}", windows=WINDOWS)
        opened.submit(f"board-{number}", "alice", number)
    opened.snapshot()
    return opened


def _turn(subject: rankd.Boards, boards: list[str], asked: Asked) -> tuple[float, int]:
    """Return the cost of a call, and the sum of what all answered."""
    checksum = 0
    with without_garbage_collection():
        began_ns = time.process_time_ns()
        for score, board in enumerate(boards, start=1):
            checksum += asked(subject, board, score)
        spent_ns = time.process_time_ns() - began_ns
    return spent_ns / len(boards), checksum


def _define(subject: rankd.Boards, board: str, _score: int) -> int:
    return int(subject.define(board, windows=WINDOWS).changed)


def _first_score(subject: rankd.Boards, board: str, score: int) -> int:
    submitted = subject.submit(board, "bob", score)
    return score + submitted.rank if submitted.rank is not None else 0


def _top(subject: rankd.Boards, board: str, _score: int) -> int:
    return sum(entry.score for entry in subject.top(board, 10).entries)


CALLS: dict[str, Asked] = {
    "many_boards_define": _define,
    "many_boards_first_score": _first_score,
    "many_boards_top": _top,
}
