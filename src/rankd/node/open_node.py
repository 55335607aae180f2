"""Opens a node: loads its newest checkpoint and follows the rest of the ledger."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from rankd.boards import Boards
from rankd.clock import Clock, SystemClock
from rankd.folder import FolderLock
from rankd.ledger.postgres.lease import NODES
from rankd.node.archives import open_archive
from rankd.node.catching_up import Progress, caught_up
from rankd.node.lag import LAG_MAX_MS, LagMonitor, NodesBacklog
from rankd.node.node import Node
from rankd.node.shared_stores import SharedStores
from rankd.operations.hold import WriteHold
from rankd.progress import progress_bar
from rankd.projection.checkpoints import Checkpoints
from rankd.seasons.archiving import ArchiveStep
from rankd.seasons.history import PlaceRecorder
from rankd.seasons.retirement import Retirement
from rankd.settings import Settings, read_settings

CHECKPOINTS, HISTORY = "checkpoints", "history"  # in its folder


def open_node(
    stores: SharedStores,
    folder: Path,
    *,
    clock: Clock | None = None,
    progress: Progress | None = None,
    stale_after_ms: int = 1_000,
    lag_max_ms: int = LAG_MAX_MS,
    **settings: object,
) -> Boards:
    """Open the boards of a shared ledger in a process that ranks them.

    `folder` holds this node's checkpoints; `progress` is called with (events followed, events to follow).
    """
    chosen: Settings = read_settings(settings)
    time_of = clock or SystemClock()
    with ExitStack() as opened:
        lock = FolderLock(folder, has_ledger=False)
        opened.callback(lock.release)
        ledger = stores.open_ledger()
        opened.callback(ledger.close)
        registry = stores.open_registry(chosen)
        opened.callback(registry.close)
        checkpoints = Checkpoints(folder / CHECKPOINTS, chosen.snapshots_kept)
        shown = progress or progress_bar()
        hold, refused = WriteHold(ledger), stores.open_refused_events()
        if refused is not None:
            opened.callback(refused.close)
        recorder = PlaceRecorder(folder / HISTORY)
        opened.callback(recorder.close)
        ranks, started = caught_up(
            ledger,
            checkpoints,
            time_of,
            chosen,
            shown,
            lag_max_ms=lag_max_ms,
            hold=hold,
            refused=refused,
            recorder=recorder,
        )

        def ranked() -> tuple[int, ...]:
            return tuple(ranks.positions.values())

        shared = NodesBacklog(ledger.backlog, ranked)
        lag = LagMonitor(lambda: ledger.heads().sequences, ranked, lag_max_ms, is_held=shared.is_held)
        opened.callback(lag.close)
        archiving = ArchiveStep(open_archive(chosen, folder), lambda: ranks.position_token)
        opened.callback(archiving.close)
        node = Node(
            ledger=ledger,
            registry=registry,
            ranks=ranks,
            lease=stores.lease(NODES),
            retirement=Retirement(ranks.applier, ranks.store, archiving),
            checkpoints=checkpoints,
            clock=time_of,
            settings=chosen,
            started=started,
            stale_after_ms=stale_after_ms,
            lag=lag,
            recorder=recorder,
            open_past=lambda: closing(stores.open_ledger()),
            close_parts=opened.pop_all().close,
        )
        if refused is not None:
            refused.holds_lease = lambda: node.holds_lease
        return Boards(node)
