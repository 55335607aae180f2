"""Restores a folder from its archive, on a machine that has nothing of it.

    segments, each checked against the one before ▸ FOLDER/restoring ▸ checked ▸ moved into place, the ledger last

A folder in which a restore was interrupted is not opened; the next restore begins again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import msgspec

from rankd.archive.objects import ObjectStore
from rankd.backup.applying import SegmentWriter, check_end
from rankd.backup.chain import SegmentChain
from rankd.backup.segment import Segment
from rankd.backup.snapshots import fetch_snapshot
from rankd.errors import ArchiveDamaged, InvalidValue, LedgerUnavailable, NotFound
from rankd.folder import LEDGER_FILE, RESTORING, SNAPSHOTS, FolderLock, make_private_folder, sync_folder
from rankd.ledger.sqlite.database import Database
from rankd.registry.sqlite.credentials_file import FILE_NAME as CREDENTIALS_FILE

Progress = Callable[[int, int], None]


class Restored(msgspec.Struct, frozen=True):
    """What a restore has brought back."""

    folder: str
    position: str
    at: int  # the ledger's time at the last event, in ms
    read_at: int  # when the server last sent what it had, in ms
    segments: int
    events: int
    players: int
    checkpoint: int | None  # of the event that opening begins at
    missing_ms_max: int  # of what the server acknowledged after `read_at`, where it kept up with its archive
    is_whole: bool  # whether it is everything that the archive has


def restore(
    objects: ObjectStore, folder: Path, upto: int | None = None, progress: Progress = lambda _done, _total: None
) -> Restored:
    """Restore a folder up to an event, or everything; the folder must be empty, or one that was interrupted."""
    chain = SegmentChain(objects)
    numbers = chain.numbers()
    if not numbers:
        raise NotFound(f"there are no segments in {objects.url}; is it the archive.url of the server?")
    lock = FolderLock(folder, has_ledger=False)
    try:
        _empty(folder)
        return _restore(chain, numbers, folder, upto, progress)
    finally:
        lock.release()


def _restore(chain: SegmentChain, numbers: list[int], folder: Path, upto: int | None, progress: Progress) -> Restored:
    target = folder / RESTORING
    make_private_folder(target)
    sync_folder(folder)
    last = _write(chain, target, numbers[-1], upto, progress)
    checkpoint = fetch_snapshot(chain.objects, target / SNAPSHOTS, last.header.upto.sequence)
    _move(target, folder)
    header = last.header
    return Restored(
        folder=str(folder),
        position=f"0-{header.upto.sequence}",
        at=header.at,
        read_at=header.read_at,
        segments=header.number,
        events=header.upto.sequence,
        players=header.upto.players,
        checkpoint=checkpoint,
        missing_ms_max=header.every_ms,
        is_whole=header.number == numbers[-1],
    )


def _write(chain: SegmentChain, target: Path, last: int, upto: int | None, progress: Progress) -> Segment:
    """Write the segments up to an event, or all; return the last one at which the ledger was complete."""
    point: Segment | None = None
    with closing(Database(target)) as database:
        writer = SegmentWriter(target, database)
        try:
            for segment in chain.walk(None, last):
                if upto is not None and segment.header.upto.sequence > upto:
                    point = point or _first_complete(chain, segment, last, upto)
                    break
                writer.write(segment)
                if segment.header.is_complete:
                    point = msgspec.structs.replace(segment, tables={})
                progress(segment.header.number, last)
        except ArchiveDamaged as problem:
            remedy = "nothing can be restored without it"
            if point is not None:
                if point.header.upto.sequence == upto:
                    return _checked(database, writer, point)
                remedy = f"what comes before it can be restored: --upto {point.header.upto.sequence}"
            raise ArchiveDamaged(f"{problem}; {remedy}") from None
        finally:
            writer.abandon()
        if point is None:
            raise ArchiveDamaged("the first copy of the ledger was never finished: nothing can be restored")
        return _checked(database, writer, point)


def _checked(database: Database, writer: SegmentWriter, point: Segment) -> Segment:
    writer.abandon()
    check_end(database, point)
    database.check()
    return point


def _first_complete(chain: SegmentChain, segment: Segment, last: int, upto: int) -> NoReturn:
    """Refuse an event before the first complete segment."""
    following = (later for later in chain.walk(segment, last))
    first = next((later for later in (segment, *following) if later.header.is_complete), None)
    earliest = "there is none" if first is None else f"the first is of event {first.header.upto.sequence}"
    raise InvalidValue("--upto", f"must not be before the first complete copy, and {earliest}; got {upto}")


def _empty(folder: Path) -> None:
    """Remove what an interrupted restore left; refuse a folder that holds anything else."""
    try:
        there = {path.name for path in folder.iterdir()}
    except OSError as problem:
        raise LedgerUnavailable(f"{folder} cannot be used: {problem.strerror}; name a folder of your own") from problem
    if RESTORING in there:
        for name in (LEDGER_FILE, f"{LEDGER_FILE}-wal", f"{LEDGER_FILE}-shm", CREDENTIALS_FILE, SNAPSHOTS):
            _remove(folder / name)
        shutil.rmtree(folder / RESTORING)
    elif there - {"lock", "lost+found"}:
        raise InvalidValue(
            "FOLDER", f"{folder} is not empty; name a new folder: nothing is restored over what is there"
        )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _move(target: Path, folder: Path) -> None:
    """Move what was restored into place; until the last step, the folder is one that was interrupted."""
    for name in (SNAPSHOTS, CREDENTIALS_FILE, LEDGER_FILE):
        if (target / name).exists():
            (target / name).replace(folder / name)
    sync_folder(folder)
    shutil.rmtree(target)
    sync_folder(folder)
