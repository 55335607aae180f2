"""The contexts of a shared ledger: numbered by the database, cached here."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from rankd.errors import LedgerDamaged
from rankd.ledger.event import Context, decode_context
from rankd.ledger.postgres.connections import Connections

_HASH_BYTES = 16


class Contexts:
    """Maps contexts to their numbers and back, which never change; from any thread."""

    def __init__(self, connections: Connections) -> None:
        """Begin with an empty cache."""
        self._connections = connections
        self._lock = threading.Lock()
        self._numbers: dict[bytes, int] = {}
        self._contexts: dict[int, Context] = {}

    def number(self, context: Context) -> int:
        """Return the number of a context; a new number is durable and visible to all when this returns."""
        key = context.key
        known = self._numbers.get(key)
        if known is not None:
            return known
        digest = blake2b(key, digest_size=_HASH_BYTES).digest()
        with self._connections.using() as connection:
            # Select first: an upsert would write the row again.
            row = connection.execute("SELECT number FROM contexts WHERE hash = %s", (digest,)).fetchone()
            if row is None:
                row = connection.execute(
                    "INSERT INTO contexts (hash, kind, board, context) VALUES (%s, %s, %s, %s)"
                    " ON CONFLICT (hash) DO NOTHING RETURNING number",
                    (digest, context.kind.value, context.board, key.decode()),
                ).fetchone()
            if row is None:  # another process has just inserted it
                row = connection.execute("SELECT number FROM contexts WHERE hash = %s", (digest,)).fetchone()
        if row is None:
            raise LedgerDamaged("a numbered context is missing; restore a backup of the database")
        number: int = row[0]
        with self._lock:
            self._numbers[key] = number
            self._contexts[number] = context
        return number

    def context(self, number: int) -> Context:
        """Return a context by number."""
        context = self._contexts.get(number)
        if context is None:
            self.load([number])
            context = self._contexts[number]
        return context

    def load(self, numbers: Iterable[int]) -> None:
        """Load contexts into the cache; LedgerDamaged when one is missing, LedgerNewer when one is too new."""
        missing = {number for number in numbers if number not in self._contexts}
        if not missing:
            return
        with self._connections.using() as connection:
            rows = connection.execute(
                "SELECT number, context FROM contexts WHERE number = ANY (%s)", (list(missing),)
            ).fetchall()
        with self._lock:
            for number, json in rows:
                self._contexts[number] = _decoded(number, json)
                self._numbers[json.encode()] = number
        if len(rows) < len(missing):
            raise LedgerDamaged("a context that events name is missing; restore a backup of the database")


def _decoded(number: int, json: str) -> Context:
    try:
        return decode_context(json)
    except msgspec.DecodeError as problem:
        raise LedgerDamaged(f"context {number} is damaged ({problem}); restore a backup of the database") from None
