"""No load in a test is without a bound: one that nobody stops would take the machine from all others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from .repository import files_ending, shown

STOPS = (".is_set()", ".wait(")  # of an event by which somebody else ends a loop
BOUNDS = (".take()", "time.monotonic() <")  # of a LoadBound, or a deadline
LOAD = "Load"  # how the name of a load generator's class ends


def loops_without_bound(tree: ast.AST) -> Iterator[int]:
    """Give the lines of loops that last until somebody stops them, and of load generators without a LoadBound."""
    for node in ast.walk(tree):
        match node:
            case ast.While():
                until = ast.unparse(node.test)
                is_stopped = any(stop in until for stop in STOPS)
                is_bounded = not is_stopped or any(bound in until for bound in BOUNDS)
            case ast.For():
                is_bounded = not ast.unparse(node.iter).startswith(("count(", "itertools.count("))
            case ast.ClassDef():
                is_bounded = not node.name.endswith(LOAD) or "LoadBound(" in ast.unparse(node)
            case _:
                continue
        if not is_bounded:
            yield node.lineno


def found(path: Path) -> list[str]:
    return [f"{shown(path)}:{line}" for line in loops_without_bound(ast.parse(path.read_text()))]


def test_every_load_of_a_test_has_a_bound() -> None:
    without = [place for path in files_ending(".py", under="tests") for place in found(path)]

    assert not without, "end the loop by `LoadBound.take` of tests/servers/load_bound.py"


def test_loads_without_a_bound_are_found() -> None:
    lines = (
        "while not stop.is_set(): send()",
        "while not self._stop.wait(0.01): send()",
        "for number in count(): send(number)",
        "class SteadyLoad: pass",
        "while not stop.is_set() and bound.take(): send()",
        "while not stop.wait(0.01) and time.monotonic() < ends_s: send()",
        "for number in range(count()): send(number)",
        "class BriefLoad: bound = LoadBound()",
    )

    assert list(loops_without_bound(ast.parse("\n".join(lines)))) == [1, 2, 3, 4]
