"""Rows of Parquet, read in a process of its own, whose memory is bounded; see parquet_worker.py."""

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
from rankd.transfer.formats import IGNORED, Header, load_parquet
from rankd.transfer.input import Input
from rankd.transfer.parquet_worker import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    MEMORY_BYTES_MAX,
    NOT_UTF_8,
    Columns,
    End,
    Frame,
    Rows,
    Unusable,
)
from rankd.transfer.rows import Piece, Unreadable
from rankd.transfer.tables import TableReader

ASK = b"."


def _cell_of(code: int, data: memoryview) -> object:
    """Return a cell that is not what it should be, so that its row is refused when it is checked."""
    return bytes(data).decode(errors="surrogateescape") if code == NOT_UTF_8 else Unreadable(bytes(data).decode())


_decode = msgspec.msgpack.Decoder(Frame, ext_hook=_cell_of).decode


class ParquetReader(TableReader):
    """A Parquet file, with the columns of the CSV; `metadata` is JSON text or a structure."""

    def __init__(self, source: Input) -> None:
        """Read the schema."""
        if find_spec("pyarrow") is None:
            load_parquet()  # which says how to install it
        self._source = source
        self._process = _started(source)
        weakref.finalize(self, _end, self._process)
        frame = self._next()
        if not isinstance(frame, Columns):
            raise self._ended()
        names = frame.names
        Header(names, source.name)  # refuses what is unknown
        self.header = Header([name for name in names if name not in IGNORED], source.name)

    def pieces(self) -> Iterator[Piece]:
        """Return all rows; their number stands for that of a line."""
        requests = cast(IO[bytes], self._process.stdin)
        try:
            requests.write(ASK)
            requests.flush()
        except OSError:
            raise self._ended() from None
        number = 1
        while isinstance(frame := self._next(), Rows):
            count = len(frame.cells[0])
            yield Piece(list(range(number, number + count)), list(zip(*frame.cells, strict=True)), self._frame_bytes)
            number += count

    def _next(self) -> Columns | Rows | End:
        """Return the next frame, or raise what the worker says instead."""
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
        """Return what is said of a worker that did not answer as it should: the system may have ended it."""
        _end(self._process)
        return InvalidValue(
            "file",
            f"{self._source.name} cannot be read as Parquet: it is damaged, or needs more than "
            f"{MEMORY_BYTES_MAX // 2**20} MiB of memory; write it again with smaller pages, or as CSV",
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


def _started(source: Input) -> subprocess.Popen[bytes]:
    """Start the worker on the file as it is open here; nothing else reads it meanwhile."""
    descriptor = source.file.fileno()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
    return subprocess.Popen(  # noqa: S603 - a module of ours
        # -P: what lies in the current folder is not imported, unless it is here.
        [sys.executable, "-P", "-m", "rankd.transfer.parquet_worker", str(descriptor)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        env=environment,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the worker, whatever it does."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
