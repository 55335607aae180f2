"""Two nodes beside the oracle, in the place of the library: each step goes to one of them, the other follows.

What may be otherwise than in one process (nothing else may):
- The answer to a repeat shows where the player stands now, not where they stood then.
- A profile and a list of friends are seen on the other node soon, not at once: whoever stores one waits for that.
- Windows are closed and let go by the node that holds the lease. So whoever reads or writes after the clock has moved
  lets that node do what is due first, and follows it.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.waiting import wait_until

import rankd
from rankd.node.open_node import CHECKPOINTS, open_node
from rankd.node.shared_stores import SharedStores
from rankd.projection.verify import digests

from .oracle import Oracle, Row, Submitted
from .scaled_world import UNRANKED
from .states import comparable
from .steps import World

NODES = 2
ANSWER_WAIT_MS = 20_000  # for the rank of a score: nobody marks the time of a log while no node has the lease
WRITES = ("define", "delete", "submit_many", "remove", "reset")
OWN = ("settle", "submit", "set_player", "set_friends", "snapshot", "verify")


@dataclass(kw_only=True)
class NodeWorld(World):
    """Two nodes over a ledger of the run's own."""

    stores: SharedStores
    rng: random.Random
    nodes: list[rankd.Boards] = field(init=False)

    def open(self) -> None:
        self.nodes = [self._open_node(number) for number in range(NODES)]
        self.boards = self.open_boards()

    def open_boards(self) -> NodeBoards:
        """Open what steps are done to."""
        return NodeBoards(self)

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def node_folder(self, number: int) -> Path:
        return self.folder / f"node-{number}"

    def _open_node(self, number: int) -> rankd.Boards:
        return open_node(
            self.stores,
            self.node_folder(number),
            clock=self.clock,
            commit_wait_ms=0,
            scope_values_max=self.oracle.scope_values_max,
            snapshot_events=self.rng.choice([20, 1_000]),
            at_least_wait_ms=ANSWER_WAIT_MS,
            archive_url=str(self.folder / "archive"),
        )

    def any_node(self) -> rankd.Boards:
        """Return one of them by chance."""
        return self.rng.choice(self.nodes)

    def a_node_that_followed(self) -> rankd.Boards:
        """Return one of them by chance, once it has followed everything."""
        node = self.any_node()
        node.settle()
        return node

    def settle(self) -> None:
        """Do what is due where it can be, and have whoever it was not follow that before it is asked."""
        if self._is_due():
            wait_until(self._is_what_is_due_done)  # a lease that was let go is free a moment later

    def _is_what_is_due_done(self) -> bool:
        for node in self.rng.sample(self.nodes, NODES):
            node.settle()
        return any(node._backend.holds_lease for node in self.nodes)  # type: ignore[attr-defined]

    def _is_due(self) -> bool:
        before = self._rolled_over()
        self.oracle.roll_over()
        return before != self._rolled_over()

    def _rolled_over(self) -> dict[str, tuple[int, int, int]]:
        return {
            board: (life.midnight, len(life.closed), len(life.retired)) for board, life in self.oracle.boards.items()
        }

    def restart(self, start: str) -> None:
        """Close a node, or all of them, and open them again: from the newest checkpoint, an older one, or none."""
        chosen = self.rng.sample(range(NODES), self.rng.randint(1, NODES))
        for number in chosen:
            self.nodes[number].close()
            checkpoints = sorted((self.node_folder(number) / CHECKPOINTS).iterdir())
            lost = {"newest": [], "older": checkpoints[-1:], "none": checkpoints}[start]
            for checkpoint in lost:
                shutil.rmtree(checkpoint)
        for number in chosen:
            self.nodes[number] = self._open_node(number)

    def check_entries(self) -> None:
        """Compare the entries that were counted with those in the store."""
        for node in self.nodes:
            keys = list(node.rank_store.instances())
            assert node.figures().entries == sum(node.rank_store.total(key) for key in keys)
            for board, count in node.entries_by_board(len(keys) + 1).items():
                assert count == sum(node.rank_store.total(key) for key in keys if key.board == board)

    def verify(self) -> None:
        """Have each node compare itself with the ledger, and compare the nodes with each other."""
        wait_until(self._is_what_is_due_done)
        for node in self.nodes:
            node.settle()
            node.verify()
        first, second = self.nodes
        assert first.position == second.position
        assert digests(first.rank_store) == digests(second.rank_store)
        assert comparable(first._backend.applier.state) == comparable(second._backend.applier.state)


class NodeBoards(rankd.Boards):
    """The boards of whichever node a step goes to."""

    def __init__(self, world: NodeWorld) -> None:
        self._world = world

    def __getattribute__(self, name: str) -> Any:
        attribute = object.__getattribute__(self, name)
        if name in OWN or name in vars(type(self)) or name.startswith("_"):
            return attribute
        world: NodeWorld = self._world
        if name in WRITES:
            return getattr(world.any_node(), name)
        return getattr(world.a_node_that_followed(), name)

    def submit(self, *sent: Any, **options: Any) -> rankd.Submitted:
        answer = self._world.any_node().submit(*sent, **options)
        if answer.repeated:  # says where the player stands now
            return rankd.Submitted(answer.position, answer.board, answer.player, repeated=True, **UNRANKED)
        return answer

    def set_player(self, player: str, **profile: Any) -> Any:
        first, second = self._world.rng.sample(self._world.nodes, NODES)
        stored = first.set_player(player, **profile)
        wait_until(lambda: second.player(player) == stored)
        return stored

    def set_friends(self, player: str, friends: Any, **options: Any) -> Any:
        first, second = self._world.rng.sample(self._world.nodes, NODES)
        stored = first.set_friends(player, friends, **options)
        wait_until(lambda: list(second.stored_friends(player)) == list(stored))
        return stored

    def settle(self) -> None:
        self._world.settle()

    def snapshot(self) -> None:
        self._world.any_node().snapshot()

    def verify(self, _progress: Any = None) -> Any:
        self._world.verify()


class NodeOracle(Oracle):
    """The oracle without what repeats are answered with."""

    def submit(self, board: str, row: Row, key: str | None = None, imported: bool = False) -> tuple[Submitted, bool]:
        answer, repeated = super().submit(board, row, key, imported)
        return (Submitted(**UNRANKED), True) if repeated else (answer, False)
