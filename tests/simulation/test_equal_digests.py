"""An embedded instance and another one that were sent the same rank the same, to the digest of each instance.

The other one has its ranks in Redis, or its ledger in Kafka.

Everything that ranks is among the boards: every keep and tie, roll-ups, scopes, feeds, teams, decay, removals and
resets, scores that a double can hold and scores that it cannot, one shard and three.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.servers.waiting import wait_until

import rankd
from rankd.domain.partition import partition_of
from rankd.node import ledger_tending
from rankd.node.open_node import open_node
from rankd.node.shared_stores import SharedStores
from rankd.projection.verify import digests

from .conftest import LendStores, Stores
from .extent import replayable, scratch_folder, short_and_long
from .kafka_world import TICK_MS, kafka_stores
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
PARTITIONS = 8
NEVER_MS = 3_600_000
DAYS, BATCHES, ROWS_MAX = 4, 10, 30
DAYS_LONG, BATCHES_LONG = 40, 60


class Twins:
    """An embedded instance and another one, sent everything at the same time."""

    def __init__(self, folder: Path) -> None:
        self.clock = rankd.ManualClock(NOON)
        self.embedded = rankd.open(folder / "embedded", clock=self.clock)

    @property
    def other(self) -> rankd.Boards:
        """The other instance."""
        raise NotImplementedError

    def settle(self) -> None:
        """Let the other one do what is due, and rank everything."""
        raise NotImplementedError

    def check_equal(self) -> int:
        """Compare what both rank; return how many instances that are."""
        raise NotImplementedError

    def tell(self, verb: str, *what: Any, **more: Any) -> None:
        for boards in (self.embedded, self.other):
            getattr(boards, verb)(*what, **more)

    def submit(self, rows: list[dict[str, Any]]) -> None:
        self.tell("submit_events", rows)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.embedded.settle()
        self.settle()

    def close(self) -> None:
        self.embedded.close()
        self.other.close()


class RedisTwins(Twins):
    """The other one is a thin process on PostgreSQL, with its ranks in Redis."""

    def __init__(self, folder: Path, stores: Stores) -> None:
        super().__init__(folder)
        self._stores = stores
        self._projector = SteppedProjector(*stores, folder / "projector", self.clock)
        running, _ = open_api(*stores, self.clock, self._projector.project)
        self._thin = rankd.Boards(running)

    @property
    def other(self) -> rankd.Boards:
        return self._thin

    def settle(self) -> None:
        self._projector.project()

    def check_equal(self) -> int:
        """Compare what is ranked in the library with Redis, and with what the other ledger says."""
        self._projector.project()
        engine = self.embedded.rank_store
        anew = recomputed(self._stores.ledger_url)
        assert standing_instances(anew.store) == standing_instances(engine)
        return check_mirrored(engine, self._stores.ranks_url, shards_by_board(anew))

    def close(self) -> None:
        super().close()
        self._projector.die()


class KafkaTwins(Twins):
    """The other one is a node on a Kafka ledger."""

    def __init__(self, folder: Path, stores: SharedStores) -> None:
        super().__init__(folder)
        self._node = open_node(stores, folder / "node", clock=self.clock, at_least_wait_ms=0)

    @property
    def other(self) -> rankd.Boards:
        return self._node

    def tell(self, verb: str, *what: Any, **more: Any) -> None:
        self.clock.advance(TICK_MS)
        super().tell(verb, *what, **more)
        self.settle()  # a change is checked by the definitions that were followed

    def submit(self, rows: list[dict[str, Any]]) -> None:
        """Submit rows in the order in which teams get scores of one time: by partition."""
        super().submit(sorted(rows, key=lambda row: partition_of(row["player"], PARTITIONS)))

    def settle(self) -> None:
        wait_until(self._has_settled)

    def _has_settled(self) -> bool:
        self._node.settle()
        backend: Any = self._node._backend
        follower = backend._ranks.follower
        backend.ledger.tend(follower.time_awaited)  # by hand: no mark of time comes into the middle of a batch
        return bool(backend.holds_lease and not follower.waiting)

    def check_equal(self) -> int:
        self.settle()
        expected, ranked = digests(self.embedded.rank_store), digests(self._node.rank_store)
        assert ranked == expected
        return len(standing_instances(self._node.rank_store))


@pytest.fixture(params=["redis", "kafka"])
def twins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Twins]:
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        made: Twins
        if request.param == "redis":
            lend_stores: LendStores = request.getfixturevalue("lend_stores")
            made = RedisTwins(folder, stack.enter_context(lend_stores(PARTITIONS)))
        else:
            monkeypatch.setattr(ledger_tending, "TEND_EVERY_MS", NEVER_MS)
            kafka, postgres = (request.getfixturevalue(name) for name in ("kafka", "postgres"))
            made = KafkaTwins(folder, stack.enter_context(kafka_stores(kafka, postgres, PARTITIONS)))
        stack.enter_context(closing(made))
        yield made


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
                twins.submit([row for board in boards for row in some_rows(rng, board, twins.clock.now())])
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
