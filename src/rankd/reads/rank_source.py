"""The port through which a read reaches the ranks: a store, the position it is at, and whether it is stale."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Protocol

from rankd.domain.instance import InstanceKey
from rankd.domain.position import is_upto, parse_positions
from rankd.errors import Unavailable
from rankd.projection.port import RankReads, RankStore

POLL_FIRST_S, POLL_MAX_S = 0.001, 0.02


class ReadSession(Protocol):
    """One read: ask `store` first, then the rest. The store's answer may be newer than `position`, never older."""

    @property
    def store(self) -> RankReads:
        """The store to ask."""

    @property
    def position(self) -> str:
        """What the answer includes for certain."""

    @property
    def is_stale(self) -> bool:
        """Whether the answer may lack events that were accepted some time ago."""

    @property
    def metadata_events(self) -> Mapping[str, int] | None:
        """By player, the events whose metadata belongs to the answer; None: look them up in this process's state."""

    @property
    def is_exact(self) -> bool:
        """Whether the answer has no estimates, and no entry was left out for having no exact place."""


class RankSource(Protocol):
    """Opens reads; from any thread."""

    def open(self, instance: InstanceKey) -> ReadSession:
        """Begin a read of an instance."""

    def has_ranked(self, positions: Mapping[int, int], board: str | None) -> bool:
        """Tell whether events up to these sequences, by partition, are ranked: on one board, or on all of them."""

    def digests(self, instances: Collection[InstanceKey]) -> Mapping[InstanceKey, tuple[int, str]]:
        """Return digest and position of many instances in one call; instances that cannot be read are left out."""


def wait_ranked(rank_source: RankSource, positions: Mapping[int, int], board: str, wait_ms: int) -> bool:
    """Wait in this thread until positions are ranked on a board; False after `wait_ms`. Servers use PositionWaiter."""
    deadline_s, pause_s = monotonic() + wait_ms / 1_000, POLL_FIRST_S
    while not _has_ranked(rank_source, positions, board):
        if monotonic() >= deadline_s:
            return False
        sleep(pause_s)
        pause_s = min(pause_s * 2, POLL_MAX_S)
    return True


def _has_ranked(rank_source: RankSource, positions: Mapping[int, int], board: str) -> bool:
    try:
        return rank_source.has_ranked(positions, board)
    except Unavailable:
        return False


@dataclass(frozen=True, slots=True)
class _EngineSession:
    """A read of the engine in this process."""

    store: RankReads
    position: str
    is_stale: bool = False
    metadata_events: Mapping[str, int] | None = None
    is_exact: bool = True


class EngineRankSource:
    """Reads of the rank store in this process."""

    def __init__(
        self, store: RankStore, position: Callable[[], str], is_stale: Callable[[], bool] = lambda: False
    ) -> None:
        """`position` returns what is ranked; `is_stale`, whether that may lack events accepted some time ago."""
        self._store = store
        self._position = position
        self._is_stale = is_stale
        self._session = _EngineSession(store, position())

    def open(self, _instance: InstanceKey) -> ReadSession:
        """Begin a read; between two commits all of them have the same session."""
        session, position, is_stale = self._session, self._position(), self._is_stale()
        if session.position is not position or session.is_stale is not is_stale:
            session = self._session = _EngineSession(self._store, position, is_stale)
        return session

    def has_ranked(self, positions: Mapping[int, int], _board: str | None) -> bool:
        """Tell whether events are ranked, by the position that answers name: it follows the store's."""
        return is_upto(parse_positions(self._position()), positions)

    def digests(self, instances: Collection[InstanceKey]) -> Mapping[InstanceKey, tuple[int, str]]:
        """Return digest and position of many instances."""
        position = self._position()
        return {key: (self._store.digest(key), position) for key in instances}
