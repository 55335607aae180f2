"""Every rank store and every ledger there is, and a board to write to; each contract test runs once per adapter."""

from __future__ import annotations

import pkgutil
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

import pytest
from tests.contract.kafka_ledgers import LOG_PARTITIONS, KafkaStorage, OpenLog
from tests.contract.ledger_places import LedgerPlace, PostgresStorage, SqliteReplicaStorage, SqliteStorage, Storage
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import PostgresServer

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking, Rules
from rankd.ledger.kafka import KafkaLedger
from rankd.ledger.port import Ledger
from rankd.projection.port import Applied, Op, RankedEntry, RankStore, RowChange, UpdateBatch, Verdict, walk

# Named rather than imported, so that an adapter that cannot be loaded fails its own tests and no others.
STORES = {
    "reference": "rankd.projection.reference:ReferenceStore",
    "engine": "rankd.projection.engine:EngineStore",
    "archive": "tests.contract.archived_store:ArchivedStore",
    "redis": "tests.servers.mirrored:MirroredStore",
    "redis-cluster": "tests.servers.mirrored:MirroredStore",
}
# Slots matter where a test writes several boards, or keys of a board that the cluster keeps apart; elsewhere a cluster
# does what one server does.
ON_CLUSTER = (
    "test_rank_store_batches",
    "test_rank_store_captures",
    "test_rank_store_instances",
    "test_rank_store_threads",
)
# The archive is read only: what it answers is compared, not how it is written.
ON_ARCHIVE = ("test_rank_store_limits", "test_rank_store_order", "test_rank_store_reads", "test_rank_store_statistics")
MODULES = {"redis-cluster": ON_CLUSTER, "archive": ON_ARCHIVE}  # of the stores that some tests have
CLIENTS = {"redis": "redis_client", "redis-cluster": "cluster_client"}  # fixtures of those that have servers
LEDGERS = [
    "sqlite",
    "sqlite-replica",
    "postgres-1",
    "postgres-3",
    "kafka-1",
    "kafka-3",
]  # the numbers are of partitions

Row = tuple[str, int] | tuple[str, int, int]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        module = metafunc.module.__name__.rpartition(".")[2]
        absent = {name for name, modules in MODULES.items() if module not in modules}
        stores = [name for name in STORES if name not in absent]
        metafunc.parametrize("store", stores, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> RankStore:
    """An empty store."""
    clients = [request.getfixturevalue(CLIENTS[request.param])] if request.param in CLIENTS else []
    empty: RankStore = pkgutil.resolve_name(STORES[request.param])(*clients)
    return empty


@dataclass(frozen=True)
class Board:
    """One instance of the store under test; every call is a batch at the next position of partition 0."""

    store: RankStore
    rules: Rules
    key: InstanceKey

    def apply(self, *rows: Row, op: Op = Op.APPLY, ranks: Ranking | None = None) -> list[RowChange]:
        return self.mixed(*((op, *row) for row in rows), ranks=ranks)

    def put(self, *rows: Row) -> list[RowChange]:
        return self.apply(*rows, op=Op.PUT)

    def remove(self, *players: str) -> list[RowChange]:
        return self.apply(*((player, 0) for player in players), op=Op.REMOVE)

    def clear(self) -> list[RowChange]:
        return self.mixed((Op.CLEAR,))

    def mixed(
        self, *rows: tuple[Op] | tuple[Op, str, int] | tuple[Op, str, int, int], ranks: Ranking | None = None
    ) -> list[RowChange]:
        """Apply rows of (op, player, score, tie), from the left as far as the op needs them, as one batch."""
        answer = self.batch(*rows, ranks=ranks)
        return [answer.row(index) for index in range(len(answer))]

    def batch(
        self, *rows: tuple[Op] | tuple[Op, str, int] | tuple[Op, str, int, int], ranks: Ranking | None = None
    ) -> Applied:
        filled = [(*row, "nobody", 0, 0)[:4] if len(row) == 1 else (*row, 0)[:4] for row in rows]
        after = self.store.position(0).sequence
        answer = self.store.apply(
            UpdateBatch(
                instances=[(self.key, self.rules)],
                players=[str(row[1]) for row in filled],
                score=array("q", [int(row[2]) for row in filled]),
                tie=array("q", [int(row[3]) for row in filled]),
                op=array("B", [int(row[0]) for row in filled]),
                epoch=self.store.position(0).epoch,
                after=after,
                upto=after + len(rows),
                ranks=ranks,
            )
        )
        assert answer.verdict is Verdict.APPLIED
        return answer

    def order(self) -> list[str]:
        """The players in standing order."""
        return [entry.player for entry in self.entries()]

    def kept(self) -> dict[str, Kept]:
        return {entry.player: Kept(entry.score, entry.tie) for entry in self.entries()}

    def entries(self) -> list[RankedEntry]:
        # One more than there are: a store whose walk never ends should fail, not hang.
        return list(islice(walk(self.store, self.key), self.store.total(self.key) + 1))


MakeBoard = Callable[..., Board]


@pytest.fixture
def make_board(store: RankStore) -> MakeBoard:
    """Make an empty board from its rules, given as keywords; `name` tells boards of one test apart."""

    def make(*rows: Row, name: str = "arcade", **rules: object) -> Board:
        board = Board(store, replace(Rules(), **rules), InstanceKey(name))  # type: ignore[arg-type]
        if rows:
            board.apply(*rows)
        return board

    return make


@pytest.fixture
def board(make_board: MakeBoard) -> Board:
    """An empty board: the best score stays, more is better, who was there earlier stands first."""
    return make_board()


MakeLedgerPlace = Callable[[], LedgerPlace]


@pytest.fixture(params=LEDGERS)
def make_ledger_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeLedgerPlace]:
    """Make a place with an empty ledger; each is another one."""
    kind, _, partitions = request.param.partition("-")
    numbers = count()
    with ExitStack() as made:

        def storage() -> Storage:
            if kind == "sqlite":
                folder = tmp_path / str(next(numbers))
                folder.mkdir()
                return SqliteReplicaStorage(folder) if request.param == "sqlite-replica" else SqliteStorage(folder)
            if kind == "kafka":
                broker: KafkaBroker = request.getfixturevalue("kafka")
                return KafkaStorage(broker.url, int(partitions))
            server: PostgresServer = request.getfixturevalue("postgres")
            return PostgresStorage(made.enter_context(server.database()), int(partitions))

        def make() -> LedgerPlace:
            place = LedgerPlace(storage())
            made.callback(place.close)
            return place

        yield make


@pytest.fixture
def ledger_place(make_ledger_place: MakeLedgerPlace) -> LedgerPlace:
    """Where the ledger of the test is."""
    return make_ledger_place()


@pytest.fixture
def ledger(request: pytest.FixtureRequest, ledger_place: LedgerPlace) -> Ledger:
    """An empty ledger, with the capabilities that the test is marked with."""
    ledger = ledger_place.open()
    for mark in request.node.iter_markers("capability"):
        if not getattr(ledger.capabilities, mark.args[0]):
            pytest.skip(f"the ledger has not the capability {mark.args[0]}")
    return ledger


@pytest.fixture
def log_storage(kafka: KafkaBroker) -> KafkaStorage:
    """A ledger on Kafka in topics of the test's own."""
    return KafkaStorage(kafka.url, LOG_PARTITIONS)


@pytest.fixture
def open_log(log_storage: KafkaStorage) -> Iterator[OpenLog]:
    """Return a function that opens the ledger as one more process."""
    with ExitStack() as opened:

        def opening() -> KafkaLedger:
            ledger, close = log_storage.open()
            opened.callback(close)
            return ledger

        yield opening
