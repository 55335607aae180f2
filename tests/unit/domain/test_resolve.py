"""Which instance a read means, and how it is refused when there is none."""

from __future__ import annotations

import pytest

from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.domain.resolve import resolve_window
from rankd.errors import InvalidValue, WindowUnknown

from .clocks import ms

NOW = ms("2026-05-04T12:00:00Z")
DAY_MS = 86_400_000


def _board(**definition: object) -> Board:
    return define_board(
        "arcade",
        {
            "windows": ["weekly", "all_time", "daily", "hourly", {"name": "raid", "reset": "0 18 * * 5"}],
            "periods": [{"name": "summer-26", "start": ms("2026-06-01T00:00:00Z"), "end": ms("2026-09-01T00:00:00Z")}],
            **definition,
        },
    )


@pytest.mark.parametrize(
    ("named", "instance"),
    [
        (None, "weekly:2026-W19"),
        ("weekly", "weekly:2026-W19"),
        ("weekly:previous", "weekly:2026-W18"),
        ("weekly:2026-W18", "weekly:2026-W18"),
        ("weekly:2199-W18", "weekly:2199-W18"),
        ("all_time", "all_time"),
        ("daily", "daily:2026-05-04"),
        ("daily:previous", "daily:2026-05-03"),
        ("hourly", "hourly:2026-05-04T1200Z"),
        ("hourly:previous", "hourly:2026-05-04T1100Z"),
        ("raid", "raid:2026-05-01T1800Z"),
        ("raid:previous", "raid:2026-04-24T1800Z"),
        ("raid:2026-05-01T1800Z", "raid:2026-05-01T1800Z"),
        ("period:summer-26", "period:summer-26"),
    ],
)
def test_a_read_means_one_instance_current_previous_past_or_future(named: str | None, instance: str) -> None:
    assert resolve_window(_board(), named, NOW).instance == instance


@pytest.mark.parametrize("named", ["monthly", "monthly:2026-05", "monthly:nonsense", "boss", "period:winter-26"])
def test_a_window_the_board_does_not_declare_is_unknown_and_the_answer_lists_those_it_does(named: str) -> None:
    with pytest.raises(WindowUnknown, match="it declares weekly, all_time, daily, hourly, raid, period:summer-26"):
        resolve_window(_board(), named, NOW)


@pytest.mark.parametrize(
    "named",
    [
        "",
        ":",
        "Weekly",
        "weekly ",
        "weekly:",
        "weekly:next",
        "weekly:2025-W53",
        "weekly:previous:previous",
        "all_time:previous",
        "all_time:2026",
        "raid:2026-05-02T1800Z",
        "period",
        "period:",
        "period:Summer 26",
        7,
        ["weekly"],
    ],
)
def test_nonsense_is_refused_under_the_name_of_the_field(named: object) -> None:
    with pytest.raises(InvalidValue, match=r"^window: "):
        resolve_window(_board(), named, NOW)


def test_a_window_is_final_at_its_end_and_late_by() -> None:
    board = _board(late_by="5m")
    window, instance, _ = resolve_window(board, "daily", NOW)
    assert board.final_at(window, instance) == ms("2026-05-05T00:05:00Z")
    assert board.final_at(*resolve_window(board, "all_time", NOW)[:2]) is None
    assert board.final_at(*resolve_window(board, "period:summer-26", NOW)[:2]) == ms("2026-09-01T00:05:00Z")


def test_a_window_is_gone_from_the_very_millisecond_its_retention_is_over() -> None:
    board = _board(late_by="5m", retention="7d")
    gone_at = ms("2026-05-12T00:05:00Z")
    assert not resolve_window(board, "daily:2026-05-04", gone_at - 1).is_over
    assert resolve_window(board, "daily:2026-05-04", gone_at).is_over


def test_even_the_previous_window_can_be_gone() -> None:
    assert resolve_window(_board(late_by="0s", retention="0s"), "daily:previous", NOW).is_over


def test_retention_per_window_leaves_the_others_for_ever() -> None:
    board = _board(retention={"daily": "1d", "period": "2d"})
    assert resolve_window(board, "daily:2020-01-01", NOW).is_over
    assert resolve_window(board, "weekly:2020-W01", NOW).instance == "weekly:2020-W01"
    assert resolve_window(board, "period:summer-26", ms("2026-09-03T00:05:00Z")).is_over


def test_all_time_is_never_gone() -> None:
    board = _board(retention="0s")
    assert board.gone_at(*resolve_window(board, "all_time", NOW)[:2]) is None


def test_the_instant_of_roll_over_is_just_another_empty_window() -> None:
    midnight = ms("2026-05-05T00:00:00Z")
    assert resolve_window(_board(), "daily", midnight - 1).instance == "daily:2026-05-04"
    assert resolve_window(_board(), "daily", midnight).instance == "daily:2026-05-05"
