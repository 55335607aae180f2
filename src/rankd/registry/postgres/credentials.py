"""Credentials on PostgreSQL, shared by every API process; registry/credentials.py has their promises.

    rankd token → credentials → new version → refresh ← every process

Each process holds a snapshot of the active credentials, and replaces it as a whole, so that readers need no lock.
Changes of all processes are serialized: each locks the version first, and takes a new snapshot at its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, LiteralString
from uuid import UUID

from psycopg import IsolationLevel

from rankd.clock import Clock
from rankd.domain.text import check_name, is_name
from rankd.ledger.postgres.connections import Connections, PostgresConnection
from rankd.ledger.postgres.migrations import check_component, scripts_of
from rankd.registry.credential_snapshot import (
    CredentialSnapshot,
    name_taken,
    new_signing_secret,
    new_token,
    read_scopes,
    scopes_text,
    signing_name_taken,
)
from rankd.registry.credentials import Credential, NewCredential, SigningKey, check_new_credential, digest_of

CONNECTIONS_MAX = 4
ANSWER_WAIT_S = 10.0
WHERE = "the registry's database"
_VERSION = "SELECT version FROM credentials_version"
_CHANGE = "UPDATE credentials_version SET version = gen_random_uuid() RETURNING version"
_ACTIVE = "SELECT id, name, digest, scopes, player, created_at, expires_at FROM credentials WHERE revoked_at IS NULL"
_NAMED = _ACTIVE + " AND name = %s"
_SIGNING_KEYS = "SELECT name, secret, created_at FROM signing_keys"
_INSERT = (
    "INSERT INTO credentials (id, name, digest, scopes, player, created_at, expires_at)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s)"
)
_REVOKE = "UPDATE credentials SET revoked_at = %s WHERE id = %s AND revoked_at IS NULL"


class PostgresCredentials:
    """The credentials of a database; open in as many processes as need them."""

    def __init__(self, url: str, clock: Clock) -> None:
        """Read all credentials; the database must be migrated, as for the registry."""
        self._clock = clock
        self._lock = threading.Lock()
        self._version: UUID | None = None  # of the snapshot; None: unknown
        self._connections = Connections(url, CONNECTIONS_MAX, answer_wait_s=ANSWER_WAIT_S)
        try:
            with self._connections.using() as connection:
                check_component(connection, "registry", len(scripts_of(__package__)))
                self._load(connection)
        except BaseException:
            self._connections.close()
            raise

    def __enter__(self) -> PostgresCredentials:
        """Use it for a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @property
    def known(self) -> Mapping[bytes, Credential]:
        """Active credentials by the SHA-256 of their token."""
        return self._current.known

    def find(self, token: str | bytes) -> Credential | None:
        """Return the credential of a token, expired or not."""
        return self._current.known.get(digest_of(token))

    def list(self) -> tuple[Credential, ...]:
        """Return the credentials that were not revoked, by name."""
        return self._current.by_name()

    def create(
        self, name: str, scopes: Collection[str], player: str | None = None, expires_at: int | None = None
    ) -> tuple[Credential, str]:
        """Create an API key, and return it with its token."""
        now = self._clock.now()
        new = check_new_credential(name, scopes, player, expires_at, now)
        with self._changing() as connection:
            return _insert(connection, new, now)

    def create_first(
        self, name: str, scopes: Collection[str], keep: Callable[[str], None], player: str | None = None
    ) -> Credential | None:
        """Create the first API key ever; an exception of `keep`, which stores its token, undoes it."""
        now = self._clock.now()
        new = check_new_credential(name, scopes, player, None, now)
        with self._changing() as connection:
            if connection.execute("SELECT FROM credentials LIMIT 1").fetchone() is not None:
                return None
            credential, token = _insert(connection, new, now)
            keep(token)
            return credential

    def revoke(self, credential_id: str) -> bool:
        """Revoke a credential; False when no active one has that id."""
        if not credential_id.isascii() or not credential_id.isprintable():
            return False
        with self._changing() as connection:
            return connection.execute(_REVOKE, (self._clock.now(), credential_id)).rowcount == 1

    def create_signing_key(self, name: str) -> str:
        """Create a signing key, and return its secret."""
        check_name("name", name)
        secret = new_signing_secret()
        with self._changing() as connection:
            inserted = connection.execute(
                "INSERT INTO signing_keys (name, secret, created_at) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                (name, secret.encode(), self._clock.now()),
            )
            if not inserted.rowcount:
                raise signing_name_taken(name)
        return secret

    def signing_key(self, name: str) -> bytes | None:
        """Return a signing key's secret."""
        return self._current.secrets.get(name)

    def list_signing_keys(self) -> tuple[SigningKey, ...]:
        """Return the signing keys by name."""
        return self._current.signing_keys_by_name()

    def revoke_signing_key(self, name: str) -> bool:
        """Delete a signing key; False when none has that name."""
        if not is_name(name):
            return False
        with self._changing() as connection:
            return connection.execute("DELETE FROM signing_keys WHERE name = %s", (name,)).rowcount == 1

    def refresh(self) -> None:
        """Read the changes of other processes."""
        with self._connections.using() as connection:
            if _only(connection, _VERSION) != self._version:
                with self._lock:  # an older snapshot must not replace that of a change
                    self._load(connection)

    def close(self) -> None:
        """Close the connections; the snapshot stays readable."""
        self._connections.close()

    def _load(self, connection: PostgresConnection) -> None:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ  # version and rows of one moment
        with connection.transaction():
            version = _only(connection, _VERSION)
            snapshot = _snapshot(connection)
        self._current, self._version = snapshot, version

    @contextmanager
    def _changing(self) -> Iterator[PostgresConnection]:
        """Change something in one transaction; its commit replaces the snapshot."""
        with self._connections.using() as connection, self._lock:
            self._version = None  # a failed commit may have taken effect: the next refresh reads it
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            with connection.transaction():
                version = _only(connection, _CHANGE)
                yield connection
                snapshot = _snapshot(connection)
            self._current, self._version = snapshot, version


def _only(connection: PostgresConnection, statement: LiteralString) -> UUID:
    version: UUID
    ((version,),) = connection.execute(statement).fetchall()
    return version


def _snapshot(connection: PostgresConnection) -> CredentialSnapshot:
    known = {row[2]: _credential(row) for row in connection.execute(_ACTIVE).fetchall()}
    keys = connection.execute(_SIGNING_KEYS).fetchall()
    return CredentialSnapshot(
        known,
        {name: secret for name, secret, _ in keys},
        {name: SigningKey(name, created_at) for name, _, created_at in keys},
    )


def _insert(connection: PostgresConnection, new: NewCredential, now: int) -> tuple[Credential, str]:
    for row in connection.execute(_NAMED, (new.name,)).fetchall():
        held = _credential(row)
        if held.holds_at(now):
            raise name_taken(new.name)
        connection.execute(_REVOKE, (now, held.id))
    credential_id, token = new_token()
    credential = Credential(credential_id, new.name, new.scopes, new.player, now, new.expires_at)
    connection.execute(
        _INSERT,
        (credential_id, new.name, digest_of(token), scopes_text(new.scopes), new.player, now, new.expires_at),
    )
    return credential, token


def _credential(row: tuple[Any, ...]) -> Credential:
    credential_id, name, _, scopes, player, created_at, expires_at = row
    return Credential(credential_id, name, read_scopes(scopes, WHERE), player, created_at, expires_at)
