"""Sends a ledger to its archive, from where the archive ends.

    the archive's last segment ▸ is it ours? ▸ what the ledger has behind it ▸ the next number, created once

Positions come from the archive alone, never from a note on this machine: what it lacks is sent, also after the sender
was down for days, and nothing is skipped. Who may write is decided by the chain itself: a folder may continue it when
its ledger has everything that is there, with the same seals. Another folder's segment that appears while this process
runs means that somebody has taken over, and this one stops for good.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from rankd.archive.objects import ObjectStore
from rankd.backup.chain import SegmentChain
from rankd.backup.reading import LedgerPart, SegmentReader
from rankd.backup.segment import (
    LedgerCursor,
    Segment,
    SegmentHeader,
    decode_segment,
    digest_of,
    encode_payload,
    encode_segment,
)
from rankd.backup.snapshots import send_snapshot
from rankd.clock import Clock
from rankd.errors import ArchiveDamaged, ArchiveForked, LedgerUnavailable, Refused
from rankd.folder import SNAPSHOTS, private_opener
from rankd.ledger.sqlite.database import ReadOnlyDatabase

WRITER_FILE = "archive-writer"  # in the folder: who writes its segments
_WRITER_BYTES = 8
_log = logging.getLogger("rankd")


class Backup(msgspec.Struct, frozen=True):
    """What an archive has of a ledger."""

    position: str  # of the last event there
    at: int  # the ledger's time at that event, in ms
    segments: int  # in all
    sent: int  # by this call
    url: str


def no_archive_of_ours() -> Refused:
    """Return the refusal of a process that has no ledger to send."""
    return Refused(
        "only the process that writes a data folder sends it to an archive: ask that one; a ledger in PostgreSQL is "
        "copied by pg_dump or by point-in-time recovery"
    )


class SegmentSender:
    """Sends one ledger to one archive; used by one thread at a time."""

    def __init__(
        self, objects: ObjectStore, folder: Path, database: ReadOnlyDatabase, clock: Clock, every_ms: int = 0
    ) -> None:
        """`database` is the folder's; nothing is asked of the archive yet."""
        self._chain = SegmentChain(objects)
        self._reader = SegmentReader(folder, database)
        self._folder = folder
        self._clock = clock
        self._every_ms = every_ms
        self._ledger = ""
        self._writer = ""
        self._generation = 1
        self._last: Segment | None = None  # the archive's last segment
        self._is_claimed = False

    def close(self) -> None:
        """Close what was opened."""
        self._reader.close()

    @property
    def sequence(self) -> int | None:
        """The last event that the archive has; None until it was asked."""
        return self._after.sequence if self._is_claimed else None

    def behind(self) -> int:
        """Return how many events and changes of the registry the archive lacks."""
        return self._reader.behind(self._after)

    def send(self, is_stopped: Callable[[], bool] = lambda: False) -> Backup:
        """Send everything that is committed by now."""
        if not self._is_claimed:
            self._claim()
        elif self._last is not None and not self._chain.has(self._last):
            self._claim_again()
        elif self._chain.is_continued(self._last):
            self._follow_own()
        sent = 0
        while not is_stopped():
            part = self._reader.read(self._after)
            if part.is_complete and not part.is_new:
                break
            self._append(part)
            sent += 1
            if part.is_complete:
                break
        last = self._last
        at = 0 if last is None else last.header.at
        number = 0 if last is None else last.header.number
        return Backup(f"0-{self._after.sequence}", at, number, sent, self._chain.objects.url)

    @property
    def _after(self) -> LedgerCursor:
        return LedgerCursor() if self._last is None else self._last.header.upto

    def _claim(self) -> None:
        """Find where the archive ends, and prove that this folder may continue there."""
        self._ledger = self._reader.identity()
        self._writer = writer_of(self._folder)
        self._chain.claim(self._ledger)
        self._find_end()
        last = self._last
        if last is not None and last.header.writer != self._writer:
            self._generation += 1
            _log.warning(
                "the archive %s was written by another folder up to event %d: this one has the same events, and takes "
                "over; where the other server still runs, it stops sending",
                self._chain.objects.url,
                last.header.upto.sequence,
            )
            part = self._reader.read(last.header.upto)
            self._append(part)  # even if it holds nothing new: the other one finds its number taken
        self._is_claimed = True

    def _claim_again(self) -> None:
        """Go on after the last segment has disappeared: only where all of them have, from the beginning."""
        if self._chain.numbers():
            number = 0 if self._last is None else self._last.header.number
            raise ArchiveDamaged(
                f"segment {number} of the archive {self._chain.objects.url} is not what was sent there: nothing is "
                "sent behind it; put it back, or name an empty archive",
                public_message="the archive lacks what was sent there: nothing more is sent",
            )
        _log.warning("the archive %s is empty: everything is sent again", self._chain.objects.url)
        self._chain.claim(self._ledger)
        self._last = None
        self._reader.restart(LedgerCursor())

    def _find_end(self) -> None:
        number = self._chain.last()
        last = self._chain.read(number) if number else None
        if last is not None:
            self._check_ours(last)
            self._generation = last.header.generation
            last = msgspec.structs.replace(last, tables={})
        self._last = last
        self._reader.restart(self._after)

    def _check_ours(self, last: Segment) -> None:
        header = last.header
        if header.ledger != self._ledger:
            raise _forked(f"the archive {self._chain.objects.url} holds segments of another ledger")
        if not self._reader.contains(header.upto):
            raise _forked(
                f"the archive {self._chain.objects.url} holds event {header.upto.sequence}, which this folder lacks or "
                "has otherwise: this is an older copy of it, or another server went on meanwhile. Nothing is sent. "
                "Restore the archive with `rankd restore`, or name another archive.url to go on without its events"
            )

    def _append(self, part: LedgerPart) -> None:
        """Store what was read as the next segment."""
        payload, payload_bytes = encode_payload(part.tables)
        last = self._last
        number = 1 if last is None else last.header.number + 1
        header = SegmentHeader(
            number=number,
            ledger=self._ledger,
            previous="" if last is None else last.digest,
            writer=self._writer,
            generation=self._generation,
            after=self._after,
            upto=part.upto,
            is_complete=part.is_complete,
            at=part.at,
            read_at=self._clock.now(),
            every_ms=self._every_ms,
            rows={name: len(stored[0]) for name, stored in part.tables.items() if stored and stored[0]},
            payload_bytes=payload_bytes,
            payload_digest=digest_of(payload),
        )
        data = encode_segment(header, payload)
        if self._chain.append(number, data):
            self._last = msgspec.structs.replace(decode_segment(data, f"segment {number}"), tables={})
            self._reader.sent(part)
        else:
            self._follow_own()

    def _follow_own(self) -> None:
        """Go on behind segments of this folder that were stored without an answer, or by `rankd backup`."""
        self._find_end()
        last = self._last
        if last is None or last.header.writer != self._writer:
            raise _forked(
                f"another server has taken over the archive {self._chain.objects.url}: nothing more is sent from here. "
                "Stop one of the two; events that only this one has are not in the archive"
            )


def send_beside(objects: ObjectStore, folder: Path, clock: Clock, every_ms: int = 0) -> Backup:
    """Send everything of a folder that is open, here or in another process, which may send there meanwhile."""
    with closing(ReadOnlyDatabase(folder)) as database:
        database.open()
        with closing(SegmentSender(objects, folder, database, clock, every_ms)) as sender:
            sent = sender.send()
            send_snapshot(objects, folder / SNAPSHOTS)
            return sent


def _forked(message: str) -> ArchiveForked:
    return ArchiveForked(
        message, public_message="the archive holds what another server has sent: nothing is sent there"
    )


def writer_of(folder: Path) -> str:
    """Return who writes the segments of a folder; a copy of the folder is another writer."""
    path = folder / WRITER_FILE
    try:
        with open(path, "a+b", opener=private_opener) as file:
            file.seek(0)
            writer, _, inode = file.read(256).decode("ascii", "replace").strip().partition(" ")
            own = str(os.fstat(file.fileno()).st_ino)
            if writer and inode == own:
                return writer
            file.truncate(0)
            writer = secrets.token_hex(_WRITER_BYTES)
            file.write(f"{writer} {own}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise LedgerUnavailable(
            f"{path} cannot be used: {problem.strerror}; make room, or let rankd own it"
        ) from problem
    return writer
