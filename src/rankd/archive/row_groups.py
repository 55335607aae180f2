"""Reads row groups of an archived file: one request each, decoded once, the last used ones held in memory.

    group → decoded and held? → its bytes: cached on this disk? → one range of the object → decoded

Only what is read over a network is cached on disk.
"""

from __future__ import annotations

import importlib
import io
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rankd.archive.manifest import Manifest
from rankd.archive.standings_file import LOOKUP_COLUMNS, ROW_COLUMNS, arrow, parquet
from rankd.errors import ArchiveDamaged

DECODED_BYTES_MAX = 64 * 1024 * 1024  # of all files together
Fetch = Callable[[int, int], bytes]  # bytes of a file, from and to


class DecodedGroups:
    """Decoded row groups, the last used ones; from any thread."""

    def __init__(self, bytes_max: int = DECODED_BYTES_MAX) -> None:
        """It is empty."""
        self._bytes_max = bytes_max
        self._held: OrderedDict[tuple[str, int, bool], tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int, bool]) -> Any:
        """Return a group; None when it is not held."""
        with self._lock:
            held = self._held.get(key)
            if held is None:
                return None
            self._held.move_to_end(key)
            return held[0]

    def add(self, key: tuple[str, int, bool], group: object, size: int) -> None:
        """Hold a group, and forget those that were not used for longest."""
        with self._lock:
            before = self._held.pop(key, None)
            self._bytes += size - (0 if before is None else before[1])
            self._held[key] = group, size
            while self._bytes > self._bytes_max and len(self._held) > 1:
                self._bytes -= self._held.popitem(last=False)[1][1]


class DecodedRows:
    """The decoded rows of a group."""

    def __init__(self, table: Any, tie_resolution_ms: int) -> None:
        """`table` has ROW_COLUMNS."""
        self._scope = table.column("scope").combine_chunks()
        self._player = table.column("player").combine_chunks()
        self._digest = table.column("digest").combine_chunks()
        self.ranks = {name: _integers(table, name) for name in ("rank", "competition", "dense")}
        self.score = _integers(table, "score")
        self.total = _integers(table, "total")
        self._reached_at = _integers(table, "reached_at") if table.column("reached_at").null_count == 0 else None
        self._tiebreak = _integers(table, "tiebreak") if table.column("tiebreak").null_count == 0 else None
        self._tie_resolution_ms = tie_resolution_ms

    def __len__(self) -> int:
        return len(self.score)

    def scope(self, index: int) -> str:
        """Return the scope of a row."""
        return str(self._scope[index].as_py())

    def find_scope(self, scope: str) -> int:
        """Return the first row of a scope; -1 without one."""
        names: list[str] = self._scope.dictionary.to_pylist()
        if scope not in names:
            return -1
        return int(importlib.import_module("pyarrow.compute").index(self._scope.indices, names.index(scope)).as_py())

    def digest(self, index: int) -> int:
        """Return the digest of a row's scope."""
        return int(self._digest[index].as_py(), 16)

    def player(self, index: int) -> str:
        """Return the player of a row."""
        return str(self._player[index].as_py())

    def players(self, start: int, end: int) -> list[str]:
        """Return the players of some rows."""
        players: list[str] = self._player[start:end].to_pylist()
        return players

    def tie(self, index: int) -> int:
        """Return the tie field of a row."""
        if self._reached_at is not None:
            return int(self._reached_at[index]) // self._tie_resolution_ms
        return 0 if self._tiebreak is None else int(self._tiebreak[index])


class RowGroups:
    """The row groups of one file; from any thread."""

    def __init__(self, manifest: Manifest, tie_resolution_ms: int, fetch: Fetch, decoded: DecodedGroups) -> None:
        """The end of the file, which names its row groups, is read at once."""
        self._manifest = manifest
        self._tie_resolution_ms = tie_resolution_ms
        self._fetch = fetch
        self._decoded = decoded
        file = manifest.file
        with _Decoding(manifest):
            footer = fetch(file.size - file.footer_bytes, file.size)
            self._metadata = parquet().read_metadata(io.BytesIO(footer))
            groups = range(self._metadata.num_row_groups)
            names = [self._metadata.schema.column(index).path for index in range(self._metadata.num_columns)]
            scopes, hashes = names.index("scope"), names.index("lookup_hash")
            statistics = [self._metadata.row_group(group).column(scopes).statistics for group in groups]
            # Python compares code points as Parquet compares bytes of UTF-8.
            self._last_scope: list[str] = [each.max for each in statistics]
            self._last_hash: list[int] = [
                self._metadata.row_group(group).column(hashes).statistics.max for group in groups
            ]
            if self._metadata.num_rows != file.rows:
                raise ValueError("the number of rows is another")

    def rows(self, group: int) -> DecodedRows:
        """Return the rows of a group."""
        rows: DecodedRows = self._group(group, is_lookup=False)
        return rows

    def tables(self) -> Iterator[Any]:
        """Yield the groups as tables of pyarrow."""
        for group in range(self._metadata.num_row_groups):
            with _Decoding(self._manifest):
                table = self._read(group, ROW_COLUMNS)
            yield table

    def first_with(self, scope: str) -> int | None:
        """Return the group in which a scope begins, if there is one."""
        group = bisect_left(self._last_scope, scope)
        return group if group < len(self._last_scope) else None

    def found(self, hashed: int) -> list[int]:
        """Return the rows whose scope and player have this hash."""
        numbers: list[int] = []
        for group in range(bisect_left(self._last_hash, hashed), len(self._last_hash)):
            hashes, rows = self._group(group, is_lookup=True)
            index = bisect_left(hashes, hashed)
            while index < len(hashes) and hashes[index] == hashed:
                numbers.append(rows[index])
                index += 1
            if index < len(hashes):
                break
        return numbers

    def _group(self, group: int, *, is_lookup: bool) -> Any:
        key = self._manifest.file_path, group, is_lookup
        held = self._decoded.get(key)
        if held is None:  # two threads may decode it at once: both get the same
            with _Decoding(self._manifest):
                table = self._read(group, LOOKUP_COLUMNS if is_lookup else ROW_COLUMNS)
                held = (
                    (_integers(table, "lookup_hash"), _integers(table, "lookup_row"))
                    if is_lookup
                    else DecodedRows(table, self._tie_resolution_ms)
                )
            self._decoded.add(key, held, table.nbytes)
        return held

    def _read(self, group: int, columns: Sequence[str]) -> Any:
        about = self._metadata.row_group(group)
        chunks = [about.column(index) for index in range(about.num_columns)]
        start = min(_start_of(chunk) for chunk in chunks)
        end = max(_start_of(chunk) + chunk.total_compressed_size for chunk in chunks)
        part = _FilePart(self._fetch(start, end), start, self._manifest.file.size)
        with parquet().ParquetFile(
            part, metadata=self._metadata, read_dictionary=["scope", "digest"], page_checksum_verification=True
        ) as file:
            return file.read_row_group(group, list(columns), use_threads=False)


class _Decoding:
    """Turns what goes wrong while a file is decoded into ArchiveDamaged."""

    def __init__(self, manifest: Manifest) -> None:
        self._path = manifest.file_path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, problem: BaseException | None, _traceback: object) -> None:
        damage = (ValueError, OSError, KeyError, IndexError, TypeError, AttributeError, arrow().ArrowException)
        if isinstance(problem, damage):
            raise ArchiveDamaged(
                f"{self._path} is damaged: {problem}; restore a copy of it, or look with `rankd archive verify`",
                public_message="these standings are damaged in the archive",
            ) from problem


class _FilePart(io.RawIOBase):
    """A file of which only one part is there."""

    def __init__(self, part: bytes, start: int, size: int) -> None:
        self._part = part
        self._start = start
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        start = self._at - self._start
        end = len(self._part) if size < 0 else start + size
        if start < 0 or end > len(self._part):
            raise ValueError("a part of the file was read that is not there")
        self._at += end - start
        return self._part[start:end]


def _start_of(chunk: Any) -> int:
    dictionary = chunk.dictionary_page_offset
    return int(chunk.data_page_offset if dictionary is None else min(dictionary, chunk.data_page_offset))


def _integers(table: Any, name: str) -> memoryview:
    column = table.column(name).combine_chunks()
    values = memoryview(column.buffers()[1]).cast("B").cast("q")
    return values[column.offset : column.offset + len(column)]
