"""`rankd import` and `rankd export` as commands; what they read and write is tested with the package that does it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run, words

pytestmark = pytest.mark.usefixtures("arcade")
Output = Callable[..., str]


def test_a_file_is_imported_once(done: Output) -> None:
    Path("scores.csv").write_text("player,score\nzed,99999\nyan,5\n")

    assert done("import", "arcade", "scores.csv") == "2\t2\t0\t0\t0\n"
    assert done("top", "arcade", "-n", "1").startswith("1\tzed\t99999")
    assert json.loads(done("import", "arcade", "scores.csv", "--json"))["repeated"] == 2
    assert "2 scores imported into arcade" in words(done("import", "arcade", "scores.csv", "--again", terminal=True))


def test_bad_lines_refuse_the_file_unless_they_are_to_be_left_out(run: Run, done: Output) -> None:
    Path("scores.csv").write_text("player,score\nzed,1.5\nyan,5\n")
    refused = run("import", "arcade", "scores.csv")

    assert refused.exit_code == 1
    assert refused.stdout == "2\t0\t0\t0\t1\n"
    assert refused.stderr.startswith("line 2: score: must be a whole number")
    assert run("rank", "arcade", "yan").exit_code == 1
    assert done("import", "arcade", "scores.csv", "--skip-bad-lines") == "2\t1\t0\t1\t1\n"
    assert "Nothing was imported: 1 bad line of 2" in run("import", "arcade", "scores.csv", terminal=True).stdout


def test_many_bad_lines_are_not_all_listed(run: Run) -> None:
    Path("scores.csv").write_text("player,score\n" + "zed,x\n" * 25)
    lines = run("import", "arcade", "scores.csv").stderr.splitlines()

    assert len(lines) == 11
    assert lines[-1] == "… and 15 more; --json lists the first hundred"


def test_standings_are_exported_to_a_file(done: Output) -> None:
    assert done("export", "arcade", "out.csv").split("\t")[:4] == ["arcade", "all_time", "global", "4"]
    assert Path("out.csv").read_text().splitlines()[1].startswith("1,alice,12976,")
    assert "4 players of arcade, all_time, global, written to out.ndjson" in done(
        "export", "arcade", "out.ndjson", terminal=True
    )


def test_a_report_and_standings_do_not_share_an_output(run: Run) -> None:
    assert run("export", "arcade", "-", "--json").exit_code == 2


def test_what_is_no_format_is_said(run: Run) -> None:
    assert "format: cannot be detected from" in run("export", "arcade", "out.txt").stderr
