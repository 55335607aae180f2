"""Writes entries to a file, which is complete or absent, in each format."""

from __future__ import annotations

import csv
import gzip
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rankd.domain.text import escaped, escaped_json
from rankd.errors import InvalidValue
from rankd.operations.transfer.formats import EXPORTED, STANDARD, Format, NamedFormat, load_arrow
from rankd.reads.answers import Entry

PACKED_LEVEL = 5
ROW_GROUP_ROWS = 100_000


class ByteSink(Protocol):
    """A binary output."""

    def write(self, data: bytes, /) -> int:
        """Write bytes."""
        ...

    def flush(self) -> object:
        """Flush buffered bytes."""
        ...


class ExportedEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One entry as an object, without absent fields."""

    rank: int
    player: str
    score: int
    reached_at: int | None = None
    tiebreak: int | None = None
    name: str | None = None
    country: str | None = None
    metadata: dict[str, object] | None = None


class RowWriter(Protocol):
    """Writes one format."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Write more entries."""
        ...

    def finish(self) -> None:
        """Write the end of the file; the stream stays open."""
        ...


class CsvWriter:
    """A header and a record per entry, with empty fields for absent values."""

    def __init__(self, stream: ByteSink) -> None:
        """Write the header."""
        self._stream = stream
        self._write_rows([EXPORTED])

    def write(self, entries: Sequence[Entry]) -> None:
        """Write more entries."""
        self._write_rows([_cells(entry) for entry in entries])

    def finish(self) -> None:
        """Do nothing: the format has no end."""

    def _write_rows(self, rows: Sequence[Sequence[object]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._stream.write(text.getvalue().encode())


class NdjsonWriter:
    """An object per line, without absent fields."""

    def __init__(self, stream: ByteSink) -> None:
        """Write to `stream`."""
        self._stream = stream
        self._encode_lines = msgspec.json.Encoder().encode_lines

    def write(self, entries: Sequence[Entry]) -> None:
        """Write more entries."""
        if entries:
            self._stream.write(
                self._encode_lines(
                    [
                        ExportedEntry(
                            entry.rank,
                            entry.player,
                            entry.score,
                            entry.reached_at,
                            entry.tiebreak,
                            entry.name,
                            entry.country,
                            entry.metadata,
                        )
                        for entry in entries
                    ]
                )
            )

    def finish(self) -> None:
        """Do nothing: the format has no end."""


class ColumnarWriter:
    """Parquet or Arrow: columns of 64-bit integers and text, in groups of many rows."""

    def __init__(self, stream: ByteSink, format: Format) -> None:  # noqa: A002 - as everywhere
        """Write the beginning of the file."""
        self._arrow, module = load_arrow(format)
        writers = {Format.PARQUET: "ParquetWriter", Format.ARROW: "new_file", Format.ARROW_STREAM: "new_stream"}
        integer, text = self._arrow.int64(), self._arrow.string()
        types = {"rank": integer, "score": integer, "reached_at": integer, "tiebreak": integer}
        self._schema = self._arrow.schema([(name, types.get(name, text)) for name in EXPORTED])
        self._file: Any = getattr(module, writers[format])(stream, self._schema)
        self._rows: list[tuple[object, ...]] = []

    def write(self, entries: Sequence[Entry]) -> None:
        """Write more entries."""
        self._rows += map(_cells, entries)
        if len(self._rows) >= ROW_GROUP_ROWS:
            self._write_group()

    def finish(self) -> None:
        """Write the last rows and the footer."""
        self._write_group()
        self._file.close()

    def _write_group(self) -> None:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(EXPORTED)
        arrays = [self._arrow.array(cells, kind) for cells, kind in zip(columns, self._schema.types, strict=True)]
        self._file.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []


def _cells(entry: Entry) -> tuple[object, ...]:
    return (
        entry.rank,
        entry.player,
        entry.score,
        entry.reached_at,
        entry.tiebreak,
        entry.name,
        entry.country,
        None if entry.metadata is None else msgspec.json.encode(entry.metadata).decode(),
    )


class _Terminal:
    """Standard output on a terminal; control characters are escaped."""

    def __init__(self, named_format: NamedFormat) -> None:
        if named_format.is_packed or named_format.format.is_columnar:
            raise InvalidValue("out", "a terminal shows text only; name a file, or write csv or ndjson")
        self._escaped = escaped_json if named_format.format is Format.NDJSON else escaped

    def write(self, data: bytes, /) -> int:
        sys.stdout.write(self._escaped(data.decode(), kept="\n"))
        return len(data)

    def flush(self) -> None:
        sys.stdout.flush()


@contextmanager
def open_writer(out: str | os.PathLike[str], named_format: NamedFormat) -> Iterator[RowWriter]:
    """Open a file that appears only when the block succeeds, or standard output for `-`."""
    with _opened(os.fspath(out), named_format) as stream:
        if named_format.is_packed:
            with gzip.GzipFile("", "wb", PACKED_LEVEL, stream, mtime=0) as packed:
                yield from _finished(_writer(named_format.format, packed))
        else:
            yield from _finished(_writer(named_format.format, stream))


def _finished(writer: RowWriter) -> Iterator[RowWriter]:
    yield writer
    writer.finish()


def _writer(format: Format, stream: ByteSink) -> RowWriter:  # noqa: A002 - as everywhere
    match format:
        case Format.CSV:
            return CsvWriter(stream)
        case Format.NDJSON:
            return NdjsonWriter(stream)
        case Format.PARQUET | Format.ARROW | Format.ARROW_STREAM:
            return ColumnarWriter(stream, format)


@contextmanager
def _opened(name: str, named_format: NamedFormat) -> Iterator[ByteSink]:
    if name == STANDARD:
        stream: ByteSink = _Terminal(named_format) if sys.stdout.isatty() else sys.stdout.buffer
        yield stream
        stream.flush()
        return
    path = Path(os.path.realpath(name))  # a link stays one
    try:
        with _draft(path) if path.is_file() or not path.exists() else _stream(path) as file:
            yield file
    except OSError as problem:
        raise InvalidValue(
            "out", f"{name} cannot be written: {problem.strerror or problem}; name another file"
        ) from problem


@contextmanager
def _stream(path: Path) -> Iterator[ByteSink]:
    """Write to a pipe or a terminal, which no file can replace."""
    if stat.S_ISDIR(path.stat().st_mode):
        raise InvalidValue("out", f"{path} is a folder; name a file in it")
    with path.open("wb") as file:
        yield file


@contextmanager
def _draft(path: Path) -> Iterator[ByteSink]:
    draft = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.draft")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
