"""Plays random runs beside the oracle, whatever kind of installation they are about.

A failure prints its seed and step and how to play it again: `RANKD_SEED=<seed>` before the same command. With
`RANKD_SHRINK=1` it also looks for the fewest steps that still fail.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from .driver import Driver
from .extent import LONG, scratch_folder
from .oracle import Oracle
from .shrinking import shrunk
from .steps import Step, World

AnyWorld = TypeVar("AnyWorld", bound=World)
Folders = Callable[[], Path]
REPLAYED = "RANKD_SEED" in os.environ


@pytest.fixture
def folders() -> Iterator[Folders]:
    """Give an empty folder each time."""
    numbers = count()
    with scratch_folder() as folder:
        yield lambda: folder / f"data-{next(numbers)}"


def fresh_seeds(number: int) -> list[int]:
    """Return seeds by that of the whole run, or the one to play again."""
    return [int(os.environ["RANKD_SEED"])] if REPLAYED else [random.randrange(2**32) for _ in range(number)]


class Runs(Generic[AnyWorld]):
    """How runs of one installation are made up, and how long they are."""

    def __init__(
        self,
        file: str,
        *,
        seeds: int,
        steps: int,
        long_runs: int,
        long_steps: int,
        driver: type[Driver] = Driver,
        oracle: type[Oracle] = Oracle,
        finish: Callable[[AnyWorld], None] = lambda _world: None,
    ) -> None:
        """`file` is what plays a run again; `finish` checks a world at the end of a run."""
        self._file = file
        self._steps, self._long_steps = steps, long_steps
        self._driver, self._oracle, self._finish = driver, oracle, finish
        # The same seeds each time; none of them when one is played again.
        self.by_seed = pytest.mark.parametrize("seed", () if REPLAYED else range(seeds))
        # One seed beside the others; many with `make test-long`.
        self.by_number = pytest.mark.parametrize(
            "runs",
            [
                pytest.param(long_runs if LONG else 1, id="sample"),
                pytest.param(long_runs, id="everything", marks=pytest.mark.long),
            ],
        )

    def play_fresh(self, runs: int, open_world: Callable[[int, Oracle], AbstractContextManager[AnyWorld]]) -> None:
        """Play runs of seeds that are not the same each time."""
        # A run of a seed is the beginning of a longer one, so the longest plays any of them again.
        steps = self._long_steps if REPLAYED or runs > 1 else self._steps
        for seed in fresh_seeds(runs):
            self.play(seed, open_world, steps)

    def play(
        self,
        seed: int,
        open_world: Callable[[int, Oracle], AbstractContextManager[AnyWorld]],
        steps: int | None = None,
    ) -> AnyWorld:
        """Make up a run from a seed while it goes on; return the world as it was left."""
        driver = self._driver(random.Random(seed))
        oracle = self._oracle(driver.beginning(), driver.scope_values_max())
        beginning = deepcopy(oracle)
        done: list[Step] = []
        try:
            with open_world(seed, oracle) as world:
                for _ in range(self._steps if steps is None else steps):
                    done.append(driver.next(world.oracle))
                    done[-1].do(world)
                self._finish(world)
        except Exception as error:
            kind = type(error)
            error.add_note(f"seed {seed}, step {len(done)}: {done[-1] if done else 'none'}")
            error.add_note(f"play it again: RANKD_SEED={seed} .venv/bin/python -m pytest {self._file}")
            if os.environ.get("RANKD_SHRINK"):

                def fails(fewer: Sequence[Step]) -> bool:
                    with open_world(seed, deepcopy(beginning)) as other:
                        return fails_alike(fewer, other, kind)

                fewest = shrunk(done, fails)
                error.add_note("\n".join([f"from {beginning.now}:", *(f"    {step}," for step in fewest)]))
            raise
        return world


def fails_alike(steps: Sequence[Step], world: World, kind: type[Exception]) -> bool:
    """Tell whether the last step of a shorter run, and no other, still fails with the same kind of error."""
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
