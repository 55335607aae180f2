"""Where the topics of a ledger begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from rankd.kafka.clients import KafkaAdmin
from rankd.ledger.kafka.failures import as_ledger_failures, unavailable

HEADS_WAIT_S = 5.0
READ_WAIT_S = 1.0  # before a read, which goes on with the partitions whose leaders answer
FIRSTS_KNOWN_S = 10.0  # what expires does so in segments, after days


class Watermarks:
    """Asks the brokers; from any thread."""

    def __init__(self, admin: KafkaAdmin, topic: str, control_topic: str, partitions: int) -> None:
        """Nothing is asked yet. A client that has listed topics before is quicker to ask."""
        self._admin = admin
        self._events = [(topic, partition) for partition in range(partitions)]
        self._control = (control_topic, 0)
        self._firsts: tuple[int, ...] = ()
        self._firsts_s = -FIRSTS_KNOWN_S

    def ends(self, wait_s: float = READ_WAIT_S) -> list[int | None]:
        """Return the number of offsets of each partition; None where its leader does not answer."""
        with as_ledger_failures():
            return self._admin.ends(self._events, wait_s)

    def all_ends(self) -> tuple[list[int], int]:
        """Return the ends of all partitions, and that of the control topic; LedgerUnavailable where one is unknown."""
        with as_ledger_failures():
            *events, control = self._admin.ends([*self._events, self._control], HEADS_WAIT_S)
        return _known(events), _known([control])[0]

    def control_end(self) -> int:
        """Return the end of the control topic."""
        with as_ledger_failures():
            return _known(self._admin.ends([self._control], HEADS_WAIT_S))[0]

    def firsts(self, *, now: bool = False) -> tuple[int, ...]:
        """Return the first offset of each partition that has not expired, as of some seconds ago at most."""
        if now or monotonic() - self._firsts_s >= FIRSTS_KNOWN_S:
            with as_ledger_failures():
                answer = self._admin.firsts(self._events, HEADS_WAIT_S)
            self._firsts, self._firsts_s = tuple(_known(answer)), monotonic()
        return self._firsts


def _known(offsets: Sequence[int | None]) -> list[int]:
    known = [offset for offset in offsets if offset is not None]
    if len(known) < len(offsets):
        raise unavailable(f"the leaders of {len(offsets) - len(known)} partitions do not answer")
    return known
