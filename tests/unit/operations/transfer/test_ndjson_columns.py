"""Lines of NDJSON that hold columns: each is many events, as if each had a line of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankd import Boards
from rankd.errors import LedgerUnavailable
from rankd.operations.transfer import BadLine, import_scores

from .targets import Interrupted

NOON = 1_777_896_000_000


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "scores.ndjson"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def arcade(boards: Boards) -> Boards:
    boards.define("arcade", scopes=["country", "level"], ties="value", score_max=1_000)
    return boards


def test_a_line_of_columns_is_many_events(arcade: Boards, tmp_path: Path) -> None:
    columns = {
        "board": "arcade",
        "player": ["alice", "bob", "Zoë"],
        "score": [5, 7, 6],
        "tiebreak": [1, None, 3],
        "attributes": {"country": ["BR", None, "FR"], "level": 7},
        "metadata": [{"car": "red"}, None, {"car": "blue"}],
        "name": ["ignored", 1, {}],
    }
    report = import_scores(arcade, "arcade", write(tmp_path, columns, {"player": "dan", "score": 4}))

    assert (report.lines, report.imported) == (4, 4)
    assert [(entry.player, entry.tiebreak, entry.metadata) for entry in arcade.top("arcade").entries] == [
        ("bob", 0, None),
        ("Zoë", 3, {"car": "blue"}),
        ("alice", 1, {"car": "red"}),
        ("dan", 0, None),
    ]
    assert [entry.player for entry in arcade.top("arcade", scope="country:BR").entries] == ["alice"]
    assert arcade.top("arcade", scope="level:7").total == 3


def test_it_stands_as_lines_of_one_event_do(boards: Boards, tmp_path: Path) -> None:
    for board in ("a", "b"):
        boards.define(board, scopes=["country"], keep="latest")
    lines = [
        {"player": f"p{n % 5}", "score": n, "at": NOON - 100 + n, "attributes": {"country": "BR" if n % 2 else "FR"}}
        for n in range(40)
    ]
    columns = {name: [line[name] for line in lines] for name in ("player", "score", "at")}
    columns["attributes"] = {"country": [line["attributes"]["country"] for line in lines]}  # type: ignore[index,assignment]
    import_scores(boards, "a", write(tmp_path, *lines))
    import_scores(boards, "b", write(tmp_path, columns))

    for scope in ("global", "country:BR", "country:FR"):
        assert boards.top("a", 50, scope=scope).entries == boards.top("b", 50, scope=scope).entries


@pytest.mark.parametrize("name", ["tiebreak", "at", "metadata", "attributes"])
def test_one_value_counts_for_all_events(arcade: Boards, tmp_path: Path, name: str) -> None:
    value = {"tiebreak": 3, "at": NOON - 10, "metadata": {"car": "red"}, "attributes": {"country": "BR"}}[name]
    import_scores(arcade, "arcade", write(tmp_path, {"player": ["a", "b"], "score": [1, 2], name: value}))

    scope = "country:BR" if name == "attributes" else "global"
    entries = arcade.top("arcade", scope=scope).entries
    assert len(entries) == 2
    if name in ("tiebreak", "metadata"):
        assert [getattr(entry, name) for entry in entries] == [value, value]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"score": [1]}, "score: must be as many as player; 1 and 2 are there"),
        ({"player": ["a"]}, "score: must be as many as player; 2 and 1 are there"),
        ({"attributes": {"country": ["BR"]}}, "attributes.country: must be as many as player; 1 and 2 are there"),
        ({"at": [NOON]}, "at: must be as many as player; 1 and 2 are there"),
        ({"metadata": [None]}, "metadata: must be as many as player; 1 and 2 are there"),
        ({"score": 5}, "score: expected `array`, got `int`"),
        ({"player": "a"}, "player: expected `array`, got `str`"),
        ({"score": [1, 2.5]}, "score[1]: expected `int`, got `float`"),
        ({"player": ["a", None]}, "player[1]: expected `str`, got `null`"),
        ({"attributes": {"country": ["BR", ["x"]]}}, "attributes[...][1]: expected `int | str | null`, got `array`"),
        ({"scores": [1, 2]}, "line: has a field that is unknown: 'scores' is not known here; did you mean score?"),
    ],
)
def test_columns_that_do_not_fit_name_the_field_and_the_line(
    arcade: Boards, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    bad = {"player": ["a", "b"], "score": [1, 2], **changed}
    report = import_scores(arcade, "arcade", write(tmp_path, {"player": "c", "score": 1}, bad))

    assert report.refused
    assert report.bad == [BadLine(2, message)]
    assert arcade.top("arcade").total == 0


def test_an_event_that_the_board_refuses_is_named_by_its_place(arcade: Boards, tmp_path: Path) -> None:
    columns = {
        "player": ["a", "b\n", "c", "d", "e"],
        "score": [1, 2, 1_001, 4, 5],
        "metadata": [None, None, None, 7, None],
        "board": [None, None, None, None, "chess"],
    }
    report = import_scores(arcade, "arcade", write(tmp_path, {"player": "z", "score": 1}, columns), skip_bad_lines=True)

    assert [(line.number, line.problem.split(":")[0:2]) for line in report.bad] == [
        (2, ["event 2", " player"]),
        (2, ["event 3", " score"]),
        (2, ["event 4", " metadata"]),
        (2, ["event 5", " board"]),
    ]
    assert (report.lines, report.imported, report.skipped) == (6, 2, 4)


def test_an_interrupted_import_counts_each_event_once(boards: Boards, tmp_path: Path) -> None:
    boards.define("xp", keep="sum")
    lines = [
        {"player": [f"p{n % 10}" for n in range(start, start + 19)], "score": list(range(start, start + 19))}
        for start in range(0, 95, 19)
    ]
    path = write(tmp_path, *lines)
    with pytest.raises(LedgerUnavailable):
        import_scores(Interrupted(boards, 4, is_answered=False), "xp", path, batch_events=10, destination="here")
    report = import_scores(boards, "xp", path, batch_events=10, destination="here")

    assert (report.lines, report.imported, report.repeated) == (95, 55, 40)
    assert {entry.player: entry.score for entry in boards.top("xp", 10).entries} == {
        f"p{n}": sum(range(n, 95, 10)) for n in range(10)
    }


def test_columns_without_events_are_nothing(arcade: Boards, tmp_path: Path) -> None:
    report = import_scores(arcade, "arcade", write(tmp_path, {"player": [], "score": []}, {"player": "a", "score": 1}))
    assert (report.lines, report.imported) == (1, 1)
