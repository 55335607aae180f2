"""Notices what other processes changed in the registry.

    registry_changes → a look a second, by a thread of its own → whose profile or friends changed since the last look

A look asks for the rows whose transaction the snapshot of the look before did not see, so that a transaction that began
early and committed late is noticed too. Where that cannot be told (another server, or away for longer than rows are
kept) everybody may have changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from rankd.errors import RankdError
from rankd.ledger.postgres.connections import Connections
from rankd.registry.postgres_statements import LOOK, PRUNE

NOTICED_MAX = 10_000  # of one look; when more changed, everybody may have
KEPT_S = 600  # how long rows are kept for processes that cannot look
AWAY_S_MAX = 300  # after which a process does not rely on them; both by the server's clock
PRUNE_EVERY_S = 60.0
PRUNED_MAX = 10_000
FRESH_S = 5.0  # how long after a look its result is relied on, at least

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Whoever has something in memory."""

    def noticed(self, players: Sequence[str] | None, has_profiles: bool) -> None:
        """Hear whose profile or friends changed (None: anybody's), and whether there is any profile at all."""


class Watch:
    """Looks for changes until it is closed."""

    def __init__(self, connections: Connections, listener: Listener, look_every_ms: int) -> None:
        """Look for the first time, and go on in a thread of its own."""
        self._connections = connections
        self._listener = listener
        self._every_s = look_every_ms / 1_000
        self._fresh_s = max(FRESH_S, 3 * self._every_s)
        self._snapshot: str | None = None
        self._server: str | None = None
        self._seen_at: str | None = None
        self._looked = 0.0  # by the monotonic clock
        self._prune_at = time.monotonic() + PRUNE_EVERY_S
        self._closed = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._run, name="rankd registry watch", daemon=True)
        self._thread.start()

    @property
    def is_fresh(self) -> bool:
        """Whether changes of others are noticed at present."""
        return time.monotonic() - self._looked < self._fresh_s

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        has_contact = True
        while not self._closed.wait(self._every_s):
            try:
                self._look()
                if time.monotonic() > self._prune_at:
                    self._prune()
            except RankdError as problem:
                if has_contact:
                    _log.warning("the registry cannot be read, names may be missing beside ranks: %s", problem)
                has_contact = False
            else:
                if not has_contact:
                    _log.warning("the registry can be read again")
                has_contact = True

    def _look(self) -> None:
        began = time.monotonic()
        asked = {
            "snapshot": self._snapshot,
            "seen_at": self._seen_at,
            "away_s": AWAY_S_MAX,
            "limit": NOTICED_MAX + 1,
        }
        with self._connections.using() as connection:
            rows = connection.execute(LOOK, asked).fetchall()
        ((snapshot, server, seen_at, was_away, has_profiles, players),) = rows
        anybody = was_away or server != self._server or len(players) > NOTICED_MAX
        self._snapshot, self._server, self._seen_at = snapshot, server, seen_at
        self._listener.noticed(None if anybody else players, has_profiles)
        self._looked = began

    def _prune(self) -> None:
        """Delete rows that nobody looks for any more; where more are left than go at once, the next look goes on."""
        with self._connections.using() as connection:
            pruned = connection.execute(PRUNE, (KEPT_S, PRUNED_MAX)).rowcount
        self._prune_at = time.monotonic() + (0.0 if pruned >= PRUNED_MAX else PRUNE_EVERY_S)
