"""Apache Kafka of our own, on loopback, in temporary folders.

The broker is its own controller (KRaft). Nothing is left behind: the process is ended by its own id and the folder
removed, also when a test fails. The jars are fetched once by `tests/servers/install.sh`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.servers.postgres import free_port

HOW_TO_GET_KAFKA = (
    "Apache Kafka is not installed: apt-get install default-jre-headless maven, then run tests/servers/install.sh"
)
VERSION = "4.1.0"
CLUSTER_ID = "cmFua2QtdGVzdHMtY2x1cw"  # 16 bytes in base64, as Kafka wants it
BROKERS = 3  # of a cluster
START_WAIT_S = 120.0
STOP_WAIT_S = 60.0
POLL_S = 0.05
# Short-lived and beside others: quick to start, one thread of each kind.
JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKER",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "log.message.timestamp.after.max.ms": "9223372036854775807",  # the clocks of tests may be ahead
    "log.cleaner.dedupe.buffer.size": "2000000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
_PR_SET_PDEATHSIG = 1  # of Linux: a signal when the thread that started the process ends
_system = ctypes.CDLL(None)


class KafkaError(RuntimeError):
    """A broker did not start."""


def jars() -> Path:
    """Return the folder of the jars, which may not exist."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "rankd-tests" / f"kafka-{VERSION}"


def kafka_is_installed() -> bool:
    return shutil.which("java") is not None and (jars() / "complete").exists()


class KafkaBroker:
    """A broker that can be stopped, killed, paused and started again on its port."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        node: int = 1,
    ) -> None:
        """`settings` go over ours; `users` are those of SCRAM."""
        if not kafka_is_installed():
            raise KafkaError(HOW_TO_GET_KAFKA)
        self.folder = folder
        self.node = node
        self.port, self.controller_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._users = users or {}
        self._settings = {
            **SETTINGS,
            "node.id": str(node),
            "controller.quorum.voters": self.voter,
            "listeners": f"BROKER://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(folder / "log"),
            **(settings or {}),
        }

    @property
    def voter(self) -> str:
        """How the others of a cluster name it."""
        return f"{self.node}@127.0.0.1:{self.controller_port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"kafka://{self.address}"

    def set(self, settings: Mapping[str, str]) -> None:
        """Change settings before a start."""
        self._settings.update(settings)

    def start(self) -> None:
        """Start it and return when it answers."""
        self.launch()
        self.expect_answer()

    def launch(self) -> None:
        """Start it; a broker of a cluster answers once most of them run."""
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        if not (self.folder / "log").exists():
            users = (f"SCRAM-SHA-512=[name={name},password={password}]" for name, password in self._users.items())
            added = [option for user in users for option in ("--add-scram", user)]
            self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), *added)
        with self._log.open("ab") as written:
            self._process = subprocess.Popen(
                _java("kafka.Kafka", str(properties)),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                cwd=self.folder,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call of the system, and nothing that locks
            )

    def expect_answer(self) -> None:
        """Return when it answers."""
        deadline, pause = time.monotonic() + START_WAIT_S, threading.Event()
        while not self._answers():
            process = self._process
            if process is None or process.poll() is not None or time.monotonic() > deadline:
                raise KafkaError(f"the broker did not start: {self.log()[-3_000:]}")
            pause.wait(POLL_S)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return False  # a client would wait before it tries again
        try:
            admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            return self.node in admin.list_topics(timeout=5).brokers
        except KafkaException:
            return False

    def log(self) -> str:
        """Return what the broker has written."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"

    def stop(self) -> None:
        """Stop it as an administrator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without notice."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_WAIT_S)

    def _run(self, *command: str) -> None:
        done = subprocess.run(_java(*command), capture_output=True, text=True, timeout=START_WAIT_S, check=False)
        if done.returncode:
            raise KafkaError(f"{command[0]} failed: {done.stdout}{done.stderr}")


@contextmanager
def running_kafka(settings: Mapping[str, str] | None = None) -> Iterator[KafkaBroker]:
    """Run a broker while the block lasts."""
    with tempfile.TemporaryDirectory(prefix="rankd-kafka-", ignore_cleanup_errors=True) as folder:
        broker = KafkaBroker(Path(folder), settings)
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()


class KafkaCluster:
    """Brokers that replicate each other; one that is killed is replaced as the leader of its partitions."""

    def __init__(self, folder: Path) -> None:
        """Nothing is started yet."""
        replicated = {
            "offsets.topic.replication.factor": str(BROKERS),
            "default.replication.factor": str(BROKERS),
            "min.insync.replicas": str(BROKERS - 1),
        }
        self.brokers = []
        for node in range(1, BROKERS + 1):
            (folder / str(node)).mkdir()
            self.brokers.append(KafkaBroker(folder / str(node), replicated, node=node))
        for broker in self.brokers:
            broker.set({"controller.quorum.voters": ",".join(each.voter for each in self.brokers)})

    @property
    def address(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def url(self) -> str:
        return f"kafka://{self.address}"

    def start(self) -> None:
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.expect_answer()

    def leader(self, topic: str, partition: int = 0) -> KafkaBroker:
        """Return the broker that leads a partition."""
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        leader = admin.list_topics(timeout=30).topics[topic].partitions[partition].leader
        return next(broker for broker in self.brokers if broker.node == leader)


@contextmanager
def running_cluster() -> Iterator[KafkaCluster]:
    """Run three brokers while the block lasts."""
    with tempfile.TemporaryDirectory(prefix="rankd-kafka-", ignore_cleanup_errors=True) as folder, ExitStack() as ended:
        cluster = KafkaCluster(Path(folder))
        for broker in cluster.brokers:
            ended.callback(broker.kill)
        cluster.start()
        yield cluster


def _java(main: str, *arguments: str) -> list[str]:
    return ["java", *JVM, "-cp", f"{jars()}/*", main, *arguments]


def _end_with_parent() -> None:
    """Let the system end the broker when we are killed and cannot."""
    if sys.platform == "linux":
        _system.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
