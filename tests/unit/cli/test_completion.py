"""Names of boards for the shell: at once, from wherever the command would ask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import rankd

from .conftest import Run

Output = Callable[..., str]


def offered(run: Run, typed: str, **environment: str) -> list[str]:
    """What bash would offer after a line."""
    words = {"_RANKD_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)}
    return run(**words, **environment).stdout.split()


def test_commands_are_completed(run: Run) -> None:
    assert offered(run, "rankd reb") == ["rebuild"]


def test_boards_are_completed_from_the_folder(run: Run, done: Output, arcade: None) -> None:
    done("boards", "put", "frame", "--set", "keep=sum")

    assert offered(run, "rankd top ") == ["arcade", "frame"]
    assert offered(run, "rankd boards show fr") == ["frame"]


def test_a_folder_in_use_is_no_hindrance(run: Run, arcade: None) -> None:
    with rankd.open("rankd-data"):
        assert offered(run, "rankd top a") == ["arcade"]


def test_the_folder_that_was_named_is_asked(run: Run, done: Output) -> None:
    done("boards", "put", "laps", "--set", "order=asc", "--data", "scores")

    assert offered(run, "rankd top --data scores l") == ["laps"]


def test_where_there_is_nothing_nothing_is_offered_and_nothing_made(run: Run) -> None:
    assert offered(run, "rankd top ") == []
    assert offered(run, "rankd top ", RANKD_URL="http://127.0.0.1:1") == []
    assert not Path("rankd-data").exists()


def test_scopes_of_a_key_are_completed(run: Run) -> None:
    assert offered(run, "rankd token --scope sc") == ["scores:write"]
