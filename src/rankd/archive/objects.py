"""The object store of the archive: immutable objects under paths, in a folder or in a bucket.

    archive step, reads, backup → ObjectStore → a folder, or S3, Google Cloud Storage, Azure

Promises (every adapter, checked by tests/contract/test_archive_objects.py):
- An object is complete or absent, also after a crash or a cut connection, and its bytes never change. What a put has
  answered is durable.
- Of several `put_new` of one path, in any processes, one stores its object, and no other returns True. Where an answer
  was lost on its way, the one that stored it may return False or raise: who must know reads what is there.
- A read after a put finds the object, and a listing names it.
- Every request has a time limit, and is repeated a bounded number of times. A failure is ArchiveUnavailable (try again
  later) or ArchiveRefused (somebody has to change something); no driver's error leaves an adapter.

Not promised: an order of listings; an atomic change of two objects.

May be imported by: archive, seasons, operations, node. It imports no adapter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from rankd.errors import InvalidValue

PATH_CHARACTERS_MAX = 512
OBJECT_BYTES_MAX = 5 * 1024**3  # S3's limit for one request
# Segments begin with none of . and -, so that no path leaves its folder, names a draft, or looks like an option.
_SEGMENT = r"[A-Za-z0-9_][A-Za-z0-9_.=@+-]*"
_PATH = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")


class StoredObject(NamedTuple):
    """An object in a listing."""

    path: str
    size: int  # bytes
    modified_at: int  # ms since 1970


class ObjectStore(Protocol):
    """Immutable objects under paths such as standings/arcade.v7/weekly_2026-W18/manifest-1.json; from any thread."""

    @property
    def url(self) -> str:
        """Where it is, as people may see it."""

    @property
    def is_local(self) -> bool:
        """Whether reads cost no network: nothing needs to be cached."""

    def put_new(self, path: str, data: bytes) -> bool:
        """Store an object unless there is one under this path; tell whether it was stored."""

    def put_file(self, path: str, file: Path) -> None:
        """Store a file under a path that names its content: the same bytes may be there already, or be stored twice."""

    def get(self, path: str) -> bytes | None:
        """Return a whole object; None when there is none."""

    def get_range(self, path: str, start: int, end: int) -> bytes | None:
        """Return bytes `start` … `end` (exclusive), fewer where the object ends; None when there is none."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below a folder such as standings/arcade.v7, or all of them for ""."""

    def delete(self, path: str) -> None:
        """Delete an object; it is no error when there is none."""


def check_path(path: str) -> str:
    """Return a path that every adapter can store."""
    if len(path) > PATH_CHARACTERS_MAX or not _PATH.fullmatch(path):
        raise InvalidValue(
            "path",
            f"must be at most {PATH_CHARACTERS_MAX} characters: segments of letters, digits and ._=@+-, which begin "
            f"with a letter, a digit or _, separated by /; got {path!r:.80}",
        )
    return path


def check_prefix(prefix: str) -> str:
    """Return a prefix that every adapter can list."""
    return check_path(prefix) if prefix else prefix


def check_range(start: int, end: int) -> None:
    """Refuse an empty range, and one that begins before the object."""
    if not 0 <= start < end:
        raise InvalidValue("end", f"must be above start, which is at least 0; got {start} and {end}")
