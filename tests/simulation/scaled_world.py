"""The scaled-out composition beside the oracle, in the place of the library.

What may be otherwise than in one process (nothing else may):
- How many values a scope has is counted by each API process for itself, so that limit is tested on one that is not
  restarted.
- Only boards that rank so by themselves, which have one shard, have `dense` ranks; other boards refuse them.
- The answer to a repeat shows where the player stands now, not where they stood then; there is none when the board is
  gone by now.
- Whether a removal changed anything depends on the current windows alone.
- There are no snapshots: the projector has checkpoints, which are taken as it goes.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field, replace
from typing import Any

import redis
from tests.servers.waiting import wait_until

import rankd
from rankd.intake.definitions import Definitions
from rankd.node.projector import ProjectorSettings

from .driver import Driver
from .oracle import Oracle, Refusal, Row, Submitted
from .oracle_board import Definition, Spec
from .random_boards import BoardMaker
from .reads import ReadDistribution, ReadStep
from .scaled_installation import (
    SteppedProjector,
    archive_of,
    check_mirrored,
    check_standings,
    open_api,
    recomputed,
    shards_by_board,
    standings_positions,
)
from .states import comparable
from .steps import Refused, Step, Submit, World, outcome

SETTLED_BY_CHANCE = 0.3
API_MAY_RESTART_FROM = 100  # values of a scope
UNRANKED: dict[str, Any] = {
    "window": "",
    "score": None,
    "previous_score": None,
    "changed": False,
    "rank": None,
    "previous_rank": None,
}


@dataclass(kw_only=True)
class ScaledWorld(World):
    """Boards in an API process, and a projector, over a database and a Redis of the run's own."""

    ledger_url: str
    ranks_url: str
    rng: random.Random
    projector: SteppedProjector = field(init=False)
    definitions: Definitions = field(init=False)
    kept: dict[bytes, bytes] | None = None  # an older copy of what is in Redis

    def __post_init__(self) -> None:
        self._start_projector()
        super().__post_init__()

    def open(self) -> None:
        limit = self.oracle.scope_values_max
        running, self.definitions = open_api(
            self.ledger_url,
            self.ranks_url,
            self.clock,
            self.project,
            commit_wait_ms=0,
            scope_values_max=limit,
            archive_url=str(archive_of(self.folder)),
        )
        self.boards = ScaledBoards(running, self)

    def project(self) -> None:
        """Let whichever projector there is catch up."""
        self.projector.project()

    def close(self) -> None:
        self.boards.close()
        self.projector.die()

    def _start_projector(self) -> None:
        settings = ProjectorSettings(
            checkpoint_events=self.rng.choice([20, 200]), redis_call_updates_max=self.rng.choice([1, 5, 5_000])
        )
        self.projector = SteppedProjector(self.ledger_url, self.ranks_url, self.folder, self.clock, settings)

    def restart(self, start: str) -> None:
        """Let Redis lose something, or the projector die, with its checkpoints or without, or the API process."""
        harm = self.rng.choice(["none", "none", "flush", "roll back"])
        if self.rng.random() < 0.8:
            (self.projector.stop if start == "newest" else self.projector.die)()
            if start == "none":
                shutil.rmtree(self.folder)
            self._harm_redis(harm)
            self._start_projector()
        else:
            self._harm_redis(harm)
        if self.rng.random() < 0.5 and self.oracle.scope_values_max >= API_MAY_RESTART_FROM:
            self.boards.close()
            self.open()

    def _harm_redis(self, harm: str) -> None:
        if harm == "none" or (harm == "roll back" and self.kept is None):
            return
        with redis.Redis.from_url(self.ranks_url) as plain:
            plain.flushall()
            if harm == "roll back":
                for key, value in (self.kept or {}).items():
                    plain.restore(key, 0, value)

    def keep_copy(self) -> None:
        """Remember what is in Redis, for one that comes back with less than it had."""
        with redis.Redis.from_url(self.ranks_url) as plain:
            keys: list[bytes] = list(plain.scan_iter())
            self.kept = {key: plain.dump(key) for key in keys}

    def settle(self) -> None:
        """Let the projector catch up where the library would have done something first, or by chance."""
        if self._is_due() or self.rng.random() < SETTLED_BY_CHANCE:
            self.projector.project()
            self.definitions.catch_up()

    def _is_due(self) -> bool:
        before = self._rolled_over()
        self.oracle.roll_over()
        return before != self._rolled_over()

    def _rolled_over(self) -> dict[str, tuple[int, int, int]]:
        return {name: (life.midnight, len(life.closed), len(life.retired)) for name, life in self.oracle.boards.items()}

    def verify(self) -> None:
        """Rank the ledger from its first event on, and compare the projector's engine and Redis with that."""
        self.projector.project()
        anew, kept = recomputed(self.ledger_url), self.projector.follower
        assert anew.positions == kept.positions
        assert anew.ordinal == kept.ordinal
        assert anew.controls == kept.controls
        assert comparable(anew.applier.state) == comparable(kept.applier.state)
        check_mirrored(anew.store, self.ranks_url, shards_by_board(anew))
        wait_until(self._have_standings_come)
        check_standings(anew, self.ledger_url)

    def _have_standings_come(self) -> bool:
        self.projector.project()
        return standings_positions(self.ledger_url) == self.projector.follower.positions


class ScaledBoards(rankd.Boards):
    """Boards whose upkeep is the world's."""

    def __init__(self, running: Any, world: ScaledWorld) -> None:
        super().__init__(running)
        self._world = world

    def submit(self, *sent: Any, **options: Any) -> rankd.Submitted:
        answer = super().submit(*sent, **options)
        if answer.repeated:  # says where the player stands now
            return rankd.Submitted(answer.position, answer.board, answer.player, repeated=True, **UNRANKED)
        return answer

    def remove(self, *named: Any, **options: Any) -> rankd.Changed:
        return rankd.Changed(super().remove(*named, **options).position)

    def settle(self) -> None:
        self._world.settle()

    def snapshot(self) -> None:
        self._world.keep_copy()

    def verify(self, _progress: Any = None) -> Any:
        self._world.verify()


class ScaledOracle(Oracle):
    """The oracle without what is answered otherwise."""

    def define(self, board: str, definition: Definition) -> bool:
        spec = Spec(board, definition)
        if spec["ranking"] == "dense" and spec["team"] is None and definition.get("shards", 1) > 1:
            self.begin_write()
            raise Refusal("invalid_value")
        return super().define(board, definition)

    def remove(self, board: str, player: str) -> bool:
        super().remove(board, player)
        return True

    def submit(self, board: str, row: Row, key: str | None = None, imported: bool = False) -> tuple[Submitted, bool]:
        answer, repeated = super().submit(board, row, key, imported)
        return (Submitted(**UNRANKED), True) if repeated else (answer, False)


@dataclass(frozen=True)
class ReadDense(Step):
    """A read of dense ranks on a board that does not have them: refused, unless nobody stands there."""

    look: ReadStep

    def do(self, world: World) -> None:
        options = self.look._options(world)
        world.boards.settle()
        answer = outcome(lambda: self.look.said(world, options))
        if answer != Refused("ranking_unavailable"):
            self.look.do(world)


class ScaledMaker(BoardMaker):
    """Some boards are cut into shards."""

    def definition(self, board: str, oracle: Oracle) -> dict[str, Any]:
        return {**super().definition(board, oracle), "shards": self.rng.choice([1, 1, 2, 3])}


class ScaledDriver(Driver):
    """Chooses steps for the scaled-out composition."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.maker = ScaledMaker(rng)

    def next(self, oracle: Oracle) -> Step:
        step = super().next(oracle)
        if isinstance(step, Submit) and step.key in oracle.keys and step.board not in oracle.boards:
            return self.next(oracle)
        if not isinstance(step, ReadStep) or isinstance(step, ReadDistribution) or step.board not in oracle.boards:
            return step
        spec = oracle.boards[step.board].spec
        if step.ranking != "dense" or spec["ranking"] == "dense":
            return step
        return ReadDense(step) if self.chance(0.2) else replace(step, ranking="competition")
