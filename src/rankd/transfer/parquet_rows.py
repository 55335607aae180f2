"""Rows of Parquet, read by pyarrow, which is loaded only here and where Parquet is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rankd.errors import InvalidValue
from rankd.transfer.formats import IGNORED, Header, load_parquet
from rankd.transfer.input import Input
from rankd.transfer.rows import Piece
from rankd.transfer.tables import TableReader

ROWS_AT_ONCE = 10_000


class ParquetReader(TableReader):
    """A Parquet file, with the columns of the CSV; `metadata` is JSON text or a structure."""

    def __init__(self, source: Input) -> None:
        """Read the schema."""
        self._source = source
        self._arrow, parquet = load_parquet()
        source.file.seek(0)
        try:
            self._file = parquet.ParquetFile(source.file)
        except (self._arrow.ArrowException, OSError) as problem:
            raise self._broken(problem) from None
        names = list(self._file.schema_arrow.names)
        Header(names)  # refuses what is unknown
        self._read = [name for name in names if name not in IGNORED]
        self.header = Header(self._read)

    def pieces(self) -> Iterator[Piece]:
        """Return all rows; their number stands for that of a line."""
        number = 1
        try:
            for batch in self._file.iter_batches(ROWS_AT_ONCE, columns=self._read, use_threads=False):
                cells = [self._cells(batch.column(name)) for name in self._read]
                yield Piece(list(range(number, number + batch.num_rows)), list(zip(*cells, strict=True)))
                number += batch.num_rows
        except (self._arrow.ArrowException, OSError) as problem:
            raise self._broken(problem) from None

    def _broken(self, problem: Exception) -> InvalidValue:
        said = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        return InvalidValue("file", f"{self._source.name} cannot be read as Parquet ({said}); write or copy it again")

    def _cells(self, column: Any) -> list[object]:
        try:
            listed: list[object] = column.to_pylist()
        except UnicodeDecodeError:  # checked row by row, where a byte that is no UTF-8 is refused
            raw = column.cast(self._arrow.binary()).to_pylist()
            listed = [None if cell is None else cell.decode(errors="surrogateescape") for cell in raw]
        return listed

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
