"""What the applier remembers beside the ranks: it follows from the events alone, and is saved with snapshots."""

from __future__ import annotations

import msgspec

from rankd.domain.team import Contributions


class BoardState(msgspec.Struct):
    """What became of one board. Instances are named by `InstanceKey.text`, window instances by their own name."""

    version: int
    born: int  # the version it was defined with, anew after it was deleted
    defined_at: int
    windows: dict[str, set[str]] = {}  # window instances that may be in the store, with their scopes
    closed: set[str] = set()  # window instances that are final
    retired: set[str] = set()  # window instances that left the store
    scope_values: dict[str, set[str]] = {}  # seen, by attribute
    midnight: int | None = None  # the last local midnight at which places were remembered
    captured: set[str] = set()  # instances whose places were remembered then
    wide: dict[str, dict[str, int]] = {}  # roll-up totals outside the bounds, by instance and player
    uncounted: dict[str, dict[str, set[str]]] = {}  # players by roll-up and part, see shares.py
    uncounted_parts: dict[str, set[str]] = {}  # whole parts by roll-up, see shares.py
    lost: dict[str, set[str]] = {}  # players by roll-up, see shares.py
    teams: dict[str, dict[str, Contributions]] = {}  # what teams hold, by instance and team
    metadata: dict[str, dict[str, int]] = {}  # id of the event a kept score came with, by instance and player

    def forget_instance(self, text: str) -> None:
        """Drop what is remembered of an instance that is empty."""
        self.wide.pop(text, None)
        self.uncounted.pop(text, None)
        self.uncounted_parts.pop(text, None)
        self.lost.pop(text, None)
        self.teams.pop(text, None)
        self.metadata.pop(text, None)


class State(msgspec.Struct, dict=True):
    """All boards that are defined, by id, and the version that each id had last, deleted ones included."""

    boards: dict[str, BoardState] = {}
    versions: dict[str, int] = {}
    generation: int = 0  # counts the window instances that came and went

    def __post_init__(self) -> None:
        """Nobody has subscribed; who has is not saved."""
        self._subscribers: list[dict[str, None]] = []

    def subscribe(self) -> dict[str, None]:
        """Return a set of ids that boards are put into when their windows or definitions change; all are at first.

        The subscriber takes them out by `popitem`, in any thread.
        """
        changed = dict.fromkeys(self.boards)
        self._subscribers.append(changed)
        return changed

    def note_change(self, board_id: str) -> None:
        """Windows of a board have come or gone, or it was defined or deleted."""
        for changed in self._subscribers:
            changed[board_id] = None
        self.generation += 1  # last: whoever sees it finds the board among the changed
