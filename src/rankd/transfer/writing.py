"""Entries into a file: each format's way to write them, and a file that is complete or absent."""

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
from rankd.reads.answers import Entry
from rankd.transfer.formats import EXPORTED, STANDARD, Format, Told, load_parquet

PACKED_LEVEL = 5
ROW_GROUP_ROWS = 100_000


class Stream(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> int:
        """Take some more."""
        ...

    def flush(self) -> object:
        """Hand on what was taken."""
        ...


class Exported(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One entry as an object: what it does not have is left out."""

    rank: int
    player: str
    score: int
    reached_at: int | None = None
    tiebreak: int | None = None
    name: str | None = None
    country: str | None = None
    metadata: dict[str, object] | None = None


class Writer(Protocol):
    """One format."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Write entries behind those written before."""
        ...

    def finish(self) -> None:
        """Write whatever belongs at the end; the stream stays open."""
        ...


class CsvWriter:
    """A header and a record an entry; what an entry does not have is an empty field."""

    def __init__(self, stream: Stream) -> None:
        """Write the header."""
        self._stream = stream
        self._write_rows([EXPORTED])

    def write(self, entries: Sequence[Entry]) -> None:
        """Write entries behind those written before."""
        self._write_rows([_cells(entry) for entry in entries])

    def finish(self) -> None:
        """Nothing belongs at the end."""

    def _write_rows(self, rows: Sequence[Sequence[object]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._stream.write(text.getvalue().encode())


class NdjsonWriter:
    """An object a line, without the fields that an entry does not have."""

    def __init__(self, stream: Stream) -> None:
        """Nothing belongs at the beginning."""
        self._stream = stream
        self._encode_lines = msgspec.json.Encoder().encode_lines

    def write(self, entries: Sequence[Entry]) -> None:
        """Write entries behind those written before."""
        if entries:
            self._stream.write(
                self._encode_lines(
                    [
                        Exported(
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
        """Nothing belongs at the end."""


class ParquetWriter:
    """Columns of 64-bit integers and text, in groups of many rows."""

    def __init__(self, stream: Stream) -> None:
        """Write the beginning of the file."""
        self._arrow, parquet = load_parquet()
        integer, text = self._arrow.int64(), self._arrow.string()
        types = {"rank": integer, "score": integer, "reached_at": integer, "tiebreak": integer}
        self._schema = self._arrow.schema([(name, types.get(name, text)) for name in EXPORTED])
        self._file: Any = parquet.ParquetWriter(stream, self._schema)
        self._rows: list[tuple[object, ...]] = []

    def write(self, entries: Sequence[Entry]) -> None:
        """Write entries behind those written before."""
        self._rows += map(_cells, entries)
        if len(self._rows) >= ROW_GROUP_ROWS:
            self._write_group()

    def finish(self) -> None:
        """Write the last rows and the file's own directory of itself."""
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
    """Standard output where somebody looks at it: what could command the terminal is escaped."""

    def __init__(self, told: Told) -> None:
        if told.is_packed or told.format is Format.PARQUET:
            raise InvalidValue("out", "a terminal shows text only; name a file, or write csv or ndjson")
        self._escaped = escaped_json if told.format is Format.NDJSON else escaped

    def write(self, data: bytes, /) -> int:
        sys.stdout.write(self._escaped(data.decode(), kept="\n"))
        return len(data)

    def flush(self) -> None:
        sys.stdout.flush()


@contextmanager
def open_writer(out: str | os.PathLike[str], told: Told) -> Iterator[Writer]:
    """Open a file that is there when the block ends well and not before; or standard output, where `out` is `-`."""
    with _opened(os.fspath(out), told) as stream:
        if told.is_packed:
            with gzip.GzipFile("", "wb", PACKED_LEVEL, stream, mtime=0) as packed:
                yield from _finished(_writer(told.format, packed))
        else:
            yield from _finished(_writer(told.format, stream))


def _finished(writer: Writer) -> Iterator[Writer]:
    yield writer
    writer.finish()


def _writer(format: Format, stream: Stream) -> Writer:  # noqa: A002 - as everywhere
    match format:
        case Format.CSV:
            return CsvWriter(stream)
        case Format.NDJSON:
            return NdjsonWriter(stream)
        case Format.PARQUET:
            return ParquetWriter(stream)


@contextmanager
def _opened(name: str, told: Told) -> Iterator[Stream]:
    if name == STANDARD:
        stream: Stream = _Terminal(told) if sys.stdout.isatty() else sys.stdout.buffer
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
def _stream(path: Path) -> Iterator[Stream]:
    """Write where nothing can be renamed to: a pipe, a terminal."""
    if stat.S_ISDIR(path.stat().st_mode):
        raise InvalidValue("out", f"{path} is a folder; name a file in it")
    with path.open("wb") as file:
        yield file


@contextmanager
def _draft(path: Path) -> Iterator[Stream]:
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
