"""A team's score is made of what its players kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.definition import define_board
from rankd.domain.order import Keep, Ties
from rankd.domain.team import Contributions, Team, TeamBy
from rankd.errors import InvalidValue

GUILDS = Team("guild", TeamBy.SUM)


def score_of(by: TeamBy, *scores: int) -> int | None:
    """The score of a team to which players contribute these."""
    return Contributions(sum(scores), len(scores)).score(by, -100, 100)


def test_a_sum_is_held_wide_and_clamped_when_read() -> None:
    assert score_of(TeamBy.SUM, 60, 30, 5) == 95
    assert score_of(TeamBy.SUM, 60, 60) == 100
    assert score_of(TeamBy.SUM, 60, 60, -50) == 70


def test_an_average_is_floored_over_those_who_contribute() -> None:
    assert score_of(TeamBy.AVERAGE, 3, 4) == 3
    assert score_of(TeamBy.AVERAGE, -3, -4) == -4
    assert score_of(TeamBy.AVERAGE, 0, 0, 1) == 0


def test_an_average_is_taken_of_the_wide_sum() -> None:
    assert score_of(TeamBy.AVERAGE, 100, 100, 100) == 100


@pytest.mark.parametrize("by", TeamBy)
def test_a_team_to_which_nobody_contributes_has_no_score(by: TeamBy) -> None:
    assert score_of(by) is None


@given(
    st.sampled_from([TeamBy.SUM, TeamBy.AVERAGE]),
    st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(-100, 100)), max_size=30),
)
def test_contributions_kept_up_to_date_give_the_score_of_the_definition(
    by: TeamBy, changes: list[tuple[int, int | None]]
) -> None:
    held, kept = Contributions(), dict[int, int]()
    for player, score in changes:
        held = held.replaced(kept.get(player), score)
        if score is None:
            kept.pop(player, None)
        else:
            kept[player] = score
    assert held.score(by, -100, 100) == score_of(by, *kept.values())


def test_an_event_counts_for_the_team_its_attribute_names_or_for_none() -> None:
    assert GUILDS.team_of({"guild": "red", "country": "BR"}) == "red"
    assert GUILDS.team_of({"country": "BR"}) is None


@pytest.mark.parametrize("team", [".", ".."])
def test_a_team_stands_where_a_player_would_so_it_keeps_the_rule_of_their_ids(team: str) -> None:
    with pytest.raises(InvalidValue, match=r"^attributes.guild: must not be"):
        GUILDS.team_of({"guild": team})


def test_a_team_board_keeps_players_by_its_rule_and_ranks_the_newest_total() -> None:
    board = define_board("guilds", {"team": {"attribute": "guild", "by": "sum"}, "keep": "best"})
    assert board.contribution_rules_for(board.first_window).keep is Keep.BEST
    assert board.rules_for(board.first_window).keep is Keep.LATEST


def _team_board(by: str = "sum", **definition: object) -> None:
    define_board("guilds", {"team": {"attribute": "guild", "by": by}, **definition})


def test_tiebreaks_order_teams_only_by_their_best() -> None:
    _team_board("best", ties=Ties.VALUE)
    with pytest.raises(InvalidValue, match=r"^ties: .*tiebreaks do not add up"):
        _team_board("average", ties="value")


def test_a_team_board_neither_decays_nor_estimates() -> None:
    with pytest.raises(InvalidValue, match=r"^decay: is not possible on a team board"):
        _team_board(decay={"factor": 0.9, "every": "1d"}, score_min=1, ties="player")
    with pytest.raises(InvalidValue, match=r"^exact_top: is not possible on a team board"):
        _team_board(exact_top=10)


@pytest.mark.parametrize(
    ("team", "field"),
    [
        ({"attribute": "guild"}, "team.by"),
        ({"attribute": "guild", "by": "median"}, "team.by"),
        ({"by": "sum"}, "team.attribute"),
        ({"attribute": "global", "by": "sum"}, "team.attribute"),
        ({"attribute": "guild", "by": "sum", "buy": 1}, "team.buy"),
        ("guild", "team"),
    ],
)
def test_what_is_no_team_is_refused_under_its_fields_name(team: object, field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        define_board("guilds", {"team": team})
    assert refused.value.field == field
