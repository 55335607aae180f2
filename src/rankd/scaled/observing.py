"""What a projector does becomes figures: at the end of each step, and once a second what has to be asked for."""

from __future__ import annotations

from time import monotonic

from rankd.ledger.port import Heads
from rankd.scaled.figures import Figures
from rankd.scaled.keeping import Keeping
from rankd.scaled.mirroring import Mirroring
from rankd.scaled.recorded_follower import RecordedFollower
from rankd.seasons.archiving import Archiving

LOOK_EVERY_S = 1.0


class Observing:
    """Tells figures what changed since the last time; used by the projector's thread."""

    def __init__(self, figures: Figures) -> None:
        """Nothing was seen yet."""
        self._figures = figures
        self._events = 0
        self._mirroring: Mirroring | None = None
        self._sent = (0, 0, 0)
        self._complete_as_of: int | None = None
        self._looked_at = 0.0

    def step(self, began: float, follower: RecordedFollower, mirroring: Mirroring | None) -> None:
        """See what a step did that went well; `mirroring` is None for one that stands by."""
        self._figures.observe_step(monotonic() - began, follower.events - self._events)
        self._events = follower.events
        if mirroring is None:
            return
        if mirroring is not self._mirroring:
            self._mirroring, self._sent, self._complete_as_of = mirroring, (0, 0, 0), None
        sent = mirroring.rows, mirroring.catch_ups, mirroring.loads
        self._figures.count_sent(*(now - before for now, before in zip(sent, self._sent, strict=True)))
        self._sent = sent
        if mirroring.complete_as_of != self._complete_as_of:
            self._complete_as_of = mirroring.complete_as_of
            self._figures.set_level(self._complete_as_of)

    def is_time(self) -> bool:
        """Tell whether to look at what is not looked at in every step."""
        return monotonic() - self._looked_at >= LOOK_EVERY_S

    def look(
        self,
        heads: Heads,
        follower: RecordedFollower,
        keeping: Keeping | None,
        archiving: Archiving,
        now_ms: int | None,
    ) -> None:
        """See how far behind all is; `now_ms` is None for one that stands by, and writes no standings."""
        self._looked_at = monotonic()
        self._figures.set_behind([head - ours for head, ours in zip(heads.sequences, follower.positions, strict=True)])
        written_ms = None if keeping is None else keeping.written_ms
        behind_ms = 0 if now_ms is None or written_ms is None else max(0, now_ms - written_ms)
        rewrites = 0 if keeping is None else keeping.rewrites
        self._figures.set_kept(behind_ms / 1_000, rewrites, archiving.waiting, archiving.failed)
