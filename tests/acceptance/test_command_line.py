"""The program as people run it: one story on a data folder, and the same commands on a server."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.servers.processes import killed_at_the_end

from .serving import serving

WAIT_S = 60
AGAIN_S = 15
HOLD = "import rankd, sys\nwith rankd.open('rankd-data'):\n    print('open', flush=True)\n    sys.stdin.read()\n"

Ran = subprocess.CompletedProcess[str]
Run = Callable[..., Ran]


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment without what would speak to the program."""
    ours = ("RANKD_", "FORCE_COLOR", "NO_COLOR", "COLUMNS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run the program in a folder of the test's own."""

    def invoke(*arguments: str, sent: str = "", **variables: str) -> Ran:
        return subprocess.run(
            [sys.executable, "-m", "rankd", *arguments],
            cwd=tmp_path,
            env={**environment, **variables},
            input=sent,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    return invoke


# A shell lets what it runs in the background ignore interruptions, and so does whatever that runs.
pytestmark = pytest.mark.timeout(300)  # some thirty processes, one after the other
LISTENING = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def said(ran: Ran) -> str:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_a_board_from_its_definition_to_its_proof(run: Run, tmp_path: Path) -> None:
    (tmp_path / "arcade.toml").write_text('keep = "best"\nwindows = ["all_time", "weekly"]\nscopes = ["country"]\n')
    assert said(run("boards", "check", "arcade", "arcade.toml")).startswith("arcade\tis valid")
    assert not (tmp_path / "rankd-data").exists()
    assert said(run("boards", "put", "arcade", "arcade.toml")) == "arcade\t0-1\ttrue\n"

    first = run("submit", "arcade", "alice", "976", "--attribute", "country=BR", "--key", "match-1", "--json")
    again = run("submit", "arcade", "alice", "976", "--attribute", "country=BR", "--key", "match-1", "--json")
    assert json.loads(said(again)) == {**json.loads(said(first)), "repeated": True}

    scores = "".join(f"p{number},{number}\n" for number in range(500))
    assert (
        said(run("import", "arcade", "-", "--format", "csv", sent=f"player,score\n{scores}")) == "500\t500\t0\t0\t0\n"
    )
    assert [line.split("\t")[:3] for line in said(run("top", "arcade", "-n", "2")).splitlines()] == [
        ["1", "alice", "976"],
        ["2", "p499", "499"],
    ]
    assert json.loads(said(run("top", "arcade", "--scope", "country:BR", "--json")))["total"] == 1
    assert said(run("rank", "arcade", "p499", "--window", "weekly")).startswith("2\tp499\t499\t")
    assert len(said(run("around", "arcade", "p250", "--above", "2", "--below", "3")).splitlines()) == 6

    assert said(run("export", "arcade", "out.ndjson")).startswith("arcade\tall_time\tglobal\t501\t")
    assert len((tmp_path / "out.ndjson").read_text().splitlines()) == 501
    assert json.loads(said(run("verify", "--json"))) == {"events": 502, "instances": 4, "entries": 1004}
    assert json.loads(said(run("rebuild", "--json")))["differed"] == []
    assert said(run("migrate")).startswith("rankd-data\t")

    assert run("boards", "put", "arcade", "--set", "order=asc").returncode == 1
    assert said(run("boards", "delete", "arcade", "--yes")).endswith("\ttrue\n")
    assert said(run("boards", "list")) == ""


def test_errors_are_sentences_with_their_exit_codes(run: Run, tmp_path: Path) -> None:
    said(run("boards", "put", "arcade", "--set", "keep=best"))
    wrong, absent, misspelt = run("submit", "arcade", "alice", "9.5"), run("rank", "arcade", "nobody"), run("tpo")

    assert (wrong.returncode, absent.returncode, misspelt.returncode) == (1, 1, 2)
    for ran in (wrong, absent, misspelt):
        assert ran.stdout == ""
        assert ran.stderr.startswith("error: ")
        assert ran.stderr.count("\n") == 1
    assert run("top", "arcade", "--url", "http://127.0.0.1:1").returncode == 3
    (tmp_path / "rankd-data" / "ledger.db").write_bytes(b"no database at all" * 100)
    damaged = run("top", "arcade")
    assert damaged.returncode == 5
    assert "Traceback" not in damaged.stderr


def test_a_folder_that_another_process_uses_is_left_alone(
    run: Run, tmp_path: Path, environment: dict[str, str]
) -> None:
    with killed_at_the_end(
        subprocess.Popen(
            [sys.executable, "-c", HOLD],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "open\n"
        locked, made = run("top", "arcade"), run("token", "--scope", "scores:write", "--json")
        holder.stdin.close()
        assert holder.wait(WAIT_S) == 0

    assert locked.returncode == 4
    assert f"rankd-data is in use by process {holder.pid}; stop it first" in locked.stderr
    assert json.loads(said(made))["token"].startswith("rk_")


def test_a_folder_that_a_server_uses_is_named_with_the_servers_url(run: Run, tmp_path: Path) -> None:
    with serving(tmp_path / "scores", config='[server]\nhost = "0.0.0.0"\n') as server:
        locked = run("top", "arcade", "--data", "scores")

    assert locked.returncode == 4
    assert f"scores is in use by process {server.process.pid}; use --url {server.url}, or stop it" in locked.stderr


def test_a_reader_that_has_enough_is_no_error(run: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    said(run("boards", "put", "arcade", "--set", "keep=best"))
    scores = "".join(f"player-{number:060},{number}\n" for number in range(3_000))
    said(run("import", "arcade", "-", "--format", "csv", sent=f"player,score\n{scores}"))
    for arguments in (["top", "arcade", "-n", "1000"], ["export", "arcade", "-"]):
        with killed_at_the_end(
            subprocess.Popen(
                [sys.executable, "-m", "rankd", *arguments],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        ) as writer:
            assert writer.stdout is not None
            assert writer.stderr is not None
            assert writer.stdout.read(10)
            writer.stdout.close()
            assert (writer.stderr.read(), writer.wait(WAIT_S)) == (b"", 0)


def test_a_terminal_gets_a_table_in_colours(run: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    said(run("boards", "put", "arcade", "--set", "title=Arcade"))
    said(run("submit", "arcade", "日本語", "1234567"))
    shown = on_a_terminal(["top", "arcade"], tmp_path, {**environment, "TERM": "xterm", "COLUMNS": "80"})

    assert "1,234,567" in shown
    assert "日本語" in shown
    assert "\x1b[" in shown


def on_a_terminal(arguments: list[str], folder: Path, environment: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    with killed_at_the_end(
        subprocess.Popen(
            [sys.executable, "-m", "rankd", *arguments], cwd=folder, env=environment, stdout=theirs, stderr=theirs
        )
    ) as shown:
        os.close(theirs)
        pieces = []
        deadline = time.monotonic() + WAIT_S
        while select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                pieces.append(os.read(ours, 4096))
            except OSError:  # the other end is closed
                break
        os.close(ours)
        assert shown.wait(WAIT_S) == 0
    return b"".join(pieces).decode()


def test_an_interruption_ends_it_silently(tmp_path: Path, environment: dict[str, str]) -> None:
    os.mkfifo(tmp_path / "slow.toml")
    with killed_at_the_end(
        subprocess.Popen(
            [sys.executable, "-c", LISTENING, "-m", "rankd", "boards", "put", "arcade", "slow.toml"],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
        )
    ) as waiting:
        assert waiting.stderr is not None
        writer = opened_when_read(tmp_path / "slow.toml")
        interrupt(waiting)
        os.close(writer)
        assert (waiting.stderr.read(), waiting.wait(WAIT_S)) == (b"", 130)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Press the key until it ends: one that comes between opening and reading is taken for one that came before.

    Not soon again: one that comes while the interpreter ends kills it.
    """
    deadline = time.monotonic() + WAIT_S
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(AGAIN_S)


def opened_when_read(fifo: Path) -> int:
    """Open a fifo for writing as soon as somebody reads it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline, "nobody reads"
            select.select([], [], [], 0.01)


def test_the_same_commands_ask_a_server(run: Run, tmp_path: Path) -> None:
    with serving(tmp_path / "rankd-data") as server:
        at = {"RANKD_URL": server.url, "RANKD_TOKEN": server.admin_key}
        said(run("boards", "put", "arcade", "--set", "keep=best", **at))
        sent = json.loads(said(run("submit", "arcade", "alice", "976", "--json", **at)))
        with server.client() as client:
            for path, command in {
                "boards": ("boards", "list"),
                "boards/arcade": ("boards", "show", "arcade"),
            }.items():
                assert said(run(*command, "--json", **at)).rstrip("\n") == client.get(f"/v1/{path}").text
            page = client.get("/v1/boards/arcade/top").json()
        asked = json.loads(said(run("top", "arcade", "--json", **at)))
        locked = run("top", "arcade", "--data", "rankd-data")
        anonymous = run("submit", "arcade", "alice", "977", "--url", server.url)
        unknown = run("top", "nothing", **at)
        made = json.loads(said(run("token", "--data", "rankd-data", "--scope", "scores:write", "--json")))

    assert sent["rank"] == 1
    assert {**asked, "as_of": None} == {**page, "as_of": None}
    assert locked.returncode == 4
    assert (anonymous.returncode, unknown.returncode) == (1, 1)
    assert "credential" in anonymous.stderr
    assert {"token", "id", "name"} <= made.keys()
