"""Opens the boards of a configuration: in a folder, or on a shared ledger with ranks in this process or in Redis.

The server and the command line use the `Installation` protocol and need not know which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rankd.boards import Boards
from rankd.clock import SystemClock
from rankd.config.checks import is_in_kafka, is_in_redis, is_shared
from rankd.config.loading import data_folder, open_settings
from rankd.config.model import Config
from rankd.domain.board_selection import BoardSelection
from rankd.errors import InvalidValue, Refused
from rankd.folder import note_server
from rankd.intake.sources import SourceIntake
from rankd.node.ledger_tail import LedgerTail
from rankd.node.open_embedded import embedded_of, open_boards
from rankd.registry.credentials import Credentials
from rankd.registry.sqlite.credentials import SqliteCredentials, first_admin_key

if TYPE_CHECKING:
    from rankd.node.shared_stores import SharedStores

Progress = Callable[[int, int], None]
EXTRA = "pip install 'rankd[scaled]'"
KAFKA_EXTRA = "pip install 'rankd[scaled,kafka]'"


class OpenCredentials(Credentials, Protocol):
    """Credentials that other processes may change."""

    def refresh(self) -> None:
        """Read the changes of other processes."""
        ...


class Installation(Protocol):
    """The boards of a configuration, not opened yet."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes write to the same boards."""
        ...

    def open_boards(self, progress: Progress | None = None) -> Boards:
        """Open the boards."""
        ...

    def open_intake(self) -> AbstractContextManager[SourceIntake]:
        """Open the intake alone, for what comes from topics."""
        ...

    def open_tail(self, boards: Boards) -> AbstractContextManager[LedgerTail]:
        """Open the ledger beside its open boards, to forward events."""
        ...

    def open_credentials(self) -> AbstractContextManager[OpenCredentials]:
        """Open the credentials."""
        ...

    def first_key(self, credentials: Credentials) -> Path | None:
        """Create the first administrator's key if none ever existed, and return its file."""
        ...

    def note_server(self, url: str) -> None:
        """Record where the server listens, for commands that cannot open the boards beside it."""
        ...


class EmbeddedInstallation:
    """Everything in one folder and one process."""

    is_shared = False

    def __init__(
        self, config: Config, committed: Callable[[], None] = lambda: None, process: int | None = None
    ) -> None:
        """Store the configuration; nothing is opened yet.

        `committed` is called after each durable change; `process` is the one to stop, where it is not this one.
        """
        self._config = config
        self._folder = data_folder(config)
        self._committed = committed
        self._process = process

    def open_boards(self, progress: Progress | None = None) -> Boards:
        """Open the folder; create it if missing."""
        settings: dict[str, Any] = open_settings(self._config)
        return open_boards(self._folder, progress=progress, committed=self._committed, **settings)

    @contextmanager
    def open_intake(self) -> Iterator[SourceIntake]:
        """Open the folder, which ranks what is appended."""
        with self.open_boards() as boards:
            yield boards.sources

    @contextmanager
    def open_tail(self, boards: Boards) -> Iterator[LedgerTail]:
        """Read the ledger that the boards have open."""
        yield LedgerTail(embedded_of(boards).ledger, None)

    def open_credentials(self) -> AbstractContextManager[OpenCredentials]:
        """Open the credentials of the folder."""
        return SqliteCredentials(self._folder, SystemClock())

    def first_key(self, credentials: Credentials) -> Path | None:
        """Create the first key, in the folder."""
        return first_admin_key(self._folder, credentials)

    def note_server(self, url: str) -> None:
        """Record it in the folder."""
        note_server(self._folder, url, self._process)


class ReplicaInstallation:
    """The same folder in a process that reads it, beside the one that writes."""

    is_shared = True

    def __init__(self, config: Config, wait: Callable[[float], None]) -> None:
        """`wait` returns when the process that writes may have committed."""
        self._config = config
        self._folder = data_folder(config)
        self._wait = wait

    def open_boards(self, progress: Progress | None = None) -> Boards:
        """Open a replica: load the writer's newest checkpoint, and follow the rest of its ledger."""
        from rankd.node.open_replica import open_replica  # noqa: PLC0415 - few processes are one

        settings: dict[str, Any] = open_settings(self._config)
        return open_replica(
            self._folder,
            self._wait,
            progress=progress,
            stale_after_ms=self._config.server.stale_after_ms,
            lag_max_ms=self._config.limits.lag_max_ms,
            kept=BoardSelection(self._config.workers.boards),
            **settings,
        )

    def open_intake(self) -> AbstractContextManager[SourceIntake]:
        """Refuse: the process that writes has it."""
        raise Refused("this process only reads; the one that writes the folder consumes")

    def open_tail(self, _boards: Boards) -> AbstractContextManager[LedgerTail]:
        """Refuse: the process that writes has it."""
        raise Refused("this process only reads; the one that writes the folder relays")

    def open_credentials(self) -> AbstractContextManager[OpenCredentials]:
        """Open the credentials of the folder, as any process may."""
        return SqliteCredentials(self._folder, SystemClock())

    def first_key(self, _credentials: Credentials) -> Path | None:
        """Create none: the process that writes does."""
        return None

    def note_server(self, _url: str) -> None:
        """Do nothing: the process that writes holds the folder."""


class _OnSharedLedger:
    """A shared ledger, any number of processes."""

    is_shared = True

    def __init__(self, config: Config) -> None:
        """Nothing is opened yet."""
        self._config = config

    def _stores(self) -> SharedStores:
        from rankd.node.shared_stores import SharedStores  # noqa: PLC0415 - its drivers are an extra

        return SharedStores.of(self._config)

    def open_intake(self) -> AbstractContextManager[SourceIntake]:
        """Open the ledger in a process that does not rank."""
        from rankd.node.open_appender import open_appender  # noqa: PLC0415 - its driver is an extra

        config = self._config
        settings: dict[str, Any] = open_settings(config)
        return open_appender(
            self._stores(),
            ranks_url=config.ranks.url if is_in_redis(config) else None,
            lag_max_ms=config.limits.lag_max_ms,
            **settings,
        )

    @contextmanager
    def open_tail(self, _boards: Boards) -> Iterator[LedgerTail]:
        """Open the ledger once more: where a reader has come to is its own."""
        from rankd.ledger.postgres.lease import RELAYS  # noqa: PLC0415 - its driver is an extra

        stores = self._stores()
        with closing(stores.open_ledger()) as ledger:
            yield LedgerTail(ledger, stores.lease(RELAYS))

    def open_credentials(self) -> AbstractContextManager[OpenCredentials]:
        """Open the credentials, which all processes share."""
        from rankd.registry.postgres.credentials import PostgresCredentials  # noqa: PLC0415

        return PostgresCredentials(self._config.registry.url or self._config.ledger.url, SystemClock())

    def first_key(self, _credentials: Credentials) -> Path | None:
        """Create none: `rankd token` does, for operators with access to the database."""
        return None


class NodeInstallation(_OnSharedLedger):
    """Every process ranks in an engine of its own."""

    def note_server(self, url: str) -> None:
        """Record it in the node's folder."""
        note_server(Path(self._config.ranks.folder).expanduser(), url)

    def open_boards(self, progress: Progress | None = None) -> Boards:
        """Open a node: load its newest checkpoint, and follow the rest of the ledger."""
        from rankd.node.open_node import open_node  # noqa: PLC0415 - its driver is an extra

        config = self._config
        settings: dict[str, Any] = open_settings(config)
        return open_node(
            self._stores(),
            Path(config.ranks.folder).expanduser(),
            progress=progress,
            stale_after_ms=config.server.stale_after_ms,
            lag_max_ms=config.limits.lag_max_ms,
            **settings,
        )


class ThinInstallation(_OnSharedLedger):
    """Ranks are in Redis, where a projector mirrors them."""

    def note_server(self, _url: str) -> None:
        """Do nothing: any command can open the boards beside the server."""

    def open_boards(self, progress: Progress | None = None) -> Boards:
        """Open the boards as one of many processes; `progress` is unused, since nothing is replayed."""
        from rankd.node.open_thin import open_thin  # noqa: PLC0415 - its drivers are an extra

        config = self._config
        settings: dict[str, Any] = open_settings(config)
        return open_thin(
            self._stores(),
            config.ranks.url,
            stale_after_ms=config.server.stale_after_ms,
            lag_max_ms=config.limits.lag_max_ms,
            **settings,
        )


def installation_of(config: Config) -> Installation:
    """Return the installation of a configuration."""
    if not is_shared(config):
        return EmbeddedInstallation(config)
    is_thin = is_in_redis(config)
    try:
        import psycopg  # noqa: F401, PLC0415

        if is_thin:
            import redis  # noqa: F401, PLC0415
    except ImportError as problem:
        raise InvalidValue("ledger.url", f"PostgreSQL and Redis need drivers: {EXTRA} ({problem})") from None
    if is_in_kafka(config.ledger.url):
        try:
            import confluent_kafka  # noqa: F401, PLC0415
        except ImportError as problem:
            raise InvalidValue("ledger.url", f"Kafka needs a driver: {KAFKA_EXTRA} ({problem})") from None
    return ThinInstallation(config) if is_thin else NodeInstallation(config)
