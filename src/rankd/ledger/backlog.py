"""What processes on a shared ledger tell each other about its backlog: how far nodes have ranked, and holds of writes.

    a node → note_ranked ──┐
    rebuild, verify, a node that starts → hold ──┴→ Backlog → read by every process that appends, a few times a second

Promises (tests/contract):
- `ranked` is the furthest of what nodes have noted, by partition, and never goes back.
- One hold is under way at a time, whoever asks, and it ends by itself. The next begins `pause_ms` after the end of the
  last at the earliest: so writers have a part of the time, however many ask.

Not promised: that nobody appends during a hold. A process sees it within a fraction of a second, and what the clock or
an administrator does to boards goes on.

May be imported by: operations, node, adapters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

HOLD_MS_MAX = 10_000  # a longer one is that of a clock that was set back: it is over


class BacklogState(NamedTuple):
    """The backlog as of one instant."""

    ranked: tuple[int, ...]  # by partition, the furthest of all nodes; () while none has noted any
    is_held: bool  # writes are to be refused


class Backlog(Protocol):
    """The backlog of a shared ledger; from any thread. LedgerUnavailable while it cannot be reached."""

    def read(self) -> BacklogState:
        """Return the state now."""
        ...

    def note_ranked(self, positions: Sequence[int]) -> None:
        """Note how far a node has ranked."""
        ...

    def hold(self, hold_ms: int, pause_ms: int) -> bool:
        """Hold writes from now on; False, without effect, while the last hold has not ended `pause_ms` ago."""
        ...

    def release(self) -> None:
        """End the hold under way, if there is one."""
        ...
