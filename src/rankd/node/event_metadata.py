"""Metadata by the number of its event, as reads ask for it."""

from __future__ import annotations

from collections.abc import Sequence

from rankd.ledger.event import event_id, place_of
from rankd.ledger.port import Ledger


class EventMetadata:
    """Metadata of a ledger whose events stand in partitions."""

    def __init__(self, ledger: Ledger) -> None:
        """Asked for what is not in memory."""
        self._ledger = ledger

    def metadata(self, events: Sequence[int]) -> dict[int, str]:
        """Return the metadata (JSON) of those events that have some."""
        found = self._ledger.metadata([place_of(event) for event in events])
        return {event_id(*place): json for place, json in found.items()}
