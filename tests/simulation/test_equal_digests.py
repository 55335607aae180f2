"""An embedded instance and a scaled-out one that were sent the same rank the same, to the digest of each instance.

Everything that ranks is among the boards: every keep and tie, roll-ups, scopes, feeds, teams, decay, removals and
resets, scores that a double can hold and scores that it cannot, one shard and three.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import rankd

from .conftest import LendStores, Stores
from .extent import replayable, scratch_folder, short_and_long
from .scaled_installation import (
    SteppedProjector,
    check_mirrored,
    open_api,
    recomputed,
    shards_by_board,
    standing_instances,
)

NOON = int(datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()) * 1_000
HOUR_MS = 3_600_000
WINDOWS = ["all_time", "weekly", "daily"]
WIDE = {"score_min": -(2**63), "score_max": 2**63 - 1}
SMALL = {"score_min": 0, "score_max": 10_000}
BOARDS: dict[str, dict[str, Any]] = {  # fed ones first
    "cut": {"keep": "sum", "windows": ["all_time", "hourly"], "scopes": ["country"], "shards": 3},
    "cut-wide": {"keep": "latest", "ties": "value", "order": "asc", "windows": WINDOWS, "shards": 3, **WIDE},
    "cut-small": {"ties": "player", "windows": WINDOWS, "shards": 3, **SMALL},
    "totals": {"keep": {"daily": "best", "weekly": "sum_of_daily"}, "windows": ["weekly", "daily"], "shards": 3},
    "guilds": {"team": {"attribute": "guild", "by": "sum"}, "keep": "best", "windows": WINDOWS},
    "heroes": {"team": {"attribute": "guild", "by": "best"}, "keep": "latest", "windows": ["daily"], "shards": 3},
    "ladder": {
        "decay": {"factor": 0.9, "every": "1d"},
        "ties": "player",
        "score_min": 1,
        "score_max": 2**40,
        "keep": "best",
    },
    "small": {"keep": "first", "ties": "latest", "windows": WINDOWS, "ranking": "dense", **SMALL},
    "wide": {"keep": "latest", "ties": "earliest", "tie_resolution": "1ms", "windows": WINDOWS, **WIDE},
    "arcade": {
        "windows": ["all_time", "monthly", "weekly", "daily"],
        "scopes": ["country", "guild"],
        "feeds": ["cut", "totals", "guilds", "heroes", "ladder"],
        "late_by": "1h",
    },
}
SENT_TO = ["arcade", "arcade", "cut-wide", "cut-small", "small", "wide", "guilds", "cut"]
PLAYERS = [*(f"player-{number}" for number in range(120)), "Zoë", "日本", "x'/%?"]
DAYS, BATCHES, ROWS_MAX = 4, 10, 30
DAYS_LONG, BATCHES_LONG = 40, 60


class Twins:
    """Both of them, sent everything at the same time."""

    def __init__(self, folder: Path, stores: Stores) -> None:
        self.clock = rankd.ManualClock(NOON)
        self.embedded = rankd.open(folder / "embedded", clock=self.clock)
        self._stores = stores
        self._projector = SteppedProjector(*stores, folder / "projector", self.clock)
        running, _ = open_api(*stores, self.clock, self._projector.project)
        self.scaled_out = rankd.Boards(running)

    def tell(self, verb: str, *what: Any, **more: Any) -> None:
        for boards in (self.embedded, self.scaled_out):
            getattr(boards, verb)(*what, **more)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.embedded.settle()
        self._projector.project()

    def check_equal(self) -> int:
        """Compare what is ranked in the library with Redis, and with what the other ledger says; return instances."""
        self._projector.project()
        engine = self.embedded.rank_store
        anew = recomputed(self._stores.ledger_url)
        assert standing_instances(anew.store) == standing_instances(engine)
        return check_mirrored(engine, self._stores.ranks_url, shards_by_board(anew))

    def close(self) -> None:
        self.embedded.close()
        self.scaled_out.close()
        self._projector.die()


@pytest.fixture
def twins(lend_stores: LendStores) -> Iterator[Twins]:
    with scratch_folder() as folder, lend_stores(8) as stores, closing(Twins(folder, stores)) as both:
        yield both


def some_rows(rng: random.Random, board: str, now: int) -> list[dict[str, Any]]:
    low, high = BOARDS[board].get("score_min", -(2**53) + 1), BOARDS[board].get("score_max", 2**53 - 1)
    rows = []
    for player in rng.choices(PLAYERS, k=rng.randint(1, ROWS_MAX)):
        score = rng.choice([rng.randint(1, 9), rng.randint(1, 10_000), rng.randint(low, high), low, high])
        rows.append(
            {
                "board": board,
                "player": player,
                "score": min(max(score, low), high),
                "tiebreak": rng.randint(0, 3),
                "at": now - rng.choice([0, 0, 1, rng.randint(0, 240_000)]),
                "attributes": {"country": rng.choice(["BR", "AR", "日本"]), "guild": rng.choice(["red", "blue"])},
            }
        )
    return rows


@short_and_long
def test_both_rank_alike_what_both_were_sent(twins: Twins, everything: bool) -> None:
    with replayable() as rng:
        for board, definition in BOARDS.items():
            twins.tell("define", board, definition)
        instances = 0
        for _ in range(DAYS_LONG if everything else DAYS):
            for _ in range(BATCHES_LONG if everything else BATCHES):
                boards = rng.sample(SENT_TO, rng.randint(1, 3))
                twins.tell(
                    "submit_events", [row for board in boards for row in some_rows(rng, board, twins.clock.now())]
                )
                if rng.random() < 0.3:
                    twins.tell("remove", rng.choice(list(BOARDS)), rng.choice([*PLAYERS, "red"]))
                twins.clock.advance(rng.randint(1, HOUR_MS // 2))
            if rng.random() < 0.5:
                twins.tell("reset", rng.choice(["arcade", "cut-small", "totals", "guilds"]), None)
            instances = max(instances, twins.check_equal())
            twins.advance(rng.randint(HOUR_MS, 30 * HOUR_MS))
        instances = max(instances, twins.check_equal())
        assert instances > len(BOARDS), "most boards have several windows and scopes"


def test_many_scores_of_one_request_rank_alike(twins: Twins) -> None:
    players = [f"player-{number}" for number in range(20_000)]
    rng = random.Random(1)
    scores = [rng.randint(0, 10_000) for _ in players]
    for board in ("cut-small", "wide"):
        twins.tell("define", board, BOARDS[board])
        for _ in range(2):
            twins.tell("submit_many", board, players=players, scores=rng.sample(scores, len(scores)))
    assert twins.check_equal() == 6
