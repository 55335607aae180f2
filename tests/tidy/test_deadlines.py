"""No test waits without a deadline: one that hangs would keep the others from being reported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from .repository import files_ending, shown

WAITS = ("acquire", "communicate", "join", "result", "wait")  # of locks, processes, threads, futures, events and queues
RUNS = ("call", "check_call", "check_output", "run")  # of subprocess


def waits_without_deadline(tree: ast.AST) -> Iterator[int]:
    """Give the lines of calls that may last for ever. What is awaited ends with its event loop's own deadline."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_subprocess = isinstance(node.func.value, ast.Name) and node.func.value.id == "subprocess"
            is_bare_wait = node.func.attr in WAITS and not node.args and not node.keywords
            is_bare_run = of_subprocess and node.func.attr in RUNS and "timeout" not in {k.arg for k in node.keywords}
            if is_bare_wait or is_bare_run:
                yield node.lineno
        if isinstance(node, ast.With):
            opened = [ast.unparse(item.context_expr) for item in node.items]
            if any(expression.startswith("subprocess.Popen(") for expression in opened):
                yield node.lineno
        yield from waits_without_deadline(node)


def found(path: Path) -> list[str]:
    return [f"{shown(path)}:{line}" for line in waits_without_deadline(ast.parse(path.read_text()))]


def test_every_wait_of_a_test_has_a_deadline() -> None:
    without = [place for path in files_ending(".py", under="tests") for place in found(path)]

    assert not without, "give a timeout; `join_all` and `killed_at_the_end` of tests/servers help"


def test_waits_without_a_deadline_are_found() -> None:
    lines = (
        "thread.join()",
        "process.communicate()",
        "assert semaphore.acquire()",
        "future.result()",
        "subprocess.run(['ls'], check=True)",
        "with subprocess.Popen(['ls']) as child: pass",
        "thread.join(5)",
        "process.wait(timeout=5)",
        "lock.acquire(blocking=False)",
        "future.result(5)",
        "subprocess.run(['ls'], timeout=5)",
        "', '.join(names)",
        "with killed_at_the_end(subprocess.Popen(['ls'])) as child: pass",
    )

    assert list(waits_without_deadline(ast.parse("\n".join(lines)))) == [1, 2, 3, 4, 5, 6]
