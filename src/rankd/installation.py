"""Where the boards of a configuration live: in a folder of this machine, or in PostgreSQL, ranked here or in Redis.

What serves them and what the command line does with them asks here, and need not know which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from rankd.boards import Boards
from rankd.clock import SystemClock
from rankd.config.checks import is_in_redis, is_shared
from rankd.config.loading import data_folder, open_settings
from rankd.config.model import Config
from rankd.errors import InvalidValue
from rankd.folder import note_server
from rankd.node.open_embedded import open_boards
from rankd.registry.credentials import Credentials
from rankd.registry.sqlite_credentials import SqliteCredentials, first_admin_key

Progress = Callable[[int, int], None]
EXTRA = "pip install 'rankd[scaled]'"


class OpenCredentials(Credentials, Protocol):
    """Credentials that notice what other processes change."""

    def refresh(self) -> None:
        """Read again what was changed elsewhere."""
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

    def open_credentials(self) -> AbstractContextManager[OpenCredentials]:
        """Open the credentials."""
        ...

    def first_key(self, credentials: Credentials) -> Path | None:
        """Make an administrator's key where there never was one, and return the file it is in."""
        ...

    def note_server(self, url: str) -> None:
        """Note where the server of these boards listens, for commands that cannot open them beside it."""
        ...


class Embedded:
    """Everything in one folder and one process."""

    is_shared = False

    def __init__(self, config: Config) -> None:
        """Nothing is opened yet."""
        self._config = config
        self._folder = data_folder(config)

    def open_boards(self, progress: Progress | None = None) -> Boards:
        """Open the folder, which is made when it is missing."""
        settings: dict[str, Any] = open_settings(self._config)
        return open_boards(self._folder, progress=progress, **settings)

    def open_credentials(self) -> AbstractContextManager[OpenCredentials]:
        """Open the credentials of the folder."""
        return SqliteCredentials(self._folder, SystemClock())

    def first_key(self, credentials: Credentials) -> Path | None:
        """Make the first key, in the folder."""
        return first_admin_key(self._folder, credentials)

    def note_server(self, url: str) -> None:
        """Note it in the folder."""
        note_server(self._folder, url)


class _OnPostgres:
    """A ledger in PostgreSQL, any number of processes."""

    is_shared = True

    def __init__(self, config: Config) -> None:
        """Nothing is opened yet."""
        self._config = config

    def open_credentials(self) -> AbstractContextManager[OpenCredentials]:
        """Open the credentials, which all processes share."""
        from rankd.registry.postgres_credentials import PostgresCredentials  # noqa: PLC0415

        return PostgresCredentials(self._config.registry.url or self._config.ledger.url, SystemClock())

    def first_key(self, _credentials: Credentials) -> Path | None:
        """Make none: `rankd token` does, for whoever may reach the database."""
        return None


class Nodes(_OnPostgres):
    """Every process ranks in an engine of its own."""

    def note_server(self, url: str) -> None:
        """Note it in the node's folder."""
        note_server(Path(self._config.ranks.folder).expanduser(), url)

    def open_boards(self, progress: Progress | None = None) -> Boards:
        """Open a node: load its newest checkpoint, and follow the rest of the ledger."""
        from rankd.node.open_node import open_node  # noqa: PLC0415 - its driver is an extra

        config = self._config
        settings: dict[str, Any] = open_settings(config)
        return open_node(
            config.ledger.url,
            Path(config.ranks.folder).expanduser(),
            config.registry.url,
            progress=progress,
            stale_after_ms=config.server.stale_after_ms,
            **settings,
        )


class Thin(_OnPostgres):
    """Ranks are in Redis, where a projector mirrors them."""

    def note_server(self, _url: str) -> None:
        """Note nothing: any command opens the boards beside it."""

    def open_boards(self, progress: Progress | None = None) -> Boards:
        """Open the boards as one of many processes; there is nothing to replay, so `progress` is not told anything."""
        from rankd.scaled.compose import open_shared  # noqa: PLC0415 - its drivers are an extra

        config = self._config
        settings: dict[str, Any] = open_settings(config)
        return open_shared(
            config.ledger.url,
            config.ranks.url,
            config.registry.url,
            stale_after_ms=config.server.stale_after_ms,
            **settings,
        )


def installation_of(config: Config) -> Installation:
    """Return where the boards of a configuration live."""
    if not is_shared(config):
        return Embedded(config)
    try:
        import psycopg  # noqa: F401, PLC0415
        import redis  # noqa: F401, PLC0415
    except ImportError as problem:
        raise InvalidValue("ledger.url", f"PostgreSQL and Redis need drivers: {EXTRA} ({problem})") from None
    return Thin(config) if is_in_redis(config) else Nodes(config)
