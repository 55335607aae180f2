"""What a run is made of: steps that are done to the library and to the oracle, and must end alike.

A step is data, so that a run can be written down, played again and cut to the few steps that matter.
"""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rankd
from rankd.errors import RankdError
from rankd.node.embedded import Embedded

from .oracle import Oracle, Refusal, Row
from .oracle_board import DEFAULTS, Spec


class Difference(AssertionError):
    """The library and the oracle disagree."""


@dataclass
class World:
    """The library under test, its clock, and the oracle beside it."""

    folder: Path
    clock: rankd.ManualClock
    oracle: Oracle
    boards: rankd.Boards = field(init=False)
    positions: dict[str, str] = field(default_factory=dict)  # of requests with a key
    moments: list[tuple[int, Oracle]] = field(default_factory=list)  # instants, and how the oracle was then

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        limit = self.oracle.scope_values_max
        self.boards = rankd.open(self.folder, clock=self.clock, commit_wait_ms=0, scope_values_max=limit)

    def close(self) -> None:
        self.boards.close()

    def restart(self, start: str) -> None:
        """Close the library and open it again: from the newest snapshot, the one before it, or the first event."""
        self.boards.close()
        snapshots = sorted((self.folder / "snapshots").iterdir())
        lost = {"newest": [], "older": snapshots[-1:], "none": snapshots}[start]
        for snapshot in lost:
            shutil.rmtree(snapshot)
        self.open()

    def check_position(self, key: str | None, position: str, repeated: bool) -> None:
        """A repeat has the position of what it repeats."""
        if key is not None:
            assert not repeated or self.positions[key] == position
            self.positions[key] = position

    def check_entries(self) -> None:
        """Compare the entries that were counted with those in the store; scaled out, nobody counts them."""
        running = getattr(self.boards, "_backend", None)
        if isinstance(running, Embedded):
            self.boards.settle()
            keys = list(running.rank_store.instances())
            assert running.figures().entries == sum(running.rank_store.total(key) for key in keys)
            for board, count in running.entries_by_board(len(keys) + 1).items():
                assert count == sum(running.rank_store.total(key) for key in keys if key.board == board)

    def same(self, call: Callable[[], Any], expected: Callable[[], Any]) -> None:
        """Compare what the library says with what the oracle does: an answer, or a refusal by its code."""
        self.boards.settle()  # windows are retired beside the calls, and a run must not depend on when
        should = outcome(expected)
        is_said = outcome(call)
        if is_said != should:
            where = "; ".join(differences(is_said, should))
            raise Difference(f"{where}\nthe library says\n    {is_said}\nand should say\n    {should}")


@dataclass(frozen=True)
class Refused:
    """What became of a call that raised."""

    code: str


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Refusal as refusal:
        return Refused(refusal.code)
    except RankdError as error:
        return Refused(error.code)


def differences(answer: Any, should: Any, place: str = "answer") -> Iterator[str]:
    """Say where two answers differ, as deep as they are built alike."""
    nested = isinstance(answer, tuple | list) and isinstance(should, tuple | list) and len(answer) == len(should)
    if nested:
        for index, (answer_part, expected_part) in enumerate(zip(answer, should, strict=True)):
            yield from differences(answer_part, expected_part, f"{place}[{index}]")
    elif answer != should:
        yield f"{place} is {answer!r:.100} and not {should!r:.100}"


class Step:
    """One thing that happens."""

    def do(self, world: World) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Define(Step):
    board: str
    definition: dict[str, Any]

    def do(self, world: World) -> None:
        world.same(
            lambda: world.boards.define(self.board, self.definition).changed,
            lambda: world.oracle.define(self.board, self.definition),
        )


@dataclass(frozen=True)
class Delete(Step):
    board: str

    def do(self, world: World) -> None:
        def call() -> None:
            world.boards.delete(self.board)

        world.same(call, lambda: world.oracle.delete(self.board))


@dataclass(frozen=True)
class Submit(Step):
    board: str
    row: Row
    key: str | None = None

    def do(self, world: World) -> None:
        def call() -> tuple[Any, ...]:
            row = self.row
            r = world.boards.submit(
                self.board,
                row.player,
                row.score,
                tiebreak=row.tiebreak,
                at=row.at,
                attributes=row.attributes,
                metadata=row.metadata,
                key=self.key,
            )
            assert (r.board, r.player) == (self.board, row.player)
            world.check_position(self.key, r.position, r.repeated)
            return r.window, r.score, r.previous_score, r.changed, r.rank, r.previous_rank, r.repeated

        def expected() -> tuple[Any, ...]:
            r, repeated = world.oracle.submit(self.board, self.row, self.key)
            return r.window, r.score, r.previous_score, r.changed, r.rank, r.previous_rank, repeated

        world.same(call, expected)


@dataclass(frozen=True)
class SubmitMany(Step):
    board: str
    rows: tuple[Row, ...]
    form: str = "dicts"  # or tuples, columns
    key: str | None = None
    imported: bool = False

    def do(self, world: World) -> None:
        def call() -> tuple[int, bool]:
            r = world.boards.submit_many(
                self.board, *self._rows(), key=self.key, imported=self.imported, **self._columns()
            )
            world.check_position(self.key, r.position, r.repeated)
            return r.count, r.repeated

        def expected() -> tuple[int, bool]:
            repeated = world.oracle.submit_many(self.board, list(self.rows), self.key, self.imported)
            return len(self.rows), repeated

        world.same(call, expected)

    def _rows(self) -> list[Any]:
        match self.form:
            case "columns":
                return []
            case "tuples":
                return [[(row.player, row.score) for row in self.rows]]
        names = ("player", "score", "tiebreak", "at", "attributes", "metadata")
        sent = [{name: getattr(row, name) for name in names} for row in self.rows]
        return [[{name: value for name, value in row.items() if value is not None} for row in sent]]

    def _columns(self) -> dict[str, Any]:
        if self.form != "columns":
            return {}
        columns: dict[str, Any] = {
            "players": [row.player for row in self.rows],
            "scores": array("q", [row.score for row in self.rows]),
        }
        if any(row.tiebreak is not None for row in self.rows):
            columns["tiebreaks"] = array("q", [row.tiebreak or 0 for row in self.rows])
        if all(row.at is not None for row in self.rows):
            columns["at"] = array("q", [row.at or 0 for row in self.rows])
        if any(row.attributes for row in self.rows):
            columns["attributes"] = [row.attributes for row in self.rows]
        if any(row.metadata for row in self.rows):
            columns["metadata"] = [row.metadata for row in self.rows]
        return columns


@dataclass(frozen=True)
class Remove(Step):
    board: str
    player: str

    def do(self, world: World) -> None:
        world.same(
            lambda: world.boards.remove(self.board, self.player).changed,
            lambda: world.oracle.remove(self.board, self.player),
        )


@dataclass(frozen=True)
class Reset(Step):
    board: str
    window: str | None

    def do(self, world: World) -> None:
        def call() -> None:
            world.boards.reset(self.board, window=self.window)

        world.same(call, lambda: world.oracle.reset(self.board, self.window))


@dataclass(frozen=True)
class SetProfile(Step):
    player: str
    profile: dict[str, Any]

    def do(self, world: World) -> None:
        world.boards.set_player(self.player, **self.profile)
        world.oracle.set_player(self.player, self.profile)


@dataclass(frozen=True)
class SetFriends(Step):
    player: str
    friends: tuple[str, ...]

    def do(self, world: World) -> None:
        world.boards.set_friends(self.player, list(self.friends))
        world.oracle.friends[self.player] = list(self.friends)


@dataclass(frozen=True)
class Advance(Step):
    ms: int

    def do(self, world: World) -> None:
        world.oracle.now = world.clock.advance(self.ms)


@dataclass(frozen=True)
class SetBack(Step):
    """Put the clock back, behind an event: the ledger's time stays where it is."""

    ms: int
    board: str

    def do(self, world: World) -> None:
        Remove(self.board, "nobody").do(world)
        world.oracle.now = world.clock.advance(-self.ms)


@dataclass(frozen=True)
class TakeSnapshot(Step):
    def do(self, world: World) -> None:
        world.boards.snapshot()


@dataclass(frozen=True)
class Restart(Step):
    """End what runs and begin again, with what was saved or without."""

    start: str  # newest, older, none

    def do(self, world: World) -> None:
        world.restart(self.start)


@dataclass(frozen=True)
class Verify(Step):
    """Let the library prove itself, and compare what is not a rank: definitions, profiles, friends."""

    def do(self, world: World) -> None:
        world.boards.verify()
        world.check_entries()
        world.same(lambda: sorted(world.boards.list()), lambda: sorted(world.oracle.boards))
        for board, life in world.oracle.boards.items():
            given = Spec(board, world.boards.definition(board))
            for name in DEFAULTS:
                assert given.canonical(name) == life.spec.canonical(name), f"{name} of {board}"
        for player, profile in world.oracle.profiles.items():
            stored = world.boards.player(player)
            assert {name: getattr(stored, name) for name in profile} == profile
            for start in (player[:1], profile["name"][:3].upper()):
                assert player in [entry.player for entry in world.boards.search(start, limit=100)]
        for player, friends in world.oracle.friends.items():
            assert list(world.boards.stored_friends(player)) == friends
