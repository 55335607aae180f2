"""A node is opened: its newest checkpoint is loaded, and the rest of the ledger followed."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rankd.boards import Boards
from rankd.clock import Clock, SystemClock
from rankd.folder import FolderLock
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.node import Node
from rankd.node.ranks import CATCH_UP_EVENTS, NodeRanks
from rankd.parts import Started
from rankd.progress import progress_bar
from rankd.projection.catalogue import Catalogue
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.counting import CountingStore
from rankd.projection.follower import Follower
from rankd.projection.state import State
from rankd.registry.postgres import PostgresRegistry
from rankd.scaled.lease import NODES, Lease
from rankd.scaled.rollover import RollOvers
from rankd.settings import Settings, read_settings

CHECKPOINTS, ARCHIVE = "checkpoints", "archive"  # in its folder
Progress = Callable[[int, int], None]
_log = logging.getLogger("rankd")


def open_node(
    ledger_url: str,
    folder: Path,
    registry_url: str = "",
    *,
    clock: Clock | None = None,
    progress: Progress | None = None,
    stale_after_ms: int = 1_000,
    **settings: object,
) -> Boards:
    """Open the boards of a PostgreSQL ledger in a process that ranks them itself.

    `folder` holds its checkpoints and is its own; `progress` is called with (events followed, events to follow).
    """
    chosen: Settings = read_settings(settings)
    time_of = clock or SystemClock()
    with ExitStack() as opened:
        lock = FolderLock(folder, has_ledger=False)
        opened.callback(lock.release)
        ledger = PostgresLedger(ledger_url)
        opened.callback(ledger.close)
        registry = PostgresRegistry(
            registry_url or ledger_url, chosen.profiles_cached_max, friends_bytes_max=chosen.friends_bytes_max
        )
        opened.callback(registry.close)
        checkpoints = Checkpoints(folder / CHECKPOINTS, chosen.snapshots_kept)
        ranks, started = _catch_up(ledger, checkpoints, time_of, chosen, progress or progress_bar())
        roll_overs = RollOvers(ledger, time_of, folder / ARCHIVE)
        opened.callback(roll_overs.close)
        node = Node(
            ledger=ledger,
            registry=registry,
            ranks=ranks,
            lease=Lease(ledger_url, f"{socket.gethostname()}:{os.getpid()}", NODES),
            roll_overs=roll_overs,
            checkpoints=checkpoints,
            clock=time_of,
            settings=chosen,
            started=started,
            stale_after_ms=stale_after_ms,
            let_go=opened.pop_all().close,
        )
        return Boards(node)


def _catch_up(
    ledger: PostgresLedger, checkpoints: Checkpoints, clock: Clock, settings: Settings, progress: Progress
) -> tuple[NodeRanks, Started]:
    began_s, heads = time.perf_counter(), ledger.heads()
    loaded = checkpoints.newest(ledger, heads, CountingStore.load)
    if loaded is None:
        follower = Follower(ledger, CountingStore(), State(), Catalogue())
    else:
        store, state, catalogue, ordinal, controls = loaded
        follower = Follower(ledger, store, state, catalogue, ordinal=ordinal, controls=controls)
    first = sum(follower.positions)
    ranks = NodeRanks(ledger, follower, clock, settings.at_least_wait_ms)
    while ranks.follow(CATCH_UP_EVENTS) >= CATCH_UP_EVENTS:
        progress(sum(follower.positions) - first, sum(heads.sequences) - first)
    ranks.catch_up()
    started = Started(
        position=sum(follower.positions),
        snapshot=None if loaded is None else first,
        snapshots_passed_over=checkpoints.passed_over,
        replayed=sum(follower.positions) - first,
        seconds=time.perf_counter() - began_s,
    )
    _log.info(
        "opened at event %d in %.1f s: %s, %d events followed",
        started.position,
        started.seconds,
        "no checkpoint" if loaded is None else f"checkpoint of event {first}",
        started.replayed,
    )
    return ranks, started
