"""A scaled-out installation in one thread: real PostgreSQL and Redis, a clock set by hand, a projector run when asked.

    step → Boards → SharedWriter → PostgreSQL → SteppedProjector.project → Redis → Boards → step

Whoever looks at ranks has the projector catch up first, so what is read is never behind what was written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

import psycopg
from tests.servers.waiting import wait_until

from rankd.archive.folder_objects import FolderObjects
from rankd.archive.windows import WindowArchive
from rankd.clock import Clock
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept
from rankd.errors import Unavailable
from rankd.intake.definitions import Definitions
from rankd.ledger.postgres.lease import Lease
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.archives import open_shared_archive
from rankd.node.projector import Projector, ProjectorSettings
from rankd.node.thin import Thin
from rankd.projection.catalogue import Catalogue
from rankd.projection.placement import is_team_scope
from rankd.projection.port import RankReads, RankStore
from rankd.projection.state import State
from rankd.redis.connection.client import RedisClient, connect
from rankd.redis.read.rank_source import Heartbeat, Layout, RedisRankSource, RedisReadSession
from rankd.redis.read.reader import RedisReader
from rankd.redis.write.boards import instances_of, shards_of
from rankd.redis.write.recorded_follower import RecordedFollower
from rankd.redis.write.recording import RecordingStore
from rankd.registry.postgres.registry import PostgresRegistry
from rankd.registry.postgres.standings import StoredStandings
from rankd.registry.postgres.standings_writer import StandingsWriter
from rankd.settings import read_settings

IDLE_WITHIN_S = 30.0
STALE_AFTER_MS = 1_000
PAGE = 1_000
REPLAY_EVENTS = 100_000


class SteppedProjector:
    """A projector without a thread."""

    def __init__(
        self,
        ledger_url: str,
        ranks_url: str,
        folder: Path,
        clock: Clock,
        settings: ProjectorSettings | None = None,
    ) -> None:
        self._ledger = PostgresLedger(ledger_url)
        self._lease = Lease(ledger_url, "stepped")
        self._ranks_url = ranks_url
        self._ledger_url = ledger_url
        self._opened: list[RedisClient | StandingsWriter] = []
        self._archived = 0
        self._projector = Projector(
            self._ledger,
            self._connect,
            self._lease,
            clock=clock,
            folder=folder,
            settings=settings or ProjectorSettings(),
            standings=self._standings,
            archive=WindowArchive(FolderObjects(archive_of(folder))),
        )

    def _connect(self) -> RedisClient:
        client = connect(self._ranks_url)
        self._opened.append(client)
        return client

    def _standings(self) -> StandingsWriter:
        writer = StandingsWriter(self._ledger_url)
        self._opened.append(writer)
        return writer

    @property
    def projector(self) -> Projector:
        return self._projector

    @property
    def follower(self) -> RecordedFollower:
        return self._projector.follower

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    def forget_that_the_lease_can_be_lost(self) -> None:
        """Let another have the lease without this one's knowing."""
        self._lease.release()
        self._lease.is_held = lambda: True  # type: ignore[method-assign]

    def step(self) -> int:
        """Do a little."""
        return self._projector.step()

    def project(self) -> None:
        """Rank and do what is due until nothing is left."""
        deadline = time.monotonic() + IDLE_WITHIN_S
        pause = threading.Event()
        while self._projector.step() or not self._projector.is_active or self._has_archived():
            assert time.monotonic() < deadline, "the projector does not come to an end"
            if not self._projector.is_active:
                pause.wait(0.002)  # the server has yet to notice that whoever held the lease is gone

    def _has_archived(self) -> bool:
        """Tell whether files were written, after which there is something to do."""
        archiving, before = self._projector.archiving, self._archived
        wait_until(lambda: archiving.waiting == 0)
        self._archived = archiving.finished
        return self._archived != before

    def stop(self) -> None:
        """Stop it as an operator does: it saves what it has ranked."""
        stop = threading.Event()
        stop.set()
        self._projector.run(stop)
        self.die()

    def die(self) -> None:
        """End it without notice."""
        self._projector.archiving.close()
        if self._projector.standings_sync is not None:
            # Its thread would hold its transaction open in this process, where a dead one's is over at once.
            self._projector.standings_sync.stand_by()
        self._lease.release()
        self._ledger.close()
        for opened in self._opened:
            opened.close()


class BeatNow(Heartbeat):
    """A heartbeat that is listened to whenever somebody wants to know."""

    @property
    def is_stale(self) -> bool:
        self._read()
        return super().is_stale


class CaughtUpRankSource(RedisRankSource):
    """Reads Redis once all that was written is there."""

    def __init__(self, client: RedisClient, layout: Layout, heartbeat: Heartbeat, project: Callable[[], None]) -> None:
        super().__init__(client, layout, heartbeat)
        self._project = project

    def open(self, instance: InstanceKey) -> RedisReadSession:
        self._project()
        return super().open(instance)

    def open_ranks(self, instance: InstanceKey) -> RedisReadSession:
        self._project()
        return super().open_ranks(instance)

    def ranked_upto(self, boards: Sequence[str]) -> dict[str, Mapping[int, int]]:
        self._project()
        return super().ranked_upto(boards)


def archive_of(folder: Path) -> Path:
    """Return the archive of an installation, beside the projector's folder, which may be lost."""
    return folder.with_name(f"{folder.name}-archive")


def open_api(
    ledger_url: str, ranks_url: str, clock: Clock, project: Callable[[], None], **settings: object
) -> tuple[Thin, Definitions]:
    """Open the parts of an API process, as `open_thin` does, around a look that waits for no other thread."""
    chosen = read_settings(settings)
    with ExitStack() as opened:
        ledger = PostgresLedger(ledger_url)
        opened.callback(ledger.close)
        registry = PostgresRegistry(ledger_url, chosen.profiles_cached_max)
        opened.callback(registry.close)
        definitions = Definitions(ledger)
        client = connect(ranks_url)
        opened.callback(client.close)
        heartbeat = BeatNow(client, STALE_AFTER_MS, clock.now)
        opened.callback(heartbeat.close)

        rank_source = CaughtUpRankSource(client, Layout(lambda: definitions.boards), heartbeat, project)
        let_go = opened.pop_all().close
        running = Thin(
            ledger,
            definitions,
            registry,
            rank_source,
            clock=clock,
            settings=chosen,
            close_parts=let_go,
            archive=open_shared_archive(chosen),
        )
        return running, definitions


# What stands in Redis, against what must


def recomputed(ledger_url: str) -> RecordedFollower:
    """Rank a whole ledger from its first event on, on an engine of its own."""
    ledger = PostgresLedger(ledger_url)
    try:
        follower = RecordedFollower(ledger, RecordingStore(), State(), Catalogue())
        while follower.follow(REPLAY_EVENTS):
            pass
        return follower
    finally:
        ledger.close()


def entries(store: RankReads, key: InstanceKey) -> Iterator[tuple[str, int, int]]:
    """Walk through an instance."""
    after: tuple[Kept, str] | None = None
    while page := store.following(key, after, PAGE).entries:
        for entry in page:
            yield entry.player, entry.score, entry.tie
        after = Kept(page[-1].score, page[-1].tie), page[-1].player


def standing_instances(store: RankStore) -> set[InstanceKey]:
    """Return the instances in which somebody stands who is shown."""
    return {key for key in store.instances() if not is_team_scope(key.scope) and store.total(key)}


def check_mirrored(engine: RankStore, ranks_url: str, shards: Mapping[str, int]) -> int:
    """Compare Redis with an engine, instance by instance: digests, and everybody; return how many instances."""
    should = standing_instances(engine)
    assert {key.board for key in should} <= shards.keys()
    with connect(ranks_url) as client:
        reader = RedisReader(client, shards.__getitem__)
        there = {key for board in shards for key in reader.instances_of(board)}
        assert there == should, f"in Redis and not ranked, or the other way round: {there ^ should}"
        for key in sorted(should, key=lambda instance: instance.text):
            assert reader.digest(key) == engine.digest(key), f"digest of {key.text}"
            for mirrored, kept in zip_longest(entries(reader, key), entries(engine, key)):
                assert mirrored == kept, f"an entry of {key.text}"
    return len(should)


def wait_until_mirrored(anew: RecordedFollower, ranks_url: str, until: float) -> None:
    """Wait until Redis is equal to a recomputation; fail with the first difference when it is not in time."""
    pause = threading.Event()
    while True:
        try:
            check_mirrored(anew.store, ranks_url, shards_by_board(anew))
            return
        except (AssertionError, Unavailable):
            if time.monotonic() > until:
                raise
            pause.wait(0.02)


def check_standings(follower: RecordedFollower, ledger_url: str) -> None:
    """Compare what is kept for when Redis is away, which must have come as far, with an engine."""
    should = set()
    standings = StoredStandings(ledger_url)
    try:
        for board_id in follower.applier.state.boards:
            board, live = follower.board(board_id)
            for key, _ in instances_of(follower.store, board, live):
                kept = list(entries(follower.store, key))
                if board.window_of(key.window) is board.first_window and kept:
                    should.add(key.text)
                    page = standings.top(key, PAGE)
                    assert [line[1:] for line in page.lines] == kept, f"standings of {key.text}"
                    assert page.total == len(kept), f"standings of {key.text}"
    finally:
        standings.close()
    with psycopg.connect(ledger_url) as connection:
        rows = connection.execute("SELECT instance FROM rankd.standings_instances").fetchall()
    left = {instance for (instance,) in rows} - should
    assert not left, f"standings of what is not there: {left}"


def standings_positions(ledger_url: str) -> tuple[int, ...]:
    """Return how far the standings are kept."""
    standings = StoredStandings(ledger_url)
    try:
        positions = standings.positions()
    finally:
        standings.close()
    return () if positions is None else tuple(sequence for _, sequence in sorted(positions.sequences.items()))


def shards_by_board(follower: RecordedFollower) -> dict[str, int]:
    """Return how many shards each board has."""
    live = follower.applier.state.boards
    boards = follower.applier.catalogue.current({name: state.version for name, state in live.items()})
    return {name: shards_of(board) for name, board in boards.items()}
