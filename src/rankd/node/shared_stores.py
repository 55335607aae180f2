"""What the processes of an installation share, opened by the addresses of a configuration.

    ledger.url   postgresql://… → PostgresLedger, with everything else in the same database
                 kafka://…      → KafkaLedger; what a log cannot hold is in PostgreSQL, at registry.url
    registry.url profiles, friends and credentials

No other module chooses an adapter by an address.
"""

from __future__ import annotations

import os
import socket

import msgspec

from rankd.config.checks import is_in_kafka
from rankd.config.model import Config, ConsumeConfig, KafkaConfig
from rankd.kafka.address import client_settings
from rankd.ledger.port import SharedLedger
from rankd.ledger.postgres.backlog import PostgresBacklog
from rankd.ledger.postgres.connections import Connections
from rankd.ledger.postgres.lease import Lease
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.ledger.postgres.ledger import migrate as migrate_postgres
from rankd.ledger.postgres.migrations import check_component, migrate_component, scripts_of
from rankd.node.refused_events import RefusedEvents
from rankd.registry.postgres.registry import PostgresRegistry, migrate_registry
from rankd.registry.postgres.standings import StoredStandings, migrate_standings
from rankd.registry.postgres.standings_writer import StandingsWriter
from rankd.settings import Settings

# Leases and the backlog: tables of every installation, wherever its ledger is. Databases know them by this name.
COORDINATION = "projector"


class SharedStores(msgspec.Struct, frozen=True):
    """The addresses, and how Kafka is reached; each call opens something new."""

    ledger_url: str
    registry_url: str = ""  # empty: where the ledger is
    kafka: KafkaConfig = KafkaConfig()
    kafka_wait_ms: int = 30_000
    consume: ConsumeConfig = ConsumeConfig()  # where dead letters go

    @classmethod
    def of(cls, config: Config) -> SharedStores:
        """Return the shared stores of a configuration."""
        return cls(config.ledger.url, config.registry.url, config.kafka, config.ledger.kafka_wait_ms, config.consume)

    @property
    def database_url(self) -> str:
        """The PostgreSQL of leases, the backlog and stored standings."""
        return self.registry_url if is_in_kafka(self.ledger_url) else self.ledger_url

    def open_ledger(self) -> SharedLedger:
        """Open the ledger; LedgerUnavailable while its servers are away, or before `rankd migrate`."""
        if not is_in_kafka(self.ledger_url):
            return PostgresLedger(self.ledger_url)
        from rankd.ledger.kafka import KafkaLedger  # noqa: PLC0415 - its driver is an extra

        connections = Connections(self.database_url)
        try:
            with connections.using() as connection:
                check_component(connection, COORDINATION, len(coordination_scripts()))
            return KafkaLedger(
                self._brokers(),
                self.kafka.ledger_topic,
                PostgresBacklog(connections),
                wait_ms=self.kafka_wait_ms,
                close_backlog=connections.close,
            )
        except BaseException:
            connections.close()
            raise

    def open_registry(self, settings: Settings) -> PostgresRegistry:
        """Open profiles and friends."""
        return PostgresRegistry(
            self.registry_url or self.ledger_url,
            settings.profiles_cached_max,
            friends_bytes_max=settings.friends_bytes_max,
        )

    def open_standings(self) -> StoredStandings:
        """Open the stored standings, to read them while Redis is away."""
        return StoredStandings(self.database_url)

    def open_standings_writer(self) -> StandingsWriter:
        """Open the stored standings, for a projector."""
        return StandingsWriter(self.database_url)

    def open_refused_events(self) -> RefusedEvents | None:
        """Open what sends events to the dead letters that followers refuse; None where the ledger itself refuses."""
        if not is_in_kafka(self.ledger_url):
            return None
        from rankd.node.refusal_topic import RefusalTopic  # noqa: PLC0415 - its driver is an extra

        return RefusedEvents(RefusalTopic(self.kafka.ledger_topic, self.consume, self._brokers()).send)

    def lease(self, name: str) -> Lease:
        """Return a lease that this process may claim."""
        return Lease(self.database_url, f"{socket.gethostname()}:{os.getpid()}", name)

    @property
    def ledger_version(self) -> int:
        """The newest version that `migrate` brings the ledger to."""
        return 1 if is_in_kafka(self.ledger_url) else len(scripts_of("rankd.ledger.postgres"))

    def migrate(self, partitions: int | None = None) -> int:
        """Create or update the ledger and all tables; return the ledger's former version. Safe to run twice."""
        if not is_in_kafka(self.ledger_url):
            _drop_other_backlog(self.ledger_url)
            before = migrate_postgres(self.ledger_url, partitions)
        else:
            from rankd.ledger.kafka import migrate as migrate_kafka  # noqa: PLC0415 - its driver is an extra

            before = migrate_kafka(
                self._brokers(), self.kafka.ledger_topic, partitions, retention_ms=self.kafka.ledger_retention_ms
            )
        migrate_component(self.database_url, COORDINATION, coordination_scripts())
        migrate_standings(self.database_url)
        migrate_registry(self.registry_url or self.ledger_url)
        return before

    def _brokers(self) -> dict[str, str]:
        return client_settings(self.ledger_url, self.kafka, "ledger.url")


def _drop_other_backlog(url: str) -> None:
    """Drop the backlog of a ledger elsewhere where one is about to be made here: it makes a table of its own."""
    connections = Connections(url, 1)
    try:
        with connections.using() as connection:
            for script in scripts_of("rankd.node", "before_migration"):
                connection.execute(script.encode())
    finally:
        connections.close()


def coordination_scripts() -> list[str]:
    """Return the migration scripts of leases and the backlog, one per version."""
    return scripts_of("rankd.node")
