"""Opens a thin API process, in the order of a score's path."""

from __future__ import annotations

from contextlib import ExitStack

from rankd.boards import Boards
from rankd.clock import Clock, SystemClock
from rankd.intake.definitions import Definitions
from rankd.node.archives import open_shared_archive
from rankd.node.lag import LAG_MAX_MS
from rankd.node.projector_lag import open_projector_lag
from rankd.node.shared_stores import SharedStores
from rankd.node.thin import Thin
from rankd.redis.fallback.reads import FallbackRankSource
from rankd.redis.read.batching import CoalescedCalls, leave_batcher
from rankd.redis.read.rank_source import Layout
from rankd.redis.spending import LimitSpending, share_spending
from rankd.settings import Settings, read_settings


def open_thin(
    stores: SharedStores,
    ranks_url: str,
    *,
    clock: Clock | None = None,
    stale_after_ms: int = 1_000,
    lag_max_ms: int = LAG_MAX_MS,
    **settings: object,
) -> Boards:
    """Open the boards of a scaled-out installation in an API process."""
    chosen: Settings = read_settings(settings)
    time = clock or SystemClock()
    with ExitStack() as opened:
        ledger = stores.open_ledger()
        opened.callback(ledger.close)
        registry = stores.open_registry(chosen)
        opened.callback(registry.close)
        definitions = Definitions(ledger)
        standings = stores.open_standings()
        opened.callback(standings.close)
        client, heartbeat, lag = open_projector_lag(
            opened, ledger, ranks_url, stale_after_ms=stale_after_ms, lag_max_ms=lag_max_ms
        )

        archive = open_shared_archive(chosen)
        if archive is not None:
            archive.before_find = leave_batcher
        layout = Layout(lambda: definitions.boards)
        running = Thin(
            ledger,
            definitions,
            registry,
            FallbackRankSource(CoalescedCalls(client), layout, heartbeat, standings),
            clock=time,
            settings=chosen,
            lag=lag,
            archive=archive,
            close_parts=opened.pop_all().close,
            held_profiles=registry.held_profiles,
            meet=registry.meet,
            share_rates=lambda spent: share_spending(client, [LimitSpending(*item) for item in spent]),
        )
        return Boards(running)
