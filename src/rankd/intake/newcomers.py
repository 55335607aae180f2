"""Players who are new to this process."""

from __future__ import annotations

from collections.abc import Sequence

PLAYERS_KNOWN_MAX = 1_000_000


class Newcomers:
    """Collects new players for a registry outside the ledger, so that a search by id finds them without a profile."""

    def __init__(self, known_max: int = PLAYERS_KNOWN_MAX) -> None:
        """At most `known_max` players are remembered; beyond that, all are new again."""
        self._known_max = known_max
        self._known: set[str] = set()
        self._new: list[str] = []

    def see(self, players: Sequence[str]) -> None:
        """Record players who scored; in the committing thread."""
        for player in players:
            # A player who finds the list of new ones full stays unknown until the next score.
            if player not in self._known and len(self._new) < self._known_max:
                if len(self._known) >= self._known_max:
                    self._known.clear()
                self._known.add(player)
                self._new.append(player)

    def take(self) -> list[str]:
        """Return the players that are new since the last call; in any thread."""
        new, self._new = self._new, []
        return new

    def put_back(self, players: list[str]) -> None:
        """Put back players that could not be registered; in any thread."""
        self._new[:0] = players
