"""Who may import whom; the contracts themselves stand in pyproject.toml."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .repository import ROOT, files_ending, shown

LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
CLOCKS = {"now", "today", "utcnow"}


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_contracts_are_kept() -> None:
    command: list[str | Path] = [LINT_IMPORTS, "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_only_its_python_face_knows_the_native_engine() -> None:
    """The contracts cannot see this: import-linter reads source, and the engine has none in Python."""
    importers = [
        shown(path)
        for path in files_ending(".py", under="src")
        if any("_engine" in name.split(".") for name in imports_of(path))
    ]

    assert importers == ["src/rankd/projection/engine.py"]


def test_the_rules_ask_no_clock_and_open_no_file() -> None:
    for path in files_ending(".py", under="src/rankd/domain"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            asks = isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS
            opens = isinstance(node.func, ast.Name) and node.func.id in ("open", "print", "input")
            breaks = asks or opens
            assert not breaks, f"{shown(path)}:{node.lineno}: pass the time or the text in"


def test_the_product_imports_no_test_and_no_benchmark() -> None:
    for path in files_ending(".py", under="src"):
        roots = {name.split(".")[0] for name in imports_of(path)}
        assert not roots & {"tests", "benchmarks", "examples", "pytest", "numpy"}, shown(path)
