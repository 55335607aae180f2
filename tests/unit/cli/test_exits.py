"""Whatever goes wrong is one sentence on standard error and an exit code that says what kind of wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import rankd
from rankd import errors
from rankd.cli.exits import ExitCode, code_of
from rankd.cli.target import Target
from rankd.config.model import Config
from rankd.folder import note_server

from .conftest import Run

Output = Callable[..., str]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidValue("score", "is no number"), ExitCode.REFUSED),
        (errors.BoardUnknown("there is none"), ExitCode.REFUSED),
        (errors.Forbidden("no"), ExitCode.REFUSED),
        (errors.RateExceeded("too many", 10, 1), ExitCode.UNAVAILABLE),
        (errors.LedgerUnavailable("the disk is full"), ExitCode.UNAVAILABLE),
        (errors.FolderLocked("in use"), ExitCode.LOCKED),
        (errors.LedgerDamaged("a seal is broken"), ExitCode.DAMAGED),
        (errors.LedgerNewer("upgrade"), ExitCode.DAMAGED),
        (errors.RanksNewer("upgrade"), ExitCode.DAMAGED),
        (errors.SnapshotNewer("upgrade"), ExitCode.DAMAGED),
        (errors.VerificationFailed("they differ"), ExitCode.DAMAGED),
    ],
)
def test_each_kind_of_error_has_its_code(error: errors.RankdError, code: ExitCode) -> None:
    assert code_of(error) == code


def test_a_folder_in_use_says_by_whom_and_what_to_do(run: Run) -> None:
    Path("rankd.toml").write_text("[server]\nport = 9001\n")
    with rankd.open("rankd-data"):
        by_library = run("top", "arcade")
        note_server(Path("rankd-data"), "http://127.0.0.1:9002")  # as a server does, wherever it listens
        reading, proving = run("top", "arcade"), run("verify")

    assert (reading.exit_code, proving.exit_code) == (4, 4)
    assert reading.stderr == (
        f"error: rankd-data is in use by process {os.getpid()}; use --url http://127.0.0.1:9002, or stop it first\n"
    )
    assert (
        by_library.stderr == proving.stderr == f"error: rankd-data is in use by process {os.getpid()}; stop it first\n"
    )


def test_a_check_goes_on_beside_a_folder_in_use(run: Run) -> None:
    with rankd.open("rankd-data"):
        checked = run("boards", "check", "arcade", "--set", "keep=sum")

    assert checked.exit_code == 0
    assert checked.stderr.startswith("not compared with the present board: rankd-data is in use")


def test_a_server_that_is_not_there_is_unavailable(run: Run) -> None:
    # Port 1 is nobody's.
    missing = run("top", "arcade", "--url", "http://127.0.0.1:1")

    assert missing.exit_code == 3
    assert "http://127.0.0.1:1/v1/boards/arcade/top?limit=10 cannot be reached" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("top", "arcade", "--data", "d", "--url", "http://x"), "give --data or --url, not both"),
        (("top", "arcade", "--token", "rk_secret"), "--token is for a server; give --url too."),
        (("top",), "Missing argument 'BOARD'. See rankd top --help."),
        (("tpo",), "No such command 'tpo'. Did you mean 'top'? See rankd --help."),
        (("top", "arcade", "--limit", "many"), "Invalid value for '--limit' / '-n': "),
        (("top", "arcade", "--ranking", "best"), "Invalid value for '--ranking': 'best' is not one of"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(arguments: tuple[str, ...], message: str, run: Run) -> None:
    wrong = run(*arguments)

    assert wrong.exit_code == 2
    assert wrong.stderr.startswith(f"error: {message}")
    assert wrong.stderr.count("\n") == 1


def test_a_folder_that_is_named_wins_over_a_server_of_the_environment(done: Output) -> None:
    done("boards", "put", "arcade", "--set", "keep=sum", "--data", "scores", RANKD_URL="http://127.0.0.1:1")

    assert done("boards", "list", "--data", "scores", RANKD_URL="http://127.0.0.1:1").startswith("arcade")


def test_a_fault_of_the_program_is_a_sentence_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr(Target, "of", break_down)
    broken, debugged = run("top", "arcade"), run("top", "arcade", RANKD_DEBUG="1")

    assert broken.exit_code == 1
    assert broken.stderr.startswith("error: ZeroDivisionError: of nothing; this is a bug of rankd: RANKD_DEBUG=1")
    assert "Traceback" in debugged.stderr


def test_no_secret_and_no_control_character_is_in_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise errors.Refused("redis://u:hunter2@r says \x1b[2J\nno to rk_0123456789abcdef_secret")

    monkeypatch.setattr(Target, "of", refuse)
    message = run("top", "arcade").stderr

    assert message == "error: redis://u:***@r says \\x1b[2J no to ***\n"


def test_an_interruption_is_silent(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Target, "of", interrupt)
    stopped = run("top", "arcade")

    assert (stopped.exit_code, stopped.stderr) == (130, "")


def test_a_server_is_started_with_what_the_command_line_says(done: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Config] = []
    fake = SimpleNamespace(serve=lambda config, **_more: started.append(config), run=started.append)
    monkeypatch.setitem(sys.modules, "rankd.serving", fake)
    Path("rankd.toml").write_text('[server]\nport = 9000\nlog_level = "error"\n')
    done("serve", "--data", "scores", "--host", "::", "--port", "9002")

    (config,) = started
    assert (config.ledger.url, config.server.host, config.server.port) == ("sqlite:scores", "::", 9002)
    assert config.server.log_level == "error"


def test_a_server_beside_another_says_so(run: Run) -> None:
    with rankd.open("scores"):
        refused = run("serve", "--data", "scores", "--port", "0")

    assert refused.exit_code == 4
    assert refused.stderr.splitlines()[-1] == f"error: scores is in use by process {os.getpid()}; stop it first"
