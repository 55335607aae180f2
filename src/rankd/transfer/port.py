"""What an import and an export need of boards: a data folder (`rankd.Boards`) and a server (`rankd.Client`) have it.

Promises of a Target: a batch counts as a whole or not at all; one that comes again under its key counts once.
Not promised: that a key is remembered longer than `idempotency_ttl`; an import that goes on later asks its own notes.
May be imported by: the modules of this package, and whatever runs an import or an export.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rankd.intake.results import Batched
from rankd.reads.answers import Page


class Source(Protocol):
    """Where standings come from."""

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


class Target(Source, Protocol):
    """Where scores go. It may take a keyword `imported`, which lets `at` go back before the board's `late_by`."""

    def definition(self, board: str) -> Mapping[str, object]:
        """Return a board's whole definition."""
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
        attributes: Sequence[Mapping[str, object] | None] | None = None,
        metadata: Sequence[Mapping[str, object] | None] | None = None,
        key: str | None = None,
    ) -> Batched:
        """Count many scores, all or none."""
        ...
