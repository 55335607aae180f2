"""Watches for registry changes of other processes.

    registry_changes → one poll a second, in a thread → the players whose profile or friends changed since the last poll

A poll reads the rows whose transaction was not visible in the last poll's snapshot, so it also finds a transaction that
began early and committed late. After a change of server, or a gap longer than rows are kept, all players count as
changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from rankd.errors import RankdError
from rankd.ledger.postgres.connections import Connections
from rankd.registry.postgres.statements import POLL, PRUNE

NOTICED_MAX = 10_000  # per poll; with more, all players count as changed
KEPT_S = 600  # retention of rows
AWAY_S_MAX = 300  # longest gap between polls that rows cover; both by the server's clock
PRUNE_EVERY_S = 60.0
PRUNED_MAX = 10_000
FRESH_S = 5.0  # how long a poll counts as fresh, at least

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """The owner of the caches."""

    def noticed(self, players: Sequence[str] | None, has_profiles: bool) -> None:
        """Take the players that changed (None: all), and whether any profile exists."""


class Watch:
    """Polls for changes until it is closed."""

    def __init__(self, connections: Connections, listener: Listener, poll_every_ms: int) -> None:
        """Poll once, and go on in a thread."""
        self._connections = connections
        self._listener = listener
        self._every_s = poll_every_ms / 1_000
        self._fresh_s = max(FRESH_S, 3 * self._every_s)
        self._snapshot: str | None = None
        self._server: str | None = None
        self._seen_at: str | None = None
        self._polled_at = 0.0  # monotonic
        self._prune_at = time.monotonic() + PRUNE_EVERY_S
        self._closed = threading.Event()
        self._poll()
        self._thread = threading.Thread(target=self._run, name="rankd registry watch", daemon=True)
        self._thread.start()

    @property
    def is_fresh(self) -> bool:
        """Whether the last poll is recent."""
        return time.monotonic() - self._polled_at < self._fresh_s

    def close(self) -> None:
        """Stop polling."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        has_contact = True
        while not self._closed.wait(self._every_s):
            try:
                self._poll()
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

    def _poll(self) -> None:
        began = time.monotonic()
        values = {
            "snapshot": self._snapshot,
            "seen_at": self._seen_at,
            "away_s": AWAY_S_MAX,
            "limit": NOTICED_MAX + 1,
        }
        with self._connections.using() as connection:
            rows = connection.execute(POLL, values).fetchall()
        ((snapshot, server, seen_at, was_away, has_profiles, players),) = rows
        all_changed = was_away or server != self._server or len(players) > NOTICED_MAX
        self._snapshot, self._server, self._seen_at = snapshot, server, seen_at
        self._listener.noticed(None if all_changed else players, has_profiles)
        self._polled_at = began

    def _prune(self) -> None:
        """Delete expired rows, at most PRUNED_MAX per poll."""
        with self._connections.using() as connection:
            pruned = connection.execute(PRUNE, (KEPT_S, PRUNED_MAX)).rowcount
        self._prune_at = time.monotonic() + (0.0 if pruned >= PRUNED_MAX else PRUNE_EVERY_S)
