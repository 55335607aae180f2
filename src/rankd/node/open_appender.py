"""Opens a process that only appends to a PostgreSQL ledger: it knows the definitions, and others rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rankd.clock import SystemClock
from rankd.intake.definitions import Definitions
from rankd.intake.newcomers import Newcomers
from rankd.intake.sources import SourceIntake
from rankd.intake.writer import Writer
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.ledger_upkeep import LedgerUpkeep
from rankd.registry.postgres.registry import PostgresRegistry
from rankd.settings import read_settings


@contextmanager
def open_appender(ledger_url: str, registry_url: str = "", **settings: object) -> Iterator[SourceIntake]:
    """Open the intake of a shared ledger, for what comes from topics."""
    chosen, clock = read_settings(settings), SystemClock()
    with ExitStack() as opened:
        ledger = PostgresLedger(ledger_url)
        opened.callback(ledger.close)
        registry = PostgresRegistry(
            registry_url or ledger_url, chosen.profiles_cached_max, friends_bytes_max=chosen.friends_bytes_max
        )
        opened.callback(registry.close)
        definitions = Definitions(ledger)
        newcomers = Newcomers()
        writer = Writer(ledger, definitions, registry, clock, chosen, newcomers=newcomers)
        opened.callback(writer.close)
        upkeep = LedgerUpkeep(
            ledger,
            newcomers,
            clock,
            chosen.idempotency_ttl_ms,
            meet=registry.meet,
            make_months=ledger.make_months,
            also=definitions.catch_up,
        )
        opened.callback(upkeep.close)
        yield SourceIntake(writer)
