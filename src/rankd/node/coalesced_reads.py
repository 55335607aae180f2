"""Reads of metadata and profiles from PostgreSQL, in one query for concurrent reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rankd.background import require_thread
from rankd.ledger.port import Ledger
from rankd.node.event_metadata import EventMetadata
from rankd.redis.read.batching import Coalescer
from rankd.registry.port import Profile, Registry

HeldProfiles = Callable[[Sequence[str]], Mapping[str, Profile] | None]


class CoalescedMetadata:
    """Reads metadata by event id, in one query for concurrent reads."""

    def __init__(self, ledger: Ledger) -> None:
        """Read from `ledger`."""
        self._metadata = EventMetadata(ledger)
        self._coalescer: Coalescer[Sequence[int], dict[int, str]] = Coalescer(self._read_for_all, is_slow=True)

    def metadata(self, events: Sequence[int]) -> dict[int, str]:
        """Return the metadata (JSON) of the events that have some."""
        require_thread()
        return self._coalescer.ask(events)

    def _read_for_all(self, asked: list[Sequence[int]]) -> list[dict[int, str]]:
        return [self._metadata.metadata([event for events in asked for event in events])] * len(asked)


class CoalescedProfiles:
    """Reads profiles from memory, or in one query for concurrent reads."""

    def __init__(self, registry: Registry, held: HeldProfiles) -> None:
        """`held` returns the players' profiles if all of them are in memory."""
        self._registry = registry
        self._held = held
        self._coalescer: Coalescer[Sequence[str], Mapping[str, Profile]] = Coalescer(self._read_for_all, is_slow=True)

    @property
    def changes(self) -> int:
        """The number of profile changes since the start."""
        return self._registry.changes

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the profiles of the players who have one."""
        held = self._held(players)
        if held is not None:
            return held
        require_thread()
        return self._coalescer.ask(players)

    def _read_for_all(self, asked: list[Sequence[str]]) -> list[Mapping[str, Profile]]:
        profiles = self._registry.profiles([player for players in asked for player in players])
        return [{player: profiles[player] for player in players if player in profiles} for players in asked]
