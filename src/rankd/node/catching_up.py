"""Ranks are made ready: the newest checkpoint is loaded, and the rest of the ledger followed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

from rankd.backend import Started
from rankd.clock import Clock
from rankd.ledger.ahead import ahead
from rankd.ledger.port import Ledger, Part
from rankd.node.ranks import EngineRanks
from rankd.projection.catalogue import Catalogue
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.counting import CountingStore
from rankd.projection.follower import Follower
from rankd.projection.state import State
from rankd.settings import Settings

READ_EVENTS = 50_000  # at a time
Progress = Callable[[int, int], None]
_log = logging.getLogger("rankd")


def caught_up(
    ledger: Ledger, checkpoints: Checkpoints, clock: Clock, settings: Settings, progress: Progress
) -> tuple[EngineRanks, Started]:
    """Return the ranks as of the end of the ledger; `progress` is called with (events followed, events to follow)."""
    began_s, heads = time.perf_counter(), ledger.heads()
    loaded = checkpoints.newest(ledger, heads, CountingStore.load)
    if loaded is None:
        follower = Follower(ledger, CountingStore(), State(), Catalogue())
    else:
        store, state, catalogue, ordinal, controls = loaded
        follower = Follower(ledger, store, state, catalogue, ordinal=ordinal, controls=controls)
    first = sum(follower.positions)
    for parts in ahead(_reads(ledger, follower.positions)):
        follower.take(parts)
        progress(sum(follower.positions) - first, sum(heads.sequences) - first)
    ranks = EngineRanks(ledger, follower, clock, settings.at_least_wait_ms)
    ranks.catch_up()
    ranks.follow()
    started = Started(
        position=ranks.events,
        snapshot=None if loaded is None else first,
        snapshots_passed_over=checkpoints.passed_over,
        replayed=ranks.events - first,
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


def _reads(ledger: Ledger, after: Sequence[int]) -> Iterator[Sequence[Part]]:
    """Read the ledger to its end, some events at a time."""
    read = list(after)
    while parts := ledger.read(read, READ_EVENTS):
        for part in parts:
            read[part.partition] = part.stretch.first + len(part.stretch) - 1
        yield parts
