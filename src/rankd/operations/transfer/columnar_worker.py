"""A process that reads one file of Parquet or Arrow, within memory that the system bounds.

    python -m rankd.operations.transfer.columnar_worker <descriptor> <format>   a byte on stdin asks for all rows again

A file of a thousand bytes can expand to gigabytes, in ways that its footer does not show: compressed pages, repeated
values, wrong lengths. So it is read in a process with a memory limit, which can only refuse it.
"""

from __future__ import annotations

import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, BinaryIO

import msgspec

from rankd.domain.score import encode_metadata
from rankd.errors import InvalidValue
from rankd.operations.transfer.formats import COLUMNS_MAX, IGNORED, Format, load_arrow

MEMORY_BYTES_MAX = 1024 * 1024 * 1024  # of addresses; a third of it is taken by Python and pyarrow themselves
ROWS_AT_ONCE = 2_000
COLUMN_BYTES_MAX = 16 * 1024 * 1024  # of so many rows in one column
CELL_BYTES_MAX = 65_536  # on average, by the directory of a Parquet file
ROWS_PER_BYTE_MAX = 100  # of the file: rows of real players take a byte and more
FRAME_BYTES_MAX = 32 * 1024 * 1024
LENGTH_BYTES = 4
NOT_UTF_8, NOT_METADATA = 1, 2  # codes of cells that are not what they should be
_BUFFER_BYTES = 1024 * 1024  # of a column chunk, read at once
_ARROW_MAGIC = b"ARROW1"  # of a file; a stream has none
_ARROW_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of a stream


class ColumnNames(msgspec.Struct, tag=True):
    """All columns of the file, sent first."""

    names: list[str]


class Cells(msgspec.Struct, tag=True):
    """Some rows, column by column."""

    cells: list[list[Any]]


class End(msgspec.Struct, tag=True):
    """There are no more rows."""


class Unusable(msgspec.Struct, tag=True):
    """The file cannot be read, and nothing follows."""

    problem: str
    column: str | None = None


Frame = ColumnNames | Cells | End | Unusable


class _Stopped(Exception):
    """Reading cannot go on."""

    def __init__(self, problem: str, column: str | None = None) -> None:
        super().__init__(problem)
        self.frame = Unusable(problem, column)


class _ColumnarFile(ABC):
    """One file, whose columns are those that its schema names."""

    def __init__(self, file: BinaryIO, format: Format) -> None:  # noqa: A002 - as everywhere
        self._file = file
        self._format = format
        self._arrow, self._module = load_arrow(format)
        self._size_bytes = file.seek(0, 2)
        try:
            schema = self._read_schema()
        except (self._arrow.ArrowException, MemoryError, OSError) as problem:
            raise self._broken(problem) from problem
        self.all_names = list(schema.names)
        self._names = [name for name in self.all_names if name not in IGNORED]
        if len(self.all_names) <= COLUMNS_MAX:  # more are refused with their header
            self._check_schema(schema)

    @abstractmethod
    def rows(self) -> Iterator[Cells]:
        """Return all rows from the first."""

    @abstractmethod
    def _read_schema(self) -> Any: ...

    @property
    @abstractmethod
    def _advice(self) -> str:
        """What to write smaller, where the file needs too much memory."""

    def _check_schema(self, schema: Any) -> None:
        types = self._arrow.types
        for name in self._names:
            kind = schema.field(name).type
            plain = kind.value_type if types.is_dictionary(kind) else kind
            is_other = types.is_run_end_encoded(plain) or isinstance(plain, self._arrow.BaseExtensionType)
            if is_other or (types.is_nested(plain) and name != "metadata"):
                raise _Stopped(f"must hold numbers or text; it holds {kind!s:.80}: write another column", name)

    def _check_rows(self, rows: int) -> None:
        if rows > self._size_bytes * ROWS_PER_BYTE_MAX:
            raise _Stopped(
                f"says that it has {rows} rows in {self._size_bytes} bytes; import what they are made from, as CSV"
            )

    def _cells(self, name: str, column: Any) -> list[Any]:
        """Return the cells of a column in a few rows."""
        if column.nbytes > COLUMN_BYTES_MAX:
            raise _Stopped(
                f"holds more than {COLUMN_BYTES_MAX // 2**20} MiB in {ROWS_AT_ONCE} rows; write shorter values", name
            )
        try:
            cells = column.to_pylist()
        except UnicodeDecodeError:  # the checker refuses the row
            raw = column.cast(self._arrow.binary()).to_pylist()
            return [None if cell is None else msgspec.msgpack.Ext(NOT_UTF_8, cell) for cell in raw]
        return list(map(_metadata_cell, cells)) if name == "metadata" else cells

    def _broken(self, problem: Exception, column: str | None = None) -> _Stopped:
        if isinstance(problem, MemoryError):
            return _Stopped(self.needs_memory(), column)
        message = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        return _Stopped(f"cannot be read as {self._format.label} ({message}); write or copy it again", column)

    def needs_memory(self) -> str:
        return (
            f"cannot be read as {self._format.label} within {MEMORY_BYTES_MAX // 2**20} MiB of memory; "
            f"write it with smaller {self._advice} and shorter values, or as CSV"
        )


class _ParquetFile(_ColumnarFile):
    """Parquet, read one column at a time, so that a refusal can name it."""

    def _read_schema(self) -> Any:
        self._file.seek(0)
        self._parquet = self._module.ParquetFile(self._file, buffer_size=_BUFFER_BYTES)
        self._metadata = self._parquet.metadata
        return self._parquet.schema_arrow

    @property
    def _advice(self) -> str:
        return "pages"

    def _check_schema(self, schema: Any) -> None:
        """Refuse a file whose footer exceeds the limits."""
        groups = [self._metadata.row_group(group) for group in range(self._metadata.num_row_groups)]
        self._check_rows(sum(group.num_rows for group in groups))
        super()._check_schema(schema)
        for group in groups:
            for chunk in map(group.column, range(group.num_columns)):
                if chunk.total_uncompressed_size > max(chunk.num_values, 1) * CELL_BYTES_MAX:
                    raise _Stopped(
                        f"has values of more than {CELL_BYTES_MAX} bytes; leave them out", chunk.path_in_schema
                    )

    def rows(self) -> Iterator[Cells]:
        for group in range(self._metadata.num_row_groups):
            streams = [chain.from_iterable(self._lists(group, name)) for name in self._names]
            while any(cells := [list(islice(stream, ROWS_AT_ONCE)) for stream in streams]):
                if len(set(map(len, cells))) != 1:
                    raise _Stopped("has columns of different lengths; write it again")
                yield Cells(cells)

    def _lists(self, group: int, name: str) -> Iterator[list[Any]]:
        """Return the cells of a column in one group of rows."""
        try:
            for batch in self._parquet.iter_batches(
                ROWS_AT_ONCE, row_groups=[group], columns=[name], use_threads=False
            ):
                yield self._cells(name, batch.column(0))
        except MemoryError:
            raise _Stopped(self.needs_memory(), name) from None
        except (self._arrow.ArrowException, OSError) as problem:
            raise self._broken(problem) from problem


class _ArrowFile(_ColumnarFile):
    """Arrow's own format, as a file or as a stream, read one record batch at a time."""

    def _read_schema(self) -> Any:
        self._file.seek(0)
        self._is_stream = self._file.read(len(_ARROW_MAGIC)) != _ARROW_MAGIC
        return self._open(None).schema

    @property
    def _advice(self) -> str:
        return "record batches"

    def rows(self) -> Iterator[Cells]:
        count = 0
        try:
            for batch in self._batches():
                count += batch.num_rows
                self._check_rows(count)
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                for name in self._names:
                    self._validate(name, columns[name])
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    yield Cells([self._slice(name, columns[name], start) for name in self._names])
        except (self._arrow.ArrowException, MemoryError, OSError) as problem:
            raise self._broken(problem) from problem

    def _batches(self) -> Iterator[Any]:
        reader = self._open([index for index, name in enumerate(self.all_names) if name in self._names])
        if not self._is_stream:
            yield from map(reader.get_batch, range(reader.num_record_batches))
            return
        yield from reader
        # The format lets a stream end without its mark; one that was cut between two batches looks the same.
        end = self._file.tell()
        self._file.seek(-len(_ARROW_END), 2)
        if end != self._size_bytes or self._file.read() != _ARROW_END:
            raise _Stopped("does not end where its stream does: it was cut, or holds several; write or copy it again")

    def _open(self, fields: list[int] | None) -> Any:
        self._file.seek(0)
        options = self._module.IpcReadOptions(use_threads=False, included_fields=fields)
        return (self._module.open_stream if self._is_stream else self._module.open_file)(self._file, options=options)

    def _validate(self, name: str, column: Any) -> None:
        """Refuse offsets and indices that point outside; text is checked by row."""
        arrow, kind = self._arrow, column.type
        if arrow.types.is_string(kind):
            column = column.view(arrow.binary())
        elif arrow.types.is_large_string(kind):
            column = column.view(arrow.large_binary())
        try:
            column.validate(full=True)
        except arrow.ArrowException as problem:
            raise self._broken(problem, name) from problem

    def _slice(self, name: str, column: Any, start: int) -> list[Any]:
        arrow, part = self._arrow, column.slice(start, ROWS_AT_ONCE)
        try:
            if arrow.types.is_dictionary(part.type):  # its size says nothing of its cells
                part = part.dictionary_decode()
            if arrow.types.is_string_view(part.type):
                part = part.cast(arrow.string())
            return self._cells(name, part)
        except MemoryError:
            raise _Stopped(self.needs_memory(), name) from None


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
    """Answer requests until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    descriptor, format_ = int(sys.argv[1]), Format(sys.argv[2])
    opened = _ParquetFile if format_ is Format.PARQUET else _ArrowFile
    try:
        # Without a buffer: the importing process moves the same descriptor when it hashes the file.
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            columnar = opened(file, format_)
            _send(ColumnNames(columnar.all_names))
            while sys.stdin.buffer.read(1):
                for cells in columnar.rows():
                    _send(cells)
                _send(End())
    except _Stopped as problem:
        _send(problem.frame)
    except MemoryError:
        _send(Unusable(f"needs more than {MEMORY_BYTES_MAX // 2**20} MiB of memory; write it as CSV"))


if __name__ == "__main__":
    main()
