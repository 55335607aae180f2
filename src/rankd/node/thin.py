"""The backend of a thin API process: it appends to a shared ledger, and reads ranks from Redis.

requests → Writer → ledger          reads → Redis, joined with names and metadata
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from rankd.archive.windows import WindowArchive
from rankd.backend import Figures, Started
from rankd.backup.archiver import ArchiveStatus
from rankd.backup.sending import Backup, no_archive_of_ours
from rankd.clock import Clock
from rankd.errors import Refused
from rankd.intake.changes import Changes
from rankd.intake.definitions import Definitions
from rankd.intake.newcomers import Newcomers
from rankd.intake.sources import SourceIntake
from rankd.intake.writer import Writer
from rankd.ledger.audit import AuditMark, AuditQuery
from rankd.ledger.port import PastEvent, SharedLedger
from rankd.node.coalesced_reads import CoalescedMetadata, CoalescedProfiles, HeldProfiles
from rankd.node.lag import LagMonitor
from rankd.node.ledger_upkeep import LedgerUpkeep
from rankd.node.past_events import audit, past_events
from rankd.node.thin_answers import ShareRates, ThinWriter
from rankd.projection.port import RankStore
from rankd.projection.verify import Report
from rankd.reads.audit import AuditPage
from rankd.reads.joined import Joined
from rankd.redis.read.rank_source import RedisRankSource
from rankd.redis.write.boards import check_board
from rankd.registry.port import Registry
from rankd.settings import Settings

_log = logging.getLogger("rankd")


class Thin:
    """The parts of a thin API process, until `close`."""

    past = places = None  # it has no engine to work a past state out in, or to record places of

    def __init__(
        self,
        ledger: SharedLedger,
        definitions: Definitions,
        registry: Registry,
        rank_source: RedisRankSource,
        *,
        clock: Clock,
        settings: Settings,
        close_parts: Callable[[], None],
        lag: LagMonitor | None = None,
        archive: WindowArchive | None = None,
        held_profiles: HeldProfiles = lambda _players: None,
        share_rates: ShareRates | None = None,
        meet: Callable[[Sequence[str]], None] = lambda _players: None,
    ) -> None:
        """`close_parts` closes what was opened for it; `meet` registers players without a profile, for search."""
        self.clock = clock
        self.settings = settings
        self.applier = definitions.applier
        self.registry = registry
        self.rank_source = rank_source
        self.archive = archive
        self.started = Started(0, None, 0, 0, 0.0)
        self._ledger = ledger
        self._definitions = definitions
        newcomers = Newcomers()
        backpressure = None if lag is None else lag.backpressure
        self._shared = Writer(
            ledger, definitions, registry, clock, settings, newcomers=newcomers, backpressure=backpressure
        )
        self.sources = SourceIntake(self._shared)
        self.writer = ThinWriter(
            self._shared,
            ledger,
            rank_source,
            clock=clock,
            wait_ms=settings.at_least_wait_ms,
            share_rates=share_rates,
        )
        self.changes = Changes(
            self._shared,
            ledger,
            definitions,
            is_there=self.writer.is_there,
            instances_per_event_max=settings.instances_per_event_max,
            check_board=check_board,
        )
        self.joined = Joined(
            self.applier.state,
            CoalescedMetadata(ledger),
            CoalescedProfiles(registry, held_profiles),
            settings.metadata_cached_max,
        )
        self.later = self.remote = self.writer
        self._events = sum(self.writer.read_heads().sequences)
        self._lag = lag
        self._close_parts = close_parts
        self._is_closed = False
        self._upkeep = LedgerUpkeep(
            ledger,
            newcomers,
            clock,
            settings.idempotency_ttl_ms,
            meet=meet,
            also=self._refresh,
        )

    def watch_commits(self, _committed: Callable[[], None]) -> None:
        """Refuse: another process ranks, so readers poll Redis."""
        raise AssertionError("another process ranks these boards")

    @property
    def lag_ms(self) -> float | None:
        """How far the ranks in Redis are behind the ledger; None while Redis is unavailable."""
        return None if self._lag is None else self._lag.lag_ms

    def figures(self) -> Figures:
        """Return the position of the ledger, and the lag."""
        return Figures(self._events, None, 0, 0, lag_ms=self.lag_ms)

    def entries_by_board(self, _boards_max: int) -> dict[str, int]:
        """Return nothing: this process has no entries."""
        return {}

    def history(self, player: str, limit: int, before: int | None, board: str | None) -> list[PastEvent]:
        """Return a player's own events, the newest first."""
        return past_events(self._ledger, player, limit, before, board)

    def audit(self, query: AuditQuery, before: AuditMark | None) -> AuditPage:
        """Return who did what, the newest first."""
        return audit(self._ledger, query, before)

    @property
    def rank_store(self) -> RankStore:
        """Refuse: the ranks are in Redis."""
        raise Refused("ranks are in Redis, not in this process")

    @property
    def archive_status(self) -> ArchiveStatus | None:
        """None: this process sends its ledger nowhere."""
        return None

    def backup(self) -> Backup:
        """Refuse: whoever has the ledger copies it."""
        raise no_archive_of_ours()

    def snapshot(self) -> None:
        """Refuse: the projector writes its own."""
        raise Refused(
            "this process has no ranks to save: they are in Redis, and the projector writes its own checkpoints"
        )

    def settle(self) -> None:
        """Read the newest definitions."""
        self._definitions.catch_up()

    def verify(self, _progress: Callable[[int], None] = lambda _sequence: None) -> Report:
        """Refuse: `rankd verify` does it."""
        raise Refused("use `rankd verify`, which compares Redis with the ledger")

    def close(self) -> None:
        """Finish running work, and close all parts."""
        if not self._is_closed:
            self._is_closed = True
            self._upkeep.close()
            self._shared.close()
            self._close_parts()

    def _refresh(self) -> None:
        self._definitions.catch_up()
        self._events = sum(self.writer.read_heads().sequences)
