"""The end of the ledger, for a process that forwards events: what it reads, and the lease that lets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankd.ledger.port import Ledger

if TYPE_CHECKING:
    from rankd.ledger.postgres.lease import Lease


@dataclass(frozen=True, slots=True)
class LedgerTail:
    """A ledger to read from, beside the boards of this process."""

    ledger: Ledger
    lease: Lease | None  # None: one process has the folder
