"""Kafka that demands TLS and SASL: right credentials work, wrong ones get a clear error without a secret."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from tests.contract.kafka_ledgers import NoBacklog
from tests.contract.ledger_drafts import control, draft
from tests.servers.fixtures_kafka import needs_kafka
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import free_port
from tests.servers.tls import Authority
from tests.servers.topics import Topics
from tests.servers.waiting import wait_until

import rankd
from rankd.config.model import Config, ConsumeConfig, KafkaConfig, LedgerConfig, OutboxConfig
from rankd.consume.running import ConfiguredConsumer
from rankd.errors import KafkaUnavailable, KafkaUnusable, LedgerUnavailable
from rankd.kafka.address import client_settings
from rankd.kafka.clients import KafkaAdmin, KafkaProducer
from rankd.ledger.kafka import KafkaLedger, migrate
from rankd.node.installation import installation_of
from rankd.outbox.running import ConfiguredRelay

PASSWORD, OTHER_PASSWORD = "correct-horse", "battery-staple"
ANSWER_WAIT_S = 5.0
GRANT_WAIT_S = 60.0
COMMAND_WAIT_S = 120.0
JOIN_S = 60.0


class SecuredBroker:
    """A broker with a listener for clients that demands both."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.other = Authority(folder), Authority(folder, "other")
        certificate, key = self.authority.sign("broker")
        chain = folder / "broker.pem"
        chain.write_bytes(key.read_bytes() + certificate.read_bytes())
        self.port = free_port()
        secure = "listener.name.secure"
        settings = {
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
            f"{secure}.ssl.keystore.type": "PEM",
            f"{secure}.ssl.keystore.location": str(chain),
            f"{secure}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            f"{secure}.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:rankd",
        }
        self.broker = KafkaBroker(folder, settings, users={"rankd": PASSWORD, "stranger": OTHER_PASSWORD})
        listeners = f"BROKER://127.0.0.1:{self.broker.port},SECURE://127.0.0.1:{self.port}"
        self.broker.set({"listeners": f"{listeners},CONTROLLER://127.0.0.1:{self.broker.controller_port}"})
        self.broker.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kafka(self, user: str = "stranger", password: str = OTHER_PASSWORD) -> KafkaConfig:
        """Return the section of the configuration that reaches it."""
        return KafkaConfig(tls=True, ca=str(self.authority.certificate), username=user, password=password)

    def grant(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Allow the stranger one thing."""
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})
        allowed = (ResourcePatternType.LITERAL, "User:stranger", "*", operation, AclPermissionType.ALLOW)
        for granted in admin.create_acls([AclBinding(kind, name, *allowed)]).values():
            granted.result(GRANT_WAIT_S)

    def settings(self, user: str = "rankd", password: str = PASSWORD, ca: Path | None = None) -> dict[str, str]:
        """Return a client's settings."""
        trusted = ca or self.authority.certificate
        return client_settings(f"kafka://{user}:{password}@127.0.0.1:{self.port}?tls=true&ca={trusted}", KafkaConfig())


@pytest.fixture(autouse=True)
def answers_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that gets no answer waits all of it."""
    monkeypatch.setattr("rankd.kafka.clients.ANSWER_WAIT_S", ANSWER_WAIT_S)


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    needs_kafka()
    with tempfile.TemporaryDirectory(prefix="rankd-kafka-", ignore_cleanup_errors=True) as folder:
        broker = SecuredBroker(Path(folder))
        try:
            yield broker
        finally:
            broker.broker.kill()


def test_the_right_credentials_create_a_topic_and_send(secured: SecuredBroker) -> None:
    KafkaAdmin(secured.settings()).ensure_topic("wanted", 2, {"retention.ms": "60000"})

    KafkaProducer(secured.settings()).send("wanted", [(b"key", b"value", [("name", b"header")])])

    assert KafkaAdmin(secured.settings()).partitions("wanted") == 2


def test_a_wrong_password_is_named_without_it(secured: SecuredBroker) -> None:
    with pytest.raises(KafkaUnusable, match="refuses the credentials") as raised:
        KafkaAdmin(secured.settings(password="wrong-password")).partitions("wanted")

    assert "wrong-password" not in str(raised.value)


def test_an_unknown_authority_is_named(secured: SecuredBroker) -> None:
    with pytest.raises(KafkaUnusable, match="cannot be reached by TLS"):
        KafkaAdmin(secured.settings(ca=secured.other.certificate)).partitions("wanted")


def test_a_user_without_rights_learns_what_to_create(secured: SecuredBroker) -> None:
    with pytest.raises(KafkaUnusable, match=r"may not create it: .*--topic missing --partitions 3 .*retention.ms=1000"):
        KafkaAdmin(secured.settings("stranger", OTHER_PASSWORD)).ensure_topic("missing", 3, {"retention.ms": "1000"})


def test_a_relay_without_rights_ends_with_what_to_create(secured: SecuredBroker, tmp_path: Path) -> None:
    trusted = secured.authority.certificate
    url = f"kafka://stranger:{OTHER_PASSWORD}@127.0.0.1:{secured.port}?tls=true&ca={trusted}"
    ledger = LedgerConfig(url=f"sqlite:{tmp_path / 'data'}")
    config = Config(ledger=ledger, outbox=OutboxConfig(url=url, topic="events", partitions=4))
    installation, stop = installation_of(config), threading.Event()

    with (
        installation.open_boards() as boards,
        installation.open_tail(boards) as tail,
        pytest.raises(KafkaUnusable, match=r"--create --topic events --partitions 4 .*retention.ms=86400000") as why,
    ):
        ConfiguredRelay(config).run(boards, tail, stop, print)

    assert OTHER_PASSWORD not in str(why.value)


def test_a_ledger_behind_tls_and_passwords_is_made_written_and_read(secured: SecuredBroker) -> None:
    topic = Topics(secured.broker.address).name("ledger")
    migrate(secured.settings(), topic, 2, retention_ms=-1)

    with closing(KafkaLedger(secured.settings(), topic, NoBacklog())) as ledger:
        ledger.append_control([control()], 0)
        appended = ledger.append(draft(ledger, ("alice", 5), seen=1))
        (event_run,) = [part.event_run for part in ledger.read([1, 1], 10)]

        assert (event_run.partition, event_run.first) == appended.place(0)
        assert (event_run.players, list(event_run.score)) == (["alice"], [5])


def test_a_ledger_that_may_not_be_used_names_the_right_and_no_password(secured: SecuredBroker) -> None:
    topic = Topics(secured.broker.address).name("ledger")
    migrate(secured.settings(), topic, 2, retention_ms=-1)
    stranger = secured.settings("stranger", OTHER_PASSWORD)

    with pytest.raises(LedgerUnavailable, match="run `rankd migrate`") as opening:  # it cannot be seen
        KafkaLedger(stranger, topic, NoBacklog())
    with pytest.raises(LedgerUnavailable, match=r"refuses what the ledger needs: .* the credentials") as password:
        KafkaLedger(secured.settings(password="wrong-password"), topic, NoBacklog())
    with pytest.raises(LedgerUnavailable, match=r"refuses what the ledger needs: .* may not create it") as creating:
        migrate(stranger, f"{topic}-new", 2, retention_ms=-1)

    problems = f"{opening.value} {password.value} {creating.value}"
    assert OTHER_PASSWORD not in problems
    assert "wrong-password" not in problems


def test_a_client_without_tls_gets_no_further(secured: SecuredBroker) -> None:
    plain = client_settings(f"kafka://rankd:{PASSWORD}@127.0.0.1:{secured.port}", KafkaConfig())

    with pytest.raises(KafkaUnavailable):
        KafkaAdmin(plain).partitions("wanted")


# What a consumer may do is granted piece by piece; what is missing next is named.


class GrantedConsumer:
    """A consumer of the stranger, who has no rights at first, into a folder; configured by `[kafka]`."""

    def __init__(self, secured: SecuredBroker, boards: rankd.Boards) -> None:
        self.topics = Topics(secured.broker.address)
        self.scores, self.dead = self.topics.create("granted"), self.topics.create("granted-dead")
        self.group = self.topics.name("granted-group")
        consume = ConsumeConfig(
            url=f"kafka://{secured.address}", topics=(self.scores,), dead_letters=self.dead, group=self.group
        )
        self.consuming = ConfiguredConsumer(Config(consume=consume, kafka=secured.kafka()))
        self._boards = boards

    def run(self, stop: threading.Event) -> None:
        """Consume until `stop` is set; KafkaUnusable where something is not allowed from the beginning."""
        self.consuming.run(self._boards.sources, stop, print)


def test_each_right_that_a_consumer_lacks_is_named(
    secured: SecuredBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rankd")
    with rankd.open(tmp_path / "data") as boards:
        boards.define("tally", keep="sum")
        granted = GrantedConsumer(secured, boards)
        granted.topics.send(granted.scores, [{"board": "tally", "player": "ann", "score": 3}, b"not JSON"])

        with pytest.raises(KafkaUnusable, match=f"does not have the topic {granted.scores}"):  # it cannot be seen
            granted.run(threading.Event())
        for topic in (granted.scores, granted.dead):
            secured.grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)

        stop = threading.Event()
        thread = threading.Thread(target=granted.run, args=(stop,))
        thread.start()
        try:
            wait_until(lambda: "does not allow this user to use the consumer group" in caplog.text)
            secured.grant(ResourceType.GROUP, granted.group, AclOperation.READ)
            wait_until(lambda: "does not allow this user to use the topic" in caplog.text)
            secured.grant(ResourceType.TOPIC, granted.scores, AclOperation.READ)
            wait_until(lambda: granted.consuming.figures.consumed == 1)
            wait_until(lambda: f"{granted.dead}: Kafka does not allow this user" in caplog.text)
            assert granted.consuming.figures.refused == 0
            secured.grant(ResourceType.TOPIC, granted.dead, AclOperation.WRITE)
            wait_until(lambda: granted.consuming.figures.refused == 1)
        finally:
            stop.set()
            thread.join(JOIN_S)
        assert boards.rank("tally", "ann").score == 3  # type: ignore[union-attr]
    assert OTHER_PASSWORD not in caplog.text


def test_a_command_names_the_wrong_password_nowhere(secured: SecuredBroker, tmp_path: Path) -> None:
    def lines(*more: str) -> str:
        environment: dict[str, Any] = {
            "RANKD_CONSUME_URL": f"kafka://rankd:wrong-password@{secured.address}?tls=true",
            "RANKD_CONSUME_TOPICS": "scores",
            "RANKD_KAFKA_CA": str(secured.authority.certificate),
            "RANKD_SERVER_LOG_LEVEL": "debug",
        }
        done = subprocess.run(
            [sys.executable, "-m", "rankd", *more, "--data", str(tmp_path / "data")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_WAIT_S,
            check=False,
        )
        return done.stdout + done.stderr

    with rankd.open(tmp_path / "data") as boards:
        boards.define("tally")
    output = lines("consume")

    assert "refuses the credentials" in output
    assert "wrong-password" not in output + lines("config", "show")
