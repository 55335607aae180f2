"""Which parts are used: opened in the order of a score's path, closed in reverse."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankd.boards import Boards
from rankd.clock import Clock, SystemClock
from rankd.errors import LedgerUnavailable
from rankd.folder import FolderLock
from rankd.ledger.database import Database
from rankd.ledger.sqlite import SqliteLedger
from rankd.node.catching_up import Progress, caught_up
from rankd.node.embedded import Embedded
from rankd.progress import progress_bar
from rankd.projection.checkpoints import Checkpoints
from rankd.seasons.archiving import Archiving
from rankd.settings import Settings, read_settings

AHEAD_MS = 60_000  # how far a clock may have been set back before somebody should look at it
_log = logging.getLogger("rankd")


def open_boards(
    folder: str | os.PathLike[str],
    *,
    clock: Clock | None = None,
    progress: Progress | None = None,
    **settings: object,
) -> Boards:
    """Open the boards of a data folder, making it when it is missing, and catch up with its ledger.

    `progress` is called with (events replayed, events to replay); without it, a long replay shows a bar on a terminal.
    Every other keyword is one of `rankd.settings.Settings`.
    """
    chosen = read_settings(settings)
    path = Path(folder)
    lock = FolderLock(path)
    try:
        with _in_our_words(path):
            return Boards(_start(path, lock, clock or SystemClock(), progress or progress_bar(), chosen))
    except BaseException:
        lock.release()
        raise


def embedded_of(boards: Boards) -> Embedded:
    """Return what is behind boards that `open_boards` opened: for tools that look inside."""
    running = boards._running
    if not isinstance(running, Embedded):
        raise AssertionError("these boards are not of this process alone")
    return running


@contextmanager
def _in_our_words(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise LedgerUnavailable(f"the data folder {path} cannot be used: {problem}") from problem


def _start(path: Path, lock: FolderLock, clock: Clock, progress: Progress, settings: Settings) -> Embedded:
    database = Database(path, settings.vfs)
    try:
        ledger = SqliteLedger(path, database)
        try:
            heads = ledger.heads()
            if heads.at > clock.now() + AHEAD_MS:
                _log.warning(
                    "the ledger's time is %d s ahead of the clock: scores get that time until the clock has caught up; "
                    "see that the clock is right",
                    (heads.at - clock.now()) // 1_000,
                )
            checkpoints = Checkpoints(path / "snapshots", settings.snapshots_kept)
            ranks, started = caught_up(ledger, checkpoints, clock, settings, progress)
            return Embedded(
                lock=lock,
                database=database,
                ledger=ledger,
                ranks=ranks,
                checkpoints=checkpoints,
                archiving=Archiving(path / "archive", check=database.check_place),
                clock=clock,
                settings=settings,
                started=started,
            )
        except BaseException:
            ledger.close()
            raise
    except BaseException:
        database.close()
        raise
