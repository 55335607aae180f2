"""How a read looks at the ranks: from which store, as of which position, and whether that is long ago."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from time import monotonic, sleep
from typing import NamedTuple, Protocol

from rankd.domain.instance import InstanceKey
from rankd.domain.position import is_upto, parse_positions
from rankd.errors import Unavailable
from rankd.projection.port import RankReads, RankStore

POLL_FIRST_S, POLL_MAX_S = 0.001, 0.02


class Look(Protocol):
    """One read: ask `store`, then say as of when. What was shown may be newer than `position`, never older."""

    @property
    def store(self) -> RankReads:
        """Where to ask."""
        ...

    @property
    def position(self) -> str:
        """What was ranked for certain, once the store has been asked."""
        ...

    @property
    def is_stale(self) -> bool:
        """Whether the answer may lack what was accepted some time ago."""
        ...

    @property
    def noted(self) -> Mapping[str, int] | None:
        """Events that metadata of the scores shown came with, by player; None: as the state of this process says."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether nothing of what was asked is an estimate, and nobody was left out for having no exact place."""
        ...


class Looking(Protocol):
    """Where reads look; from any thread."""

    def look(self, instance: InstanceKey) -> Look:
        """Begin a read of an instance."""
        ...

    def has_ranked(self, positions: Mapping[int, int], board: str | None) -> bool:
        """Tell whether events up to these sequences, by partition, are ranked: on a board, or on all of them."""
        ...

    def digests(self, instances: Collection[InstanceKey]) -> Mapping[InstanceKey, tuple[int, str]]:
        """Return digest and position of many instances in one question; those that cannot be asked are left out."""
        ...


def wait_ranked(looking: Looking, positions: Mapping[int, int], board: str, wait_ms: int) -> bool:
    """Wait in this thread until positions are ranked on a board; tell whether they are. Servers have PositionWaiter."""
    deadline_s, pause_s = monotonic() + wait_ms / 1_000, POLL_FIRST_S
    while not _has_ranked(looking, positions, board):
        if monotonic() >= deadline_s:
            return False
        sleep(pause_s)
        pause_s = min(pause_s * 2, POLL_MAX_S)
    return True


def _has_ranked(looking: Looking, positions: Mapping[int, int], board: str) -> bool:
    try:
        return looking.has_ranked(positions, board)
    except Unavailable:
        return False


class _Now(NamedTuple):
    """A look at the engine of this process."""

    store: RankReads
    position: str
    is_stale: bool = False
    noted: Mapping[str, int] | None = None
    is_exact: bool = True


class LookHere:
    """Reads of the rank store in this process."""

    def __init__(
        self, store: RankStore, position: Callable[[], str], is_stale: Callable[[], bool] = lambda: False
    ) -> None:
        """`position` tells what is ranked; `is_stale`, whether that may lack what was accepted some time ago."""
        self._store = store
        self._position = position
        self._is_stale = is_stale

    def look(self, _instance: InstanceKey) -> Look:
        """Begin a read."""
        return _Now(self._store, self._position(), self._is_stale())

    def has_ranked(self, positions: Mapping[int, int], _board: str | None) -> bool:
        """Tell whether events are ranked: by the position that answers name, which comes behind the store's."""
        return is_upto(parse_positions(self._position()), positions)

    def digests(self, instances: Collection[InstanceKey]) -> Mapping[InstanceKey, tuple[int, str]]:
        """Return digest and position of many instances."""
        position = self._position()
        return {key: (self._store.digest(key), position) for key in instances}
