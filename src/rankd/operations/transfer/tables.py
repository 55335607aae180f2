"""The common part of CSV, Parquet and Arrow: rows of cells under a header."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rankd.errors import InvalidValue
from rankd.operations.transfer.formats import METADATA_TEXT_MAX, TableHeader
from rankd.operations.transfer.rows import AttributeColumns, UncheckedColumns, Unreadable, instants

T = TypeVar("T")

_object = msgspec.json.Decoder(dict[str, Any]).decode


class TableReader(ABC):
    """Reads cells by column."""

    header: TableHeader

    def columns(self, rows: list[Any]) -> UncheckedColumns | None:
        """Return rows as columns; None when one of them is bad."""
        if Unreadable in set(map(type, rows)) or set(map(len, rows)) != {self.header.width}:
            return None
        cells = list(zip(*rows, strict=True))
        try:
            return UncheckedColumns(
                _texts(cells[self.header.index["player"]]),
                self._whole_numbers(cells[self.header.index["score"]]),
                self._column("tiebreak", cells, self._optional_numbers),
                instants(
                    self._column("at", cells, self._optional_numbers),
                    self._column("reached_at", cells, self._optional_numbers),
                ),
                self._attributes(cells),
                self._column("metadata", cells, _objects),
                self._column("board", cells, _optional_texts),
            )
        except (TypeError, ValueError, RecursionError):  # the row loop finds the bad row
            return None

    def values(self, row: Any) -> Mapping[str, object]:
        """Return one row by name; cells without a value are None."""
        if isinstance(row, Unreadable):
            raise InvalidValue("line", row.problem)
        if len(row) != self.header.width:
            raise InvalidValue("line", f"has {len(row)} fields, and the header {self.header.width}")
        cells = {name: row[place] for name, place in self.header.index.items()}
        return {
            "player": cells["player"],
            "score": self._number("score", cells["score"]),
            "tiebreak": self._number("tiebreak", cells.get("tiebreak")),
            "at": self._number("at", cells.get("at")),
            "reached_at": self._number("reached_at", cells.get("reached_at")),
            "attributes": {name: row[place] for name, place in self.header.attributes if row[place] not in ("", None)},
            "metadata": _read_object(cells.get("metadata")),
            "board": cells.get("board") or None,
        }

    def place(self, row: Any) -> str:
        """Return nothing: each line is one event."""
        return ""

    def _column(
        self, name: str, cells: Sequence[Sequence[Any]], read: Callable[[Sequence[Any]], list[T | None]]
    ) -> list[T | None] | None:
        place = self.header.index.get(name)
        return None if place is None else read(cells[place])

    def _attributes(self, cells: Sequence[Sequence[Any]]) -> AttributeColumns | None:
        if not self.header.attributes:
            return None
        return {name: _values_or_none(cells[place]) for name, place in self.header.attributes}

    @abstractmethod
    def _whole_numbers(self, cells: Sequence[Any]) -> list[int]:
        """Read a column of numbers; ValueError where a cell is not one."""

    @abstractmethod
    def _optional_numbers(self, cells: Sequence[Any]) -> list[int | None]:
        """Read a column of numbers, some of which may be missing."""

    @abstractmethod
    def _number(self, field: str, cell: Any) -> object:
        """Read one number, or refuse it by the name of its field."""


def _values_or_none(cells: Sequence[Any]) -> list[str | int | None]:
    return [None if cell == "" else cell for cell in cells] if "" in cells else list(cells)


def _texts(cells: Sequence[Any]) -> list[str]:
    if set(map(type, cells)) != {str}:
        raise TypeError("there is something else among the texts")
    return list(cells)


def _optional_texts(cells: Sequence[Any]) -> list[str | None]:
    if not set(map(type, cells)) <= {str, type(None)}:
        raise TypeError("there is something else among the texts")
    return [cell or None for cell in cells]


def _objects(cells: Sequence[Any]) -> list[Mapping[str, object] | None]:
    if (
        not set(map(type, cells)) <= {str, type(None)}
        or max(map(len, filter(None, cells)), default=0) > METADATA_TEXT_MAX
    ):
        raise TypeError("there is something else among the objects")
    return [_object(cell) if cell else None for cell in cells]


def _read_object(cell: Any) -> object:
    if isinstance(cell, Unreadable):
        raise InvalidValue("metadata", cell.problem)
    if not isinstance(cell, str):
        return cell
    if len(cell) > METADATA_TEXT_MAX:
        raise InvalidValue(
            "metadata", f"must be at most {METADATA_TEXT_MAX} characters as it is written; got {len(cell)}"
        )
    try:
        return _object(cell) if cell else None
    except (ValueError, RecursionError) as problem:
        raise InvalidValue(
            "metadata", f'must be a JSON object such as {{"replay": "r-17"}}; {problem!s:.100}'
        ) from None
