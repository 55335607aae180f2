"""`rankd submit`, `top`, `rank` and `around` on a data folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

import rankd

from .conftest import Run, plain

pytestmark = pytest.mark.usefixtures("arcade")
Output = Callable[..., str]


def test_a_score_is_answered_with_the_rank(done: Output) -> None:
    assert done("submit", "arcade", "erin", "2000").split("\t")[:5] == ["2", "erin", "2000", "true", "all_time"]


def test_on_a_terminal_it_is_a_sentence(done: Output) -> None:
    shown = plain(done("submit", "arcade", "bob", "20000", terminal=True))

    assert shown.strip() == "bob has 20,000 (before: 965) and is number 1 (▲ 1) in Arcade, all_time"


def test_a_score_that_changes_nothing_says_so(done: Output) -> None:
    assert "this score did not change it" in plain(done("submit", "arcade", "bob", "1", terminal=True)).replace(
        "\n", " "
    )


def test_everything_that_belongs_to_a_score_can_be_sent(done: Output) -> None:
    done(
        *("submit", "arcade", "zed", "7", "--attribute", "country=FR", "--metadata", '{"replay": "r-17"}'),
        *("--tiebreak", "3", "--key", "match-1"),
    )
    page = json.loads(done("top", "arcade", "--scope", "country:FR", "--json"))

    assert [(entry["player"], entry["metadata"]) for entry in page["entries"]] == [("zed", {"replay": "r-17"})]


def test_a_key_makes_a_repeat_harmless(done: Output) -> None:
    first = json.loads(done("submit", "arcade", "bob", "1", "--key", "k", "--json"))
    again = json.loads(done("submit", "arcade", "bob", "1", "--key", "k", "--json"))

    assert again == {**first, "repeated": True}


def test_a_time_is_ms_or_a_date(run: Run) -> None:
    assert "ago; this board takes events up to" in run("submit", "arcade", "bob", "1", "--at", "1000").stderr
    assert "ahead of this server" in run("submit", "arcade", "bob", "1", "--at", "2199-01-01T00:00:00Z").stderr
    assert "at: must be milliseconds or RFC 3339" in run("submit", "arcade", "bob", "1", "--at", "noon").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bob", "9.5"), "score: must be a whole number; got '9.5'"),
        (("bob", "1e3"), "score: must be a whole number; got '1e3'"),
        (("bob", "٣"), "score: must be a whole number"),
        (("bob", "9" * 30), "score: must be from"),
        (("..", "9"), "player: must not be '..'"),
        (("bob", "9", "--attribute", "BR"), "--attribute: must be a name and a value"),
        (("bob", "9", "--metadata", "[1]"), "--metadata: must be a JSON object"),
        (("bob", "9", "--metadata", "{"), "--metadata: must be a JSON object"),
    ],
)
def test_a_bad_value_is_refused_in_a_sentence(arguments: tuple[str, ...], message: str, run: Run) -> None:
    refused = run("submit", "arcade", *arguments)

    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"error: {message}")
    assert refused.stdout == ""


def test_a_slip_in_an_option_is_no_score(run: Run) -> None:
    assert run("submit", "arcade", "bob", "--tiebrek").exit_code == 2
    assert run("submit", "arcade", "bob", "5", "--tiebrek", "5").exit_code == 2


def test_in_a_pipe_a_page_is_lines_of_fields(done: Output) -> None:
    lines = [line.split("\t") for line in done("top", "arcade").splitlines()]

    assert [line[:3] for line in lines] == [
        ["1", "alice", "12976"], ["2", "bob", "965"], ["3", "carol", "965"], ["4", "dora", "-5"],
    ]  # fmt: skip
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z", line[3]) for line in lines)
    assert {len(line) for line in lines} == {6}


def test_on_a_terminal_it_is_a_table(done: Output) -> None:
    shown = plain(done("top", "arcade", "--ranking", "competition", terminal=True))

    assert shown.startswith("Arcade · all_time · global · 4 players")
    assert re.search(r"^ +rank +player +score +reached \(UTC\) *$", shown, re.MULTILINE)
    assert re.search(r"^ +1 +alice +12,976 +\d{4}-", shown, re.MULTILINE)
    assert re.search(r"^ +=2 +bob +965 ", shown, re.MULTILINE)
    assert re.search(r"^ +4 +dora +-5 ", shown, re.MULTILINE)


def test_colours_can_be_refused(done: Output) -> None:
    assert "\x1b[3" not in done("top", "arcade", terminal=True, NO_COLOR="1")


def test_wide_characters_keep_the_columns_in_line(done: Output) -> None:
    done("submit", "arcade", "日本語", "3")
    shown = plain(done("top", "arcade", terminal=True)).splitlines()
    (wide,) = [line for line in shown if "日本語" in line]
    (narrow,) = [line for line in shown if "alice" in line]

    assert len(narrow) - len(wide) == 3


def test_a_window_and_a_scope_can_be_named(done: Output) -> None:
    page = json.loads(done("top", "arcade", "--window", "weekly", "--scope", "country:BR", "--json"))

    assert page["window"].startswith("weekly:")
    assert [entry["player"] for entry in page["entries"]] == ["alice"]


def test_json_is_what_the_library_answers(done: Output) -> None:
    page = json.loads(done("top", "arcade", "--limit", "2", "--json"))
    with rankd.open("rankd-data") as boards:
        expected = tuple(name for name in rankd.Page.__struct_fields__ if name != "source")  # of the archive
        assert boards.top("arcade", 2).next == page["next"]

    assert tuple(page) == expected


def test_a_page_goes_on_behind_the_one_before(done: Output) -> None:
    first = json.loads(done("top", "arcade", "-n", "3", "--json"))
    rest = done("top", "arcade", "--cursor", first["next"])

    assert rest.split("\t")[:2] == ["4", "dora"]
    assert done("top", "arcade", "--offset", "3").split("\t")[:2] == ["4", "dora"]


def test_an_empty_board_says_so(done: Output) -> None:
    done("boards", "put", "empty", "--set", "keep=sum")

    assert "There are no scores." in done("top", "empty", terminal=True)
    assert done("top", "empty") == ""


def test_a_player_is_shown_with_everything_known(done: Output) -> None:
    shown = plain(done("rank", "arcade", "bob", terminal=True))

    assert re.search(r"rank +2 of 4", shown)
    assert re.search(r"ahead of +50 %", shown)
    assert done("rank", "arcade", "bob").split("\t")[:3] == ["2", "bob", "965"]
    assert json.loads(done("rank", "arcade", "bob", "--json"))["percentile"] == 50


def test_somebody_who_does_not_stand_there_is_no_fault(run: Run) -> None:
    for command in ("rank", "around"):
        absent = run(command, "arcade", "nobody", "--window", "weekly")
        assert absent.exit_code == 1
        assert absent.stderr == "error: player: nobody has no score on arcade in weekly; submit one first\n"


def test_neighbours_are_shown_with_the_player_marked(done: Output) -> None:
    command = ("around", "arcade", "bob", "--above", "1", "--below", "1")

    assert [line.split("\t")[1] for line in done(*command).splitlines()] == ["alice", "bob", "carol"]
    assert re.search(r"▸ 2 +bob", plain(done(*command, terminal=True)))


def test_scores_with_decimals_are_shown_with_them(done: Output) -> None:
    done("boards", "put", "laps", "--set", "decimals=3", "--set", "order=asc", "--set", "time_zone=America/Sao_Paulo")
    done("submit", "laps", "bob", "1083250")

    assert re.search(r"bob +1,083\.250 ", plain(done("top", "laps", terminal=True)))
    assert "reached (America/Sao_Paulo)" in plain(done("top", "laps", terminal=True))
    assert done("top", "laps").split("\t")[2] == "1083250"
