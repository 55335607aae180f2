"""Definitions: every option comes back, some may change, the rest needs a new board; deleting ends it all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rankd
from rankd import Boards, ManualClock
from rankd.domain.definition import NAMES
from rankd.errors import BoardClosed, BoardInUse, BoardUnknown, DefinitionConflict, InvalidValue

NOON = 1_777_896_000_000  # 2026-05-04T12:00:00Z
CUP = {"name": "cup", "start": NOON, "end": NOON + 1_000}

# Every option, in one board or another, with a value that is not its default.
DEFINITIONS: list[dict[str, object]] = [
    {"title": "Arcade – “best”", "description": "two\nlines", "ranking": "dense", "decimals": 2, "writes": "players"},
    {"keep": "sum", "order": "asc", "ties": "latest", "tie_resolution": "1ms", "score_min": -(2**63), "score_max": 5},
    {"keep": {"daily": "first", "weekly": "sum_of_daily"}, "windows": ["weekly", "daily"], "week_starts": "sunday"},
    {
        "windows": ["yearly", "monthly", "hourly", {"name": "raid", "reset": "0 18 * * 5"}],
        "time_zone": "Asia/Kathmandu",
    },
    {"periods": [CUP], "retention": "9d", "late_by": "1h"},
    {"scopes": ["country", "level"], "global": False, "scope_values_max": 100_000_000},
    {"team": {"attribute": "guild", "by": "average"}, "feeds": ["fed"]},
    {"decay": {"factor": 0.9, "every": "1d"}, "score_min": 1, "ties": "player"},
    {"windows": ["daily"], "archive_keep": "730d", "archive_top": 100},
    {"history": {"every": "1d", "top": 1_000, "keep": "730d"}},
    {"history": {"every": "1h", "top": "all", "keep": "7d"}, "windows": ["daily"]},
    {"signing": "key-1", "open": False, "shards": 8, "exact_top": 1_000, "retention": None},
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def boards(tmp_path: Path, clock: ManualClock) -> Iterator[Boards]:
    with rankd.open(tmp_path, clock=clock) as opened:
        opened.define("fed")
        yield opened


def test_these_are_all_options_there_are() -> None:
    assert {name for definition in DEFINITIONS for name in definition} == set(NAMES)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: next(iter(definition)))
def test_every_option_comes_back_also_from_disk(
    boards: Boards, tmp_path: Path, clock: ManualClock, definition: dict[str, object]
) -> None:
    assert boards.define("arcade", definition).changed
    shown = boards.definition("arcade")
    assert {name: shown[name] for name in definition} == definition
    assert set(shown) == set(NAMES)
    assert not boards.define("arcade", shown).changed
    assert not boards.define("arcade", definition).changed
    boards.close()
    with rankd.open(tmp_path, clock=clock) as again:
        assert again.definition("arcade") == shown
        assert again.list() == ["arcade", "fed"]


def test_keywords_and_a_mapping_mean_the_same(boards: Boards) -> None:
    boards.define("one", keep="sum", global_=False, scopes=["country"])
    boards.define("two", {"keep": "sum", "global": False, "scopes": ["country"], "title": "one"})
    assert boards.definition("one") == boards.definition("two")
    with pytest.raises(InvalidValue, match="not both"):
        boards.define("three", {"keep": "sum"}, keep="sum")


@pytest.mark.parametrize(
    "change",
    [
        *({"title": "New"}, {"description": "new"}, {"ranking": "dense"}, {"retention": "9d"}, {"late_by": "1h"}),
        *({"writes": "players"}, {"score_max": 10}, {"score_min": 0}, {"open": False}, {"feeds": ["fed"]}),
        *({"windows": ["daily", "weekly"]}, {"periods": [CUP]}, {"scopes": ["country"]}),
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_may_change_changes_and_keeps_the_scores(boards: Boards, change: dict[str, object]) -> None:
    boards.define("arcade", windows=["daily"])
    boards.submit("arcade", "alice", 20)
    assert boards.define("arcade", {"windows": ["daily"], **change}).changed
    assert [(entry.player, entry.score) for entry in boards.top("arcade").entries] == [("alice", 20)]
    boards.verify()


@pytest.mark.parametrize(
    "change",
    [
        *({"keep": "sum"}, {"order": "asc"}, {"ties": "value"}, {"tie_resolution": "1ms"}, {"windows": ["weekly"]}),
        *({"windows": ["weekly", "daily"]}, {"time_zone": "Asia/Tokyo"}, {"week_starts": "sunday"}, {"decimals": 1}),
        *({"global": False, "scopes": ["country"]}, {"team": {"attribute": "guild", "by": "sum"}}, {"shards": 2}),
        *({"signing": "key-1"}, {"exact_top": 5}, {"decay": {"factor": 0.5, "every": "1d"}, "score_min": 1}),
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_else_is_refused_with_the_way_out(boards: Boards, change: dict[str, object]) -> None:
    boards.define("arcade", windows=["daily"])
    before = (boards.position, boards.definition("arcade"))
    if "decay" in change:
        boards.delete("arcade")
        boards.define("arcade", windows=["daily"], ties="player", score_min=1)
        before = (boards.position, boards.definition("arcade"))
        change = {**change, "ties": "player"}
    with pytest.raises(DefinitionConflict, match="another id"):
        boards.define("arcade", {"windows": ["daily"], **change})
    assert (boards.position, boards.definition("arcade")) == before


@pytest.mark.parametrize("lost", ["periods", "scopes", "feeds"])
def test_what_was_declared_is_not_taken_away(boards: Boards, lost: str) -> None:
    declared: dict[str, object] = {"periods": [CUP], "scopes": ["country"], "feeds": ["fed"]}
    boards.define("arcade", declared)
    with pytest.raises(DefinitionConflict, match=lost):
        boards.define("arcade", {name: value for name, value in declared.items() if name != lost})


def test_new_bounds_are_for_later_scores(boards: Boards) -> None:
    boards.define("arcade", keep="sum")
    boards.submit("arcade", "alice", 100)
    boards.define("arcade", keep="sum", score_max=50)
    with pytest.raises(InvalidValue, match="50"):
        boards.submit("arcade", "alice", 51)
    boards.submit("arcade", "bob", 40)
    boards.submit("arcade", "bob", 40)
    assert {entry.player: entry.score for entry in boards.top("arcade").entries} == {"alice": 100, "bob": 50}
    boards.verify()


def test_a_closed_board_takes_no_scores_and_can_be_read(boards: Boards) -> None:
    boards.define("arcade")
    boards.submit("arcade", "alice", 5)
    boards.define("arcade", open=False)
    with pytest.raises(BoardClosed, match="open = true"):
        boards.submit("arcade", "alice", 6)
    with pytest.raises(BoardClosed):
        boards.submit_many("arcade", [("alice", 6)])
    assert boards.top("arcade").total == 1
    assert boards.remove("arcade", "alice").changed
    boards.define("arcade", open=True)
    assert boards.submit("arcade", "alice", 6).rank == 1


@pytest.mark.parametrize("feeds", [["nobody"], ["chained"], ["arcade"]])
def test_feeds_that_lead_nowhere_or_on_are_refused(boards: Boards, feeds: list[str]) -> None:
    boards.define("chained", feeds=["fed"])
    with pytest.raises(InvalidValue, match="feeds"):
        boards.define("arcade", feeds=feeds)
    assert boards.list() == ["chained", "fed"]


def test_a_board_that_is_fed_cannot_begin_to_feed_or_be_deleted(boards: Boards) -> None:
    boards.define("arcade", feeds=["fed"])
    boards.define("other")
    with pytest.raises(InvalidValue, match="do not chain"):
        boards.define("fed", feeds=["other"])
    with pytest.raises(BoardInUse, match="arcade"):
        boards.delete("fed")
    boards.delete("arcade")
    boards.delete("fed")
    assert boards.list() == ["other"]


def test_a_deleted_board_is_gone_and_starts_empty_when_it_is_defined_anew(
    boards: Boards, tmp_path: Path, clock: ManualClock
) -> None:
    boards.define("arcade", windows=["all_time", "daily"], scopes=["country"])
    boards.submit("arcade", "alice", 5, attributes={"country": "BR"}, metadata={"car": "red"})
    assert boards.delete("arcade").changed
    for call in (boards.top, boards.definition, boards.delete):
        with pytest.raises(BoardUnknown, match="define it first"):
            call("arcade")
    assert boards.list() == ["fed"]

    boards.define("arcade", order="asc", windows=["all_time", "daily"], scopes=["country"])
    assert boards.top("arcade").total == boards.top("arcade", window="daily", scope="country:BR").total == 0
    boards.submit("arcade", "alice", 7)
    assert boards.top("arcade").entries[0].metadata is None
    boards.verify()
    boards.close()
    with rankd.open(tmp_path, clock=clock) as again:
        assert [(entry.player, entry.score) for entry in again.top("arcade").entries] == [("alice", 7)]
        again.verify()


def test_what_one_event_may_touch_is_limited_and_what_was_stored_before_is_replayed(
    tmp_path: Path, clock: ManualClock
) -> None:
    with rankd.open(tmp_path, clock=clock, instances_per_event_max=6) as boards:
        boards.define("xp", windows=["all_time", "daily"])
        boards.define("frame", windows=["all_time", "daily"], scopes=["country"], feeds=["xp"])
        with pytest.raises(InvalidValue, match="one event of frame touch 8 instances, and 6 is the most"):
            boards.define("xp", windows=["all_time", "daily"], scopes=["country"])
        boards.submit("frame", "alice", 5, attributes={"country": "BR"})

    with rankd.open(tmp_path, clock=clock, instances_per_event_max=2) as boards:
        assert boards.top("frame", 1, scope="country:BR").total == 1
        assert boards.top("xp", 1).total == 1
        boards.define("frame", boards.definition("frame") | {"title": "Frame"})
        boards.submit("frame", "bob", 6, attributes={"country": "BR"})
        with pytest.raises(InvalidValue, match="touch 8 instances, and 2 is the most"):
            boards.define("frame", boards.definition("frame") | {"scopes": ["country", "level"]})
        boards.verify()


def test_a_refusal_uses_the_caller_s_own_words(tmp_path: Path) -> None:
    with rankd.open(tmp_path) as boards:
        boards.define("arcade", decimals=2)
        with pytest.raises(InvalidValue, match=r"score: .*2 decimals, so send 125"):
            boards.submit("arcade", "alice", 1.25)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match=r"score: .*2 decimals, so send 125"):
            boards.submit("arcade", "alice", 1.25, key="match-1")  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="order: is no parameter of this read; known are window"):
            boards.top("arcade", 10, order="asc")  # type: ignore[call-arg]
        with pytest.raises(InvalidValue, match="bucket: is no parameter of this read; known are window"):
            boards.distribution("arcade", bucket=3)  # type: ignore[call-arg]
        with pytest.raises(InvalidValue, match="first: must be from 1"):
            boards.range("arcade", 0, 5)
