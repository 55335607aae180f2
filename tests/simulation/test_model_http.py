"""The server beside the oracle: the library's random runs, with every write and every read by way of real HTTP.

Runs that found something are kept below.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import rankd

from .oracle import Oracle, Row
from .over_http import WorldOverHttp
from .playing import Folders, Runs
from .reads import ReadPlayer, ReadTop
from .steps import Advance, Define, Remove, Step, Submit

RUNS: Runs[WorldOverHttp] = Runs(
    "tests/simulation/test_model_http.py",
    seeds=3,
    steps=120,
    long_runs=30,
    long_steps=800,
    finish=WorldOverHttp.check_figures,
)
NOON = 1_777_896_000_000  # 2026-05-04T12:00Z, a Monday
HOUR, DAY = 3_600_000, 86_400_000


@RUNS.by_seed
def test_the_server_answers_as_the_oracle_does(seed: int, folders: Folders) -> None:
    world = RUNS.play(seed, partial(world_of, folders))

    assert world.cache.saved > 0, "no kept answer ever held, so nothing was learnt about tags"


@RUNS.by_number
def test_the_server_answers_as_the_oracle_does_whatever_the_seed(runs: int, folders: Folders) -> None:
    RUNS.play_fresh(runs, partial(world_of, folders))


@contextmanager
def world_of(folders: Folders, _seed: int, oracle: Oracle) -> Iterator[WorldOverHttp]:
    folder = folders()
    world = WorldOverHttp(folder, rankd.ManualClock(oracle.now), oracle)
    try:
        yield world
    finally:
        world.close()
        shutil.rmtree(folder)


# What runs have found of answers that were kept too long: each is looked at twice, and must not be taken for the other


@pytest.fixture
def do(folders: Folders) -> Iterator[Callable[..., None]]:
    with world_of(folders, 0, Oracle(NOON)) as world:

        def done(*steps: Step) -> None:
            for step in steps:
                step.do(world)

        yield done


def sent(player: str, score: int, **more: Any) -> Step:
    return Submit("b", Row(player, score, **more))


def everybody(window: str | None = None) -> Step:
    return ReadTop("b", window, None, None, limit=10, offset=0)


def test_an_empty_hour_is_not_taken_for_the_empty_hour_before(do: Callable[..., None]) -> None:
    do(Define("b", {"windows": ["hourly"]}), everybody(), Advance(HOUR), everybody())


def test_an_hour_is_not_taken_for_one_with_the_same_scores(do: Callable[..., None]) -> None:
    hours = Define("b", {"windows": ["hourly"], "ties": "player"})
    do(hours, sent("ann", 1), everybody(), Advance(HOUR), sent("ann", 1), everybody())


def test_a_change_of_rank_is_over_with_a_window_that_ends_by_day(do: Callable[..., None]) -> None:
    raid = {"name": "raid", "reset": "0 18 * * 5"}
    ann = ReadPlayer("b", ("raid", NOON), None, None, player="ann")
    do(Define("b", {"windows": [raid], "late_by": "1d"}), sent("ann", 1), Advance(4 * DAY), ann, Advance(DAY // 3), ann)


def test_whoever_leaves_and_comes_back_has_no_change_of_rank(do: Callable[..., None]) -> None:
    ann = ReadPlayer("b", None, None, None, player="ann")
    do(Define("b", {"ties": "player"}), sent("ann", 1), Advance(DAY), ann, Remove("b", "ann"), sent("ann", 1), ann)


def test_what_was_the_day_before_is_kept_no_longer_than_what_is_the_day(do: Callable[..., None]) -> None:
    do(Define("b", {"windows": ["daily"]}), sent("ann", 1), Advance(DAY + HOUR), everybody("daily:previous"))
