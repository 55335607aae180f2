"""Which parts a scaled-out process is made of: opened in the order of a score's path, closed in reverse."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

from rankd.boards import Boards
from rankd.clock import Clock, SystemClock
from rankd.folder import make_private_folder
from rankd.intake.definitions import Definitions
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.ledger.postgres.ledger import migrate as migrate_ledger
from rankd.ledger.postgres.migrations import migrate_component, scripts_of
from rankd.projection.redis.client import Client, connect
from rankd.projection.redis.heartbeat import claim_redis
from rankd.projection.redis.late import LateClient
from rankd.projection.redis.mirror import Mirror
from rankd.projection.redis.reader import RedisReader
from rankd.projection.redis.spending import Spent, share_spending
from rankd.registry.postgres import PostgresRegistry, migrate_registry
from rankd.registry.standings import Standings, migrate_standings
from rankd.registry.standings_writer import StandingsWriter
from rankd.scaled.fallback import LookWithFallback
from rankd.scaled.figures import Figures
from rankd.scaled.lane import CallsTogether
from rankd.scaled.lease import Lease
from rankd.scaled.moving import Moved, Moving
from rankd.scaled.projector import ARCHIVE, CHECKPOINTS, Projector, ProjectorSettings
from rankd.scaled.rebuilding import Rebuilding, Rebuilt
from rankd.scaled.running import SharedRunning
from rankd.scaled.served import Heartbeat, Layout
from rankd.scaled.verifying import Progress, Verified, Verifying
from rankd.settings import Settings, read_settings

PROJECTOR = "projector"
READ_WAIT_S = 0.3  # how long a read waits for Redis before it is answered otherwise


def migrate(ledger_url: str, registry_url: str = "", partitions: int | None = None) -> int:
    """Make or update everything in PostgreSQL; return the version the ledger had. Safe to run twice, anywhere."""
    before = migrate_ledger(ledger_url, partitions)
    migrate_component(ledger_url, PROJECTOR, scripts_of("rankd.scaled"))
    migrate_standings(ledger_url)
    migrate_registry(registry_url or ledger_url)
    return before


def open_shared(
    ledger_url: str,
    ranks_url: str,
    registry_url: str = "",
    *,
    clock: Clock | None = None,
    stale_after_ms: int = 1_000,
    **settings: object,
) -> Boards:
    """Open the boards of a scaled-out installation in an API process."""
    chosen: Settings = read_settings(settings)
    time = clock or SystemClock()
    with ExitStack() as opened:
        ledger = PostgresLedger(ledger_url)
        opened.callback(ledger.close)
        registry = PostgresRegistry(
            registry_url or ledger_url, chosen.profiles_cached_max, friends_bytes_max=chosen.friends_bytes_max
        )
        opened.callback(registry.close)
        definitions = Definitions(ledger)
        standings = Standings(ledger_url)
        opened.callback(standings.close)
        client = LateClient(lambda: _connect_claimed(ranks_url, ledger.identity))
        opened.callback(client.close)
        heartbeat = Heartbeat(client, stale_after_ms, SystemClock().now)
        opened.callback(heartbeat.close)

        layout = Layout(lambda: definitions.boards)
        running = SharedRunning(
            ledger,
            definitions,
            registry,
            LookWithFallback(CallsTogether(client), layout, heartbeat, standings),
            clock=time,
            settings=chosen,
            let_go=opened.pop_all().close,
            held_profiles=registry.held_profiles,
            meet=registry.meet,
            make_months=ledger.make_months,
            share_rates=lambda spent: share_spending(client, [Spent(*one) for one in spent]),
        )
        return Boards(running)


def _connect_claimed(ranks_url: str, ledger: str) -> Client:
    client = connect(ranks_url, answer_wait_s=READ_WAIT_S)
    try:
        claim_redis(client, ledger)
    except BaseException:
        client.close()
        raise
    return client


def make_projector(
    ledger_url: str,
    ranks_url: str,
    folder: Path,
    *,
    clock: Clock | None = None,
    settings: ProjectorSettings | None = None,
    figures: Figures | None = None,
) -> Projector:
    """Return a projector that is ready to run; LedgerUnavailable while PostgreSQL is away."""
    holder = f"{socket.gethostname()}:{os.getpid()}"
    return Projector(
        PostgresLedger(ledger_url),
        lambda: connect(ranks_url),
        Lease(ledger_url, holder),
        clock=clock or SystemClock(),
        folder=folder,
        settings=settings or ProjectorSettings(),
        standings=lambda: StandingsWriter(ledger_url),
        figures=figures,
    )


def prepare_projector_folder(folder: Path) -> None:
    """Make what a projector keeps its owner's alone; the folder itself may be a volume that belongs to another."""
    for part in (CHECKPOINTS, ARCHIVE):
        make_private_folder(folder / part)


def verify_shared(ledger_url: str, ranks_url: str, progress: Progress | None = None) -> Verified:
    """Compare Redis with what the ledger says, while traffic runs."""
    with ExitStack() as opened:
        ledger = PostgresLedger(ledger_url)
        opened.callback(ledger.close)
        client = connect(ranks_url)
        opened.callback(client.close)
        verifying = Verifying(ledger, progress)
        return verifying.run(RedisReader(client, verifying.shards_of))


def rebuild_shared(
    ledger_url: str, ranks_url: str, progress: Progress | None = None, board: str | None = None
) -> Rebuilt:
    """Fill Redis anew from the ledger, beside what is served, and switch."""
    with ExitStack() as opened:
        ledger = PostgresLedger(ledger_url)
        opened.callback(ledger.close)
        client = connect(ranks_url)
        opened.callback(client.close)
        rebuilding = Rebuilding(ledger, lambda follower: Mirror(client, whole=follower.whole), progress)
        return rebuilding.run(SystemClock().now(), board)


def move_from(folder: Path, ledger_url: str, registry_url: str = "", progress: Progress | None = None) -> Moved:
    """Move an embedded installation into a migrated, empty database."""
    ledger = PostgresLedger(ledger_url)
    try:
        return Moving(folder, ledger, progress).run(registry_url or ledger_url)
    finally:
        ledger.close()
