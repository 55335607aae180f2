"""Opens a process that only appends to a shared ledger: it knows the definitions, and others rank.

Its appends wait, and are refused, while the ranks of those others lag: those in Redis, or of the node that is furthest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rankd.clock import SystemClock
from rankd.intake.definitions import Definitions
from rankd.intake.newcomers import Newcomers
from rankd.intake.sources import SourceIntake
from rankd.intake.writer import Writer
from rankd.ledger.port import SharedLedger
from rankd.node.lag import LAG_MAX_MS, LagMonitor, NodesBacklog
from rankd.node.ledger_upkeep import LedgerUpkeep
from rankd.node.shared_stores import SharedStores
from rankd.settings import read_settings


@contextmanager
def open_appender(
    stores: SharedStores,
    *,
    ranks_url: str | None = None,
    lag_max_ms: int = LAG_MAX_MS,
    **settings: object,
) -> Iterator[SourceIntake]:
    """Open the intake of a shared ledger, for what comes from topics.

    `ranks_url` is that of Redis; None where nodes rank.
    """
    chosen, clock = read_settings(settings), SystemClock()
    with ExitStack() as opened:
        ledger = stores.open_ledger()
        opened.callback(ledger.close)
        registry = stores.open_registry(chosen)
        opened.callback(registry.close)
        definitions = Definitions(ledger)
        newcomers = Newcomers()
        lag = _open_lag(opened, ledger, ranks_url, lag_max_ms)
        writer = Writer(
            ledger, definitions, registry, clock, chosen, newcomers=newcomers, backpressure=lag.backpressure
        )
        opened.callback(writer.close)
        upkeep = LedgerUpkeep(
            ledger,
            newcomers,
            clock,
            chosen.idempotency_ttl_ms,
            meet=registry.meet,
            also=definitions.catch_up,
        )
        opened.callback(upkeep.close)
        yield SourceIntake(writer)


def _open_lag(opened: ExitStack, ledger: SharedLedger, ranks_url: str | None, lag_max_ms: int) -> LagMonitor:
    if ranks_url is not None:
        from rankd.node.projector_lag import open_projector_lag  # noqa: PLC0415 - its driver is an extra

        _, _, lag = open_projector_lag(opened, ledger, ranks_url, stale_after_ms=lag_max_ms, lag_max_ms=lag_max_ms)
        return lag
    nodes = NodesBacklog(ledger.backlog)
    lag = LagMonitor(lambda: ledger.heads().sequences, nodes.ranked, lag_max_ms, is_held=nodes.is_held)
    opened.callback(lag.close)
    return lag
