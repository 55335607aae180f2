"""Which formats there are, how a file's format is told, and what its columns are called."""

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
IGNORED = ("rank", "name", "country", "avatar_url")  # what an export says beside: an import takes it from elsewhere
METADATA_TEXT_MAX = 16_384  # of JSON as it is written; compact, it may be 1 KiB
COLUMNS_MAX = 256  # of a table: an event has at most 32 attributes
EXPORTED = ("rank", "player", "score", "reached_at", "tiebreak", "name", "country", "metadata")


class Format(StrEnum):
    """How a file is written."""

    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"


ENDINGS = {".csv": Format.CSV, ".ndjson": Format.NDJSON, ".jsonl": Format.NDJSON, ".parquet": Format.PARQUET}


class Told(NamedTuple):
    """What a file's name and the option say of it."""

    format: Format
    is_packed: bool  # by gzip


def tell_format(path: str, asked: str | None = None) -> Told:
    """Return the format asked for, else the one a file's ending names.

    >>> tell_format("scores.csv.gz")
    Told(format=<Format.CSV: 'csv'>, is_packed=True)
    """
    name = path.lower()
    is_packed = name.endswith(PACKED_ENDING)
    if asked is None:
        inner = name.removesuffix(PACKED_ENDING)
        found = next((ENDINGS[ending] for ending in ENDINGS if inner.endswith(ending)), None)
    else:
        found = read_choice("format", asked, Format)
    if found is None:
        what = "a stream" if path == STANDARD else repr(path[-80:])
        raise InvalidValue("format", f"cannot be told from {what}; say which of {', '.join(Format)} it is")
    if found is Format.PARQUET and is_packed:
        raise InvalidValue("format", "parquet is compressed in itself; leave .gz away")
    return Told(found, is_packed)


def load_parquet() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.parquet, which are loaded only when somebody wants Parquet."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise InvalidValue(
            "format", "parquet needs pyarrow: install it with pip install 'rankd[parquet]', or use csv or ndjson"
        ) from None


class Header:
    """The columns of a table: where each one that is imported stands."""

    def __init__(self, names: list[str], file: str) -> None:
        """Refuse names that are unknown, missing, there twice or too many."""
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
    """Say that a column or a field is unknown, and which was probably meant."""
    known = [*IMPORTED, *IGNORED, "attributes"]
    return f"{name!r:.80} is not known here; {nearest(name, known)}"
