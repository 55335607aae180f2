"""A team's score is made of what its players kept."""

from __future__ import annotations

import pytest

from rankd.domain.definition import define_board
from rankd.domain.order import Keep, Ties
from rankd.domain.team import Team, TeamBy
from rankd.errors import InvalidValue

GUILDS = Team("guild", TeamBy.SUM)


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
