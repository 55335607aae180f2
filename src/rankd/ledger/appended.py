"""The places that the events of a draft got."""

from __future__ import annotations

from array import array

import msgspec


class AppendedColumns(msgspec.Struct, frozen=True):
    """The places of a draft's events, in the draft's order."""

    partition: array[int]  # "H"
    sequence: array[int]  # "q"
    at: int

    @property
    def end(self) -> dict[int, int]:
        """The last sequence in each partition that has some of the events."""
        return self.positions(0, len(self.sequence))

    def place(self, index: int) -> tuple[int, int]:
        """Return partition and sequence of an event."""
        return self.partition[index], self.sequence[index]

    def positions(self, first: int, count: int) -> dict[int, int]:
        """Return the last sequence in each partition of some of the events."""
        end = first + count
        return dict(zip(self.partition[first:end], self.sequence[first:end], strict=True))
