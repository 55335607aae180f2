"""Credentials in their own SQLite file; registry/credentials.py has their promises.

    rankd token → credentials.db ← refresh ← rankd serve

Several processes may open the file: the server, and commands that create and revoke keys. Each holds a snapshot of the
active credentials, and replaces it as a whole, so that readers need no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import apsw

from rankd.clock import Clock
from rankd.domain.text import check_name, is_name
from rankd.errors import Closed
from rankd.ledger.sqlite.checksum import check, checksum
from rankd.registry.credential_snapshot import (
    CredentialSnapshot,
    name_taken,
    new_signing_secret,
    new_token,
    read_scopes,
    scopes_text,
    signing_name_taken,
)
from rankd.registry.credentials import (
    Credential,
    Credentials,
    NewCredential,
    Scope,
    SigningKey,
    check_new_credential,
    digest_of,
)
from rankd.registry.sqlite.credentials_file import FILE_NAME, open_file, translated, write_private

ADMIN_KEY_FILE = "admin.key"
ADMIN = "admin"

_ACTIVE = (
    "SELECT id, name, digest, scopes, player, created_at, expires_at, revoked_at, checksum"
    " FROM credentials WHERE revoked_at IS NULL"
)


class SqliteCredentials:
    """The credentials of a data folder; open in as many processes as need them."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Open or create the file in a folder, readable by its owner only, and read all of it."""
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        self._version: int | None = None  # SQLite's data_version of the snapshot; None: unknown
        self._connection = open_file(folder)
        try:
            with translated():
                self._load()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> SqliteCredentials:
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
        return self._snapshot.known

    def find(self, token: str | bytes) -> Credential | None:
        """Return the credential of a token, expired or not."""
        return self._snapshot.known.get(digest_of(token))

    def list(self) -> tuple[Credential, ...]:
        """Return the credentials that were not revoked, by name."""
        return self._snapshot.by_name()

    def create(
        self, name: str, scopes: Collection[str], player: str | None = None, expires_at: int | None = None
    ) -> tuple[Credential, str]:
        """Create an API key, and return it with its token."""
        now = self._clock.now()
        new = check_new_credential(name, scopes, player, expires_at, now)
        with self._writing():
            return self._insert(new, now)

    def create_first(
        self, name: str, scopes: Collection[str], keep: Callable[[str], None], player: str | None = None
    ) -> Credential | None:
        """Create the first API key ever; an exception of `keep`, which stores its token, undoes it."""
        now = self._clock.now()
        new = check_new_credential(name, scopes, player, None, now)
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM credentials LIMIT 1").get is not None:
                return None
            credential, token = self._insert(new, now)
            keep(token)
            return credential

    def _insert(self, new: NewCredential, now: int) -> tuple[Credential, str]:
        known = dict(self._snapshot.known)
        for row in self._connection.execute(f"{_ACTIVE} AND name = ?", (new.name,)).fetchall():
            digest, held = _credential(row)
            if held.holds_at(now):
                raise name_taken(new.name)
            self._revoke(row, now)
            known.pop(digest, None)
        credential_id, token = new_token()
        digest = digest_of(token)
        values = (credential_id, new.name, digest, scopes_text(new.scopes), new.player, now, new.expires_at, None)
        self._connection.execute(
            "INSERT INTO credentials"
            " (id, name, digest, scopes, player, created_at, expires_at, revoked_at, checksum)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, checksum(*values)),
        )
        credential = Credential(credential_id, new.name, new.scopes, new.player, now, new.expires_at)
        known[digest] = credential
        self._changed = CredentialSnapshot(known, self._snapshot.secrets, self._snapshot.signing_keys)
        return credential, token

    def revoke(self, credential_id: str) -> bool:
        """Revoke a credential; False when no active one has that id."""
        if not credential_id.isascii():
            return False
        with self._writing() as connection:
            row: Any = connection.execute(f"{_ACTIVE} AND id = ?", (credential_id,)).get
            if row is None:
                return False
            digest, _ = _credential(row)
            self._revoke(row, self._clock.now())
            snapshot = self._snapshot
            known = {key: credential for key, credential in snapshot.known.items() if key != digest}
            self._changed = CredentialSnapshot(known, snapshot.secrets, snapshot.signing_keys)
            return True

    def _revoke(self, row: Any, now: int) -> None:
        *values, _revoked_at, _checksum = row
        self._connection.execute(
            "UPDATE credentials SET revoked_at = ?, checksum = ? WHERE id = ?", (now, checksum(*values, now), values[0])
        )

    def create_signing_key(self, name: str) -> str:
        """Create a signing key, and return its secret."""
        check_name("name", name)
        now = self._clock.now()
        secret = new_signing_secret()
        stored = secret.encode()
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM signing_keys WHERE name = ?", (name,)).get is not None:
                raise signing_name_taken(name)
            connection.execute(
                "INSERT INTO signing_keys (name, secret, created_at, checksum) VALUES (?, ?, ?, ?)",
                (name, stored, now, checksum(name, stored, now)),
            )
            snapshot = self._snapshot
            keys = {**snapshot.signing_keys, name: SigningKey(name, now)}
            self._changed = CredentialSnapshot(snapshot.known, {**snapshot.secrets, name: stored}, keys)
        return secret

    def signing_key(self, name: str) -> bytes | None:
        """Return a signing key's secret."""
        return self._snapshot.secrets.get(name)

    def list_signing_keys(self) -> tuple[SigningKey, ...]:
        """Return the signing keys by name."""
        return self._snapshot.signing_keys_by_name()

    def revoke_signing_key(self, name: str) -> bool:
        """Wipe a signing key; False when none has that name."""
        if not is_name(name):
            return False
        with self._writing() as connection:
            connection.execute("DELETE FROM signing_keys WHERE name = ?", (name,))
            if not connection.changes():
                return False
            snapshot = self._snapshot
            kept = {key: secret for key, secret in snapshot.secrets.items() if key != name}
            keys = {key: signing_key for key, signing_key in snapshot.signing_keys.items() if key != name}
            self._changed = CredentialSnapshot(snapshot.known, kept, keys)
            return True

    def refresh(self) -> None:
        """Read the changes of other processes."""
        with self._lock, translated():
            self._check_open()
            if self._connection.execute("PRAGMA data_version").get != self._version:
                self._load()

    def close(self) -> None:
        """Close the file; the snapshot stays readable."""
        with self._lock, translated():
            self._closed = True
            self._connection.close()

    def _load(self) -> None:
        # One transaction: data_version and rows of one moment.
        with self._connection as connection:
            version: Any = connection.execute("PRAGMA data_version").get
            rows = connection.execute(_ACTIVE).fetchall()
            keys: Any = connection.execute("SELECT name, secret, created_at, checksum FROM signing_keys").fetchall()
        for name, secret, created_at, stored in keys:
            check(f"the signing key {name} in {FILE_NAME}", stored, name, secret, created_at)
        self._snapshot = CredentialSnapshot(
            dict(_credential(row) for row in rows),
            {name: secret for name, secret, _, _ in keys},
            {name: SigningKey(name, created_at) for name, _, created_at, _ in keys},
        )
        self._version = version

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        """Write in one transaction; its commit makes `_changed` the snapshot."""
        with self._lock, translated():
            self._check_open()
            self._changed = self._snapshot
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                self._version = None  # a failed commit may have taken effect: the next refresh reads it
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self._snapshot = self._changed

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the credentials were closed; open them again")


def first_admin_key(folder: Path, credentials: Credentials) -> Path | None:
    """Create an administrator's key if no key ever existed, and return the file it was written to."""
    path = folder / ADMIN_KEY_FILE
    created = credentials.create_first(ADMIN, tuple(Scope), lambda token: write_private(path, token))
    return None if created is None else path


def _credential(row: Any) -> tuple[bytes, Credential]:
    *values, stored = row
    credential_id, name, digest, scopes, player, created_at, expires_at, _ = values
    check(f"the API key {credential_id} in {FILE_NAME}", stored, *values)
    allowed = read_scopes(scopes, FILE_NAME)
    return digest, Credential(credential_id, name, allowed, player, created_at, expires_at)
