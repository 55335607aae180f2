"""`rankd course` and `--as-of`: the past on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import rankd

from .conftest import Run, plain, words

NOON = 1_777_896_000_000  # 2026-05-04T12:00:00Z, a Monday
DAY_MS = 86_400_000
Output = Callable[..., str]


@pytest.fixture
def played(tmp_path: Path, run: Run) -> None:
    """A folder in which carol climbs, day by day, from the last place of ten to the first."""
    clock = rankd.ManualClock(NOON)
    with rankd.open("rankd-data", clock=clock) as boards:
        boards.define("arcade", title="Arcade", windows=["all_time", "weekly"], history={"top": "all"})
        boards.submit_many("arcade", [(f"p-{number}", number * 100) for number in range(1, 10)])
        for day in range(10):
            boards.submit("arcade", "carol", 50 + day * 100)
            clock.advance(DAY_MS)
        boards.settle()


@pytest.mark.usefixtures("played")
def test_a_course_is_drawn_with_the_first_place_on_top_and_the_best_marked(done: Output) -> None:
    shown = plain(done("course", "arcade", "carol", terminal=True))
    lines = [line.rstrip() for line in shown.splitlines()]
    picture = [line for line in lines if "┤" in line]
    assert len(picture) == 9
    assert picture[0].startswith(" 1 ┤")
    assert "◆" in picture[0]
    assert picture[-1].startswith("10 ┤●")
    assert "best: 1 of 10 players" in shown
    assert "2026-05-05" in shown


@pytest.mark.usefixtures("played")
def test_a_program_reads_lines_and_json(done: Output) -> None:
    lines = [line.split("\t") for line in done("course", "arcade", "carol", "--window", "weekly").splitlines()]
    assert lines[0] == ["point", "2026-05-05T00:00:00.000Z", "weekly:2026-W19", "10", "50", "10"]
    finals = [line for line in lines if line[0] == "final"]
    assert finals[0][:6] == ["final", "2026-05-11T00:00:00.000Z", "weekly:2026-W19", "4", "650", "10"]
    course = json.loads(done("course", "arcade", "carol", "--json", "--limit", "3"))
    assert course["board"] == "arcade"
    since = done("course", "arcade", "carol", "--since", "2026-05-06T00:00:00Z", "--until", str(NOON + 3 * DAY_MS))
    assert [line.split("\t")[1][:10] for line in since.splitlines()] == ["2026-05-06", "2026-05-07"]


@pytest.mark.usefixtures("played")
def test_who_never_stood_anywhere_has_an_empty_course(done: Output) -> None:
    assert done("course", "arcade", "nobody") == ""
    assert "Nothing is recorded" in done("course", "arcade", "nobody", terminal=True)


@pytest.mark.usefixtures("played")
def test_a_course_of_one_point_and_one_longer_than_the_terminal_are_drawn(done: Output) -> None:
    assert "◆" in done("course", "arcade", "carol", "--limit", "2", terminal=True)
    clock = rankd.ManualClock(NOON + 10 * DAY_MS)
    with rankd.open("rankd-data", clock=clock) as boards:
        for day in range(90):
            boards.submit("arcade", "carol", 2_000 + day)
            clock.advance(DAY_MS)
        boards.settle()
    shown = plain(done("course", "arcade", "carol", terminal=True))
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.usefixtures("played")
def test_ranks_are_shown_as_they_were(done: Output, run: Run) -> None:
    then = ("--as-of", "2026-05-06T12:00:00Z")
    assert done("rank", "arcade", "carol", *then).split("\t")[:3] == ["8", "carol", "250"]
    assert done("top", "arcade", "--limit", "1", "--as-of", str(NOON)).split("\t")[1] == "p-9"
    around = done("around", "arcade", "carol", "--above", "1", "--below", "1", *then)
    assert [line.split("\t")[1] for line in around.splitlines()] == ["p-3", "carol", "p-2"]
    assert "Arcade" in done("top", "arcade", *then, terminal=True)
    refused = run("top", "arcade", "--as-of", "yesterday")
    assert refused.exit_code == 1
    assert "--as-of: must be milliseconds or RFC 3339" in words(refused.stderr)
    early = run("top", "arcade", "--as-of", "5")
    assert "there is no board 'arcade'" in words(early.stderr)
