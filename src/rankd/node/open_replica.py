"""Opens a replica: loads the writer's newest checkpoint and follows the rest of its ledger, read-only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rankd.boards import Boards
from rankd.clock import Clock, SystemClock
from rankd.domain.board_selection import EVERY_BOARD, BoardSelection
from rankd.folder import SNAPSHOTS
from rankd.ledger.sqlite.database import ReadOnlyDatabase
from rankd.ledger.sqlite.replica import SqliteReplicaLedger
from rankd.node.archives import open_archive
from rankd.node.catching_up import Progress, caught_up
from rankd.node.lag import LAG_MAX_MS, LagMonitor
from rankd.node.open_embedded import HISTORY
from rankd.node.replica import Replica
from rankd.progress import progress_bar
from rankd.projection.checkpoints import Checkpoints
from rankd.registry.sqlite.replica import SqliteReplicaRegistry
from rankd.seasons.history import PlaceHistory
from rankd.settings import Settings, read_settings


def open_replica(
    folder: Path,
    wait: Callable[[float], None],
    *,
    clock: Clock | None = None,
    progress: Progress | None = None,
    stale_after_ms: int = 1_000,
    lag_max_ms: int = LAG_MAX_MS,
    kept: BoardSelection = EVERY_BOARD,
    **settings: object,
) -> Boards:
    """Open the boards of a data folder that another process writes.

    `wait` returns when that process may have committed, at the latest after so many seconds. Boards that are not kept
    are defined, and empty.
    """
    chosen: Settings = read_settings(settings)
    time_of = clock or SystemClock()
    with ExitStack() as opened:
        database = ReadOnlyDatabase(folder, chosen.vfs)
        opened.callback(database.close)
        database.open()
        ledger = SqliteReplicaLedger(database, wait)
        registry = SqliteReplicaRegistry(folder, database, chosen.profiles_cached_max)
        opened.callback(registry.close)
        checkpoints = Checkpoints(folder / SNAPSHOTS, is_written=False)
        shown = progress or progress_bar()
        ranks, started = caught_up(ledger, checkpoints, time_of, chosen, shown, lag_max_ms=lag_max_ms, kept=kept)
        lag = LagMonitor(lambda: ledger.heads().sequences, lambda: tuple(ranks.positions.values()), lag_max_ms)
        opened.callback(lag.close)
        replica = Replica(
            ledger=ledger,
            registry=registry,
            ranks=ranks,
            checkpoints=checkpoints,
            archive=open_archive(chosen, folder),
            clock=time_of,
            settings=chosen,
            started=started,
            stale_after_ms=stale_after_ms,
            lag=lag,
            kept=kept,
            places=PlaceHistory(folder / HISTORY),
            close_parts=opened.pop_all().close,
        )
        return Boards(replica)
