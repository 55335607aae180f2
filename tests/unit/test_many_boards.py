"""A call does the same work however many boards there are: steps are counted, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rankd
from rankd import Boards, ManualClock
from rankd.node.open_embedded import embedded_of
from rankd.projection.directory import Directory

NOON = 1_777_896_000_000
FEW, MANY = 10, 10_000
MORE_STEPS = 1.05  # a search in an ordered list has a few steps more
WINDOWS = ["all_time", "daily", "weekly"]


class CountedWalk(dict[str, Any]):
    """A dict that takes a step of the interpreter for each item, also where C iterates over it."""

    def _walk(self, items: Iterator[Any]) -> Iterator[Any]:
        yield from (item for item in items)

    def __iter__(self) -> Iterator[str]:
        return self._walk(super().__iter__())

    def keys(self) -> Any:
        return self._walk(iter(super().keys()))

    def values(self) -> Any:
        return self._walk(iter(super().values()))

    def items(self) -> Any:
        return self._walk(iter(super().items()))


def steps_of(work: Callable[[], object]) -> int:
    """Return how many instructions of Python a call executes in this thread."""
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


CALLS: dict[str, Callable[[Boards, str], object]] = {
    "define": lambda boards, board: boards.define(board, windows=WINDOWS),
    "first score": lambda boards, board: boards.submit(board, "ann", 1),
    "score": lambda boards, board: boards.submit(board, "bob", 2),
    "rank": lambda boards, board: boards.rank(board, "ann"),
    "top": lambda boards, board: boards.top(board, 10),
    "batch": lambda boards, board: boards.submit_many(board, [("cid", 3), ("dan", 4)]),
    "definition": lambda boards, board: boards.definition(board),
    "change": lambda boards, board: boards.define(board, windows=WINDOWS, title=f"The {board}"),
    "page of boards": lambda boards, board: boards.boards_page(5),
    "reset": lambda boards, board: boards.reset(board),
    "delete": lambda boards, board: boards.delete(board),
}


def steps_beside(folder: Path, count: int) -> dict[str, int]:
    """Return the steps of each call on a new board beside so many others."""
    with rankd.open(folder, clock=ManualClock(NOON)) as boards:
        state = embedded_of(boards).applier.state
        state.boards = CountedWalk(state.boards)
        for number in range(count):
            boards.define(f"b{number:05}", windows=WINDOWS)
        for call in CALLS.values():
            call(boards, "warm")  # what is made once
        return {name: steps_of(lambda call=call: call(boards, "new")) for name, call in CALLS.items()}  # type: ignore[misc]


def test_a_call_takes_as_many_steps_beside_ten_thousand_boards_as_beside_ten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Directory, "__init__", with_counted_walk(Directory.__init__))
    few, many = steps_beside(tmp_path / "few", FEW), steps_beside(tmp_path / "many", MANY)

    assert {name: (few[name], many[name]) for name in CALLS if many[name] > MORE_STEPS * few[name]} == {}


def with_counted_walk(begin: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, *arguments: Any) -> None:
        begin(self, *arguments)
        self._boards = CountedWalk(self._boards)

    return init
