"""Team boards: what players contribute makes the team's score; moving leaves it, removing withdraws it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from rankd import Boards, ManualClock
from rankd.domain.team import TeamBy

if TYPE_CHECKING:
    from tests.unit.conftest import OpenBoards

DAY_MS = 86_400_000


def define(boards: Boards, by: str, **options: Any) -> None:
    boards.define("guilds", team={"attribute": "guild", "by": by}, **options)


def send(boards: Boards, player: str, score: int, guild: str, **about: Any) -> None:
    boards.submit("guilds", player, score, attributes={"guild": guild}, **about)


def teams(boards: Boards, **about: Any) -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top("guilds", **about).entries}


@pytest.mark.parametrize(
    ("by", "reds", "blues"), [("sum", -7, 5), ("average", -4, 5), ("best", 3, 5)], ids=["sum", "average", "best"]
)
def test_a_teams_score_is_made_of_its_players_scores(boards: Boards, by: str, reds: int, blues: int) -> None:
    define(boards, by)
    send(boards, "alice", 3, "reds")
    send(boards, "bob", -10, "reds")
    send(boards, "carol", 5, "blues")

    assert teams(boards) == {"reds": reds, "blues": blues}
    boards.verify()


def test_an_average_is_rounded_down_also_below_zero(boards: Boards) -> None:
    define(boards, "average", keep="latest")
    for score, average in [(-1, -1), (0, 0), (-3, -3)]:
        send(boards, "alice", score, "reds")
        assert teams(boards) == {"reds": average}
    send(boards, "bob", 0, "reds")
    assert teams(boards) == {"reds": -2}  # -3 / 2
    send(boards, "carol", 4, "reds")
    assert teams(boards) == {"reds": 0}  # 1 / 3


def test_each_player_contributes_by_the_boards_keep_rule(boards: Boards) -> None:
    define(boards, "sum", keep="best")
    for score in (5, 3, 9):
        send(boards, "alice", score, "reds")
    send(boards, "bob", 1, "reds")
    assert teams(boards) == {"reds": 10}


def test_a_sum_is_held_wide_and_comes_back(open_boards: OpenBoards) -> None:
    boards = open_boards()
    define(boards, "sum", keep="latest", score_max=2**63 - 1, score_min=-(2**63))
    for player in "abcdef":
        send(boards, player, 2**63 - 1, "reds")
    assert teams(boards) == {"reds": 2**63 - 1}
    boards.close()

    boards = open_boards()
    for player in "abcde":
        send(boards, player, -(2**63), "reds")
    assert teams(boards) == {"reds": -(2**63)}
    for player in "abcde":
        send(boards, player, 0, "reds")
    send(boards, "f", 7, "reds")
    assert teams(boards) == {"reds": 7}
    boards.verify()


def test_moving_leaves_the_old_contribution_behind(boards: Boards) -> None:
    define(boards, "sum")
    send(boards, "alice", 5, "reds")
    send(boards, "alice", 3, "blues")
    assert teams(boards) == {"reds": 5, "blues": 3}


@pytest.mark.parametrize("by", list(TeamBy))
def test_removing_a_player_withdraws_everything_from_every_team(boards: Boards, clock: ManualClock, by: str) -> None:
    define(boards, by, windows=["all_time", "daily"])
    send(boards, "alice", 5, "reds")
    send(boards, "bob", 3, "reds")
    send(boards, "alice", 4, "blues")
    clock.advance(DAY_MS)
    send(boards, "alice", 9, "reds")
    assert boards.remove("guilds", "alice").changed

    assert teams(boards) == {"reds": 3}
    assert teams(boards, window="daily:2026-05-04") == {"reds": 3}
    assert teams(boards, window="daily") == {}
    assert not boards.remove("guilds", "alice").changed
    send(boards, "alice", 1, "reds")
    assert teams(boards)["reds"] == {"sum": 4, "average": 2, "best": 3}[by]
    boards.verify()


def test_an_event_without_a_team_counts_nowhere(boards: Boards) -> None:
    define(boards, "sum")
    answer = boards.submit("guilds", "alice", 5)
    assert (answer.rank, answer.score, answer.changed) == (None, None, False)
    assert teams(boards) == {}


def test_the_team_comes_from_the_profile_when_it_is_not_sent(boards: Boards) -> None:
    define(boards, "sum")
    boards.set_player("alice", attributes={"guild": "reds"})
    answer = boards.submit("guilds", "alice", 5)
    assert (answer.score, answer.rank) == (5, 1)
    boards.set_player("alice", attributes={"guild": "blues"})
    boards.submit("guilds", "alice", 5)
    assert teams(boards) == {"reds": 5, "blues": 5}


def test_the_best_by_value_brings_its_tiebreak_along(boards: Boards) -> None:
    define(boards, "best", ties="value", keep="latest")
    send(boards, "alice", 5, "reds", tiebreak=1)
    send(boards, "bob", 5, "reds", tiebreak=9)
    send(boards, "carol", 5, "blues", tiebreak=4)
    assert [(entry.player, entry.score, entry.tiebreak) for entry in boards.top("guilds").entries] == [
        ("reds", 5, 9),
        ("blues", 5, 4),
    ]
    boards.remove("guilds", "bob")
    assert [(entry.player, entry.tiebreak) for entry in boards.top("guilds").entries] == [("blues", 4), ("reds", 1)]
    send(boards, "carol", 1, "blues", tiebreak=4)
    assert teams(boards) == {"reds": 5, "blues": 1}


def test_the_lowest_is_best_where_less_is_better(boards: Boards) -> None:
    define(boards, "best", order="asc", keep="latest")
    send(boards, "alice", 50, "reds")
    send(boards, "bob", 40, "reds")
    assert teams(boards) == {"reds": 40}
    send(boards, "bob", 60, "reds")
    assert teams(boards) == {"reds": 50}


def test_scopes_hold_teams_by_those_who_play_there(boards: Boards) -> None:
    define(boards, "sum", scopes=["country"])
    for player, country, score in [("alice", "BR", 5), ("bob", "PT", 3)]:
        boards.submit("guilds", player, score, attributes={"guild": "reds", "country": country})
    assert teams(boards) == {"reds": 8}
    assert teams(boards, scope="country:BR") == {"reds": 5}


@pytest.mark.parametrize("by", list(TeamBy))
def test_a_reset_empties_teams_and_contributions(boards: Boards, by: str) -> None:
    define(boards, by, windows=["all_time", "daily"], keep="sum")
    send(boards, "alice", 5, "reds")
    boards.reset("guilds", "daily")
    assert (teams(boards), teams(boards, window="daily")) == ({"reds": 5}, {})
    send(boards, "alice", 2, "reds")
    assert (teams(boards), teams(boards, window="daily")) == ({"reds": 7}, {"reds": 2})
    boards.verify()


def test_teams_add_up_days_and_follow_their_resets(boards: Boards, clock: ManualClock) -> None:
    define(boards, "sum", windows=["weekly", "daily"], keep={"daily": "best", "weekly": "sum_of_daily"})
    send(boards, "alice", 5, "reds")
    clock.advance(DAY_MS)
    send(boards, "alice", 7, "reds")
    send(boards, "bob", 1, "blues")
    assert teams(boards) == {"reds": 12, "blues": 1}
    boards.reset("guilds", "daily")
    assert teams(boards) == {"reds": 5}
    boards.verify()


@pytest.mark.parametrize("by", list(TeamBy))
def test_a_team_board_is_what_its_contributions_make_of_it(
    open_boards: OpenBoards, by: str, rng: random.Random
) -> None:
    boards = open_boards()
    define(boards, by, keep="latest", score_min=-50, score_max=50)
    held: dict[str, dict[str, int]] = {}
    for step in range(80):
        player = f"p{rng.randrange(6)}"
        if rng.random() < 0.1:
            boards.remove("guilds", player)
            for players in held.values():
                players.pop(player, None)
        elif rng.random() < 0.03:
            boards.reset("guilds")
            held.clear()
        else:
            sent = [(f"p{rng.randrange(6)}", rng.randint(-50, 50), rng.choice("xyz")) for _ in range(rng.randint(1, 5))]
            boards.submit_many(
                "guilds", [{"player": who, "score": score, "attributes": {"guild": team}} for who, score, team in sent]
            )
            for who, score, team in sent:
                held.setdefault(team, {})[who] = score
        if step == 40:
            boards.close()
            boards = open_boards()
    expected = {}
    for team, players in held.items():
        if players:
            scores = list(players.values())
            made = {"sum": sum(scores), "average": sum(scores) // len(scores), "best": max(scores)}[by]
            expected[team] = max(-50, min(50, made))
    assert teams(boards) == expected
    boards.verify()
