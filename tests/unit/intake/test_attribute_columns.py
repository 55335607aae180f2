"""Attributes sent as columns: the same as a mapping for each row, checked once for each combination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rankd
from rankd.errors import InvalidValue
from rankd.intake.scores import check_attribute_column

PLAYERS = ["ann", "bob", "cat", "dan", "eve", "fay"]
SCORES = [6, 5, 4, 3, 2, 1]
COLUMNS: dict[str, Any] = {"country": ["BR", "FR", "BR", None, "BR", "FR"], "level": [7, 7, 8, 8, 8, 7]}
ROWS = [
    {"country": "BR", "level": 7},
    {"country": "FR", "level": "7"},
    {"country": "BR", "level": 8},
    {"level": 8},
    {"country": "BR", "level": 8},
    {"country": "FR", "level": "7"},
]


def standings(boards: rankd.Boards) -> dict[str, list[str]]:
    scopes = ["global", "country:BR", "country:FR", "level:7", "level:8"]
    return {scope: [entry.player for entry in boards.top("arcade", 10, scope=scope).entries] for scope in scopes}


@pytest.mark.parametrize("attributes", [COLUMNS, ROWS], ids=["columns", "rows"])
def test_scores_stand_in_the_scopes_of_their_attributes(tmp_path: Path, attributes: Any) -> None:
    with rankd.open(tmp_path) as boards:
        boards.define("arcade", scopes=["country", "level"])
        boards.submit_many("arcade", players=PLAYERS, scores=SCORES, attributes=attributes)
        expected = {
            "global": PLAYERS,
            "country:BR": ["ann", "cat", "eve"],
            "country:FR": ["bob", "fay"],
            "level:7": ["ann", "bob", "fay"],
            "level:8": ["cat", "dan", "eve"],
        }
        assert standings(boards) == expected
    with rankd.open(tmp_path) as boards:
        boards.verify()
        assert standings(boards) == expected


def numpy_columns() -> Any:
    numpy = pytest.importorskip("numpy", reason="this test sends arrays of NumPy: pip install numpy")
    return {
        "country": numpy.array(["BR", "FR", "BR", None, "BR", "FR"], dtype=object),
        "level": numpy.array([7, 7, 8, 8, 8, 7], dtype=numpy.int32),
    }


def arrow_columns() -> Any:
    arrow = pytest.importorskip("pyarrow", reason="this test sends arrays of Arrow: pip install pyarrow")
    return {
        "country": arrow.array(COLUMNS["country"]).dictionary_encode(),
        "level": arrow.chunked_array([[7, 7], [8, 8, 8, 7]]),
    }


def arrow_dictionaries_in_chunks() -> Any:
    arrow = pytest.importorskip("pyarrow", reason="this test sends arrays of Arrow: pip install pyarrow")
    country = arrow.array(COLUMNS["country"]).dictionary_encode()
    return {
        "country": arrow.chunked_array([country[:2], country[2:]]),
        "level": arrow.array(COLUMNS["level"], arrow.int8()),
    }


@pytest.mark.parametrize("columns", [numpy_columns, arrow_columns, arrow_dictionaries_in_chunks])
def test_arrays_of_other_libraries_are_columns_too(columns: Any) -> None:
    assert check_attribute_column(columns(), 6) == check_attribute_column(COLUMNS, 6)


def test_a_table_of_arrow_is_sent_as_it_is(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="this test sends arrays of Arrow: pip install pyarrow")
    table = arrow.table({"player": PLAYERS, "score": SCORES, "country": COLUMNS["country"]})
    with rankd.open(tmp_path) as boards:
        boards.define("arcade", scopes=["country"])
        boards.submit_many(
            "arcade", players=table["player"], scores=table["score"], attributes={"country": table["country"]}
        )

        assert [entry.player for entry in boards.top("arcade", scope="country:BR").entries] == ["ann", "cat", "eve"]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ([1.5] * 6, "attributes[0].level"),
        ([[7, 7]] * 6, "attributes[0].level"),
        ([7] * 5, "attributes.level"),
    ],
)
def test_arrays_that_are_no_column_of_attributes_are_refused(values: list[Any], field: str) -> None:
    numpy = pytest.importorskip("numpy", reason="this test sends arrays of NumPy: pip install numpy")
    with pytest.raises(InvalidValue) as refused:
        check_attribute_column({"level": numpy.array(values)}, 6)
    assert refused.value.field == field


def test_a_number_of_numpy_counts_for_all() -> None:
    numpy = pytest.importorskip("numpy", reason="this test sends numbers of NumPy: pip install numpy")
    assert check_attribute_column({"level": numpy.int64(7)}, 2) == [{"level": "7"}, {"level": "7"}]


def test_one_value_counts_for_all_beside_columns(tmp_path: Path) -> None:
    with rankd.open(tmp_path) as boards:
        boards.define("arcade", scopes=["country", "level"])
        boards.submit_many(
            "arcade", players=PLAYERS, scores=SCORES, attributes={"country": "FR", "level": [7, 7, 8, 8, 8, 7]}
        )

        assert standings(boards)["country:FR"] == PLAYERS


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        ({"country": ["BR", "FR", True, True, "BR", "BR"]}, "attributes[2].country"),
        ({"country": ["BR", "FR", "BR", "", "BR", ""]}, "attributes[3].country"),
        ({"country": ["BR", "FR", "BR", ["BR"], "BR", "BR"]}, "attributes[3].country"),
        ({"country": ["BR", "FR"]}, "attributes.country"),
        ({"Country": ["BR", "FR", "BR", "FR", "BR", "FR"]}, "attributes"),
        ([{"country": "BR"}, None, {"country": 1.5}, {"country": 1.5}, None, None], "attributes[2].country"),
    ],
)
def test_the_first_bad_value_is_named_and_nothing_is_counted(tmp_path: Path, attributes: Any, field: str) -> None:
    with rankd.open(tmp_path) as boards:
        boards.define("arcade", scopes=["country"])
        with pytest.raises(InvalidValue) as refused:
            boards.submit_many("arcade", players=PLAYERS, scores=SCORES, attributes=attributes)

        assert refused.value.field.startswith(field)
        assert boards.top("arcade").total == 0


def test_profiles_fill_in_what_a_column_does_not_say(tmp_path: Path) -> None:
    with rankd.open(tmp_path) as boards:
        boards.define("arcade", scopes=["country", "level"])
        boards.set_player("dan", country="FR")
        boards.submit_many("arcade", players=PLAYERS, scores=SCORES, attributes=COLUMNS)

        assert standings(boards)["country:FR"] == ["bob", "dan", "fay"]


def test_profiles_and_partial_metadata_give_what_single_scores_give(tmp_path: Path) -> None:
    """A column resolves each combination once: attributes sent, those of the profile, metadata or none, bounds."""
    players = ["ann", "bob", "cat", "dan", "eve", "ann", "fay", "bob"]
    sent: list[dict[str, Any] | None] = [
        None,
        {"level": 7},
        {"country": "FR"},
        {},
        {"country": "BR", "level": 8},
        {"country": "FR"},
        None,
        None,
    ]
    metadata = [{"run": 1}, None, None, {"run": 2}, None, {"run": 3}, {"run": 4}, None]
    scores = [5, 60, 7, 80, 9, 100, 2, 30]
    outcomes = []
    for name in ("together", "apart"):
        with rankd.open(tmp_path / name, clock=rankd.ManualClock(1_800_000_000_000)) as boards:
            boards.define("small", scopes=["level", "country"], score_max=50)
            boards.define("arcade", scopes=["country", "level"], keep="latest", feeds=["small"])
            boards.set_player("ann", country="BR", attributes={"level": "7"})
            boards.set_player("bob", country="BR")
            boards.set_player("dan", attributes={"level": "7", "device": "phone"})
            if name == "together":
                boards.submit_many("arcade", players=players, scores=scores, attributes=sent, metadata=metadata)
            else:
                for player, score, attributes, json in zip(players, scores, sent, metadata, strict=True):
                    boards.submit("arcade", player, score, attributes=attributes, metadata=json)
            boards.verify()
            outcomes.append(
                {
                    (board, scope): [
                        (entry.player, entry.score, entry.metadata)
                        for entry in boards.top(board, 10, scope=scope).entries
                    ]
                    for board in ("arcade", "small")
                    for scope in ("global", "country:BR", "country:FR", "level:7", "level:8")
                }
            )

    assert outcomes[0] == outcomes[1]
    assert [player for player, _, _ in outcomes[0]["arcade", "level:7"]] == ["ann", "dan", "bob"]
    assert [player for player, _, _ in outcomes[0]["small", "global"]] == ["bob", "eve", "cat", "ann", "fay"]


def test_the_row_of_one_scope_value_too_many_is_named_when_a_profile_brings_it(tmp_path: Path) -> None:
    with rankd.open(tmp_path) as boards:
        boards.define("arcade", scopes=["country"], scope_values_max=2)
        for player, country in (("ann", "BR"), ("bob", "FR"), ("cat", "BR"), ("dan", "JP")):
            boards.set_player(player, country=country)
        with pytest.raises(InvalidValue) as refused:
            boards.submit_many("arcade", players=["ann", "bob", "cat", "dan"], scores=[1, 2, 3, 4])

        assert refused.value.field == "rows[3].attributes.country"
        assert boards.top("arcade").total == 0


def test_a_score_that_a_fed_board_does_not_take_brings_it_no_scope_value(tmp_path: Path) -> None:
    with rankd.open(tmp_path) as boards:
        boards.define("small", scopes=["country"], scope_values_max=2, score_max=50)
        boards.define("arcade", scopes=["country"], feeds=["small"])
        boards.submit_many(
            "arcade", players=["ann", "bob", "cat"], scores=[5, 60, 6], attributes={"country": ["BR", "FR", "JP"]}
        )

        assert [entry.player for entry in boards.top("small", scope="country:JP").entries] == ["cat"]
