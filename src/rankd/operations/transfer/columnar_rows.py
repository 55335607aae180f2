"""Reads rows of Parquet and Arrow in a worker process with bounded memory; see columnar_worker.py."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import IO, Any, cast

import msgspec

from rankd.errors import InvalidValue
from rankd.operations.transfer.columnar_worker import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    MEMORY_BYTES_MAX,
    NOT_UTF_8,
    Cells,
    ColumnNames,
    End,
    Frame,
    Unusable,
)
from rankd.operations.transfer.formats import IGNORED, TableHeader, load_arrow
from rankd.operations.transfer.input import Input
from rankd.operations.transfer.rows import RowChunk, Unreadable
from rankd.operations.transfer.tables import TableReader

ASK = b"."


def _cell_of(code: int, data: memoryview) -> object:
    """Return a bad cell, so that the checker refuses its row."""
    return bytes(data).decode(errors="surrogateescape") if code == NOT_UTF_8 else Unreadable(bytes(data).decode())


_decode = msgspec.msgpack.Decoder(Frame, ext_hook=_cell_of).decode


class ColumnarReader(TableReader):
    """A file of Parquet or Arrow, with the columns of the CSV; `metadata` is JSON text or a structure."""

    def __init__(self, source: Input) -> None:
        """Read the schema."""
        if find_spec("pyarrow") is None:
            load_arrow(source.format)  # which says how to install it
        self._source = source
        self._process = _start_worker(source)
        weakref.finalize(self, _end, self._process)
        frame = self._next()
        if not isinstance(frame, ColumnNames):
            raise self._ended()
        names = frame.names
        TableHeader(names, source.name)  # refuses what is unknown
        self.header = TableHeader([name for name in names if name not in IGNORED], source.name)

    def pieces(self) -> Iterator[RowChunk]:
        """Return all rows; a row's number counts as its line number."""
        requests = cast(IO[bytes], self._process.stdin)
        try:
            requests.write(ASK)
            requests.flush()
        except OSError:
            raise self._ended() from None
        number = 1
        while isinstance(frame := self._next(), Cells):
            count = len(frame.cells[0])
            yield RowChunk(list(range(number, number + count)), list(zip(*frame.cells, strict=True)), self._frame_bytes)
            number += count

    def _next(self) -> ColumnNames | Cells | End:
        """Return the next frame, or raise the worker's error."""
        self._frame_bytes = int.from_bytes(self._read(LENGTH_BYTES), "little")
        if self._frame_bytes > FRAME_BYTES_MAX:
            raise self._ended()
        frame: Frame = _decode(self._read(self._frame_bytes))
        if isinstance(frame, Unusable):
            column = "" if frame.column is None else f", column {frame.column!r:.80}:"
            raise InvalidValue("file", f"{self._source.name}{column} {frame.problem}")
        return frame

    def _read(self, size: int) -> bytes:
        read = cast(IO[bytes], self._process.stdout).read(size)
        if len(read) != size:
            raise self._ended()
        return read

    def _ended(self) -> InvalidValue:
        """Return the error for a worker that failed: the system may have ended it."""
        _end(self._process)
        return InvalidValue(
            "file",
            f"{self._source.name} cannot be read as {self._source.format.label}: it is damaged, or needs more than "
            f"{MEMORY_BYTES_MAX // 2**20} MiB of memory; write it again in smaller parts, or as CSV",
        )

    def _whole_numbers(self, cells: Sequence[Any]) -> list[int]:
        if set(map(type, cells)) != {int}:
            raise TypeError("there is something else among the numbers")
        return list(cells)

    def _optional_numbers(self, cells: Sequence[Any]) -> list[int | None]:
        if not set(map(type, cells)) <= {int, type(None)}:
            raise TypeError("there is something else among the numbers")
        return list(cells)

    def _number(self, field: str, cell: Any) -> object:
        return cell


def _start_worker(source: Input) -> subprocess.Popen[bytes]:
    """Start the worker on the open file; nothing else reads it meanwhile."""
    descriptor = source.file.fileno()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
    return subprocess.Popen(  # noqa: S603 - a module of ours
        # -P: do not import modules from the current folder.
        [sys.executable, "-P", "-m", "rankd.operations.transfer.columnar_worker", str(descriptor), source.format.value],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        env=environment,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the worker."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
