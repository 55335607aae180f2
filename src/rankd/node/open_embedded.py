"""Opens the embedded backend, in the order of a score's path."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rankd.boards import Boards
from rankd.clock import Clock, SystemClock
from rankd.errors import LedgerUnavailable
from rankd.folder import RESTORING, SNAPSHOTS, FolderLock
from rankd.ledger.sqlite.database import Database
from rankd.ledger.sqlite.ledger import SqliteLedger
from rankd.node.archives import open_archive
from rankd.node.catching_up import Progress, caught_up
from rankd.node.embedded import Embedded
from rankd.progress import progress_bar
from rankd.projection.checkpoints import Checkpoints
from rankd.seasons.archiving import ArchiveStep
from rankd.seasons.history import PlaceRecorder
from rankd.settings import Settings, read_settings

HISTORY = "history"  # in the folder
AHEAD_MS = 60_000  # how far the clock may be behind the ledger without a warning
_log = logging.getLogger("rankd")


def open_boards(
    folder: str | os.PathLike[str],
    *,
    clock: Clock | None = None,
    progress: Progress | None = None,
    committed: Callable[[], None] = lambda: None,
    **settings: object,
) -> Boards:
    """Open the boards of a data folder, creating it if missing, and catch up with its ledger.

    `progress` is called with (events replayed, events to replay); without it, a long replay shows a bar on a terminal.
    `committed` is called after each durable change, in the thread that made it. Every
    other keyword is one of `rankd.settings.Settings`.
    """
    chosen = read_settings(settings)
    path = Path(folder)
    lock = FolderLock(path)
    try:
        if (path / RESTORING).exists():
            raise LedgerUnavailable(f"restoring {path} was interrupted: run `rankd restore` again, then open it")
        with _translate_errors(path):
            time_of, shown = clock or SystemClock(), progress or progress_bar()
            return Boards(_start(path, lock, time_of, chosen, progress=shown, committed=committed))
    except BaseException:
        lock.release()
        raise


def embedded_of(boards: Boards) -> Embedded:
    """Return the backend of boards that `open_boards` opened, for tools that need its parts."""
    running = boards._backend
    if not isinstance(running, Embedded):
        raise AssertionError("these boards are not embedded")
    return running


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise LedgerUnavailable(f"the data folder {path} cannot be used: {problem}") from problem


def _start(
    path: Path,
    lock: FolderLock,
    clock: Clock,
    settings: Settings,
    *,
    progress: Progress,
    committed: Callable[[], None],
) -> Embedded:
    database = Database(path, settings.vfs)
    try:
        ledger = SqliteLedger(path, database, committed)
        try:
            heads = ledger.heads()
            if heads.at > clock.now() + AHEAD_MS:
                _log.warning(
                    "the ledger's time is %d s ahead of the clock: scores get that time until the clock has caught up; "
                    "check the clock",
                    (heads.at - clock.now()) // 1_000,
                )
            checkpoints = Checkpoints(path / SNAPSHOTS, settings.snapshots_kept)
            recorder = PlaceRecorder(path / HISTORY, check_place=database.check_place)
            ranks, started = caught_up(ledger, checkpoints, clock, settings, progress, recorder=recorder)
            ledger.load_players()
            return Embedded(
                lock=lock,
                database=database,
                ledger=ledger,
                ranks=ranks,
                checkpoints=checkpoints,
                recorder=recorder,
                archiving=ArchiveStep(
                    open_archive(settings, path), lambda: ranks.position_token, check=database.check_place
                ),
                clock=clock,
                settings=settings,
                started=started,
                folder=path,
            )
        except BaseException:
            ledger.close()
            raise
    except BaseException:
        database.close()
        raise
