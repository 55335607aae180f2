"""The applier's state beside the ranks: derived from events alone and saved in checkpoints."""

from __future__ import annotations

from secrets import token_bytes

import msgspec

from rankd._columns import MetadataIndex, TeamTotals
from rankd._numbers import Texts

TABLE_KEY_BYTES = 16


class BoardState(msgspec.Struct):
    """The state of one board. Instances are keyed by `InstanceKey.text`, window instances by their own name."""

    version: int
    born: int  # its first version since it was defined, or defined again after a delete
    defined_at: int
    windows: set[str] = set()  # window instances that may be in the store
    closed: set[str] = set()  # window instances that are final
    retired: set[str] = set()  # window instances that left the store
    scope_values: dict[str, Texts] = {}  # by attribute
    midnight: int | None = None  # the last local midnight with a capture of places
    hour: int | None = None  # the last local hour at which places were recorded
    captured: set[str] = set()  # instances captured then
    wide: dict[str, dict[str, int]] = {}  # roll-up totals outside the bounds, by instance and player
    uncounted: dict[str, dict[str, set[str]]] = {}  # players by roll-up and part, see shares.py
    uncounted_parts: dict[str, set[str]] = {}  # whole parts by roll-up, see shares.py
    lost: dict[str, set[str]] = {}  # players by roll-up, see shares.py
    teams: dict[str, TeamTotals] = {}  # by instance of teams ranked by average
    metadata: dict[str, MetadataIndex] = {}  # by instance: the event of each kept score

    def metadata_index_of(self, text: str, *, is_new: bool) -> MetadataIndex | None:
        """Return the metadata index of an instance; None where no event has metadata, unless `is_new`."""
        index = self.metadata.get(text)
        if index is None and is_new:
            # One key for all instances of a board, so that a player id is hashed once.
            key = next(iter(self.metadata.values())).key if self.metadata else token_bytes(TABLE_KEY_BYTES)
            index = self.metadata[text] = MetadataIndex(key)
        return index

    def team_totals_of(self, text: str) -> TeamTotals:
        """Return what the players of each team have in an instance."""
        totals = self.teams.get(text)
        if totals is None:
            # One key for all instances of a board, so that a team's name is hashed once.
            key = next(iter(self.teams.values())).key if self.teams else token_bytes(TABLE_KEY_BYTES)
            totals = self.teams[text] = TeamTotals(key)
        return totals

    def forget_metadata(self, text: str, player: str) -> None:
        """Forget the metadata of a player's score."""
        index = self.metadata.get(text)
        if index is not None:
            index.remove(player)

    def forget_window(self, prefix: str) -> None:
        """Drop the state of instances whose texts begin with `prefix`: they are empty."""
        held: dict[str, object]
        for held in (self.wide, self.uncounted, self.uncounted_parts, self.lost, self.teams, self.metadata):  # type: ignore[assignment]
            for text in [text for text in held if text.startswith(prefix)]:
                del held[text]


def note_scope_value(live: BoardState, attribute: str, value: str) -> None:
    """Record a value of an attribute on a board."""
    values = live.scope_values.get(attribute)
    if values is None:
        values = live.scope_values[attribute] = Texts()
    values.add(value)


class State(msgspec.Struct, dict=True):
    """All defined boards by id, and the last version of each id, deleted boards included."""

    boards: dict[str, BoardState] = {}
    versions: dict[str, int] = {}
    leaving: list[tuple[str, str]] = []  # (board, window instance) removed and still in the store
    generation: int = 0  # counts changes of boards and windows

    def __post_init__(self) -> None:
        self._subscribers: list[dict[str, None]] = []  # not saved

    def subscribe(self) -> dict[str, None]:
        """Return a set of the boards whose windows or definitions change from now on; at first it holds all.

        The subscriber takes ids out by `popitem`, in any thread.
        """
        changed = dict.fromkeys(self.boards)
        self._subscribers.append(changed)
        return changed

    def note_change(self, board_id: str) -> None:
        """Record that a board was defined or deleted, or that its windows changed."""
        for changed in self._subscribers:
            changed[board_id] = None
        self.generation += 1  # last: a reader of the new generation finds the board among the changed
