"""Players whom this process has not seen before."""

from __future__ import annotations

from collections.abc import Sequence

PLAYERS_KNOWN_MAX = 1_000_000


class Newcomers:
    """Players who are to be found by their ids in a registry that is not the ledger's own, profile or not."""

    def __init__(self, known_max: int = PLAYERS_KNOWN_MAX) -> None:
        """`known_max` are remembered; when they are more, all are new again."""
        self._known_max = known_max
        self._known: set[str] = set()
        self._new: list[str] = []

    def see(self, players: Sequence[str]) -> None:
        """Note who scored; in the committing thread."""
        for player in players:
            # Those whom nobody could be told of for long are new again the next time they score.
            if player not in self._known and len(self._new) < self._known_max:
                if len(self._known) >= self._known_max:
                    self._known.clear()
                self._known.add(player)
                self._new.append(player)

    def take(self) -> list[str]:
        """Return those who are new since the last time; in any thread."""
        new, self._new = self._new, []
        return new

    def put_back(self, players: list[str]) -> None:
        """Have those again who were taken and could not be met; in any thread."""
        self._new[:0] = players
