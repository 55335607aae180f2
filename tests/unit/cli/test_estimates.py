"""Ranks that are estimates, as the command line shows them."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from rankd.cli.standings import BoardFormat, entries_table, standing_lines, standing_table
from rankd.reads.answers import Around, Entry, Page, Standing

LOOK = BoardFormat("Arcade", 0, "UTC")
ABOUT: dict[str, Any] = {
    "board": "arcade",
    "window": "all_time",
    "scope": "global",
    "total": 3_000,
    "position": "0-1",
    "as_of": 0,
    "exact": False,
}
STANDING = Standing(
    **ABOUT,
    rank=2_000,
    rank_min=1_990,
    rank_max=2_015,
    player="bob",
    score=7,
    reached_at=None,
    percentile=33.3,
    top_percent=66.6,
    rank_change=None,
)


@pytest.fixture
def console() -> Console:
    return Console(width=100)


def shown(console: Console, drawn: Any) -> str:
    with console.capture() as captured:
        console.print(drawn)
    return " ".join(captured.get().split())


def test_a_rank_that_is_an_estimate_says_between_which_places_it_is(console: Console) -> None:
    text = shown(console, standing_table(STANDING, LOOK))

    assert "estimated" in text
    assert "about 2,000 of 3,000" in text
    assert "1,990 and 2,015" in text


def test_a_line_ends_with_the_places_it_can_be() -> None:
    (line,) = standing_lines(STANDING)

    assert (line[0], *line[-2:]) == (2_000, 1_990, 2_015)


def test_an_estimate_among_entries_is_marked(console: Console) -> None:
    entry = Entry(2_000, "bob", 7, None, rank_min=1_990, rank_max=2_015)
    around = Around(**ABOUT, above=[], player=entry, below=[])

    assert "▸ ~2,000" in shown(console, entries_table(around, [entry], LOOK, "bob"))


def test_a_page_that_ends_early_says_why(console: Console) -> None:
    page = Page(**ABOUT, entries=[Entry(20, "ann", 9, None)])
    assert "ends with the exact places" in shown(console, entries_table(page, page.entries, LOOK))

    empty = Page(**ABOUT, entries=[])
    assert "No player has an exact place there." in shown(console, entries_table(empty, [], LOOK))
