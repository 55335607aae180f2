"""Which parts are used: opened in the order of a score's path, closed in reverse."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rankd.boards import Boards
from rankd.clock import Clock, SystemClock
from rankd.errors import LedgerUnavailable
from rankd.folder import FolderLock
from rankd.ledger.ahead import ahead
from rankd.ledger.database import Database
from rankd.ledger.sqlite import SqliteLedger
from rankd.parts import Started
from rankd.progress import progress_bar
from rankd.projection.applier import Applier
from rankd.projection.catalogue import Catalogue
from rankd.projection.counting import CountingStore
from rankd.projection.snapshots import Snapshots
from rankd.projection.state import State
from rankd.running import Running
from rankd.seasons.archive import Archive
from rankd.settings import Settings, read_settings

AHEAD_MS = 60_000  # how far a clock may have been set back before somebody should look at it
Progress = Callable[[int, int], None]
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


def running_of(boards: Boards) -> Running:
    """Return what is behind boards that `open_boards` opened: for tools that look inside."""
    running = boards._running
    if not isinstance(running, Running):
        raise AssertionError("these boards are not of this process alone")
    return running


@contextmanager
def _in_our_words(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise LedgerUnavailable(f"the data folder {path} cannot be used: {problem}") from problem


def _start(path: Path, lock: FolderLock, clock: Clock, progress: Progress, settings: Settings) -> Running:
    began = time.perf_counter()
    database = Database(path, settings.vfs)
    try:
        ledger = SqliteLedger(path, database)
        try:
            head = ledger.head()
            snapshots = Snapshots(path / "snapshots", settings.snapshots_kept)
            loaded = snapshots.newest(head, ledger.seal_at)
            if head.at > clock.now() + AHEAD_MS:
                _log.warning(
                    "the ledger's time is %d s ahead of the clock: scores get that time until the clock has caught up; "
                    "see that the clock is right",
                    (head.at - clock.now()) // 1_000,
                )
            store, saved = (CountingStore(), None) if loaded is None else loaded
            state = State() if saved is None else saved.state
            catalogue = Catalogue() if saved is None else Catalogue.of(saved.definitions)
            applier = Applier(store, state, catalogue, ledger.context)
            first = 0 if saved is None else saved.sequence
            for stretches in ahead(ledger.read(first, head.sequence)):
                for stretch in stretches:
                    applier.apply(stretch)
                progress(store.position().sequence - first, head.sequence - first)
            started = Started(
                position=head.sequence,
                snapshot=None if saved is None else saved.sequence,
                snapshots_passed_over=snapshots.passed_over,
                replayed=head.sequence - first,
                seconds=time.perf_counter() - began,
            )
            _log.info(
                "opened at event %d in %.1f s: %s, %d events replayed",
                head.sequence,
                started.seconds,
                "no snapshot" if saved is None else f"snapshot of event {saved.sequence}",
                started.replayed,
            )
            return Running(
                lock=lock,
                database=database,
                ledger=ledger,
                store=store,
                applier=applier,
                snapshots=snapshots,
                archive=Archive(path / "archive"),
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
