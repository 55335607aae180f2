"""Whatever players call themselves, no command prints what a terminal would obey."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

import rankd
from rankd.domain.text import escaped, escaped_json

from .conftest import Run, plain

TURNED = "\u202e\u2066\u200e\u061c\u200b"
COMMANDING = "\x1b[2J\x1b]0;title\x07\x9b31m\x7f\r" + TURNED
PLAYER = f"ali{TURNED}ce"
HOSTILE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
ENDS_S = 60
REPOSITORY = Path(__file__).parents[3]
COMMANDS = {
    "top": ("top", "arcade"),
    "rank": ("rank", "arcade", PLAYER),
    "around": ("around", "arcade", PLAYER),
    "course": ("course", "arcade", PLAYER),
    "submit": ("submit", "arcade", PLAYER, "5"),
    "boards list": ("boards", "list"),
    "boards show": ("boards", "show", "arcade"),
    "boards check": ("boards", "check", "arcade", "--set", f"description={TURNED}"),
    "token list": ("token", "list"),
    "verify": ("verify",),
    "rebuild": ("rebuild",),
    "export": ("export", "arcade", f"{TURNED}.csv"),
    "migrate": ("migrate",),
}
REFUSED = {
    "no such player": ("rank", "arcade", COMMANDING.replace("\x00", "")),
    "no such board": ("top", COMMANDING),
    "no such option": ("top", "arcade", f"--{COMMANDING}"),
    "no such file": ("import", "arcade", f"{COMMANDING}.csv"),
    "bad metadata": ("submit", "arcade", "bob", "5", "--metadata", COMMANDING),
    "no such folder": ("top", "arcade", "--data", COMMANDING),
    "bad lines": ("import", "arcade", "bad.csv"),
    "no such key": ("token", "revoke", COMMANDING),
}


def check_harmless(text: str) -> None:
    assert "\r" not in text
    hostile = [character for character in plain(text) if unicodedata.category(character) in HOSTILE]
    assert set(hostile) <= {"\n", "\t"}, ascii(hostile)


@pytest.fixture
def hostile(tmp_path: Path, run: Run, done: Callable[..., str]) -> None:
    """A folder in which everything that may be hostile is."""
    with rankd.open("rankd-data") as boards:
        boards.define("arcade", title=f"Arc{TURNED}ade", scopes=["country"])
        boards.submit(
            "arcade", PLAYER, 976, attributes={"country": TURNED}, metadata={f"re{COMMANDING}play": COMMANDING}
        )
        boards.set_player(PLAYER, name=f"Al{TURNED}ice", country="BR")
        boards.submit("arcade", "bob", 965)
    done("token", "--player", PLAYER, "--name", f"na{TURNED}me")
    (tmp_path / "bad.csv").write_text(f"player,score\nbob,{COMMANDING[:-8]}\n{COMMANDING[:-8]},5\n")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_what_is_printed_commands_no_terminal(hostile: None, run: Run, command: str, terminal: bool) -> None:
    result = run(*COMMANDS[command], terminal=terminal)

    assert result.exit_code == 0, result.output
    check_harmless(result.stdout)
    check_harmless(result.stderr)


@pytest.mark.parametrize("command", COMMANDS)
def test_json_commands_no_terminal_and_holds_what_there_is(hostile: None, run: Run, command: str) -> None:
    printed = run(*COMMANDS[command], "--json").stdout

    check_harmless(printed)
    if command in ("top", "rank", "submit"):
        assert PLAYER in json.dumps(json.loads(printed), ensure_ascii=False)
    if command in ("top", "rank"):
        assert f"Al{TURNED}ice" in json.dumps(json.loads(printed), ensure_ascii=False)


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("debug", ["0", "1"], ids=["sentence", "trace"])
def test_errors_command_no_terminal(hostile: None, run: Run, refused: str, terminal: bool, debug: str) -> None:
    result = run(*REFUSED[refused], terminal=terminal, RANKD_DEBUG=debug)

    assert result.exit_code != 0
    assert result.stderr or "bad line" in result.stdout
    check_harmless(result.stdout)
    check_harmless(result.stderr)


def test_a_configuration_is_shown_as_toml_reads_it(run: Run, tmp_path: Path) -> None:
    text = json.dumps(COMMANDING)  # TOML has JSON's escapes
    (tmp_path / "rankd.toml").write_text(f"[boards.arcade]\ntitle = {text}\ndescription = {text}\n")

    for terminal in (True, False):
        check_harmless(run("config", "show", terminal=terminal, COLUMNS="400").output)
        check_harmless(run("config", "check", terminal=terminal).output)


@pytest.mark.parametrize("asked", ["csv", "ndjson"])
def test_standings_are_escaped_on_a_terminal_and_exact_in_a_pipe(hostile: None, tmp_path: Path, asked: str) -> None:
    command = exporting(tmp_path, asked)
    piped = subprocess.run(command, capture_output=True, check=True, timeout=ENDS_S, cwd=REPOSITORY).stdout.decode()
    assert PLAYER in piped

    shown, _ = on_a_terminal(command)
    check_harmless(shown)
    assert escaped(PLAYER) in shown
    if asked == "ndjson":
        assert json.loads(shown.splitlines()[0])["player"] == PLAYER


def test_what_is_no_text_is_not_written_to_a_terminal(hostile: None, tmp_path: Path) -> None:
    shown, errors = on_a_terminal(exporting(tmp_path, "parquet"))

    assert not shown
    assert "a terminal shows text only" in errors


def exporting(folder: Path, asked: str) -> list[str]:
    data = str(folder / "rankd-data")
    return [sys.executable, "-m", "rankd", "export", "arcade", "-", "--format", asked, "--data", data]


def on_a_terminal(command: list[str]) -> tuple[str, str]:
    """Return what a command prints where its standard output is a terminal, and what goes to standard error."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, cwd=REPOSITORY)
    os.close(theirs)
    printed = b""
    try:
        while piece := os.read(ours, 4_096):
            printed += piece
    except OSError:  # how a terminal says that nobody writes any more
        pass
    finally:
        os.close(ours)
        _, errors = process.communicate(timeout=ENDS_S)
    return printed.decode().replace("\r\n", "\n"), errors.decode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("al\u200dice", r"al\u200dice"),  # beside ASCII, a joiner only makes two ids look alike
        ("\u200dé", r"\u200dé"),
        ("é\u200d\u200dé", r"é\u200d\u200dé"),
        ("👩\u200d🚀", "👩\u200d🚀"),
        ("\u0646\u200c\u0645", "\u0646\u200c\u0645"),
        ("👩🏽\u200d❤\ufe0f\u200d👩", "👩🏽\u200d❤\ufe0f\u200d👩"),
        ("\U0001d173", r"\U0001d173"),
    ],
)
def test_joiners_stay_where_words_and_emoji_are_made_with_them(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_escaped_json_holds_the_same_values() -> None:
    value = {f"{COMMANDING}": [COMMANDING, "\U0001d173 \U000e0041", "Zoë 👩\u200d🚀"]}
    encoded = json.dumps(value, ensure_ascii=False)

    assert json.loads(escaped_json(encoded)) == value
    check_harmless(escaped_json(encoded).replace("\u200d", ""))
