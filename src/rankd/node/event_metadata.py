"""Reads metadata by event id."""

from __future__ import annotations

from collections.abc import Sequence

from rankd.ledger.event import event_id, place_of
from rankd.ledger.port import Ledger


class EventMetadata:
    """Reads metadata from a ledger, by event id."""

    def __init__(self, ledger: Ledger) -> None:
        """Read from `ledger`."""
        self._ledger = ledger

    def metadata(self, events: Sequence[int]) -> dict[int, str]:
        """Return the metadata (JSON) of the events that have some."""
        metadata = self._ledger.metadata([place_of(event) for event in events])
        return {event_id(*place): json for place, json in metadata.items()}
