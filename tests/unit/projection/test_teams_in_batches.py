"""A batch changes teams as its events do one after the other: scores, ties, metadata, in every window and scope."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from rankd import Boards, ManualClock

if TYPE_CHECKING:
    from tests.unit.conftest import OpenBoards

NOON = 1_777_896_000_000
BATCHES, EVENTS_MAX = 5, 30
KEEPS = ["latest", "sum", "best", {"daily": "latest", "weekly": "sum_of_daily"}]


def standings(boards: Boards) -> list[object]:
    """What every window and scope shows of the teams, metadata included."""
    return [
        boards.top("guilds", window=window, scope=scope, limit=100).entries
        for window in ("daily", "weekly")
        for scope in ("global", "country:BR", "country:JP")
    ]


def chance_events(rng: random.Random, at: int) -> list[dict[str, Any]]:
    """Few players and few scores: teams come back to scores they had, and lose their best."""
    events = []
    for number in range(rng.randint(1, EVENTS_MAX)):
        event = {
            "player": f"p{rng.randrange(12)}",
            "score": rng.choice([rng.randint(-4, 4), rng.randint(-90, 90)]),
            "attributes": {"guild": rng.choice(["reds", "blues", "greens"]), "country": rng.choice(["BR", "JP"])},
            "at": at + 1_000 * number,
        }
        if rng.random() < 0.3:
            event["metadata"] = {"number": number}
        events.append(event)
    return events


@pytest.mark.parametrize("keep", KEEPS, ids=["latest", "sum", "best", "roll_up"])
@pytest.mark.parametrize("by", ["sum", "average", "best"])
def test_a_batch_leaves_what_single_events_leave(
    open_boards: OpenBoards, clock: ManualClock, rng: random.Random, *, by: str, keep: object
) -> None:
    definition: dict[str, Any] = {
        "windows": ["daily", "weekly"],
        "keep": keep,
        "ties": rng.choice(["earliest", "latest", "player"]),
        "tie_resolution": "1s",
        "order": rng.choice(["asc", "desc"]),
        "team": {"attribute": "guild", "by": by},
        "scopes": ["country"],
        "late_by": "1d",
        # Sums and roll-ups reach these bounds now and then.
        "score_min": -100,
        "score_max": 100,
    }
    batched, single = open_boards("batched"), open_boards("single")
    for boards in (batched, single):
        boards.define("guilds", **definition)
    for number in range(BATCHES):
        events = chance_events(rng, NOON + 100_000 * number)
        clock.advance(100_000)
        batched.submit_many("guilds", events)
        for event in events:
            single.submit("guilds", event.pop("player"), event.pop("score"), **event)
        assert standings(batched) == standings(single), f"batch {number}"
        if number == BATCHES // 2:
            for boards in (batched, single):
                boards.remove("guilds", "p3")
    batched.verify()


def test_a_team_whose_best_gets_worse_falls_to_a_player_whom_the_batch_leaves_alone(boards: Boards) -> None:
    boards.define("guilds", keep="latest", team={"attribute": "guild", "by": "best"})
    about = {"attributes": {"guild": "reds"}}
    boards.submit_many(
        "guilds",
        [{"player": player, "score": score, **about} for player, score in zip("abcd", (9, 7, 5, 3), strict=True)],
    )
    boards.submit_many("guilds", [{"player": player, "score": 1, **about} for player in "aba"])
    assert [entry.score for entry in boards.top("guilds").entries] == [5]
    boards.submit_many("guilds", [{"player": player, "score": 0, **about} for player in "abcd"])
    assert [entry.score for entry in boards.top("guilds").entries] == [0]
    boards.verify()


def test_a_large_team_loses_its_best_in_one_batch(boards: Boards) -> None:
    boards.define("guilds", keep="latest", team={"attribute": "guild", "by": "best"})
    players = [f"p{number}" for number in range(3_000)]
    for some, scores in ((players, range(3_000)), (players[1:], [-1] * 2_999)):
        boards.submit_many("guilds", players=some, scores=list(scores), attributes={"guild": ["reds"] * len(some)})
    assert [entry.score for entry in boards.top("guilds").entries] == [0]
    boards.verify()
