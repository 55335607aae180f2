"""Kafka that demands TLS and SASL: right credentials work, wrong ones get a clear error without a secret."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.fixtures_kafka import needs_kafka
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import free_port
from tests.servers.tls import Authority

from rankd.config.model import Config, KafkaConfig, LedgerConfig, OutboxConfig
from rankd.errors import KafkaUnavailable, KafkaUnusable
from rankd.kafka.address import client_settings
from rankd.kafka.clients import KafkaAdmin, KafkaProducer
from rankd.node.installation import installation_of
from rankd.outbox.running import ConfiguredRelay

PASSWORD, OTHER_PASSWORD = "correct-horse", "battery-staple"


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

    def settings(self, user: str = "rankd", password: str = PASSWORD, ca: Path | None = None) -> dict[str, str]:
        """Return a client's settings."""
        trusted = ca or self.authority.certificate
        return client_settings(f"kafka://{user}:{password}@127.0.0.1:{self.port}?tls=true&ca={trusted}", KafkaConfig())


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


def test_a_client_without_tls_gets_no_further(secured: SecuredBroker) -> None:
    plain = client_settings(f"kafka://rankd:{PASSWORD}@127.0.0.1:{secured.port}", KafkaConfig())

    with pytest.raises(KafkaUnavailable):
        KafkaAdmin(plain).partitions("wanted")
