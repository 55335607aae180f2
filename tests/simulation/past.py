"""The past beside the oracle: copies of it are kept while a run goes on, and compared with `as_of` at its end.

What is read of the past and is not of then: profiles, lists of friends.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from .driver import Driver
from .oracle import Oracle
from .steps import Advance, Difference, Step, World, differences, outcome

READS_PER_MOMENT = 4
KEEP_PROBABILITY = 0.12


@dataclass(frozen=True)
class KeepMoment(Step):
    """Keep a copy of the oracle; what is due may be appended by then or not. Nothing else happens at this instant."""

    settles: bool

    def do(self, world: World) -> None:
        if world.oracle.now < world.oracle.written_at:
            return  # the clock was set back, and the ledger's time was not
        if self.settles:
            world.boards.settle()
        world.moments.append((world.oracle.now, deepcopy(world.oracle)))
        Advance(1).do(world)


class PastDriver(Driver):
    """Keeps a moment now and then."""

    def next(self, oracle: Oracle) -> Step:
        if oracle.boards and self.chance(KEEP_PROBABILITY):
            return KeepMoment(self.chance(0.5))
        return super().next(oracle)

    def look(self, oracle: Oracle) -> Step:
        """Return a read."""
        return self._look(oracle)


class PastWorld:
    """A world as it was, as far as reads need one."""

    def __init__(self, world: World, instant: int, oracle: Oracle) -> None:
        self.oracle = oracle
        self.boards = PastBoards(world, instant)

    def same(self, call: Callable[[], Any], expected: Callable[[], Any]) -> None:
        should, is_said = outcome(expected), outcome(call)
        if is_said != should:
            where = "; ".join(differences(is_said, should))
            raise Difference(f"{where}\nthe library says\n    {is_said}\nand should say\n    {should}")


class PastBoards:
    """The library's reads, each with `as_of`."""

    def __init__(self, world: World, instant: int) -> None:
        self._world = world
        self._instant = instant

    def __getattr__(self, name: str) -> Callable[..., Any]:
        read = getattr(self._world.boards, name)
        return lambda *named, **options: read(*named, **options, as_of=self._instant)


def compare_moments(world: World) -> None:
    """Compare every moment that was kept, in any order."""
    moments = world.moments
    if not moments:
        return
    latest = max(instant for instant, _ in moments)
    Advance(max(0, latest - world.oracle.now) + 1).do(world)
    rng = random.Random(len(moments))
    driver = PastDriver(rng)
    for instant, oracle in rng.sample(moments, len(moments)):
        oracle.profiles, oracle.friends = world.oracle.profiles, world.oracle.friends
        past = PastWorld(world, instant, oracle)
        for _ in range(READS_PER_MOMENT):
            step = driver.look(oracle)
            try:
                step.do(past)  # type: ignore[arg-type]
            except Exception as error:
                error.add_note(f"as of {instant}: {step}")
                raise
