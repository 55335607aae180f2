"""A process that reads one Parquet file, within memory that the system bounds.

    python -m rankd.transfer.parquet_worker <descriptor>    a byte on standard input asks for all rows, once more

A file of a thousand bytes can hold gigabytes, in ways that its own directory does not show: pages that are compressed,
values that are repeated, lengths that are lies. So it is read here, where the worst it can do is to be refused; and one
column after the other, so that the refusal can name it.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, BinaryIO

import msgspec

from rankd.domain.score import encode_metadata
from rankd.errors import InvalidValue
from rankd.transfer.formats import COLUMNS_MAX, IGNORED, load_parquet

MEMORY_BYTES_MAX = 1024 * 1024 * 1024  # of addresses; a third of it is taken by Python and pyarrow themselves
ROWS_AT_ONCE = 2_000
COLUMN_BYTES_MAX = 16 * 1024 * 1024  # of so many rows in one column
CELL_BYTES_MAX = 65_536  # on average, by the file's own directory
ROWS_PER_BYTE_MAX = 100  # of the file: rows of real players take a byte and more
FRAME_BYTES_MAX = 32 * 1024 * 1024
LENGTH_BYTES = 4
NOT_UTF_8, NOT_METADATA = 1, 2  # codes of cells that are not what they should be
_BUFFER_BYTES = 1024 * 1024  # of a column chunk, read at once


class Columns(msgspec.Struct, tag=True):
    """The columns that are read, sent first."""

    names: list[str]


class Rows(msgspec.Struct, tag=True):
    """Some rows, column by column."""

    cells: list[list[Any]]


class End(msgspec.Struct, tag=True):
    """There are no more rows."""


class Unusable(msgspec.Struct, tag=True):
    """The file cannot be read, and nothing follows."""

    problem: str
    column: str | None = None


Frame = Columns | Rows | End | Unusable


class _Stopped(Exception):
    """Reading cannot go on."""

    def __init__(self, problem: str, column: str | None = None) -> None:
        super().__init__(problem)
        self.frame = Unusable(problem, column)


class _Worker:
    """Reads the file for as long as somebody asks."""

    def __init__(self, file: BinaryIO) -> None:
        self._arrow, parquet = load_parquet()
        try:
            self._file = parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES)
            self._metadata = self._file.metadata
            schema = self._file.schema_arrow
        except (self._arrow.ArrowException, OSError) as problem:
            raise self._broken(problem) from problem
        self._all_names = list(schema.names)
        self.names = [name for name in self._all_names if name not in IGNORED]
        if len(self._all_names) <= COLUMNS_MAX:  # more are refused with their header
            self._check(schema, file.seek(0, 2))

    def columns(self) -> Columns:
        return Columns(self._all_names)

    def _check(self, schema: Any, file_bytes: int) -> None:
        """Refuse what the file's own directory says is too much."""
        groups = [self._metadata.row_group(group) for group in range(self._metadata.num_row_groups)]
        rows = sum(group.num_rows for group in groups)
        if rows > file_bytes * ROWS_PER_BYTE_MAX:
            raise _Stopped(
                f"says that it has {rows} rows in {file_bytes} bytes; import what they are made from, as CSV"
            )
        for name in self.names:
            kind = schema.field(name).type
            if self._arrow.types.is_nested(kind) and name != "metadata":
                raise _Stopped(f"must hold numbers or text; it holds {kind!s:.80}: write another column", name)
        for group in groups:
            for chunk in map(group.column, range(group.num_columns)):
                if chunk.total_uncompressed_size > max(chunk.num_values, 1) * CELL_BYTES_MAX:
                    raise _Stopped(
                        f"has values of more than {CELL_BYTES_MAX} bytes; leave them out", chunk.path_in_schema
                    )

    def rows(self) -> Iterator[Rows]:
        for group in range(self._metadata.num_row_groups):
            streams = [chain.from_iterable(self._lists(group, name)) for name in self.names]
            while any(cells := [list(islice(stream, ROWS_AT_ONCE)) for stream in streams]):
                if len(set(map(len, cells))) != 1:
                    raise _Stopped("has columns of different lengths; write it again")
                yield Rows(cells)

    def _lists(self, group: int, name: str) -> Iterator[list[Any]]:
        """Return the cells of a column in one group of rows."""
        try:
            for batch in self._file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=[name], use_threads=False):
                column = batch.column(0)
                if column.nbytes > COLUMN_BYTES_MAX:
                    raise _Stopped(
                        f"holds more than {COLUMN_BYTES_MAX // 2**20} MiB in {ROWS_AT_ONCE} rows; write shorter values",
                        name,
                    )
                yield self._cells(name, column)
        except MemoryError:
            raise _Stopped(_needs_memory(), name) from None
        except (self._arrow.ArrowException, OSError) as problem:
            raise self._broken(problem) from problem

    def _cells(self, name: str, column: Any) -> list[Any]:
        try:
            cells = column.to_pylist()
        except UnicodeDecodeError:  # the row is refused when it is checked
            raw = column.cast(self._arrow.binary()).to_pylist()
            return [None if cell is None else msgspec.msgpack.Ext(NOT_UTF_8, cell) for cell in raw]
        return list(map(_metadata_cell, cells)) if name == "metadata" else cells

    def _broken(self, problem: Exception) -> _Stopped:
        if isinstance(problem, MemoryError):
            return _Stopped(_needs_memory())
        said = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        return _Stopped(f"cannot be read as Parquet ({said}); write or copy it again")


def _needs_memory() -> str:
    return (
        f"cannot be read as Parquet within {MEMORY_BYTES_MAX // 2**20} MiB of memory; write it with smaller pages and "
        "shorter values, or as CSV"
    )


def _metadata_cell(cell: object) -> object:
    if cell is None or isinstance(cell, str):
        return cell
    try:
        return encode_metadata(cell).decode()
    except InvalidValue as problem:
        return msgspec.msgpack.Ext(NOT_METADATA, problem.problem.encode())


def _send(frame: Frame) -> None:
    encoded = msgspec.msgpack.encode(frame, enc_hook=repr)
    if len(encoded) > FRAME_BYTES_MAX:
        raise _Stopped(f"holds more than {FRAME_BYTES_MAX // 2**20} MiB in {ROWS_AT_ONCE} rows; write shorter values")
    out = sys.stdout.buffer
    out.write(len(encoded).to_bytes(LENGTH_BYTES, "little") + encoded)
    out.flush()


def main() -> None:
    """Answer until nobody asks any more."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open(int(sys.argv[1]), "rb", closefd=False) as file:
            worker = _Worker(file)
            _send(worker.columns())
            while sys.stdin.buffer.read(1):
                for rows in worker.rows():
                    _send(rows)
                _send(End())
    except _Stopped as problem:
        _send(problem.frame)
    except MemoryError:
        _send(Unusable(_needs_memory()))


if __name__ == "__main__":
    main()
