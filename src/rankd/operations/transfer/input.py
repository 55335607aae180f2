"""The input file of an import: read twice, and identified by a fingerprint of its content.

A stream is copied to a temporary file first, since every line is checked before the first is sent.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from rankd.errors import InvalidValue
from rankd.operations.transfer.formats import STANDARD, Format, detect_format

BLOCK_BYTES = 1024 * 1024  # read at once; also the longest line
TOO_LONG = b"\x00longer than a block"  # replaces such a line; never in a good file
_FINGERPRINT_BYTES = 16
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Input:
    """An open file that must not change during the import."""

    def __init__(self, file: BinaryIO, name: str, path: Path | None, format: Format, is_packed: bool) -> None:  # noqa: A002 - as everywhere
        """`path` is None for a stream, which cannot be resumed."""
        self.name = name
        self.path = path
        self.format = format
        self.file = file
        self.is_packed = is_packed or file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        self._initial = self._state()

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return self._initial[0]

    @property
    def done_bytes(self) -> int:
        """The bytes read so far."""
        return self.file.tell()

    def check_unchanged(self) -> None:
        """Refuse a file that has changed since it was checked."""
        if self._state() != self._initial:
            raise InvalidValue("file", f"{self.name} was changed while it was read; import it when it is complete")

    def _state(self) -> tuple[int, int]:
        status = os.fstat(self.file.fileno())
        return status.st_size, status.st_mtime_ns

    def fingerprint(self) -> str:
        """Return a hash of the content, which identifies the import."""
        self.file.seek(0)
        hashed = hashlib.file_digest(self.file, lambda: hashlib.blake2b(digest_size=_FINGERPRINT_BYTES))  # type: ignore[arg-type]
        return hashed.hexdigest()

    def blocks(self) -> Iterator[bytes]:
        """Return the content from its beginning in blocks of whole lines, without a byte order mark."""
        self.file.seek(0)
        stream: _Readable = gzip.GzipFile(fileobj=self.file, mode="rb") if self.is_packed else self.file
        try:
            yield from _whole_lines(_without_mark(stream, self.name))
        except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
            raise InvalidValue("file", f"{self.name} is a broken gzip ({problem}); pack or copy it again") from None
        except OSError as problem:
            raise _unreadable(self.name, problem) from problem


@contextmanager
def open_input(path: str | os.PathLike[str], format: str | None = None) -> Iterator[Input]:  # noqa: A002 - as everywhere
    """Open a file, or standard input where the path is `-`."""
    name = os.fspath(path)
    named_format = detect_format(name, format)
    shown = "standard input" if name == STANDARD else name
    with _opened(name) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and name != STANDARD:
            yield Input(file, shown, Path(name), *named_format)
            return
        with tempfile.TemporaryFile() as copy:
            try:
                shutil.copyfileobj(file, copy, BLOCK_BYTES)
                copy.flush()
                copy.seek(0)
            except OSError as problem:
                raise _unreadable(shown, problem) from problem
            yield Input(copy, shown, None, *named_format)


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        file = io.FileIO(name)
    except (OSError, ValueError) as problem:  # a NUL in a path is a ValueError
        raise _unreadable(name, problem) from problem
    with io.BufferedReader(file) as reader:
        yield reader


def _unreadable(name: str, problem: Exception) -> InvalidValue:
    why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return InvalidValue("file", f"{name} cannot be read: {why}; name a file that can, or - for standard input")


def _without_mark(stream: _Readable, name: str) -> Iterator[bytes]:
    first = stream.read(BLOCK_BYTES)
    if first.startswith(_OTHER_BOMS):
        raise InvalidValue("file", f"{name} is UTF-16 or UTF-32; save it as UTF-8")
    yield first.removeprefix(_BOM)
    while chunk := stream.read(BLOCK_BYTES):
        yield chunk


def _whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    carried = b""  # the beginning of a line
    is_too_long = False
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            start = chunk.find(b"\n") if is_too_long else 0
            yield (TOO_LONG if is_too_long else carried) + chunk[start:cut]
            carried, is_too_long = chunk[cut:], False
        elif not is_too_long:
            carried += chunk
            is_too_long = len(carried) > BLOCK_BYTES
    if carried:
        yield TOO_LONG if is_too_long else carried
