"""Whoever asks for help gets it, with an example."""

from __future__ import annotations

from typing import Any

import pytest
from typer.main import get_command

from rankd import __version__
from rankd.cli.main import app

from .conftest import Run

COMMANDS = {
    "serve", "demo", "token", "boards", "submit", "top", "rank", "around", "course", "import", "export", "verify",
    "rebuild", "config", "migrate", "project",
}  # fmt: skip


def paths(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command there is, groups among them."""
    all_paths = [path]
    for name, inner in getattr(command, "commands", {}).items():
        all_paths += paths(inner, (*path, name))
    return all_paths


ALL = paths(get_command(app))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_a_help_with_an_example_of_itself(path: tuple[str, ...], run: Run) -> None:
    shown = run(*path, "--help", COLUMNS="200")
    before, _, after = shown.stdout.partition("Example")

    assert shown.exit_code == 0
    assert " ".join(("rankd", *path)) in after
    assert f"Usage: {' '.join(('rankd', *path))}" in before


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_is_explained(path: tuple[str, ...]) -> None:
    command: Any = get_command(app)
    for name in path:
        command = command.commands[name]

    assert [parameter.name for parameter in command.params if not parameter.help] == []


def test_every_command_of_the_contract_is_there() -> None:
    assert {path[0] for path in ALL if path} >= COMMANDS
    assert {path[1] for path in ALL if path[:1] == ("boards",) and len(path) == 2} == {
        "list", "show", "put", "check", "delete",
    }  # fmt: skip


def test_no_command_shows_what_there_is(run: Run) -> None:
    shown = run()

    assert shown.exit_code == 2
    assert "Scores and ranks" in shown.output


def test_the_version_is_shown(run: Run) -> None:
    assert run("--version").stdout == f"rankd {__version__}\n"
