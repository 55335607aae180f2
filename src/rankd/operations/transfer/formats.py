"""The file formats, their detection, and the names of columns."""

from __future__ import annotations

import importlib
from enum import StrEnum
from typing import Any, NamedTuple

from rankd.domain.fields import nearest, read_choice
from rankd.domain.scope import check_attribute_name
from rankd.errors import InvalidValue

STANDARD = "-"  # in place of a path: standard input or output
PACKED_ENDING = ".gz"
ATTRIBUTE_PREFIX = "attributes."
IMPORTED = ("player", "score", "tiebreak", "at", "reached_at", "metadata", "board")
IGNORED = ("rank", "name", "country", "avatar_url")  # written by exports, and not imported
METADATA_TEXT_MAX = 16_384  # of JSON as written; compact, it may be 1 KiB
COLUMNS_MAX = 256  # of a table: an event has at most 32 attributes
EXPORTED = ("rank", "player", "score", "reached_at", "tiebreak", "name", "country", "metadata")


class Format(StrEnum):
    """A file format."""

    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"
    ARROW = "arrow"
    ARROW_STREAM = "arrow-stream"

    @property
    def label(self) -> str:
        """Its name in a sentence."""
        return {Format.PARQUET: "Parquet", Format.ARROW: "Arrow", Format.ARROW_STREAM: "Arrow"}.get(self, self.upper())

    @property
    def is_columnar(self) -> bool:
        """Whether pyarrow reads and writes it."""
        return self in (Format.PARQUET, Format.ARROW, Format.ARROW_STREAM)


ENDINGS = {
    ".csv": Format.CSV,
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".arrows": Format.ARROW_STREAM,
}


class NamedFormat(NamedTuple):
    """A format and whether the file is compressed."""

    format: Format
    is_packed: bool  # by gzip


def detect_format(path: str, asked: str | None = None) -> NamedFormat:
    """Return the format `asked` for, else the one of the file's ending.

    >>> detect_format("scores.csv.gz")
    NamedFormat(format=<Format.CSV: 'csv'>, is_packed=True)
    """
    name = path.lower()
    is_packed = name.endswith(PACKED_ENDING)
    if asked is None:
        inner = name.removesuffix(PACKED_ENDING)
        named = next((ENDINGS[ending] for ending in ENDINGS if inner.endswith(ending)), None)
    else:
        named = read_choice("format", asked, Format)
    if named is None:
        what = "a stream" if path == STANDARD else repr(path[-80:])
        raise InvalidValue("format", f"cannot be detected from {what}; choose one of {', '.join(Format)}")
    if named.is_columnar and is_packed:
        raise InvalidValue("format", f"{named} is compressed already; name it without .gz")
    return NamedFormat(named, is_packed)


def load_arrow(format: Format) -> tuple[Any, Any]:  # noqa: A002 - as everywhere
    """Return pyarrow and its module of a columnar format, imported only for such files."""
    module = "pyarrow.parquet" if format is Format.PARQUET else "pyarrow.ipc"
    try:
        return importlib.import_module("pyarrow"), importlib.import_module(module)
    except ImportError:
        raise InvalidValue(
            "format", f"{format} needs pyarrow: install it with pip install 'rankd[parquet]', or use csv or ndjson"
        ) from None


class TableHeader:
    """The columns of a table, with the index of each imported one."""

    def __init__(self, names: list[str], file: str) -> None:
        """Refuse unknown, missing, repeated or too many names."""
        self.width = len(names)
        if self.width > COLUMNS_MAX:
            raise InvalidValue(
                "header",
                f"of {file} names {self.width} columns, and may name {COLUMNS_MAX}; leave out those from "
                f"{names[COLUMNS_MAX]!r:.80} on, or split the file",
            )
        self.index: dict[str, int] = {}
        self.attributes: list[tuple[str, int]] = []
        for place, name in enumerate(names):
            if name in names[:place]:
                raise InvalidValue("header", f"names the column {name!r:.80} twice; leave one out")
            if name.startswith(ATTRIBUTE_PREFIX):
                attribute = check_attribute_name(f"header, column {name!r:.80}", name.removeprefix(ATTRIBUTE_PREFIX))
                self.attributes.append((attribute, place))
            elif name in IMPORTED:
                self.index[name] = place
            elif name not in IGNORED:
                raise InvalidValue("header", unknown_name(name))
        for name in ("player", "score"):
            if name not in self.index:
                raise InvalidValue("header", f"has no column {name!r}; the first line must name the columns")


def unknown_name(name: str) -> str:
    """Return the message for an unknown column or field, with the nearest known name."""
    known = [*IMPORTED, *IGNORED, "attributes"]
    return f"{name!r:.80} is not known here; {nearest(name, known)}"
