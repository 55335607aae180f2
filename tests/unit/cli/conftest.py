"""The command line in a folder of the test's own, without a process of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rankd.cli.main import app

Run = Callable[..., Result]
STYLES = re.compile(r"\x1b\[[0-9;]*m")


def plain(text: str) -> str:
    """What a terminal shows, without its colours."""
    return STYLES.sub("", text)


def words(text: str) -> str:
    """What a terminal shows, without colours and wherever its lines break."""
    return " ".join(plain(text).split())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command where a pipe reads, or a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("RANKD_")]:
        monkeypatch.delenv(name)
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    runner = CliRunner()

    def invoke(*arguments: str, terminal: bool = False, sent: str | None = None, **environment: str) -> Result:
        looks = {"FORCE_COLOR": "1", "COLUMNS": "80"} if terminal else {}
        return runner.invoke(app, arguments, input=sent, env={**looks, **environment}, prog_name="rankd")

    return invoke


@pytest.fixture
def done(run: Run) -> Callable[..., str]:
    """Run a command that goes well, and return what it prints."""

    def invoke(*arguments: str, **how: object) -> str:
        result = run(*arguments, **how)
        assert result.exit_code == 0, result.output
        return result.stdout

    return invoke


@pytest.fixture
def arcade(done: Callable[..., str]) -> None:
    """A board with four scores."""
    done(
        "boards",
        "put",
        "arcade",
        "--set",
        "windows=all_time,weekly",
        "--set",
        "scopes=country",
        "--set",
        "title=Arcade",
    )
    done("submit", "arcade", "alice", "12976", "--attribute", "country=BR")
    done("submit", "arcade", "bob", "965")
    done("submit", "arcade", "carol", "965")
    done("submit", "arcade", "dora", "-5")
