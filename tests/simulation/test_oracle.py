"""The oracle against examples worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from .oracle import Oracle, Refusal, Row
from .oracle_calendar import Window
from .oracle_table import Between, Line

MONDAY = 1_777_852_800_000  # 2026-05-04T00:00Z
HOUR, DAY = 3_600_000, 86_400_000
NOON = MONDAY + 12 * HOUR


def oracle_with(**definition: Any) -> Oracle:
    oracle = Oracle(NOON)
    oracle.define("b", definition)
    return oracle


def send(oracle: Oracle, *rows: tuple[str, int] | Row, board: str = "b", imported: bool = False) -> None:
    oracle.submit_many(board, [row if isinstance(row, Row) else Row(*row) for row in rows], imported=imported)


def lines(
    oracle: Oracle, window: str | None = None, scope: str = "global", ranking: str = "ordinal", board: str = "b"
) -> list[Line]:
    table = oracle.table(*oracle.resolve(board, window), scope)
    return table.range(1, table.total, ranking)


def scores(oracle: Oracle, window: str | None = None, scope: str = "global", board: str = "b") -> dict[str, Any]:
    return {line.player: line.score for line in lines(oracle, window, scope, board=board)}


def refused(oracle: Oracle, row: Row, **options: Any) -> str:
    with pytest.raises(Refusal) as refusal:
        oracle.submit("b", row, **options)
    return refusal.value.code


@pytest.mark.parametrize(
    ("keep", "order", "kept"),
    [("best", "desc", 30), ("best", "asc", 10), ("latest", "desc", 20), ("sum", "desc", 55), ("first", "asc", 30)],
)
def test_each_rule_keeps_what_it_says(keep: str, order: str, kept: int) -> None:
    oracle = oracle_with(keep=keep, order=order, score_max=55)

    send(oracle, ("ann", 30), ("ann", 10), ("ann", 20))

    assert scores(oracle) == {"ann": kept}


def test_a_sum_stops_at_the_bounds_each_time() -> None:
    oracle = oracle_with(keep="sum", score_min=-5, score_max=10)

    send(oracle, ("ann", 8), ("ann", 8), ("ann", -3))

    assert scores(oracle) == {"ann": 7}


def test_places_are_counted_in_three_ways() -> None:
    oracle = oracle_with(ties="player")
    send(oracle, ("ann", 9), ("bob", 7), ("cat", 7), ("dan", 5))

    ranks = {
        ranking: [line.rank for line in lines(oracle, ranking=ranking)]
        for ranking in ("ordinal", "competition", "dense")
    }

    assert ranks == {"ordinal": [1, 2, 3, 4], "competition": [1, 2, 2, 4], "dense": [1, 2, 2, 3]}


def test_percentages_follow_the_competition_rank() -> None:
    oracle = oracle_with(ties="player")
    send(oracle, ("ann", 9), ("bob", 7), ("cat", 7), ("dan", 5))

    table = oracle.table(*oracle.resolve("b", None), None)

    assert [table.percentile(place) for place in (1, 2, 3, 4)] == [75, 50, 50, 0]
    assert [table.top_percent(place) for place in (1, 2, 3, 4)] == [25, 50, 50, 100]


def test_ties_go_by_steps_of_time_and_then_by_id() -> None:
    oracle = oracle_with(tie_resolution="10s", late_by="1h")
    send(oracle, Row("zoe", 5, at=NOON - 1), Row("bob", 5, at=NOON + 9), Row("ann", 5, at=NOON + 4_000))

    assert [(line.player, line.reached_at) for line in lines(oracle)] == [
        ("zoe", NOON - 10_000),
        ("ann", NOON),
        ("bob", NOON),
    ]


def test_the_better_tiebreak_wins_whatever_the_order_is() -> None:
    oracle = oracle_with(order="asc", ties="value")
    send(
        oracle,
        Row("ann", 5, tiebreak=1),
        Row("bob", 5, tiebreak=3),
        Row("ann", 5, tiebreak=2),
        Row("bob", 5, tiebreak=0),
    )

    assert [(line.player, line.tiebreak) for line in lines(oracle)] == [("bob", 3), ("ann", 2)]


def test_metadata_moves_only_with_the_score() -> None:
    oracle = oracle_with(keep="latest")
    send(oracle, Row("ann", 5, metadata={"n": 1}), Row("bob", 5, metadata={"n": 2}))
    oracle.now += HOUR

    send(oracle, Row("ann", 5, metadata={"n": 3}), Row("bob", 6))

    assert {line.player: line.metadata for line in lines(oracle)} == {"ann": {"n": 1}, "bob": None}
    assert {line.player: line.reached_at for line in lines(oracle)} == {"ann": NOON, "bob": NOON + HOUR}


def test_scopes_come_from_the_event_and_else_from_the_profile() -> None:
    oracle = oracle_with(scopes=["country"])
    oracle.profiles["ann"] = {"country": "BR", "attributes": {}}

    send(
        oracle,
        ("ann", 5),
        Row("bob", 4, attributes={"country": "AR"}),
        ("cat", 3),
        Row("ann", 7, attributes={"country": "AR"}),
    )

    assert scores(oracle) == {"ann": 7, "bob": 4, "cat": 3}
    assert (scores(oracle, scope="country:BR"), scores(oracle, scope="country:AR")) == (
        {"ann": 5},
        {"ann": 7, "bob": 4},
    )


def test_the_week_adds_up_the_first_tries_of_its_days() -> None:
    oracle = oracle_with(windows=["weekly", "daily"], keep={"daily": "first", "weekly": "sum_of_daily"}, score_max=100)
    send(oracle, ("ann", 40), ("ann", 99), ("bob", 90))
    oracle.now += DAY
    send(oracle, ("ann", 50), ("ann", 1), ("bob", 90))

    assert scores(oracle, "daily") == {"ann": 50, "bob": 90}
    assert scores(oracle, "weekly") == {"ann": 90, "bob": 100}


def test_resetting_a_day_takes_it_out_of_the_week() -> None:
    oracle = oracle_with(windows=["weekly", "daily"], keep={"daily": "sum", "weekly": "sum_of_daily"})
    send(oracle, ("ann", 40))
    oracle.now += DAY
    send(oracle, ("ann", 50), ("bob", 7))

    oracle.reset("b", "daily")

    assert (scores(oracle, "daily"), scores(oracle, "weekly")) == ({}, {"ann": 40})


def test_after_its_reset_a_week_counts_the_whole_day_with_the_next_score() -> None:
    oracle = oracle_with(windows=["weekly", "daily"], keep={"daily": "sum", "weekly": "sum_of_daily"})
    send(oracle, ("ann", 40), ("bob", 3))
    oracle.reset("b", "weekly")

    send(oracle, ("ann", 2))

    assert (scores(oracle, "daily"), scores(oracle, "weekly")) == ({"ann": 42, "bob": 3}, {"ann": 42})


@pytest.mark.parametrize(
    ("by", "expected"),
    [("sum", {"red": 7, "blue": 10}), ("average", {"red": 2, "blue": 10}), ("best", {"red": 9, "blue": 10})],
)
def test_a_team_stands_by_its_players(by: str, expected: dict[str, int]) -> None:
    oracle = oracle_with(team={"attribute": "guild", "by": by}, score_max=10)
    red, blue = {"guild": "red"}, {"guild": "blue"}

    send(oracle, Row("ann", 9, attributes=red), Row("bob", 4, attributes=red), Row("cat", -6, attributes=red))
    send(oracle, Row("ann", 10, attributes=blue), ("dan", 8))

    assert scores(oracle) == expected


def test_removing_a_player_withdraws_what_the_teams_had_of_them() -> None:
    oracle = oracle_with(team={"attribute": "guild", "by": "sum"})
    red, blue = {"guild": "red"}, {"guild": "blue"}
    send(oracle, Row("ann", 9, attributes=red), Row("bob", 4, attributes=red), Row("ann", 5, attributes=blue))

    assert oracle.remove("b", "ann") is True
    assert oracle.remove("b", "ann") is False
    assert scores(oracle) == {"red": 4}


def test_a_decaying_score_loses_its_share() -> None:
    oracle = oracle_with(decay={"factor": 0.5, "every": "1d"}, ties="player", score_min=1)
    send(oracle, ("ann", 1_000))
    oracle.now += DAY
    send(oracle, ("bob", 400), ("cat", 500))
    oracle.now += DAY

    assert [(line.player, line.rank) for line in lines(oracle, ranking="competition")] == [
        ("ann", 1),
        ("cat", 1),
        ("bob", 3),
    ]
    assert scores(oracle) == {"ann": Between(250, 250), "cat": Between(250, 250), "bob": Between(200, 200)}


def test_feeds_count_under_their_own_rules() -> None:
    oracle = Oracle(NOON)
    oracle.define("xp", {"keep": "sum", "score_max": 50})
    oracle.define("b", {"keep": "best", "feeds": ["xp"]})

    send(oracle, ("ann", 10), ("ann", 7), ("ann", 60))

    assert (scores(oracle), scores(oracle, board="xp")) == ({"ann": 60}, {"ann": 17})


def test_a_window_closes_after_its_end_and_is_archived_after_its_retention() -> None:
    oracle = oracle_with(windows=["daily"], retention="2d", late_by="1h")
    send(oracle, ("ann", 5))
    oracle.now = MONDAY + DAY + HOUR - 1
    send(oracle, Row("bob", 6, at=MONDAY + DAY - 1))
    assert refused(oracle, Row("bob", 6, at=MONDAY + DAY - 2)) == "invalid_value"
    oracle.now += 1
    send(oracle, Row("cat", 7, at=NOON), imported=True)

    assert scores(oracle, "daily:previous") == {"ann": 5, "bob": 6}
    oracle.now += 2 * DAY - 1
    instance_ref = oracle.resolve_at("b", Window("daily", "daily"), NOON)
    assert (instance_ref[2].name, oracle.table(*instance_ref, None).total) == ("daily:2026-05-04", 2)
    oracle.now += 1
    instance_ref = oracle.resolve_at("b", Window("daily", "daily"), NOON)
    oracle.remove("b", "ann")
    assert oracle.table(*instance_ref, None).total == 2, "what is archived stays"
    with pytest.raises(Refusal, match="window_gone"):
        oracle.resolve_at("b", Window("daily", "daily"), NOON - DAY)


def test_an_import_counts_once_in_a_past_window_that_nobody_had_closed() -> None:
    oracle = oracle_with(windows=["daily"])
    send(oracle, Row("ann", 5, at=NOON - DAY), Row("bob", 6, at=NOON - DAY), imported=True)
    send(oracle, Row("cat", 7, at=NOON - DAY), imported=True)

    assert scores(oracle, "daily:previous") == {"ann": 5, "bob": 6}


def test_rank_change_counts_from_the_last_midnight() -> None:
    oracle = oracle_with(windows=["weekly", "daily"], ties="player")
    send(oracle, ("ann", 5), ("bob", 4))
    oracle.now += DAY
    send(oracle, ("bob", 9), ("cat", 7))

    instance_ref = oracle.resolve("b", "weekly")
    changes = [
        oracle.rank_change(instance_ref, "global", oracle.table(*instance_ref, None), who)
        for who in ("ann", "bob", "cat")
    ]

    assert changes == [-2, 1, None]


def test_a_key_counts_once_within_a_day() -> None:
    oracle = oracle_with(keep="sum")
    first = oracle.submit("b", Row("ann", 5), key="k")
    oracle.now += DAY - 1
    assert oracle.submit("b", Row("ann", 5), key="k") == (first[0], True)
    assert refused(oracle, Row("ann", 6), key="k") == "key_reused"
    oracle.now += 1

    assert oracle.submit("b", Row("ann", 5), key="k")[1] is False
    assert scores(oracle) == {"ann": 10}


def test_a_newcomer_stands_behind_all_who_are_level() -> None:
    oracle = oracle_with()
    send(oracle, ("ann", 5), ("bob", 5), ("cat", 3))
    table = oracle.table(*oracle.resolve("b", None), None)

    places = {
        score: [table.rank_of_score(score, 0, ranking, oracle.at) for ranking in ("ordinal", "competition", "dense")]
        for score in (6, 5, 4, 3)
    }

    assert places == {6: [1, 1, 1], 5: [3, 1, 1], 4: [3, 3, 2], 3: [4, 3, 2]}


def test_definitions_grow_but_do_not_turn() -> None:
    oracle = oracle_with(windows=["all_time"], keep={"all_time": "sum"})
    oracle.define(
        "b", {"windows": ["all_time", "daily"], "keep": {"all_time": "sum"}, "scopes": ["country"], "late_by": "1d"}
    )

    turns: list[dict[str, Any]] = [
        {"keep": "best"},
        {"order": "asc"},
        {"windows": ["daily", "all_time"]},
        {"scopes": []},
    ]
    for change in turns:
        changed = {"windows": ["all_time", "daily"], "keep": {"all_time": "sum"}, "scopes": ["country"], **change}
        with pytest.raises(Refusal, match="definition_conflict"):
            oracle.define("b", changed)


def test_a_board_defined_again_starts_empty() -> None:
    oracle = oracle_with()
    send(oracle, ("ann", 5))
    oracle.delete("b")
    with pytest.raises(Refusal, match="board_unknown"):
        oracle.resolve("b", None)

    oracle.define("b", {})

    assert scores(oracle) == {}
