"""What files are called, how long they are, and which of them there must and must not be."""

from __future__ import annotations

import os
import re
import tomllib

import pytest

from .repository import NATIVE, PYTHON, ROOT, files, files_ending, shown

PYTHON_LINES_MAX = 500
NATIVE_LINES_MAX = 500
NAMES_THAT_SAY_NOTHING = {"util", "utils", "helper", "helpers", "common", "misc"}
LOCK_FILES = {"uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml"}


@pytest.mark.parametrize(("suffixes", "lines_max"), [(PYTHON, PYTHON_LINES_MAX), (NATIVE, NATIVE_LINES_MAX)])
def test_a_file_fits_on_a_few_screens(suffixes: tuple[str, ...], lines_max: int) -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in files_ending(*suffixes)}
    too_long = {name: lines for name, lines in lengths.items() if lines > lines_max}

    assert not too_long, f"more than {lines_max} lines: find the second subject in it and cut there"


def test_names_say_what_is_inside() -> None:
    for path in files():
        words = {word for part in path.relative_to(ROOT).parts for word in re.split(r"[^a-z]+", part.lower())}
        assert not words & NAMES_THAT_SAY_NOTHING, f"{shown(path)}: name it after what it does"


def test_no_lock_file_is_committed() -> None:
    """They record where packages were fetched from; constraints.txt pins without saying so."""
    assert not [shown(path) for path in files() if path.name in LOCK_FILES]


def test_the_license_is_apache() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "LICENSE" in project["license-files"]


def test_continuous_integration_runs_what_a_developer_runs() -> None:
    script = ROOT / ".ci" / "run"

    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()
    assert "CI=true" in script.read_text()
