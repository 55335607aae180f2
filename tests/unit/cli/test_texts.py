"""What is shown cannot harm the terminal it is shown on, and reads as people write."""

from __future__ import annotations

import pytest

from rankd.cli.standings import BoardFormat, change_text, entries_table
from rankd.cli.texts import field, instant_text, score_text, share_text
from rankd.domain.text import escaped
from rankd.reads.answers import Entry, Page


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\rb\nc\td", r"a\rb\nc\td"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202ednuor yaw gnorw", r"\u202ednuor yaw gnorw"),
        ("a\u2028b", r"a\u2028b"),
        ("half \ud83d", r"half \ud83d"),
        ("\u200b", r"\u200b"),
    ],
)
def test_what_could_command_a_terminal_is_escaped(hostile: str, shown: str) -> None:
    assert escaped(hostile) == shown


@pytest.mark.parametrize("text", ["alice", "Zoë", "日本語", "👩\u200d🚀", "\u0646\u200c\u0645", "[bold]x[/bold]"])
def test_what_people_are_called_is_left_as_it_is(text: str) -> None:
    assert escaped(text) == text


def test_a_name_is_no_markup() -> None:
    page = Page(board="b", window="all_time", scope="global", total=1, position="0-1", as_of=0, entries=[])
    entry = Entry(1, "[red]x[/red]", 5, None, name="\x1b[31mred")
    drawn = entries_table(page, [entry], BoardFormat("b", 0, "UTC"))
    cells = [[str(cell) for cell in column.cells] for column in drawn.columns]  # type: ignore[union-attr]

    assert cells == [["1"], ["[red]x[/red]"], [r"\x1b[31mred"], ["5"]]


def test_a_field_stays_one_field() -> None:
    assert field("a\tb\nc") == r"a\tb\nc"
    assert field("Zoë \u202e") == r"Zoë \u202e"
    assert (field(None), field(0), field(False), field(1.5)) == ("", "0", "false", "1.5")


@pytest.mark.parametrize(
    ("score", "decimals", "shown"),
    [
        (0, 0, "0"),
        (-1234567, 0, "-1,234,567"),
        (0, 2, "0.00"),
        (5, 2, "0.05"),
        (-5, 2, "-0.05"),
        (-123456789, 3, "-123,456.789"),
        (2**63 - 1, 18, "9.223372036854775807"),
    ],
)
def test_a_score_is_shown_as_its_board_says(score: int, decimals: int, shown: str) -> None:
    assert score_text(score, decimals) == shown


def test_a_time_zone_that_is_not_known_here_is_utc() -> None:
    assert instant_text(1_777_896_000_000, "Mars/Olympus") == "2026-05-04 12:00:00"


@pytest.mark.parametrize(
    ("percent", "shown"), [(0.0, "0 %"), (100.0, "100 %"), (50.0, "50 %"), (33.3333, "33.33 %"), (99.9999, "99.9999 %")]
)
def test_a_share_differs_from_none_and_all(percent: float, shown: str) -> None:
    assert share_text(percent) == shown


def test_a_change_of_place_has_its_direction() -> None:
    assert [str(change_text(change)) for change in (2, -3, 0)] == ["▲ 2", "▼ 3", "the same place"]
