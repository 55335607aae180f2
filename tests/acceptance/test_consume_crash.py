"""`rankd consume` is killed wherever it is: each record counts once, whichever process reads it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import PostgresServer
from tests.servers.processes import killed_at_the_end
from tests.servers.topics import Topics
from tests.servers.waiting import wait_until

import rankd
from rankd.boards import Boards
from rankd.node.open_node import open_node
from rankd.node.shared_stores import SharedStores

KILLS, KILLS_LONG = 5, 100
RECORDS, PLAYERS = 400, 30  # between two kills
ALIVE_S = (0.0, 0.6)  # between the start of consuming and the kill
READY = "consuming"
WAIT_S = 120.0


class Consumers:
    """Processes that consume one topic into one ledger."""

    def __init__(self, broker: KafkaBroker, folder: Path, ledger: str) -> None:
        self.topics = Topics(broker.address)
        self.scores = self.topics.create("crash", 4)
        self.dead = self.topics.name("crash-dead")
        self._folder = folder
        self._environment: Mapping[str, str] = {
            **os.environ,
            "RANKD_LEDGER_URL": ledger,
            "RANKD_CONSUME_URL": broker.url,
            "RANKD_CONSUME_TOPICS": self.scores,
            "RANKD_CONSUME_DEAD_LETTERS": self.dead,
            "RANKD_CONSUME_BATCH_EVENTS_MAX": "50",
        }
        self._logs = 0
        self.sent = 0

    def send(self, records: int) -> None:
        values = ({"board": "tally", "player": f"p{number % PLAYERS}", "score": 1} for number in range(records))
        self.topics.send(self.scores, values)
        self.sent += records

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a process for the block, and return once it consumes."""
        self._logs += 1
        log = self._folder / f"consume-{self._logs}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "rankd", "consume"],
                env=self._environment,
                cwd=self._folder,
                stdout=written,
                stderr=written,
            )
        with killed_at_the_end(process):
            wait_until(lambda: process.poll() is not None or READY in log.read_text(errors="replace"), WAIT_S)
            assert process.poll() is None, log.read_text(errors="replace")
            yield process


def define(boards: Boards) -> None:
    boards.define("tally", keep="sum")


def total(boards: Boards) -> int:
    return sum(entry.score for entry in boards.top("tally", PLAYERS).entries)


def kill_again_and_again(consumers: Consumers, kills: int) -> None:
    chosen, pause = random.Random(20260504), threading.Event()
    for _ in range(kills):
        consumers.send(RECORDS)
        with consumers.running() as process:
            pause.wait(chosen.uniform(*ALIVE_S))
            process.kill()


def check_folder(kafka: KafkaBroker, folder: Path, kills: int) -> None:
    data = folder / "data"
    with rankd.open(data) as boards:
        define(boards)
    consumers = Consumers(kafka, folder, f"sqlite:{data}")
    kill_again_and_again(consumers, kills)
    with consumers.running() as process:
        wait_until(lambda: committed(consumers, data) >= consumers.sent, WAIT_S)
        process.terminate()
        assert process.wait(WAIT_S) == 0
    with rankd.open(data) as boards:
        assert total(boards) == consumers.sent
        boards.verify()


def committed(consumers: Consumers, data: Path) -> int:
    """How many records the ledger says were read."""
    import apsw  # noqa: PLC0415

    connection = apsw.Connection(str(data / "ledger.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute("SELECT coalesce(sum(upto), 0) FROM sources").get or 0)
    finally:
        connection.close()


def test_a_killed_consumer_of_a_folder_counts_each_record_once(tmp_path: Path, kafka: KafkaBroker) -> None:
    check_folder(kafka, tmp_path, KILLS)


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_a_consumer_of_a_folder_that_is_killed_a_hundred_times_counts_each_record_once(
    tmp_path: Path, kafka: KafkaBroker
) -> None:
    check_folder(kafka, tmp_path, KILLS_LONG)


def test_two_consumers_share_partitions_and_one_that_is_killed_loses_and_doubles_nothing(
    tmp_path: Path, kafka: KafkaBroker, own_postgres: PostgresServer
) -> None:
    url = own_postgres.url()
    SharedStores(url).migrate()
    consumers = Consumers(kafka, tmp_path, url)
    with open_node(SharedStores(url), tmp_path / "node") as boards, ExitStack() as running:
        define(boards)
        running.enter_context(consumers.running())
        kill_again_and_again(consumers, 3)
        running.enter_context(consumers.running())
        consumers.send(RECORDS)
        own_postgres.stop()  # what is wrong with the ledger makes no dead letters
        consumers.send(RECORDS)
        own_postgres.start()

        wait_until(lambda: total(boards) >= consumers.sent, WAIT_S)
        consumers.send(10)
        wait_until(lambda: total(boards) >= consumers.sent, WAIT_S)
        assert total(boards) == consumers.sent
        assert consumers.topics.end(consumers.dead) == 0
