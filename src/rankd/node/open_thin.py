"""Opens a thin API process, in the order of a score's path."""

from __future__ import annotations

from contextlib import ExitStack

from rankd.boards import Boards
from rankd.clock import Clock, SystemClock
from rankd.intake.definitions import Definitions
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.lag import LAG_MAX_MS
from rankd.node.projector_lag import open_projector_lag
from rankd.node.thin import Thin
from rankd.redis.fallback.reads import FallbackRankSource
from rankd.redis.read.batching import CoalescedCalls
from rankd.redis.read.rank_source import Layout
from rankd.redis.spending import LimitSpending, share_spending
from rankd.registry.postgres.registry import PostgresRegistry
from rankd.registry.postgres.standings import StoredStandings
from rankd.settings import Settings, read_settings


def open_thin(
    ledger_url: str,
    ranks_url: str,
    registry_url: str = "",
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
        ledger = PostgresLedger(ledger_url)
        opened.callback(ledger.close)
        registry = PostgresRegistry(
            registry_url or ledger_url, chosen.profiles_cached_max, friends_bytes_max=chosen.friends_bytes_max
        )
        opened.callback(registry.close)
        definitions = Definitions(ledger)
        standings = StoredStandings(ledger_url)
        opened.callback(standings.close)
        client, heartbeat, lag = open_projector_lag(
            opened, ledger, ranks_url, stale_after_ms=stale_after_ms, lag_max_ms=lag_max_ms
        )

        layout = Layout(lambda: definitions.boards)
        running = Thin(
            ledger,
            definitions,
            registry,
            FallbackRankSource(CoalescedCalls(client), layout, heartbeat, standings),
            clock=time,
            settings=chosen,
            lag=lag,
            close_parts=opened.pop_all().close,
            held_profiles=registry.held_profiles,
            meet=registry.meet,
            make_months=ledger.make_months,
            share_rates=lambda spent: share_spending(client, [LimitSpending(*item) for item in spent]),
        )
        return Boards(running)
