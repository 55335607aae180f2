"""`rankd audit`: who did what, on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .conftest import Run, plain, words

Output = Callable[..., str]


@pytest.mark.usefixtures("arcade")
def test_a_program_reads_lines_and_json(done: Output) -> None:
    done("submit", "arcade", "alice", "20000")
    lines = [line.split("\t") for line in done("audit", "--player", "alice").splitlines()]
    assert [line[:1] + line[2:9] for line in lines] == [
        ["0-6", "score", "local", "arcade", "alice", "20000", "12976", "20000"],
        ["0-2", "score", "local", "arcade", "alice", "12976", "", "12976"],
    ]
    answered = json.loads(done("audit", "--kind", "define", "--board", "arcade", "--json"))
    assert [event["position"] for event in answered["events"]] == ["0-1"]
    assert answered["next"] is None


@pytest.mark.usefixtures("arcade")
def test_a_terminal_shows_a_table_and_where_older_events_are(done: Output) -> None:
    shown = plain(done("audit", "--limit", "2", terminal=True))
    assert "dora" in shown
    cursor = shown.split("--cursor ")[1].split()[0]
    older = [line.split("\t")[0] for line in done("audit", "--cursor", cursor).splitlines()]
    assert older == ["0-3", "0-2", "0-1"]


@pytest.mark.usefixtures("arcade")
def test_what_is_asked_wrongly_is_refused(run: Run) -> None:
    assert "--since: must be milliseconds or RFC 3339" in words(run("audit", "--since", "yesterday").stderr)
    assert "must be from 1 to 1000" in words(run("audit", "--limit", "0").stderr)
    assert run("audit", "--kind", "scores").exit_code == 2
    assert "cursor: must be the `next`" in words(run("audit", "--cursor", "x").stderr)
