"""The registry of a folder that another process writes; registry/port.py has its promises.

    the writer commits a change → witness → compared before each read → caches dropped

So a change is visible to every worker by the time the writer answers it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rankd.errors import LedgerUnavailable
from rankd.ledger.sqlite.database import NOT_WRITTEN_HERE, ReadOnlyDatabase
from rankd.ledger.sqlite.witness import WITNESS_NAME, WitnessedChanges
from rankd.registry.port import Profile
from rankd.registry.sqlite.registry import SqliteRegistryReads, has_profiles


class SqliteReplicaRegistry(SqliteRegistryReads):
    """Profiles and friends, read-only."""

    def __init__(self, folder: Path, database: ReadOnlyDatabase, profiles_cached_max: int) -> None:
        """The writer has opened the folder."""
        self._witnessed = WitnessedChanges(folder / WITNESS_NAME)
        self._seen = self._witnessed.read()
        super().__init__(database, profiles_cached_max)

    def close(self) -> None:
        """Close the witness; the owner of the database closes it."""
        self._witnessed.close()

    @property
    def changes(self) -> int:
        """The number of changes seen here since the start."""
        self._refresh()
        return self._changes

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the profiles of players who have one."""
        self._refresh()
        return super().profiles(players)

    def set_profile(self, _profile: Profile, *, only_given: bool = False) -> Profile:
        """Refuse: the writer does it."""
        raise LedgerUnavailable(NOT_WRITTEN_HERE)

    def set_friends(self, _player: str, _friends: Sequence[str]) -> None:
        """Refuse: the writer does it."""
        raise LedgerUnavailable(NOT_WRITTEN_HERE)

    def _refresh(self) -> None:
        """Drop what was read before the changes of the writer."""
        witnessed = self._witnessed.read()
        if witnessed == self._seen:
            return
        with self._database.reading() as reader:
            self._has_profiles = has_profiles(reader)
        self._cached = {}  # a new one: a load that began before puts its profiles into the former
        self._changes += 1
        self._seen = witnessed
