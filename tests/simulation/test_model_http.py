"""The server beside the oracle: the library's random runs, with every write and every read by way of real HTTP.

A failure prints its seed and step and how to play it again: `RANKD_SEED=<seed>` before the same command. With
`RANKD_SHRINK=1` it also looks for the fewest steps that still fail; those that found something are kept below.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import rankd

from .driver import Driver
from .extent import LONG, scratch_folder
from .looks import LookAtPlayer, LookAtTop
from .oracle import Oracle, Row
from .over_http import WorldOverHttp
from .shrinking import shrunk
from .steps import Advance, Define, Remove, Step, Submit

SEEDS = range(4)  # the same each time
FRESH_SEEDS = 1  # others with `make test-long`
STEPS = 120
LONG_RUNS = 30
LONG_STEPS = 800
NOON = 1_777_896_000_000  # 2026-05-04T12:00Z, a Monday
HOUR, DAY = 3_600_000, 86_400_000

Folders = Callable[[], Path]


@pytest.fixture
def folders() -> Iterator[Folders]:
    """Give an empty data folder each time."""
    numbers = count()
    with scratch_folder() as folder:
        yield lambda: folder / f"data-{next(numbers)}"


def fresh_seeds(number: int) -> list[int]:
    """Return new seeds, or the one to play again."""
    if "RANKD_SEED" in os.environ:
        return [int(os.environ["RANKD_SEED"])]
    return [random.randrange(2**32) for _ in range(number)]


@pytest.mark.parametrize("seed", [] if "RANKD_SEED" in os.environ else SEEDS)
def test_the_server_answers_as_the_oracle_does(seed: int, folders: Folders) -> None:
    assert play(seed, STEPS, folders) > 0, "no kept answer ever held, so nothing was learnt about tags"


@pytest.mark.parametrize(
    ("runs", "steps"),
    [
        pytest.param(LONG_RUNS if LONG else FRESH_SEEDS, LONG_STEPS if LONG else STEPS, id="sample"),
        pytest.param(LONG_RUNS, LONG_STEPS, id="everything", marks=pytest.mark.long),
    ],
)
def test_the_server_answers_as_the_oracle_does_whatever_the_seed(runs: int, steps: int, folders: Folders) -> None:
    for seed in fresh_seeds(runs):
        # A run of a seed is the beginning of a longer one, so the longest plays any of them again.
        play(seed, LONG_STEPS if "RANKD_SEED" in os.environ else steps, folders)


def play(seed: int, steps: int, folders: Folders) -> int:
    """Make up a run from a seed while it goes on; return how often a kept answer held."""
    driver = Driver(random.Random(seed))
    oracle = Oracle(driver.beginning(), driver.scope_values_max())
    beginning = deepcopy(oracle)
    folder = folders()
    world = world_of(oracle, folder)
    done: list[Step] = []
    try:
        for _ in range(steps):
            done.append(driver.next(world.oracle))
            done[-1].do(world)
        world.check_figures()
    except Exception as error:
        kind = type(error)
        file = "tests/simulation/test_model_http.py"
        error.add_note(f"seed {seed}, step {len(done)}: {done[-1]}")
        error.add_note(f"play it again: RANKD_SEED={seed} .venv/bin/python -m pytest {file}")
        if os.environ.get("RANKD_SHRINK"):
            fewest = shrunk(done, lambda fewer: fails_alike(fewer, deepcopy(beginning), folders(), kind))
            error.add_note("\n".join([f"from {beginning.now}:", *(f"    {step}," for step in fewest)]))
        raise
    finally:
        world.close()
        shutil.rmtree(folder)
    return world.cache.saved


def world_of(oracle: Oracle, folder: Path) -> WorldOverHttp:
    return WorldOverHttp(folder, rankd.ManualClock(oracle.now), oracle)


def fails_alike(steps: Sequence[Step], oracle: Oracle, folder: Path, kind: type[Exception]) -> bool:
    """Tell whether the last step of a shorter run, and no other, still fails with the same kind of error."""
    world = world_of(oracle, folder)
    try:
        for step in steps[:-1]:
            try:
                step.do(world)
            except Exception:
                return False
        try:
            steps[-1].do(world)
        except Exception as other:
            return type(other) is kind
        return False
    finally:
        world.close()


# What runs have found of answers that were kept too long: each is looked at twice, and must not be taken for the other


@pytest.fixture
def do(folders: Folders) -> Iterator[Callable[..., None]]:
    world = world_of(Oracle(NOON), folders())

    def done(*steps: Step) -> None:
        for step in steps:
            step.do(world)

    try:
        yield done
    finally:
        world.close()


def sent(player: str, score: int, **more: Any) -> Step:
    return Submit("b", Row(player, score, **more))


def everybody(window: str | None = None) -> Step:
    return LookAtTop("b", window, None, None, limit=10, offset=0)


def test_an_empty_hour_is_not_taken_for_the_empty_hour_before(do: Callable[..., None]) -> None:
    do(Define("b", {"windows": ["hourly"]}), everybody(), Advance(HOUR), everybody())


def test_an_hour_is_not_taken_for_one_with_the_same_scores(do: Callable[..., None]) -> None:
    hours = Define("b", {"windows": ["hourly"], "ties": "player"})
    do(hours, sent("ann", 1), everybody(), Advance(HOUR), sent("ann", 1), everybody())


def test_a_change_of_rank_is_over_with_a_window_that_ends_by_day(do: Callable[..., None]) -> None:
    raid = {"name": "raid", "reset": "0 18 * * 5"}
    ann = LookAtPlayer("b", ("raid", NOON), None, None, player="ann")
    do(Define("b", {"windows": [raid], "late_by": "1d"}), sent("ann", 1), Advance(4 * DAY), ann, Advance(DAY // 3), ann)


def test_whoever_leaves_and_comes_back_has_no_change_of_rank(do: Callable[..., None]) -> None:
    ann = LookAtPlayer("b", None, None, None, player="ann")
    do(Define("b", {"ties": "player"}), sent("ann", 1), Advance(DAY), ann, Remove("b", "ann"), sent("ann", 1), ann)


def test_what_was_the_day_before_is_kept_no_longer_than_what_is_the_day(do: Callable[..., None]) -> None:
    do(Define("b", {"windows": ["daily"]}), sent("ann", 1), Advance(DAY + HOUR), everybody("daily:previous"))
