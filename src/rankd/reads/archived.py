"""Reads of windows that have left the ranks: from the archive, exact, marked `source: "archive"`.

A window past its retention is looked up in the archive first. While it is in neither the archive nor retired, the ranks
still have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rankd.archive.archived_standings import ArchivedStandings
from rankd.domain.instance import InstanceKey
from rankd.projection.port import RankReads

ARCHIVE = "archive"  # the source of answers
_NO_METADATA: Mapping[str, int] = {}


class ArchivedWindows(Protocol):
    """Finds archived windows; from any thread, and it may wait."""

    def find(self, board_id: str, born: int, instance: str) -> ArchivedStandings | None:
        """Return the standings of a window instance; None where there are none."""


class ArchivedReadSession:
    """One read of archived standings."""

    is_stale = False  # final
    metadata_events = _NO_METADATA  # the metadata of scores leaves with the ranks

    def __init__(self, standings: ArchivedStandings, instance: InstanceKey) -> None:
        """Nothing is read yet."""
        self._standings = standings
        self._instance = instance

    @property
    def store(self) -> RankReads:
        """The standings."""
        return self._standings

    @property
    def position(self) -> str:
        """The position of the ranks that were archived."""
        return self._standings.manifest.position

    @property
    def is_exact(self) -> bool:
        """Whether all entries were archived."""
        return not self._standings.is_cut(self._instance)
