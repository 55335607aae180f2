"""The segments of one ledger in an archive, one behind the other.

ledger/identity                 whose archive it is: the first ledger that writes to it
ledger/segments/000000000001    and on, each created once: of two writers of a number, one succeeds
ledger/snapshots/<events>/      checkpoints of the engine, for a faster restore
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from rankd.archive.objects import ObjectStore
from rankd.backup.segment import PREFIX_BYTES, Segment, decode_segment
from rankd.errors import ArchiveDamaged, ArchiveForked, ArchiveUnavailable

IDENTITY = "ledger/identity"
SEGMENTS = "ledger/segments"
READ_AHEAD = 4  # segments in flight while a chain is read
_NAME = re.compile(rf"{SEGMENTS}/(\d{{12}})")


def path_of(number: int) -> str:
    """Return the path of a segment.

    >>> path_of(7)
    'ledger/segments/000000000007'
    """
    return f"{SEGMENTS}/{number:012}"


class SegmentChain:
    """The segments of an archive; used by one thread."""

    def __init__(self, objects: ObjectStore) -> None:
        """Nothing is read yet."""
        self.objects = objects

    def owner(self) -> str | None:
        """Return the identity of the ledger that the archive belongs to; None of an empty one."""
        stored = self.objects.get(IDENTITY)
        return None if stored is None else stored.decode("ascii", "replace").strip()

    def claim(self, ledger: str) -> None:
        """Make the archive this ledger's; ArchiveForked where it is another one's."""
        owner = self.owner()
        if owner is None:
            self.objects.put_new(IDENTITY, ledger.encode())
            owner = self.owner()
        if owner is None:
            raise ArchiveUnavailable(
                f"the archive {self.objects.url} says that {IDENTITY} exists, and does not have it; it is tried again",
                public_message="the archive contradicts itself; it is tried again",
            )
        if owner != ledger:
            raise ArchiveForked(
                f"the archive {self.objects.url} belongs to another ledger ({owner}, this one is {ledger}): nothing is "
                "sent there; name another archive.url for this folder",
                public_message="the archive is that of another ledger: nothing is sent there",
            )

    def last(self) -> int:
        """Return the highest number of a segment; 0 where there is none."""
        return max(self.numbers(), default=0)

    def numbers(self) -> list[int]:
        """Return the numbers of all segments that are there, in order."""
        names = (_NAME.fullmatch(stored.path) for stored in self.objects.list(SEGMENTS))
        return sorted(int(name[1]) for name in names if name is not None)

    def read(self, number: int) -> Segment:
        """Return a segment; ArchiveDamaged where it is missing or not what was written."""
        return self._checked(number, self.objects.get(path_of(number)))

    def has(self, segment: Segment) -> bool:
        """Return whether a segment is still there, by its first bytes, and the first of all."""
        if self.objects.get_range(path_of(1), 0, PREFIX_BYTES) is None:
            return False
        return self.objects.get_range(path_of(segment.header.number), 0, PREFIX_BYTES) == segment.prefix

    def is_continued(self, segment: Segment | None) -> bool:
        """Return whether there is a segment behind one."""
        number = 1 if segment is None else segment.header.number + 1
        return self.objects.get_range(path_of(number), 0, PREFIX_BYTES) is not None

    def append(self, number: int, data: bytes) -> bool:
        """Store the next segment; False where there is another one under its number."""
        path = path_of(number)
        return self.objects.put_new(path, data) or self.objects.get(path) == data

    def walk(self, after: Segment | None, upto: int) -> Iterator[Segment]:
        """Yield the segments behind one, each checked against the one before."""
        first = 1 if after is None else after.header.number + 1
        with ThreadPoolExecutor(READ_AHEAD, thread_name_prefix="rankd-segments") as pool:
            reads: dict[int, Future[bytes | None]] = {}
            try:
                for number in range(first, upto + 1):
                    for ahead in range(number, min(number + READ_AHEAD, upto + 1)):
                        if ahead not in reads:
                            reads[ahead] = pool.submit(self.objects.get, path_of(ahead))
                    segment = self._checked(number, reads.pop(number).result())
                    check_follows(segment, after)
                    after = segment
                    yield segment
            finally:
                for read in reads.values():
                    read.cancel()

    def _checked(self, number: int, data: bytes | None) -> Segment:
        path = path_of(number)
        if data is None:
            raise ArchiveDamaged(f"{path} is missing")
        segment = decode_segment(data, path)
        if segment.header.number != number:
            raise ArchiveDamaged(f"{path} holds segment {segment.header.number}: it was moved or swapped")
        return segment


def check_follows(segment: Segment, before: Segment | None) -> None:
    """Raise ArchiveDamaged where a segment does not follow the one before it."""
    header = segment.header
    path = path_of(header.number)
    if before is None:
        if header.number != 1 or header.after.sequence or header.previous:
            raise ArchiveDamaged(f"{path} is not the first of a ledger")
        return
    if header.ledger != before.header.ledger:
        raise ArchiveDamaged(f"{path} is of another ledger")
    if header.previous != before.digest or header.after != before.header.upto:
        raise ArchiveDamaged(f"{path} does not continue the segment before it: one of them was replaced")
