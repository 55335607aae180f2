"""`rankd boards`: definitions in from files and options, out as tables, lines and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run, words

Output = Callable[..., str]


def shown(done: Output, board: str = "arcade") -> dict[str, object]:
    definition: dict[str, object] = json.loads(done("boards", "show", board, "--json"))
    return definition


def test_a_board_is_defined_by_options(done: Output) -> None:
    done(
        *("boards", "put", "arcade", "--set", "windows=all_time, daily", "--set", "keep.daily=first"),
        *("--set", "score_min=0", "--set", "title=12", "--set", "decay=null", "--set", "open=false"),
    )
    definition = shown(done)

    assert definition["windows"] == ["all_time", "daily"]
    assert definition["keep"] == {"all_time": "best", "daily": "first"}
    assert (definition["score_min"], definition["title"], definition["open"]) == (0, "12", False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("arcade.json", '{"keep": "sum", "scopes": ["country"]}'),
        ("arcade.toml", 'keep = "sum"\nscopes = ["country"]\n'),
        ("rankd.toml", '[boards.arcade]\nkeep = "sum"\nscopes = ["country"]\n[boards.xp]\n'),
        ("arcade", 'keep = "sum"\nscopes = ["country"]\n'),
        ("arcade.txt", ' {"id": "arcade", "keep": "sum", "scopes": ["country"]}'),
    ],
)
def test_a_board_is_defined_by_a_file(name: str, text: str, done: Output) -> None:
    Path(name).write_text(text)
    done("boards", "put", "arcade", name)

    assert (shown(done)["keep"], shown(done)["scopes"]) == ("sum", ["country"])


def test_a_board_is_defined_from_a_pipe_and_what_is_shown_can_be_put(done: Output) -> None:
    done("boards", "put", "arcade", "-", sent='{"keep": "sum"}')
    definition = done("boards", "show", "arcade", "--json")

    assert json.loads(done("boards", "put", "arcade", "-", "--json", sent=definition))["changed"] is False


def test_a_file_and_options_go_together(done: Output) -> None:
    Path("arcade.toml").write_text('keep = "sum"\n')
    done("boards", "put", "arcade", "arcade.toml", "--set", "title=Arcade")

    assert (shown(done)["keep"], shown(done)["title"]) == ("sum", "Arcade")


def test_options_alone_leave_the_rest_as_it_is(done: Output, arcade: None) -> None:
    done("boards", "put", "arcade", "--set", "open=false")

    assert (shown(done)["title"], shown(done)["open"], shown(done)["scopes"]) == ("Arcade", False, ["country"])


def test_on_a_terminal_it_says_what_changed(done: Output, arcade: None) -> None:
    again = ("boards", "put", "arcade", "--set", "title=B")

    assert words(done(*again, terminal=True)) == "arcade has changed: title"
    assert words(done(*again, terminal=True)) == "arcade is as it was"
    new = done("boards", "put", "laps", "--set", "order=asc", terminal=True)
    assert words(new) == "laps is defined; a score counts in up to 1 place"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("put", "arcade"), 2, "give the definition: a FILE, -, or --set NAME=VALUE."),
        (("put", "Arcade", "--set", "keep=best"), 1, "board: must be 1 to 64 of"),
        (("put", "arcade", "--set", "kepe=best"), 1, "--set: 'kepe' is no option of a board; did you mean keep?"),
        (("put", "arcade", "--set", "keep"), 1, "--set: must be a name and a value, such as keep=best; got 'keep'"),
        (("put", "arcade", "--set", "keep=bst"), 1, "keep: must be one of"),
        (("put", "arcade", "--set", "score_max=many"), 1, "score_max: must be an integer; got text"),
        (("put", "arcade", "missing.toml"), 1, "missing.toml: cannot be read: No such file or directory"),
        (("show", "arcade"), 1, "--data: there are no boards in rankd-data"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_made(arguments: tuple[str, ...], code: int, message: str, run: Run) -> None:
    refused = run("boards", *arguments)

    assert refused.exit_code == code
    assert refused.stderr.startswith(f"error: {message}")
    assert not (Path("rankd-data") / "ledger.db").exists() or arguments[0] == "put"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "a.json: is not JSON: input data was truncated"),
        ("a.toml", "keep", "a.toml: is not TOML: expected '='"),
        ("a.json", '{"id": "b"}', "id: must be arcade, or be left out; got 'b'"),
        ("a.toml", "[boards.arcde]\n", "a.toml: defines no board arcade; did you mean arcde?"),
        ("a.toml", "[boards]\narcade = 1\n", "a.toml: must be an object"),
    ],
)
def test_a_file_that_is_none_is_named(name: str, text: str, message: str, run: Run) -> None:
    Path(name).write_text(text)

    assert run("boards", "put", "arcade", name).stderr.startswith(f"error: {message}")


def test_a_file_that_is_no_text_is_named(run: Run) -> None:
    Path("a.toml").write_bytes(b"\xff")

    assert "a.toml: is not UTF-8" in run("boards", "put", "arcade", "a.toml").stderr


def test_boards_are_listed(done: Output, arcade: None) -> None:
    done("boards", "put", "xp", "--set", "keep=sum", "--set", "open=false")

    assert done("boards", "list").splitlines() == [
        "arcade\tArcade\tbest\tall_time,weekly\tcountry\topen",
        "xp\txp\tsum\tall_time\t\tclosed",
    ]
    assert [board["id"] for board in json.loads(done("boards", "list", "--json"))["boards"]] == ["arcade", "xp"]
    assert "all_time, weekly" in done("boards", "list", terminal=True)


def test_boards_are_searched_for(done: Output, arcade: None) -> None:
    done("boards", "put", "xp", "--set", "title=Arena")

    assert [line.split("\t")[0] for line in done("boards", "list", "--search", "AR").splitlines()] == ["arcade", "xp"]
    assert [line.split("\t")[0] for line in done("boards", "list", "--search", "aren").splitlines()] == ["xp"]
    assert json.loads(done("boards", "list", "--search", "z", "--json")) == {"boards": [], "next": None}
    assert words(done("boards", "list", "--search", "z", terminal=True)) == "No board's id or title begins with z."


def test_a_definition_is_shown_whole(done: Output, arcade: None) -> None:
    lines = dict(line.split("\t") for line in done("boards", "show", "arcade").splitlines())

    assert lines["id"] == "arcade"
    assert (lines["windows"], lines["late_by"], lines["team"]) == ('["all_time","weekly"]', "5m", "null")
    assert "all_time" in done("boards", "show", "arcade", terminal=True)


def test_a_check_needs_no_folder_and_makes_none(done: Output) -> None:
    Path("arcade.toml").write_text('windows = ["all_time", "daily"]\nscopes = ["country"]\n')
    lines = done("boards", "check", "arcade", "arcade.toml").splitlines()

    assert lines[0] == "arcade\tis valid; it was not compared with a board"
    assert lines[1] == "arcade\ta score counts in up to 4 places: 2 windows × 2 scopes (global, country)"
    assert "daily: past windows stay in memory for ever" in lines[2]
    assert not Path("rankd-data").exists()


def test_a_check_says_what_would_change_and_changes_nothing(done: Output, run: Run, arcade: None) -> None:
    checked = json.loads(done("boards", "check", "arcade", "--set", "title=New", "--json"))
    refused = run("boards", "check", "arcade", "--set", "windows=weekly")

    assert (checked["is_new"], checked["changes"]) == (False, ["title"])
    assert refused.exit_code == 1
    assert "windows: cannot be taken away" in refused.stderr
    assert shown(done)["title"] == "Arcade"
    assert "would be a new board" in done("boards", "check", "other", "--set", "keep=sum")
    same = done("boards", "check", "arcade", "--set", "title=Arcade", terminal=True)
    assert "arcade is what the board is already" in words(same)


def test_a_check_counts_the_boards_that_are_fed(done: Output, run: Run, arcade: None) -> None:
    output = done("boards", "check", "frame", "--set", "feeds=arcade")

    assert "up to 5 places: 1 window × 1 scope (global), and 4 of arcade" in output
    assert "feeds: frame feeds xp, which is not defined" in run("boards", "check", "frame", "--set", "feeds=xp").stderr


def test_a_check_refuses_what_lets_one_score_touch_too_much(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKD_LIMITS_INSTANCES_PER_EVENT_MAX", "3")
    refused = run("boards", "check", "arcade", "--set", "windows=all_time,daily", "--set", "scopes=country")

    assert refused.exit_code == 1
    assert "touch 4 instances, and 3 is the most" in " ".join(refused.stderr.split())


def test_a_check_warns_of_what_people_regret(done: Output) -> None:
    output = done("boards", "check", "arcade", "--set", "writes=players", "--set", "open=false", "--set", "shards=4")

    assert "a modified game can send any score" in output
    assert "set score_max and score_min to refuse impossible ones" in output
    assert "it accepts no scores until open is true" in output
    assert "shards and exact_top have no effect" in output


def test_a_check_in_a_folder_that_was_named_wants_it_there(run: Run) -> None:
    assert run("boards", "check", "arcade", "--set", "keep=sum", "--data", "elsewhere").exit_code == 1


def test_a_board_is_deleted_only_when_that_is_sure(done: Output, run: Run, arcade: None) -> None:
    asked = run("boards", "delete", "arcade")

    assert asked.exit_code == 2
    assert "add --yes to delete the board" in asked.stderr
    assert json.loads(done("boards", "delete", "arcade", "--yes", "--json"))["changed"] is True
    assert "board: there is no board 'arcade'" in run("boards", "delete", "arcade", "--yes").stderr
