"""What may change while a board lives, and what needs a new one; feeds between boards."""

from __future__ import annotations

import pytest

from rankd.domain.change import change
from rankd.domain.consistency import check_feeds, feeders_of
from rankd.domain.definition import define_board
from rankd.errors import DefinitionConflict, InvalidValue

OLD: dict[str, object] = {
    "windows": ["all_time", "daily"],
    "keep": {"daily": "first"},
    "periods": [{"name": "summer", "start": 1_000, "end": 2_000}],
    "scopes": ["country"],
    "feeds": ["xp"],
}


def _change(**new: object) -> tuple[str, ...]:
    return change(define_board("arcade", OLD), define_board("arcade", {**OLD, **new}))


def test_the_same_definition_again_changes_nothing() -> None:
    assert _change() == ()
    assert _change(late_by="300s", keep={"daily": "first", "all_time": "best"}) == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("title", "Arcade!"),
        ("description", "All games."),
        ("ranking", "dense"),
        ("retention", "30d"),
        ("retention", {"daily": "7d"}),
        ("late_by", "1h"),
        ("writes", "players"),
        ("score_min", 0),
        ("score_max", 100),
        ("open", False),
        ("scope_values_max", 5),
    ],
)
def test_words_ranking_retention_lateness_writers_bounds_and_open_may_change(name: str, value: object) -> None:
    assert _change(**{name: value}) == (name,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("windows", ["all_time", "daily", "weekly"]),
        ("windows", ["all_time", "daily", {"name": "raid", "reset": "0 18 * * 5"}]),
        ("scopes", ["level", "country"]),
        ("feeds", ["guilds", "xp"]),
    ],
)
def test_windows_scopes_and_feeds_may_be_added(name: str, value: object) -> None:
    assert name in _change(**{name: value})


def test_periods_may_be_added() -> None:
    summer, autumn = ({"name": name, "start": 1_000, "end": 2_000} for name in ("summer", "autumn"))
    assert "periods" in _change(periods=[autumn, summer])


def test_an_added_window_may_come_with_its_keep() -> None:
    changed = _change(windows=["all_time", "daily", "weekly"], keep={"daily": "first", "weekly": "sum_of_daily"})
    assert set(changed) == {"windows", "keep"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("order", "asc"),
        ("ties", "latest"),
        ("tie_resolution", "1ms"),
        ("time_zone", "Europe/Berlin"),
        ("week_starts", "sunday"),
        ("global", False),
        ("decimals", 2),
        ("team", {"attribute": "guild", "by": "sum"}),
        ("signing", "game-key"),
        ("shards", 2),
        ("exact_top", 100),
        ("keep", "best"),
        ("keep", {"daily": "first", "all_time": "sum"}),
        ("windows", ["all_time"]),
        ("windows", ["daily", "all_time"]),
        ("windows", ["weekly", "all_time", "daily"]),
        ("periods", []),
        ("periods", [{"name": "summer", "start": 1_000, "end": 3_000}]),
        ("scopes", []),
        ("scopes", ["level"]),
        ("feeds", []),
    ],
)
def test_anything_else_is_a_conflict_that_names_the_field_and_the_way_out(name: str, value: object) -> None:
    new: dict[str, object] = {"keep": {}} if name == "windows" and value == ["all_time"] else {}
    with pytest.raises(DefinitionConflict, match="define a new board under another id") as conflict:
        _change(**new, **{name: value})
    assert conflict.value.field == name


def test_decay_cannot_be_changed() -> None:
    fading: dict[str, object] = {"score_min": 1, "ties": "player", "decay": {"factor": 0.9, "every": "1d"}}
    faster = {**fading, "decay": {"factor": 0.8, "every": "1d"}}
    with pytest.raises(DefinitionConflict, match=r"^decay: "):
        change(define_board("hot", fading), define_board("hot", faster))


def test_a_board_is_compared_with_itself_only() -> None:
    with pytest.raises(DefinitionConflict, match=r"^id: "):
        change(define_board("arcade", {}), define_board("words", {}))


def _boards(**feeds: list[str]) -> None:
    boards = {name: define_board(name, {"feeds": fed}) for name, fed in feeds.items()}
    for board in boards.values():
        check_feeds(board, boards, feeders_of(board.id, boards))


def test_many_boards_may_feed_one() -> None:
    _boards(frame=["xp"], words=["xp", "guilds"], xp=[], guilds=[])


def test_a_fed_board_that_feeds_another_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidValue, match="feeds: frame feeds xp, which feeds total; feeds do not chain"):
        _boards(frame=["xp"], xp=["total"], total=[])


def test_two_boards_cannot_feed_each_other() -> None:
    with pytest.raises(InvalidValue, match="do not chain"):
        _boards(frame=["words"], words=["frame"])


def test_a_board_that_is_not_defined_cannot_be_fed() -> None:
    with pytest.raises(InvalidValue, match="frame feeds xp, which is not defined; define xp first"):
        _boards(frame=["xp"])


@pytest.mark.parametrize(("feeding", "fed"), [(None, None), ("relay", None), ("relay", "relay")])
def test_a_signed_board_is_fed_by_boards_with_the_same_signing_key(feeding: str | None, fed: str | None) -> None:
    boards = {"frame": define_board("frame", {"feeds": ["xp"], "signing": feeding})}
    boards["xp"] = define_board("xp", {"signing": fed})
    for board in boards.values():
        check_feeds(board, boards, feeders_of(board.id, boards))


@pytest.mark.parametrize(("feeding", "signature"), [(None, "not signed"), ("other", "signed with other")])
@pytest.mark.parametrize("defined", ["frame", "xp"])
def test_a_feed_is_no_way_past_a_signature(feeding: str | None, signature: str, defined: str) -> None:
    boards = {"frame": define_board("frame", {"feeds": ["xp"], "signing": feeding})}
    boards["xp"] = define_board("xp", {"signing": "relay"})
    with pytest.raises(
        InvalidValue, match=f'feeds: frame feeds xp, .* is {signature} itself; define frame with signing = "re'
    ):
        check_feeds(boards[defined], boards, feeders_of(boards[defined].id, boards))


def test_feeds_between_other_boards_do_not_keep_a_board_from_being_defined() -> None:
    boards = {"frame": define_board("frame", {"feeds": ["xp"]}), "xp": define_board("xp", {"signing": "relay"})}
    check_feeds(define_board("words", {}), boards, feeders_of(define_board("words", {}).id, boards))
