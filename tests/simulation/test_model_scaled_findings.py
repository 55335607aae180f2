"""What runs against the scaled-out composition have found, each in the fewest steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import rankd
from rankd.domain.instance import InstanceKey
from rankd.errors import RanksUnavailable
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node import projector
from rankd.redis.connection.client import connect
from rankd.redis.fallback.standings_sync import StandingsSync
from rankd.redis.read.reader import RedisReader
from rankd.redis.write import backfill as missed

from . import scaled_world
from .conftest import LendStores
from .extent import scratch_folder
from .oracle import Row
from .reads import ReadTop
from .scaled_installation import entries
from .scaled_world import ScaledOracle, ScaledWorld
from .steps import Advance, Define, Delete, SetBack, SetProfile, Step, Submit, SubmitMany, TakeSnapshot, Verify

NOON = 1_777_896_000_000
HOUR = 3_600_000
DAY = 24 * HOUR

Do = Callable[..., ScaledWorld]


@pytest.fixture
def do(lend_stores: LendStores, monkeypatch: pytest.MonkeyPatch) -> Iterator[Do]:
    """Do steps, between which the projector does nothing unless it must."""
    monkeypatch.setattr(scaled_world, "SETTLED_BY_CHANCE", 0.0)
    monkeypatch.setattr(projector, "BOARD_IDLE_MS", 0)
    monkeypatch.setattr(projector, "BEAT_MS", 0)
    monkeypatch.setattr(projector, "StandingsSync", partial(StandingsSync, every_ms=50))
    with scratch_folder() as folder, lend_stores(3) as stores:
        clock = rankd.ManualClock(NOON)
        world = ScaledWorld(folder / "p", clock, ScaledOracle(NOON), **stores._asdict(), rng=random.Random(1))

        def done(*steps: Step) -> ScaledWorld:
            for step in steps:
                step.do(world)
            return world

        try:
            yield done
        finally:
            world.close()


def sent(player: str, score: int, **more: Any) -> Step:
    return Submit("b", Row(player, score, **more))


def everybody(ranking: str | None = None) -> Step:
    return ReadTop("b", None, None, ranking, limit=10, offset=0)


def test_a_board_is_defined_anew_without_its_window_before_its_deletion_was_sent(do: Do) -> None:
    days, weeks = Define("b", {"windows": ["daily"]}), Define("b", {"windows": ["weekly"]})
    do(days, sent("ann", 1), Verify(), Delete("b"), weeks, sent("bob", 2), everybody(), Verify())


def test_a_board_is_defined_anew_with_another_first_window(do: Do) -> None:
    first, other = Define("b", {"windows": ["daily", "weekly"]}), Define("b", {"windows": ["weekly", "daily"]})
    do(first, sent("ann", 1), Verify(), Delete("b"), other, Verify(), sent("bob", 2), everybody(), Verify())


def test_a_board_is_defined_anew_with_fewer_shards(do: Do) -> None:
    cut, whole = Define("b", {"shards": 3}), Define("b", {"shards": 1})
    do(cut, sent("ann", 1), Delete("b"), whole, sent("bob", 2), everybody(), Delete("b"), cut, everybody(), Verify())


def test_a_board_becomes_dense_while_nobody_writes_to_it(do: Do) -> None:
    dense = Define("b", {"ranking": "dense"})
    do(Define("b", {}), sent("ann", 2), sent("bob", 2), sent("cat", 1), dense, everybody())


def test_redis_is_emptied_while_the_clock_stands_before_the_last_write(do: Do) -> None:
    world = do(Define("b", {}), sent("ann", 1), SetBack(HOUR, "b"))
    world._harm_redis("flush")
    do(everybody(), sent("bob", 2), everybody())


def test_what_is_over_by_the_ledger_takes_no_import_when_the_clock_is_set_back(do: Do) -> None:
    late = SubmitMany("b", (Row("bob", 2, at=NOON),), imported=True)
    soon = SubmitMany("b", (Row("ann", 1, at=NOON),), imported=True)
    do(Define("b", {"windows": ["daily"]}), Advance(13 * HOUR), SetBack(2 * HOUR, "b"), soon, late, everybody())


def test_a_key_is_free_again_after_its_time(do: Do) -> None:
    first, again = Submit("b", Row("ann", 1), "key"), Submit("b", Row("bob", 2), "key")
    do(Define("b", {}), first, Advance(DAY), again, everybody())


def test_what_a_team_had_before_follows_from_the_players_profile(do: Do) -> None:
    profile = {"name": "Ann", "avatar_url": None, "country": None, "attributes": {"guild": "red"}}
    teams = Define("b", {"team": {"attribute": "guild", "by": "sum"}, "keep": "sum"})
    do(teams, SetProfile("ann", profile), sent("ann", 1), sent("ann", 2))


@pytest.mark.parametrize("harm", ["flush", "roll back"])
def test_a_write_that_redis_refused_is_not_passed_over_by_the_next(
    do: Do, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projector, "READ_EVENTS", 6)
    monkeypatch.setattr(missed, "READ_EVENTS", 3)
    world = do(Define("b", {"keep": "sum"}), sent("first", 1), TakeSnapshot())
    for turn in range(3):
        rows = tuple(Row(f"player-{turn}-{number}", number) for number in range(40))
        do(SubmitMany("b", rows))
        for _ in range(2):
            world.projector.step()
        world._harm_redis(harm)
        for _ in range(3):  # the first is refused, and known to be when the second is sent
            world.projector.step()
            check_positions_hold(world)
        world.projector.die()
        world._start_projector()
        do(Verify())


def check_positions_hold(world: ScaledWorld) -> None:
    """Whoever had an event up to the positions that Redis names stands there."""
    ledger = PostgresLedger(world.ledger_url)
    try:
        with connect(world.ranks_url) as client:
            reader = RedisReader(client, lambda _board: 1)
            try:
                positions = reader.positions("b")
            except RanksUnavailable:
                return
            there = {player for player, _, _ in entries(reader, InstanceKey("b"))}
        for partition, event_run, *_ in ledger.read([0] * ledger.partitions, 1_000):
            count = positions[partition].sequence - event_run.first + 1
            assert {*event_run.players[: max(0, count)]} - {""} <= there
    finally:
        ledger.close()
