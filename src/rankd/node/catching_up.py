"""Catches up at start: loads the newest checkpoint and follows the rest of the ledger.

The head of the ledger moves on meanwhile. Each round follows it to where it was when the round began; a round that
takes no longer than the lag a node may have is the last one. Where rounds do not get shorter, since others append as
fast as this process follows, a node has writes slowed down (`WriteHold`). A replica, and a node for which that did not
suffice, starts behind: it is not ready, and goes on following.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rankd.backend import Started
from rankd.background import rare_collections
from rankd.clock import Clock
from rankd.domain.board_selection import EVERY_BOARD, BoardSelection
from rankd.errors import RanksUnavailable
from rankd.ledger.port import Ledger, Part
from rankd.ledger.read_ahead import read_ahead
from rankd.ledger.vector import reaches
from rankd.node.lag import LAG_MAX_MS
from rankd.node.ranks import EngineRanks
from rankd.node.refused_events import RefusedEvents
from rankd.operations.hold import WriteHold, catch_up
from rankd.projection.catalogue import Catalogue
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.counting import CountingStore
from rankd.projection.follower import Follower
from rankd.projection.state import State
from rankd.seasons.history import PlaceRecorder
from rankd.settings import Settings

READ_EVENTS = 50_000  # at a time
Progress = Callable[[int, int], None]
_log = logging.getLogger("rankd")


def caught_up(
    ledger: Ledger,
    checkpoints: Checkpoints,
    clock: Clock,
    settings: Settings,
    progress: Progress,
    *,
    lag_max_ms: int = LAG_MAX_MS,
    kept: BoardSelection = EVERY_BOARD,
    hold: WriteHold | None = None,
    refused: RefusedEvents | None = None,
    recorder: PlaceRecorder | None = None,
) -> tuple[EngineRanks, Started]:
    """Return the ranks at the ledger's head, or closer to it than `lag_max_ms`; else they have not caught up.

    `progress` is called with (events followed, events to follow); boards that are not kept have no ranks. `hold` slows
    writes down where that is needed. `refused` gets what a log has to refuse behind the checkpoint; without one, what
    it has behind its present head: what was refused before has been sent. `recorder` records where players stand.
    """
    began_s, heads = time.perf_counter(), ledger.heads()
    follow = partial(Follower[CountingStore], kept=kept)
    loaded = checkpoints.newest(ledger, heads, CountingStore.load, follow)
    follower = loaded or follow(ledger, CountingStore(), State(), Catalogue())
    follower.applier.let_go_of_others()
    if recorder is not None:
        follower.applier.record_places = partial(recorder.record, follower.store)
    first = sum(follower.positions)
    if refused is not None and loaded is not None:
        follower.watch_refused(refused.add)

    def show(followed: int, to_follow: int) -> None:
        progress(followed - first, to_follow - first)

    with rare_collections():
        if ledger.capabilities.appends_conditionally:
            for parts in read_ahead(_reads(ledger, follower.positions, heads.sequences)):
                follower.take(parts)
                show(sum(follower.positions), sum(heads.sequences))
        else:  # its client reads ahead, and a partition that waits for the others is not read on
            follower.follow_to_head(READ_EVENTS, show)
    ranks = EngineRanks(ledger, follower, clock, settings.at_least_wait_ms)
    _catch_up(ranks, (lag_max_ms or LAG_MAX_MS) / 1_000, hold)
    ranks.follow()
    if refused is not None:
        follower.watch_refused(refused.add)
    started = Started(
        position=ranks.events,
        snapshot=None if loaded is None else first,
        snapshots_skipped=checkpoints.skipped,
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


def _catch_up(ranks: EngineRanks, lag_max_s: float, hold: WriteHold | None) -> None:
    """Follow the ledger in rounds, until one is short or no round can be."""
    try:
        if hold is None:
            catch_up(ranks.catch_up, lag_max_s, _give_up)
        else:
            with hold:
                hold.catch_up(lambda: ranks.catch_up(hold.renew), lag_max_s, "a node that starts follows too slowly")
        ranks.has_caught_up = True
    except RanksUnavailable as problem:
        if not ranks.has_caught_up:
            _log.warning(
                "this process starts behind the ledger, and is not ready until it has reached the head: %s", problem
            )


def _give_up() -> None:
    raise RanksUnavailable("events come as fast as it ranks them")


def _reads(ledger: Ledger, after: Sequence[int], upto: Sequence[int]) -> Iterator[Sequence[Part]]:
    """Read the ledger up to some sequences, or a little further, READ_EVENTS at a time."""
    read = list(after)
    while not reaches(read, upto) and (parts := ledger.read(read, READ_EVENTS)):
        for part in parts:
            read[part.partition] = part.event_run.first + len(part.event_run) - 1
        yield parts
