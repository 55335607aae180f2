"""Opens a projector."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from rankd.clock import Clock, SystemClock
from rankd.folder import make_private_folder
from rankd.ledger.postgres.lease import Lease
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.projector import ARCHIVE, CHECKPOINTS, Projector, ProjectorSettings
from rankd.node.projector_figures import ProjectorFigures
from rankd.redis.connection.client import connect
from rankd.registry.postgres.standings_writer import StandingsWriter


def make_projector(
    ledger_url: str,
    ranks_url: str,
    folder: Path,
    *,
    clock: Clock | None = None,
    settings: ProjectorSettings | None = None,
    figures: ProjectorFigures | None = None,
) -> Projector:
    """Return a projector that is ready to run; LedgerUnavailable while PostgreSQL is away."""
    holder = f"{socket.gethostname()}:{os.getpid()}"
    return Projector(
        PostgresLedger(ledger_url),
        lambda: connect(ranks_url),
        Lease(ledger_url, holder),
        clock=clock or SystemClock(),
        folder=folder,
        settings=settings or ProjectorSettings(),
        standings=lambda: StandingsWriter(ledger_url),
        figures=figures,
    )


def prepare_projector_folder(folder: Path) -> None:
    """Create the projector's folders, private to its user; the parent may be a volume of another user."""
    for part in (CHECKPOINTS, ARCHIVE):
        make_private_folder(folder / part)
