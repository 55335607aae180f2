"""How many instances one event can touch is counted exactly, and what is too much is refused with the way out."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from rankd.domain import consistency
from rankd.domain.board import Board
from rankd.domain.consistency import feeders_of, instances_per_event
from rankd.domain.definition import define_board
from rankd.errors import InvalidValue

WINDOWS = ["all_time", "weekly", "daily"]


def board(name: str = "arcade", **definition: object) -> Board:
    return define_board(name, definition)


def period(name: str, start: int, end: int) -> dict[str, object]:
    return {"name": name, "start": start, "end": end}


def by_id(*boards: Board) -> Mapping[str, Board]:
    return {definition.id: definition for definition in boards}


def check_instances_per_event(defined: Board, boards: Mapping[str, Board], instances_max: int) -> None:
    consistency.check_instances_per_event(defined, boards, feeders_of(defined.id, boards), instances_max)


def test_every_window_counts_in_every_scope() -> None:
    assert instances_per_event(board()) == 1
    assert instances_per_event(board(windows=WINDOWS)) == 3
    assert instances_per_event(board(windows=WINDOWS, scopes=["country", "level"])) == 9
    assert instances_per_event(board(windows=WINDOWS, scopes=["country", "level"], global_=False)) == 6


def test_of_the_periods_only_those_count_that_last_at_one_instant() -> None:
    seasons = [period(f"s{number}", number * 100, number * 100 + 100) for number in range(1_000)]
    assert instances_per_event(board(periods=seasons)) == 2  # one ends where the next one begins

    late = [period(f"s{number}", number * 100, number * 100 + 101) for number in range(1_000)]
    assert instances_per_event(board(periods=late)) == 3
    assert instances_per_event(board(periods=[period("a", 0, 10), period("b", 5, 7), period("c", 7, 9)])) == 3


def test_the_boards_it_feeds_count_at_the_same_instant() -> None:
    first = board("first", periods=[period("a", 0, 10)], scopes=["country"], feeds=["xp"])
    together = board("xp", periods=[period("b", 5, 15)], scopes=["country", "level"])
    apart = board("xp", periods=[period("b", 10, 15)], scopes=["country", "level"])

    assert instances_per_event(first, [together]) == 2 + 2 + 3 + 3
    assert instances_per_event(first, [apart]) == 2 + 3 + max(2, 3)


@pytest.mark.parametrize("seed", range(20))
def test_no_event_touches_more_and_one_touches_as_many(seed: int) -> None:
    chosen = random.Random(seed)

    def some(name: str) -> Board:
        periods = []
        for number in range(chosen.randrange(6)):
            start = chosen.randrange(30)
            periods.append(period(f"p{number}", start, start + 1 + chosen.randrange(12)))
        windows = WINDOWS[: chosen.randint(1, 3)]
        return board(name, windows=windows, periods=periods, scopes=["country", "level"][: chosen.randrange(3)])

    boards = [some("arcade"), some("xp"), some("words")]
    attributes = {"country": "BR", "level": "7"}

    def dirty(at: int) -> int:
        return sum(
            len(definition.instances_of(definition.read_clock(at))) * len(definition.scopes_of(attributes))
            for definition in boards
        )

    assert instances_per_event(boards[0], boards[1:]) == max(dirty(at) for at in range(50))


def test_a_definition_beyond_the_limit_is_refused_with_its_fields_and_the_way_out() -> None:
    tournaments = [period(f"t{number}", 0, 1_000 + number) for number in range(1_000)]
    scopes = [f"s{number}" for number in range(16)]
    resets = [{"name": f"w{number}", "reset": "0 18 * * 5"} for number in range(16)]
    wide = board(windows=resets, periods=tournaments, scopes=scopes)

    with pytest.raises(InvalidValue) as refused:
        check_instances_per_event(wide, {}, 1_000)
    assert refused.value.field == "windows, periods, scopes"
    assert "touch 17272 instances, and 1000 is the most" in refused.value.problem
    assert "(16 windows + 1000 periods that overlap) × 17 scopes" in refused.value.problem
    assert refused.value.problem.endswith("periods that do not overlap, or raise instances_per_event_max")
    check_instances_per_event(wide, {}, 17_272)


def test_a_board_that_feeds_others_answers_for_all_of_them() -> None:
    xp = board("xp", windows=WINDOWS)
    frame = board("frame", windows=WINDOWS, feeds=["xp"])
    check_instances_per_event(frame, by_id(xp), 6)

    with pytest.raises(InvalidValue, match="and those of xp, which it feeds") as refused:
        check_instances_per_event(frame, by_id(xp), 5)
    assert refused.value.field == "windows, feeds"


def test_a_board_that_is_fed_may_not_grow_beyond_what_those_who_feed_it_may_touch() -> None:
    xp = board("xp")
    frame = board("frame", windows=WINDOWS, feeds=["xp"])
    boards = by_id(xp, frame)
    check_instances_per_event(board("xp", scopes=["country"]), boards, 5)

    with pytest.raises(InvalidValue, match="one event of frame touch 6 instances, and 5 is the most") as refused:
        check_instances_per_event(board("xp", scopes=["country", "level"]), boards, 5)
    assert refused.value.field == "windows, scopes"


def test_what_is_beyond_the_limit_already_may_change_and_not_grow() -> None:
    old = board(windows=WINDOWS)
    check_instances_per_event(board(windows=WINDOWS, title="Other"), by_id(old), 1)
    check_instances_per_event(board(windows=WINDOWS, periods=[]), by_id(old), 1)

    with pytest.raises(InvalidValue, match="touch 6 instances, and 1 is the most"):
        check_instances_per_event(board(windows=WINDOWS, scopes=["country"]), by_id(old), 1)
