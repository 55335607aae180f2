"""Opens a projector."""

from __future__ import annotations

from pathlib import Path

from rankd.archive.windows import WindowArchive
from rankd.clock import Clock, SystemClock
from rankd.folder import make_private_folder
from rankd.ledger.postgres.lease import PROJECTORS
from rankd.node.archives import ARCHIVE, SCRATCH
from rankd.node.projector import CHECKPOINTS, Projector, ProjectorSettings
from rankd.node.projector_figures import ProjectorFigures
from rankd.node.shared_stores import SharedStores
from rankd.redis.connection.client import connect


def make_projector(
    stores: SharedStores,
    ranks_url: str,
    folder: Path,
    *,
    clock: Clock | None = None,
    settings: ProjectorSettings | None = None,
    figures: ProjectorFigures | None = None,
    archive: WindowArchive | None = None,
) -> Projector:
    """Return a projector that is ready to run; LedgerUnavailable while the ledger is away."""
    return Projector(
        stores.open_ledger(),
        lambda: connect(ranks_url),
        stores.lease(PROJECTORS),
        clock=clock or SystemClock(),
        folder=folder,
        settings=settings or ProjectorSettings(),
        standings=stores.open_standings_writer,
        refused=stores.open_refused_events(),
        figures=figures,
        archive=archive,
    )


def prepare_projector_folder(folder: Path) -> None:
    """Create the projector's folders, private to its user; the parent may be a volume of another user."""
    for part in (CHECKPOINTS, ARCHIVE, SCRATCH):
        make_private_folder(folder / part)
