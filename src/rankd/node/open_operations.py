"""Opens the parts for verify, rebuild and move."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rankd.clock import SystemClock
from rankd.node.shared_stores import SharedStores
from rankd.operations.move import FolderMove, MoveReport
from rankd.operations.move_events import LedgerMove
from rankd.operations.rebuild import Rebuild, Rebuilt
from rankd.operations.verify import Progress, Verification, Verified
from rankd.redis.connection.client import connect
from rankd.redis.read.reader import RedisReader
from rankd.redis.write.mirror import Mirror


def verify_shared(stores: SharedStores, ranks_url: str, progress: Progress | None = None) -> Verified:
    """Compare Redis with a replay of the ledger, while traffic runs."""
    with closing(stores.open_ledger()) as ledger, closing(connect(ranks_url)) as client:
        verifying = Verification(ledger, progress)
        return verifying.run(RedisReader(client, verifying.shards_of))


def rebuild_shared(
    stores: SharedStores, ranks_url: str, progress: Progress | None = None, board: str | None = None
) -> Rebuilt:
    """Rebuild Redis from the ledger, beside the live generation, and switch."""
    with closing(stores.open_ledger()) as ledger, closing(connect(ranks_url)) as client:
        rebuilding = Rebuild(ledger, lambda follower: Mirror(client, whole=follower.whole), progress)
        return rebuilding.run(SystemClock().now(), board)


def move_ledger(source_url: str, stores: SharedStores, progress: Progress | None = None) -> MoveReport:
    """Move the events of a PostgreSQL ledger into a migrated, empty one; profiles and keys stay where they are."""
    with closing(SharedStores(source_url).open_ledger()) as source, closing(stores.open_ledger()) as ledger:
        return MoveReport(LedgerMove(source, ledger, SystemClock(), progress).run(), 0, 0)


def move_from(folder: Path, stores: SharedStores, progress: Progress | None = None) -> MoveReport:
    """Move an embedded installation into a migrated, empty ledger."""
    with closing(stores.open_ledger()) as ledger:
        return FolderMove(folder, ledger, progress).run(stores.registry_url or stores.ledger_url)
