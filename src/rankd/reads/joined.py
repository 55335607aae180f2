"""Entries as people see them: with the player's name and the score's metadata, from memory where they can be."""

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

LOOK_AGAIN_S = 0.5  # for metadata that was left out
_log = logging.getLogger("rankd")
_NOBODY = Profile("")
_UNKNOWN: dict[str, object] = {}
Noted = Mapping[str, int]  # the event behind what is kept of a player, where that came with metadata
_decode = msgspec.json.Decoder(dict[str, object]).decode


class Metadata(Protocol):
    """What of the ledger a read needs."""

    def metadata(self, sequences: Sequence[int]) -> dict[int, str]:
        """Return the metadata (JSON) of those events that have some."""
        ...


class Names(Protocol):
    """What of the registry a read needs."""

    @property
    def changes(self) -> int:
        """How often a profile was changed since the start."""
        ...

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the profiles of those players who have one."""
        ...


class Joined:
    """Joins what the rank store does not know into its answers."""

    def __init__(self, state: State, ledger: Metadata, registry: Names, metadata_cached_max: int) -> None:
        """Begin with nothing in memory."""
        self._state = state
        self._ledger = ledger
        self._registry = registry
        self._cached_max = metadata_cached_max
        self._cached: dict[int, dict[str, object] | None] = {}  # by sequence: what an event came with never changes
        self._is_lacking = False  # whether metadata was left out since it was last found
        self._look_again_at = 0.0  # by the monotonic clock
        self._found_again = 0

    @property
    def changes(self) -> int:
        """How often what is joined came to be something else since the start: a profile, or metadata that was away."""
        if self._is_lacking and monotonic() >= self._look_again_at:
            self._note_found(is_lacking=True)
        return self._registry.changes + self._found_again

    def one(
        self, board: Board, key: InstanceKey, player: str, noted: Noted | None = None
    ) -> tuple[Profile | None, dict[str, object] | None]:
        """Return the profile of one player and the metadata of what is kept of them; `noted` as for `entries`."""
        profile = None if board.team is not None else self._registry.profiles([player]).get(player)
        return profile, self._metadata(board, key, [player], noted).get(player)

    def entries(
        self, board: Board, key: InstanceKey, now: int, found: Sequence[port.Entry], noted: Noted | None = None
    ) -> list[Entry]:
        """Return a page's entries; `noted` are the events that metadata came with, where the ranks tell them."""
        players = [entry.player for entry in found]
        profiles = {} if board.team is not None else self._registry.profiles(players)
        metadata = self._metadata(board, key, players, noted)
        if not profiles and not metadata and board.decay is None and board.ties in BY_TIME:  # most pages
            step_ms = board.tie_resolution_ms
            return [Entry(entry.rank, entry.player, entry.score, entry.tie * step_ms) for entry in found]
        shown, reached_at, tiebreak = board.shown_score, board.reached_at, board.tiebreak
        entries = []
        for entry in found:
            profile = profiles.get(entry.player, _NOBODY)
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

    def _noted(self, board: Board, key: InstanceKey, players: Sequence[str]) -> Mapping[str, int]:
        """Return the events that came with metadata, of those whose scores are kept."""
        live = self._state.boards.get(board.id)
        noted = None if live is None else live.metadata.get(key.text)
        return {player: noted[player] for player in players if player in noted} if noted else {}

    def _loaded(self, missing: list[int]) -> dict[int, str] | None:
        """Return the metadata of events; None while the ledger is away: ranks are worth more than what is beside."""
        try:
            loaded = self._ledger.metadata(missing)
        except LedgerUnavailable as problem:
            if not self._is_lacking:
                _log.warning("metadata is missing beside ranks: %s", problem)
                self._look_again_at = monotonic() + LOOK_AGAIN_S
            self._is_lacking = True
            return None
        if self._is_lacking:
            self._note_found(is_lacking=False)
        return loaded

    def _note_found(self, *, is_lacking: bool) -> None:
        """Let whoever keeps answers make them anew: some lack what may be there now."""
        self._is_lacking, self._look_again_at = is_lacking, monotonic() + LOOK_AGAIN_S
        self._found_again += 1

    def _metadata(
        self, board: Board, key: InstanceKey, players: Sequence[str], noted: Noted | None
    ) -> dict[str, dict[str, object] | None]:
        wanted = self._noted(board, key, players) if noted is None else noted
        if not wanted:
            return {}
        # Another thread may empty the memory meanwhile: what was found in it is held here.
        looked_up = {one: self._cached.get(one, _UNKNOWN) for one in wanted.values()}
        held = {one: metadata for one, metadata in looked_up.items() if metadata is not _UNKNOWN}
        missing = [sequence for sequence in wanted.values() if sequence not in held]
        if missing:
            loaded = self._loaded(missing)
            if loaded is None:
                return {player: held[sequence] for player, sequence in wanted.items() if sequence in held}
            fresh = {one: _decode(loaded[one]) if one in loaded else None for one in missing}
            if len(self._cached) + len(fresh) > self._cached_max:
                self._cached.clear()
            self._cached.update(fresh)
            held.update(fresh)
        return {player: held[sequence] for player, sequence in wanted.items()}
