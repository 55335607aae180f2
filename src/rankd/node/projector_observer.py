"""Updates the projector's figures: after each step, and once a second the figures that cost a query."""

from __future__ import annotations

from time import monotonic

from rankd.ledger.port import Heads
from rankd.node.projector_figures import ProjectorFigures
from rankd.redis.fallback.standings_sync import StandingsSync
from rankd.redis.write.mirroring import MirrorSync
from rankd.redis.write.recorded_follower import RecordedFollower
from rankd.seasons.archiving import ArchiveStep

OBSERVE_EVERY_S = 1.0


class ProjectorObserver:
    """Adds the changes since the last step to the figures; used by the projector's thread."""

    def __init__(self, figures: ProjectorFigures) -> None:
        """Start from zero."""
        self._figures = figures
        self._events = 0
        self._judged = (0, 0)
        self._mirroring: MirrorSync | None = None
        self._sent = (0, 0, 0)
        self._complete_as_of: int | None = None
        self._observed_at = 0.0

    def step(self, began: float, follower: RecordedFollower, mirroring: MirrorSync | None) -> None:
        """Record a successful step; `mirroring` is None for a standby."""
        self._figures.observe_step(monotonic() - began, follower.events - self._events)
        self._events = follower.events
        if follower.admission is not None:
            judged = follower.admission.refusals, follower.admission.repeats
            self._figures.count_judged(*(now - before for now, before in zip(judged, self._judged, strict=True)))
            self._judged = judged
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
        """Return whether `observe` is due."""
        return monotonic() - self._observed_at >= OBSERVE_EVERY_S

    def observe(
        self,
        heads: Heads,
        follower: RecordedFollower,
        standings_sync: StandingsSync | None,
        archiving: ArchiveStep,
        now_ms: int | None,
    ) -> None:
        """Record the lags; `now_ms` is None for a standby, which writes no standings."""
        self._observed_at = monotonic()
        self._figures.set_behind([head - ours for head, ours in zip(heads.sequences, follower.positions, strict=True)])
        written_ms = None if standings_sync is None else standings_sync.written_ms
        behind_ms = 0 if now_ms is None or written_ms is None else max(0, now_ms - written_ms)
        rewrites = 0 if standings_sync is None else standings_sync.rewrites
        self._figures.set_kept(behind_ms / 1_000, rewrites, archiving.waiting, archiving.failed)
