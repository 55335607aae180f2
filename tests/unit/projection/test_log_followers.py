"""Every follower of a log reaches the ranks that a slow reading of it gives, however it read and wherever it began."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rankd.clock import ManualClock
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind, EventRun
from rankd.ledger.port import MARK
from rankd.node.ranks import EngineRanks
from rankd.projection.admission import RefusedEvent
from rankd.projection.catalogue import Catalogue
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.counting import CountingStore
from rankd.projection.follower import Follower
from rankd.projection.reference import ReferenceStore
from rankd.projection.state import State
from rankd.projection.verify import digests, verify

from .log_reference import Meaning, meaning_of
from .log_world import GUILDS, HOUR_MS, START, Log, Place, Writers, written_log

STEPS = 250
SEEDS = [int(os.environ["RANKD_SEED"])] if "RANKD_SEED" in os.environ else list(range(12))
ROUNDS_MAX = 100_000

by_seed = pytest.mark.parametrize("seed", SEEDS)


class Letters:
    """Collects what a follower refuses."""

    def __init__(self, follower: Follower[Any]) -> None:
        self.refused: set[tuple[int, int, str]] = set()
        assert follower.admission is not None
        follower.admission.refused = self._take

    def _take(self, event: RefusedEvent) -> None:
        assert event.text
        self.refused.add((event.event_run.partition, event.event_run.first, event.code))


def new_follower(log: Log, store: Any = None) -> Follower[Any]:
    return Follower(log.port, store or CountingStore(), State(), Catalogue())


def applied_by(follower: Follower[Any]) -> list[tuple[int, int]]:
    """Return a list of the events that a follower applies, as it goes on."""
    applied: list[tuple[int, int]] = []
    apply = follower.apply

    def record(run: EventRun) -> None:
        applied.extend((run.partition, run.first + index) for index in range(len(run)))
        apply(run)

    follower.apply = record
    return applied


def random_cut(rng: random.Random) -> Callable[[int], int]:
    """Cut reads anywhere: short ones mostly, whole ones at times, and none at all."""
    size = rng.choice([1, 2, 5, 40, 10_000])
    return lambda count: min(count, rng.randint(0, size))


def follow_all(follower: Follower[Any], log: Log, rng: random.Random) -> None:
    heads = log.heads().sequences
    for _ in range(ROUNDS_MAX):
        if follower.positions == heads:
            follower.applier.let_go_all()
            return
        log.cut = random_cut(rng)
        follower.follow(rng.choice([1, 7, 100, 5_000]))
    raise AssertionError(f"it does not get from {follower.positions} to {heads}")


def check_means(follower: Follower[Any], meaning: Meaning) -> None:
    assert digests(follower.store) == digests(meaning.store)


@by_seed
def test_ranks_dead_letters_and_repeats_are_those_of_a_slow_reading(seed: int) -> None:
    rng = random.Random(seed)
    log = written_log(rng, STEPS)
    meaning = meaning_of(log)
    ordered = set(meaning.ordered)
    for store in (CountingStore(), ReferenceStore()):
        follower = new_follower(log, store)
        letters, applied = Letters(follower), applied_by(follower)
        follow_all(follower, log, rng)
        check_means(follower, meaning)
        assert [event for event in applied if event in ordered] == meaning.ordered
        assert letters.refused == meaning.refused
        assert follower.admission is not None
        assert follower.admission.repeats == meaning.repeats
        assert follower.admission.refusals == len(meaning.refused)
        assert follower.controls == len(log.controls)
        assert follower.waiting == 0


def test_the_random_logs_hold_what_they_are_to_test() -> None:
    meanings = [meaning_of(written_log(random.Random(seed), STEPS)) for seed in range(12)]
    codes = {code for meaning in meanings for _, _, code in meaning.refused}
    assert codes == {"board_unknown", "board_closed", "invalid_value", "key_reused"}
    assert min(meaning.repeats for meaning in meanings) > 0


@by_seed
def test_a_follower_goes_on_from_any_checkpoint(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = written_log(rng, STEPS)
    meaning = meaning_of(log)
    checkpoints = Checkpoints(tmp_path)
    follower, refused = new_follower(log), set()
    letters = Letters(follower)
    heads = log.heads()
    for _ in range(ROUNDS_MAX):
        if follower.positions == heads.sequences:
            break
        log.cut = random_cut(rng)
        follower.follow(rng.choice([1, 7, 100]))
        if rng.random() < 0.1:
            refused |= letters.refused
            checkpoints.begin(log.port, follower).write()
            loaded = checkpoints.newest(log.port, heads, CountingStore.load, partial(Follower[CountingStore]))
            assert loaded is not None
            assert (loaded.positions, loaded.controls) == (follower.positions, follower.controls)
            follower, letters = loaded, Letters(loaded)
    follower.applier.let_go_all()
    check_means(follower, meaning)
    assert refused | letters.refused == meaning.refused


@by_seed
def test_a_replay_stops_where_another_follower_stood(seed: int) -> None:
    rng = random.Random(seed)
    log = written_log(rng, STEPS)
    follower = new_follower(log)
    while follower.positions != log.heads().sequences:
        log.cut = random_cut(rng)
        follower.follow(rng.choice([1, 7, 100]))
        if rng.random() < 0.05:
            follower.applier.let_go_all()
            log.cut = lambda count: count
            verify(log.port, digests(follower.store), follower.positions, lambda _events: None)


def test_the_head_is_reached_though_the_last_team_events_wait_for_other_partitions() -> None:
    log, later = Log(2), START + HOUR_MS
    writers = Writers(random.Random(1), log)
    writers.define("guilds", GUILDS, everywhere=True)
    context = log.number_context(Context(EventKind.SCORE, "guilds", "game", {"guilds": AcceptanceContext(1)}))
    log.append(0, Place(context, later, later, "ann", 1, detail=Detail({"guild": "red"})))
    follower = new_follower(log)
    follower.follow_to_head(1_000, lambda _done, _all: None)
    assert (follower.positions, follower.waiting, follower.time_awaited) == ((1, 1), 1, later)
    writers.mark(1, later + 1)
    follower.follow_to_head(1_000, lambda _done, _all: None)
    assert (follower.positions, follower.waiting, follower.time_awaited) == ((2, 2), 0, None)


def test_catching_up_ends_where_a_control_event_is_half_copied_and_scores_are_behind_it() -> None:
    """The process that copied it has died: whoever starts completes it, and must not wait for that before."""
    log = Log(2)
    writers = Writers(random.Random(1), log)
    writers.define("guilds", GUILDS, everywhere=True)
    follower = new_follower(log)
    follower.follow_to_head(1_000, lambda _done, _all: None)
    writers.control(EventKind.RESET, "guilds")
    log.append(0, Place(MARK, START, START, number=2))
    follower.follow_to_head(1_000, lambda _done, _all: None)
    log.append(0, Place(MARK, START, START))
    ranks = EngineRanks(log.port, follower, ManualClock(START), 0)

    follower.follow_to_head(1_000, lambda _done, _all: None)
    ranks.catch_up()
    assert (follower.positions, ranks.complete_as_of) == ((1, 1), 0)
    log.append(1, Place(MARK, START, START, number=2))
    ranks.catch_up()
    assert (follower.positions, ranks.complete_as_of) == (log.heads().sequences, START)
