"""The report of an import."""

from __future__ import annotations

import msgspec

BAD_LINES_KEPT_MAX = 100


class BadLine(msgspec.Struct, frozen=True):
    """A line that cannot be imported; a record of several lines is named by its first."""

    number: int  # the first line of the file is 1; in Parquet, the first row
    problem: str


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import; `lines` are records, without the header and empty lines."""

    lines: int
    imported: int  # counted by this run
    repeated: int  # counted by an earlier run of the same import
    skipped: int  # bad lines left out by skip_bad_lines
    bad: list[BadLine]  # the first 100
    bad_count: int
    refused: bool  # there were bad lines, so nothing was imported


class BadLines:
    """Counts bad lines, and keeps the first ones."""

    def __init__(self) -> None:
        """Start empty."""
        self.first: list[BadLine] = []
        self.count = 0

    def add(self, lines: list[BadLine]) -> None:
        """Add the bad lines of a batch."""
        self.count += len(lines)
        self.first += lines[: BAD_LINES_KEPT_MAX - len(self.first)]
