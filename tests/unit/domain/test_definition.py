"""Definitions are read strictly, have the documented defaults, and come back in one canonical form."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankd.domain.definition import NAMES, define_board, definition_of
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE
from rankd.errors import InvalidValue

DEFAULTS: dict[str, object] = {
    "keep": "best",
    "order": "desc",
    "ties": "earliest",
    "tie_resolution": "1s",
    "ranking": "ordinal",
    "windows": ["all_time"],
    "periods": [],
    "time_zone": "UTC",
    "week_starts": "monday",
    "scopes": [],
    "global": True,
    "score_min": -(2**53 - 1),
    "score_max": 2**53 - 1,
    "decimals": 0,
    "late_by": "5m",
    "retention": None,
    "archive_keep": None,
    "archive_top": None,
    "history": None,
    "feeds": [],
    "team": None,
    "decay": None,
    "writes": "server",
    "signing": None,
    "open": True,
    "shards": 1,
    "exact_top": None,
    "scope_values_max": None,
    "title": "arcade",
    "description": None,
}


def test_an_empty_definition_has_every_documented_default() -> None:
    assert definition_of(define_board("arcade", {})) == DEFAULTS


def test_every_option_is_known_by_its_documented_name() -> None:
    assert set(NAMES) == set(DEFAULTS)


def test_saying_the_defaults_is_the_same_as_saying_nothing() -> None:
    assert define_board("arcade", DEFAULTS) == define_board("arcade", {})


@pytest.mark.parametrize("board_id", ["a", "0", "arcade", "a.b_c-d", "a" * 64])
def test_a_board_id_is_short_and_plain(board_id: str) -> None:
    assert define_board(board_id, {}).id == board_id


@pytest.mark.parametrize("board_id", ["", "A", "-a", ".a", "_a", "a b", "a@b", "a:b", "é", "a" * 65, "a\n", None, 7])
def test_any_other_board_id_is_refused(board_id: object) -> None:
    with pytest.raises(InvalidValue, match=r"^board: must be "):
        define_board(board_id, {})


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [
        ("window", "windows"),
        ("timezone", "time_zone"),
        ("orders", "order"),
        ("max_score", "score_max"),
        ("tie", "ties"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known(unknown: str, nearest: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^{unknown}: is not known here; did you mean {nearest}\?"):
        define_board("arcade", {unknown: 1})


def test_a_name_like_none_is_answered_with_all_of_them() -> None:
    with pytest.raises(InvalidValue, match="xyzzy: is not known here; known are title, description, keep"):
        define_board("arcade", {"xyzzy": 1})


@pytest.mark.parametrize("definition", [None, [], "best", 7])
def test_a_definition_is_an_object(definition: object) -> None:
    with pytest.raises(InvalidValue, match=r"^definition: must be an object"):
        define_board("arcade", definition)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keep", None),
        ("keep", 1),
        ("keep", "worst"),
        ("keep", ["best"]),
        ("order", "down"),
        ("order", None),
        ("ties", True),
        ("tie_resolution", "0ms"),
        ("tie_resolution", 1),
        ("ranking", "1224"),
        ("windows", "all_time"),
        ("windows", []),
        ("windows", None),
        ("windows", {"all_time": True}),
        ("windows", ["weekly"] * 17),
        ("periods", "summer"),
        ("time_zone", "Berlin"),
        ("week_starts", "saturday"),
        ("scopes", "country"),
        ("global", 1),
        ("global", "true"),
        ("score_min", 1.0),
        ("score_min", SCORE_MIN_POSSIBLE - 1),
        ("score_max", SCORE_MAX_POSSIBLE + 1),
        ("score_max", True),
        ("decimals", -1),
        ("decimals", 19),
        ("late_by", 300),
        ("late_by", None),
        ("retention", 30),
        ("retention", "forever"),
        ("feeds", "xp"),
        ("feeds", {"xp": True}),
        ("team", "guild"),
        ("decay", 0.9),
        ("writes", "anybody"),
        ("signing", True),
        ("signing", "two words"),
        ("open", None),
        ("shards", 0),
        ("shards", 1.5),
        ("exact_top", 0),
        ("exact_top", "1000"),
        ("scope_values_max", 0),
        ("scope_values_max", 100_000_001),
        ("scope_values_max", "1000"),
        ("title", 7),
        ("title", ""),
        ("title", "a\nb"),
        ("title", "x" * 257),
        ("description", 7),
        ("description", "x" * 4097),
        ("description", "a\x00b"),
    ],
)
def test_a_wrong_type_or_value_is_refused_under_its_fields_name(name: str, value: object) -> None:
    with pytest.raises(InvalidValue) as refused:
        define_board("arcade", {name: value})
    assert refused.value.field == name
    assert len(str(refused.value)) > len(name) + 10


@pytest.mark.parametrize(
    ("definition", "field", "problem"),
    [
        ({"windows": ["all_time", "dayly"]}, "windows[1]", "did you mean daily"),
        ({"windows": ["all_time", "raid"]}, "windows[1]", '"reset": "0 18'),
        ({"windows": ["daily", "daily"]}, "windows[1]", "a second time"),
        ({"windows": ["daily", 7]}, "windows[1]", "must be an object"),
        ({"windows": [{"name": "raid"}]}, "windows[0].reset", "must be a cron expression"),
        ({"windows": ["daily", {"name": "raid", "reset": "0 18 * *"}]}, "windows[1].reset", "five fields"),
        ({"windows": [{"name": "raid", "reset": "0 18 * * 9"}]}, "windows[0].reset", "day-of-week"),
        ({"windows": [{"name": "weekly", "reset": "0 18 * * 5"}]}, "windows[0].name", "has a meaning already"),
        ({"windows": [{"name": "period", "reset": "0 18 * * 5"}]}, "windows[0].name", "has a meaning already"),
        ({"windows": [{"name": "Raid!", "reset": "0 18 * * 5"}]}, "windows[0].name", "beginning with"),
        ({"windows": [{"name": "raid", "rest": "0 18 * * 5"}]}, "windows[0].rest", "did you mean reset"),
        ({"periods": [{"name": "s", "start": 5, "end": 5}]}, "periods[0].end", "must be after start"),
        ({"periods": [{"name": "s", "start": 5}]}, "periods[0].end", "must be integer milliseconds"),
        ({"periods": [{"name": "s", "start": "soon", "end": 5}]}, "periods[0].start", "RFC 3339"),
        ({"periods": [{"name": "S 1", "start": 1, "end": 5}]}, "periods[0].name", "beginning with"),
        ({"periods": [{"name": "previous", "start": 1, "end": 5}]}, "periods[0].name", "taken"),
        ({"periods": [{"name": "s", "start": 1, "end": 5}] * 2}, "periods[1].name", "taken"),
        ({"keep": {"daily": "first"}}, "keep.daily", "known are all_time"),
        ({"keep": {"all_tim": "first"}}, "keep.all_tim", "did you mean all_time"),
        ({"keep": {"period": "first"}}, "keep.period", "is not known here"),
        ({"keep": {"all_time": "worst"}}, "keep.all_time", "must be one of best"),
        ({"keep": {"all_time": None}}, "keep.all_time", "must be one of best"),
        ({"retention": {"all_time": "1d"}}, "retention.all_time", "never ends"),
        ({"retention": {"daily": "1d"}}, "retention.daily", "is not known here"),
        ({"windows": ["daily"], "retention": {"daily": 5}}, "retention.daily", "must be text"),
        ({"archive_keep": {"all_time": "1d"}}, "archive_keep.all_time", "never ends"),
        ({"windows": ["daily"], "archive_keep": "forever"}, "archive_keep", "must be a whole number and"),
        ({"archive_top": 0}, "archive_top", "must be from 1"),
        ({"archive_top": True}, "archive_top", "must be an integer"),
        ({"scopes": ["country", "Level"]}, "scopes[1]", "must be 1 to 64"),
        ({"scopes": ["country", "country"]}, "scopes[1]", "a second time"),
        ({"scopes": ["global"]}, "scopes[0]", "must not be 'global'"),
        ({"global": False}, "global", "no player would be ranked"),
        ({"feeds": ["xp", "xp"]}, "feeds[1]", "a second time"),
        ({"feeds": ["XP"]}, "feeds[0]", "must be 1 to 64"),
        ({"feeds": ["arcade"]}, "feeds", "must not name the board itself"),
        ({"score_min": 5, "score_max": 4}, "score_min", "must not be above score_max"),
    ],
)
def test_a_refusal_names_the_very_place_and_what_would_be_right(
    definition: dict[str, object], field: str, problem: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        define_board("arcade", definition)
    assert refused.value.field == field
    assert problem in refused.value.problem


def test_a_refused_signing_key_is_not_repeated_since_it_may_be_the_secret() -> None:
    with pytest.raises(InvalidValue, match="never the key") as refused:
        define_board("arcade", {"signing": "S3cret!"})
    assert "S3cret" not in str(refused.value)


def test_json_toml_and_keywords_take_the_same_names() -> None:
    toml = """
        keep = {daily = "first", weekly = "sum_of_daily"}
        windows = ["weekly", "daily", {name = "raid", reset = "0 18 * * 5"}]
        scopes = ["country"]
        global = false
        [[periods]]
        name = "summer-26"
        start = 2026-06-01T00:00:00Z
        end = 2026-09-01T00:00:00Z
    """
    text = """{
        "keep": {"daily": "first", "weekly": "sum_of_daily"},
        "windows": ["weekly", "daily", {"name": "raid", "reset": "0 18 * * 5"}],
        "scopes": ["country"], "global": false,
        "periods": [{"name": "summer-26", "start": "2026-06-01T00:00:00Z", "end": 1788220800000}]
    }"""
    keywords = dict[str, object](
        keep={"daily": "first", "weekly": "sum_of_daily"},
        windows=("weekly", "daily", {"name": "raid", "reset": "0 18 * * 5"}),
        scopes=("country",),
        global_=False,
        periods=[{"name": "summer-26", "start": 1780272000000, "end": 1788220800000}],
    )
    boards = [define_board("arcade", given) for given in (tomllib.loads(toml), json.loads(text), keywords)]
    assert boards[0] == boards[1] == boards[2]


def test_a_window_that_keep_does_not_name_keeps_the_best() -> None:
    board = define_board("arcade", {"windows": ["all_time", "daily"], "keep": {"daily": "first"}})
    assert dict(board.keep) == {"all_time": "best", "daily": "first"}


def test_keep_and_retention_speak_of_all_periods_or_of_one() -> None:
    periods = [{"name": name, "start": 0, "end": 86_400_000} for name in ("a", "b")]
    board = define_board(
        "arcade",
        {
            "periods": periods,
            "keep": {"period": "sum", "period:b": "latest"},
            "retention": {"period": "9d", "period:b": None},
        },
    )
    assert dict(board.keep) == {"all_time": "best", "period:a": "sum", "period:b": "latest"}
    assert dict(board.retention_ms) == {"period:a": 9 * 86_400_000}


def test_the_order_of_windows_matters_since_the_first_is_the_default_of_reads() -> None:
    board = define_board("arcade", {"windows": ["daily", "weekly"]})
    assert board != define_board("arcade", {"windows": ["weekly", "daily"]})
    assert board.first_window.name == "daily"


@pytest.mark.parametrize(
    ("first_options", "second_options"),
    [
        ({"scopes": ["a", "b"]}, {"scopes": ["b", "a"]}),
        ({"feeds": ["a", "b"]}, {"feeds": ["b", "a"]}),
        ({"late_by": "300s"}, {"late_by": "5m"}),
        ({"keep": {"all_time": "sum"}}, {"keep": "sum"}),
        ({"keep": {}}, {}),
        ({"windows": ["daily"], "retention": {"daily": "24h"}}, {"windows": ["daily"], "retention": "1d"}),
        ({"windows": ["daily"], "retention": {"daily": None}}, {"windows": ["daily"]}),
        (
            {"windows": [{"name": "raid", "reset": "0 18  * * fri"}]},
            {"windows": [{"name": "raid", "reset": "0 18 * * FRI"}]},
        ),
        ({"title": "arcade", "periods": None, "scopes": None}, {}),
    ],
)
def test_two_spellings_of_one_meaning_are_the_same_definition(
    first_options: dict[str, object], second_options: dict[str, object]
) -> None:
    assert define_board("arcade", first_options) == define_board("arcade", second_options)


def test_a_definition_differs_when_any_option_does() -> None:
    others: dict[str, object] = {
        "keep": "sum",
        "order": "asc",
        "ties": "latest",
        "tie_resolution": "1ms",
        "ranking": "dense",
        "windows": ["daily"],
        "periods": [{"name": "s", "start": 1, "end": 2}],
        "time_zone": "Europe/Berlin",
        "week_starts": "sunday",
        "scopes": ["country"],
        "score_min": 0,
        "score_max": 0,
        "decimals": 2,
        "late_by": "1m",
        "history": {"every": "1d", "top": "all", "keep": "30d"},
        "feeds": ["xp"],
        "team": {"attribute": "guild", "by": "sum"},
        "writes": "players",
        "signing": "game-key",
        "open": False,
        "shards": 2,
        "archive_top": 100,
        "exact_top": 100,
        "scope_values_max": 1_000_000,
        "title": "Arcade",
        "description": "All of it.\nReally.",
    }
    assert set(NAMES) - set(others) == {"global", "retention", "archive_keep", "decay"}
    plain = define_board("arcade", {})
    for name, value in others.items():
        board = define_board("arcade", {name: value})
        assert board != plain
        assert define_board("arcade", definition_of(board)) == board


@pytest.mark.parametrize(
    ("definition", "allowed"),
    [
        ({"keep": "best"}, True),
        ({"keep": "first"}, True),
        ({"keep": "latest"}, False),
        ({"keep": "sum"}, False),
        ({"keep": "sum", "score_min": 0}, True),
        ({"keep": "sum", "score_max": 0}, False),
        ({"keep": "sum", "order": "asc", "score_max": 0}, True),
        ({"keep": "sum", "order": "asc", "score_min": 0}, False),
        ({"windows": ["weekly", "daily"], "keep": {"weekly": "sum_of_daily"}, "score_min": 0}, True),
        ({"windows": ["weekly", "daily"], "keep": {"weekly": "sum_of_daily"}}, False),
        (
            {"windows": ["weekly", "daily"], "keep": {"weekly": "sum_of_daily", "daily": "latest"}, "score_min": 0},
            False,
        ),
    ],
)
def test_estimates_below_a_top_need_scores_that_can_only_improve(definition: dict[str, object], allowed: bool) -> None:
    if allowed:
        assert define_board("arcade", {**definition, "exact_top": 1_000_000}).exact_top == 1_000_000
    else:
        with pytest.raises(InvalidValue, match=r"^exact_top: needs scores that can only improve"):
            define_board("arcade", {**definition, "exact_top": 1_000_000})


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    kinds = ["all_time", "yearly", "monthly", "weekly", "daily", "hourly"]
    windows: list[Any] = draw(st.lists(st.sampled_from(kinds), min_size=1, unique=True))
    names = list(windows)
    if draw(st.booleans()):
        windows.append({"name": "raid", "reset": "0 18 * * 5"})
        names.append("raid")
    periods = draw(st.lists(st.sampled_from(["a", "b.1", "summer-26"]), unique=True))
    keeps = st.sampled_from(["best", "latest", "sum", "first"])
    durations = st.sampled_from(["0s", "1ms", "90s", "30d"])
    every = [*names, *(f"period:{name}" for name in periods)]
    ending = [name for name in every if name != "all_time"]
    low, high = sorted(draw(st.tuples(*[st.integers(SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE)] * 2)))
    return {
        "windows": windows,
        "periods": [{"name": name, "start": 1_000, "end": draw(st.integers(1_001, 10**12))} for name in periods],
        "keep": draw(keeps | st.dictionaries(st.sampled_from(every), keeps)),
        "retention": draw(
            st.none() | durations | (st.dictionaries(st.sampled_from(ending), durations) if ending else st.none())
        ),
        "scopes": draw(st.lists(st.sampled_from(["country", "level", "guild"]), unique=True)),
        "order": draw(st.sampled_from(["asc", "desc"])),
        "ties": draw(st.sampled_from(["earliest", "latest", "value", "player"])),
        "tie_resolution": draw(st.sampled_from(["1ms", "1s", "1d"])),
        "time_zone": draw(st.sampled_from(["UTC", "Europe/Berlin"])),
        "score_min": low,
        "score_max": high,
        "open": draw(st.booleans()),
    }


@settings(deadline=None)
@given(definitions())
def test_a_definition_written_out_and_read_again_is_the_same_board(definition: dict[str, Any]) -> None:
    board = define_board("arcade", definition)
    written = json.loads(json.dumps(definition_of(board)))
    assert define_board("arcade", written) == board
    assert definition_of(define_board("arcade", written)) == written
