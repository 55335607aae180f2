"""Opens the parts for migrate, verify, rebuild and move."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from rankd.clock import SystemClock
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.ledger.postgres.ledger import migrate as migrate_ledger
from rankd.ledger.postgres.migrations import migrate_component, scripts_of
from rankd.operations.move import FolderMove, MoveReport
from rankd.operations.rebuild import Rebuild, Rebuilt
from rankd.operations.verify import Progress, Verification, Verified
from rankd.redis.connection.client import connect
from rankd.redis.read.reader import RedisReader
from rankd.redis.write.mirror import Mirror
from rankd.registry.postgres.registry import migrate_registry
from rankd.registry.postgres.standings import migrate_standings

PROJECTOR = "projector"


def migrate(ledger_url: str, registry_url: str = "", partitions: int | None = None) -> int:
    """Create or update all tables in PostgreSQL; return the ledger's former version. Safe to run twice."""
    before = migrate_ledger(ledger_url, partitions)
    migrate_component(ledger_url, PROJECTOR, scripts_of("rankd.node"))
    migrate_standings(ledger_url)
    migrate_registry(registry_url or ledger_url)
    return before


def verify_shared(ledger_url: str, ranks_url: str, progress: Progress | None = None) -> Verified:
    """Compare Redis with a replay of the ledger, while traffic runs."""
    with ExitStack() as opened:
        ledger = PostgresLedger(ledger_url)
        opened.callback(ledger.close)
        client = connect(ranks_url)
        opened.callback(client.close)
        verifying = Verification(ledger, progress)
        return verifying.run(RedisReader(client, verifying.shards_of))


def rebuild_shared(
    ledger_url: str, ranks_url: str, progress: Progress | None = None, board: str | None = None
) -> Rebuilt:
    """Rebuild Redis from the ledger, beside the live generation, and switch."""
    with ExitStack() as opened:
        ledger = PostgresLedger(ledger_url)
        opened.callback(ledger.close)
        client = connect(ranks_url)
        opened.callback(client.close)
        rebuilding = Rebuild(ledger, lambda follower: Mirror(client, whole=follower.whole), progress)
        return rebuilding.run(SystemClock().now(), board)


def move_from(folder: Path, ledger_url: str, registry_url: str = "", progress: Progress | None = None) -> MoveReport:
    """Move an embedded installation into a migrated, empty database."""
    ledger = PostgresLedger(ledger_url)
    try:
        return FolderMove(folder, ledger, progress).run(registry_url or ledger_url)
    finally:
        ledger.close()
