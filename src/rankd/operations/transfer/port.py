"""The parts of `rankd.Boards` (a data folder) and `rankd.Client` (a server) that imports and exports use.

Promises of a Target: a batch counts as a whole or not at all; one that comes again under its key counts once.
Not promised: that a key is remembered longer than `idempotency_ttl`. An import that resumes later uses its progress
file.
May be imported by: the modules of this package, and the commands that run an import or an export.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rankd.intake.results import Batched
from rankd.reads.answers import Page


class Source(Protocol):
    """The source of an export."""

    def top(
        self,
        board: str,
        limit: int = 10,
        *,
        cursor: str | None = None,
        window: str | None = None,
        scope: str | None = None,
    ) -> Page:
        """Return the first entries, or those behind an earlier page."""
        ...


class ImportTarget(Source, Protocol):
    """The target of an import. It may take a keyword `imported`, which allows `at` before the board's `late_by`."""

    def definition(self, board: str) -> Mapping[str, object]:
        """Return a board's complete definition."""
        ...

    def submit_many(
        self,
        board: str,
        rows: Iterable[Sequence[object] | Mapping[str, object]] | None = None,
        *,
        players: Sequence[str] | None = None,
        scores: Sequence[int] | None = None,
        tiebreaks: Sequence[int] | None = None,
        at: Sequence[int] | None = None,
        attributes: Mapping[str, object] | Sequence[Mapping[str, object] | None] | None = None,
        metadata: Sequence[Mapping[str, object] | None] | None = None,
        key: str | None = None,
    ) -> Batched:
        """Submit many scores, all or none."""
        ...
