"""Entries as clients see them: with the player's profile and the score's metadata, from a cache where possible."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Protocol

import msgspec

from rankd.domain.board import BY_TIME, Board
from rankd.domain.instance import InstanceKey
from rankd.errors import LedgerUnavailable
from rankd.projection import port
from rankd.projection.state import State
from rankd.reads.answers import Entry
from rankd.registry.port import Profile

RETRY_S = 0.5  # for metadata that was left out
_log = logging.getLogger("rankd")
_NO_PROFILE = Profile("")
_UNKNOWN: dict[str, object] = {}
MetadataEvents = Mapping[str, int]  # by player: the event of the kept score, where it came with metadata
_decode = msgspec.json.Decoder(dict[str, object]).decode


class Metadata(Protocol):
    """The part of the ledger that reads need."""

    def metadata(self, sequences: Sequence[int]) -> dict[int, str]:
        """Return the metadata (JSON) of the events that have some."""


class ProfileSource(Protocol):
    """The part of the registry that reads need."""

    @property
    def changes(self) -> int:
        """How many profiles were changed since the start."""

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the profiles of the players who have one."""


class Joined:
    """Joins profiles and metadata into the rank store's answers."""

    def __init__(self, state: State, ledger: Metadata, registry: ProfileSource, metadata_cached_max: int) -> None:
        self._state = state
        self._ledger = ledger
        self._registry = registry
        self._cached_max = metadata_cached_max
        self._cached: dict[int, dict[str, object] | None] = {}  # by sequence: what an event came with never changes
        self._is_incomplete = False  # whether metadata was left out since it was last loaded
        self._retry_at = 0.0  # by the monotonic clock
        self._recoveries = 0

    def of_state(self, state: State) -> Joined:
        """Return the same profiles and metadata, for the ranks of another state."""
        return Joined(state, self._ledger, self._registry, self._cached_max)

    @property
    def changes(self) -> int:
        """Counts changed profiles, and the moments at which metadata that was left out may be available again."""
        if self._is_incomplete and monotonic() >= self._retry_at:
            self._invalidate(is_incomplete=True)
        return self._registry.changes + self._recoveries

    def player(
        self, board: Board, key: InstanceKey, player: str, metadata_events: MetadataEvents | None = None
    ) -> tuple[Profile | None, dict[str, object] | None]:
        """Return a player's profile and the metadata of the kept score; `metadata_events` as for `entries`."""
        profile = None if board.team is not None else self._registry.profiles([player]).get(player)
        return profile, self._metadata(board, key, [player], metadata_events).get(player)

    def entries(
        self,
        board: Board,
        key: InstanceKey,
        now: int,
        ranked: Sequence[port.RankedEntry],
        metadata_events: MetadataEvents | None = None,
    ) -> list[Entry]:
        """Return a page's entries; `metadata_events` replace those of this process's state where the store has them."""
        players = [entry.player for entry in ranked]
        profiles = {} if board.team is not None else self._registry.profiles(players)
        metadata = self._metadata(board, key, players, metadata_events)
        if not profiles and not metadata and board.decay is None and board.ties in BY_TIME:  # most pages
            step_ms = board.tie_resolution_ms
            return [Entry(entry.rank, entry.player, entry.score, entry.tie * step_ms) for entry in ranked]
        shown, reached_at, tiebreak = board.shown_score, board.reached_at, board.tiebreak
        entries = []
        for entry in ranked:
            profile = profiles.get(entry.player, _NO_PROFILE)
            entries.append(
                Entry(
                    entry.rank,
                    entry.player,
                    shown(entry.score, now),
                    reached_at(entry.tie),
                    tiebreak(entry.tie),
                    profile.name,
                    profile.avatar_url,
                    profile.country,
                    metadata.get(entry.player),
                )
            )
        return entries

    def _metadata_events(self, board: Board, key: InstanceKey, players: Sequence[str]) -> MetadataEvents:
        live = self._state.boards.get(board.id)
        events = None if live is None else live.metadata.get(key.text)
        return {} if events is None else {player: event for player in players if (event := events.get(player))}

    def _load(self, missing: list[int]) -> dict[int, str] | None:
        """Return the metadata of events; None while the ledger is unavailable: ranks are answered without it."""
        try:
            loaded = self._ledger.metadata(missing)
        except LedgerUnavailable as problem:
            if not self._is_incomplete:
                _log.warning("answers lack metadata: %s", problem)
                self._retry_at = monotonic() + RETRY_S
            self._is_incomplete = True
            return None
        if self._is_incomplete:
            self._invalidate(is_incomplete=False)
        return loaded

    def _invalidate(self, *, is_incomplete: bool) -> None:
        """Change the fingerprints of cached answers: some lack metadata that may be available now."""
        self._is_incomplete, self._retry_at = is_incomplete, monotonic() + RETRY_S
        self._recoveries += 1

    def _metadata(
        self, board: Board, key: InstanceKey, players: Sequence[str], metadata_events: MetadataEvents | None
    ) -> dict[str, dict[str, object] | None]:
        wanted = self._metadata_events(board, key, players) if metadata_events is None else metadata_events
        if not wanted:
            return {}
        # Another thread may empty the cache meanwhile, so it is read once.
        cached = {sequence: self._cached.get(sequence, _UNKNOWN) for sequence in wanted.values()}
        held = {sequence: metadata for sequence, metadata in cached.items() if metadata is not _UNKNOWN}
        missing = [sequence for sequence in wanted.values() if sequence not in held]
        if missing:
            loaded = self._load(missing)
            if loaded is None:
                return {player: held[sequence] for player, sequence in wanted.items() if sequence in held}
            decoded = {sequence: _decode(loaded[sequence]) if sequence in loaded else None for sequence in missing}
            if len(self._cached) + len(decoded) > self._cached_max:
                self._cached.clear()
            self._cached.update(decoded)
            held.update(decoded)
        return {player: held[sequence] for player, sequence in wanted.items()}
