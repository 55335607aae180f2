"""Two nodes on a Kafka ledger beside the oracle, in the place of the library.

What may be otherwise than with nodes on PostgreSQL (nothing else may):
- Repeats are recognised by followers: the sender of one, or of another request under a used key, is answered as if it
  were new, and it changes nothing.
- Whether a removal changed anything depends on the current windows alone; a reset always says that it did.
- A player's history is not found.
- Scores of one batch reach a team in the order of their partitions.
- The clock moves on with each step, and is not put back: in a log, time that goes back is that of the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import PostgresServer
from tests.servers.topics import Topics
from tests.servers.waiting import wait_until

import rankd
from rankd.config.model import KafkaConfig
from rankd.domain.partition import partition_of
from rankd.kafka.address import client_settings
from rankd.node.shared_stores import SharedStores

from .driver import Driver
from .node_world import NodeBoards, NodeOracle, NodeWorld
from .oracle import Life, Oracle, Request, Row
from .steps import SetBack, Step, outcome

TICK_MS = 2  # before each step: what comes in the same millisecond as a mark of time counts in the next one
KEPT_FOR_EVER = -1  # clocks of tests are years away
_numbers = count()


@contextmanager
def kafka_stores(broker: KafkaBroker, postgres: PostgresServer, partitions: int) -> Iterator[SharedStores]:
    """Lend an empty ledger on a broker that others use too, and an empty database beside it."""
    name = postgres.make_database()
    topics = Topics(client_settings(broker.url, KafkaConfig())["bootstrap.servers"])
    topic = topics.name(f"events-{next(_numbers)}")
    kafka = KafkaConfig(ledger_topic=topic, ledger_retention_ms=KEPT_FOR_EVER)
    stores = SharedStores(broker.url, postgres.url(name), kafka)
    stores.migrate(partitions)
    try:
        yield stores
    finally:
        topics.delete(topic)
        topics.delete(f"{topic}-control")
        postgres.drop_database(name)


class KafkaOracle(NodeOracle):
    """The oracle, which notes whether the last request was under a key that is known."""

    def __init__(self, *beginning: Any) -> None:
        super().__init__(*beginning)
        self.knew_key = False
        self.partitions = 1

    def _append_rows(self, life: Life, rows: list[Row]) -> None:
        """Append a batch in the order in which teams get scores of one time: by partition."""
        super()._append_rows(life, sorted(rows, key=lambda row: partition_of(row.player, self.partitions)))

    def _repeated(self, key: str | None, request: Request) -> Any:
        self.knew_key = True
        answer = super()._repeated(key, request)
        self.knew_key = answer is not None
        return answer

    def remove(self, board: str, player: str) -> bool:
        super().remove(board, player)
        return True


class KafkaDriver(Driver):
    """Chooses steps for a Kafka ledger."""

    def next(self, oracle: Oracle) -> Step:
        step = super().next(oracle)
        return self.next(oracle) if isinstance(step, SetBack) else step


class KafkaWorld(NodeWorld):
    """Two nodes over topics of the run's own."""

    def open_boards(self) -> NodeBoards:
        return KafkaBoards(self)

    def any_node(self) -> rankd.Boards:
        """Return one of them by chance, once it has followed everything: it checks by the definitions it knows."""
        node = super().any_node()
        wait_until(lambda: self._has_followed(node))
        return node

    def _has_followed(self, node: rankd.Boards) -> bool:
        """Follow everything that waits for no mark of time."""
        node.settle()
        ranks = node._backend._ranks  # type: ignore[attr-defined]
        return not ranks.follower.waiting

    def same(self, call: Callable[[], Any], expected: Callable[[], Any]) -> None:
        oracle = self.oracle
        assert isinstance(oracle, KafkaOracle)
        oracle.now = self.clock.advance(TICK_MS)
        self.boards.settle()
        oracle.knew_key = False
        should = outcome(expected)
        if oracle.knew_key:
            outcome(call)
            return
        super().same(call, lambda: should)

    def check_position(self, _key: str | None, _position: str, repeated: bool) -> None:
        assert not repeated

    def verify(self) -> None:
        for node in self.nodes:
            wait_until(partial(self._has_followed, node))
        super().verify()


class KafkaBoards(NodeBoards):
    """The boards of whichever node a step goes to."""

    def remove(self, *named: Any, **options: Any) -> rankd.Changed:
        return rankd.Changed(self._world.any_node().remove(*named, **options).position)
