"""The relay: every event of the ledger, in order, to a topic; from the position where the last relay stopped.

    lease → stored position → Ledger.read → merged → EventRecords → brokers confirm → position stored in the ledger

At least once: a relay that takes over begins at the stored position, so that records may come again. Each relay sends
the events of a ledger partition in order and without a gap, beginning at or before what the brokers have: a consumer
that skips the positions it has seen sees every event once and in order, whatever processes were killed or paused.
Whoever stores a position says which one it replaces, and a relay that has been replaced begins again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from rankd.errors import KafkaUnusable, Unavailable
from rankd.kafka.clients import Backoff
from rankd.ledger.port import SourceMoved

LEASE_EVERY_S = 1.0
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 10.0
_log = logging.getLogger("rankd")


class RelayLease(Protocol):
    """Lets one relay of several work: rankd.ledger.postgres.lease.Lease."""

    def claim(self) -> bool:
        """Try to get it; return whether we hold it."""

    def is_held(self) -> bool:
        """Return whether we still hold it."""

    def release(self) -> None:
        """Let another relay take over."""


class RelayFigures:
    """Counts of a relay; read by any thread."""

    def __init__(self) -> None:
        self.relayed = 0  # events that the brokers have confirmed, those that were sent again included
        self.notified = 0
        self.lag: int | None = None  # events of the ledger that are not confirmed; None while another relay works
        self.reason: str | None = "it has not begun"  # why nothing is relayed, by this process or another


class LeaseLost(Exception):
    """Another relay may hold the lease by now."""


class LeaseTerm:
    """The time in which a relay may work: until it is stopped, or has lost the lease."""

    def __init__(
        self, lease: RelayLease | None, stop: threading.Event, backoff: Backoff, figures: RelayFigures
    ) -> None:
        """Without a lease, as in a folder that one process has, only `stop` ends it."""
        self._lease = lease
        self._stop = stop
        self._backoff = backoff  # between attempts
        self._checked_s = monotonic()
        self._figures = figures
        self._logged: str | None = None  # the reason why it waits

    @property
    def is_over(self) -> bool:
        """Whether the relay is to end."""
        return self._stop.is_set()

    def check(self) -> bool:
        """Check the lease if that is due, and return whether it was; LeaseLost where another may have it."""
        now_s = monotonic()
        if now_s - self._checked_s < LEASE_EVERY_S:
            return False
        self._checked_s = now_s
        if self._lease is not None and not self._lease.is_held():
            raise LeaseLost
        return True

    def pause(self, pause: Backoff) -> None:
        """Wait for work; a stop ends the wait."""
        pause.pause(self._stop)

    def waits(self, reason: str) -> None:
        """Log why nothing is relayed, once for each reason."""
        self._figures.reason = reason
        if reason != self._logged:
            self._logged = reason
            _log.warning("the relay waits: %s", reason)

    def goes_on(self) -> None:
        """Log that the reason is gone; the next attempt after a failure comes soon again."""
        self._backoff.reset()
        self._figures.reason = None
        if self._logged is not None:
            self._logged = None
            _log.info("the relay goes on")

    def run(self, relay: Callable[[LeaseTerm], None]) -> None:
        """Relay while it has the lease, then let another process have it."""
        if self._lease is not None and not self._lease.claim():
            self._figures.lag = self._figures.reason = None
            self._stop.wait(LEASE_EVERY_S)
            return
        try:
            relay(self)
        finally:
            if self._lease is not None:
                self._lease.release()


class Relay:
    """Relays while it has the lease, and tries again what fails; one thread calls `run`."""

    def __init__(self, lease: RelayLease | None, figures: RelayFigures, relay: Callable[[LeaseTerm], None]) -> None:
        """`relay` relays until the term ends: rankd.outbox.session.RelaySession."""
        self._lease = lease
        self._figures = figures
        self._relay = relay

    def run(self, stop: threading.Event) -> None:
        """Relay until `stop` is set."""
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        term = LeaseTerm(self._lease, stop, backoff, self._figures)
        while not stop.is_set():
            try:
                term.run(self._relay)
            except LeaseLost:
                self._figures.lag = None
                _log.info("the lease is lost, and another relay may go on")
            except SourceMoved as moved:
                self._figures.lag = None
                _log.info("%s; reading the position again", moved)
            except (Unavailable, KafkaUnusable) as problem:  # the lag stays as it was known
                term.waits(str(problem))
                backoff.pause(stop)
        self._figures.lag = None
        if self._lease is not None:
            self._lease.release()  # the connection of one that never got it
