"""Scores that were read from topics of other systems: appended in one commit with how far the topics were read.

    consumer → SourceIntake.append → Writer → ledger: events and offsets, or neither

So each record counts once, however often it is read: the ledger refuses what another consumer has appended already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rankd.errors import Refused
from rankd.intake import prepare
from rankd.intake.prepare import SentScore
from rankd.intake.sender import Sender
from rankd.intake.writer import Writer
from rankd.ledger.port import SourceSpan


class SourceIntake:
    """Appends records of topics; from any thread."""

    def __init__(self, writer: Writer) -> None:
        """It commits by the writer of this process."""
        self._writer = writer

    def offsets(self, source: str) -> dict[int, int]:
        """Return the offsets to read next of a source, by partition; without those never read."""
        if not self._writer.appends_conditionally:
            raise Refused(
                "the ledger of this installation is a log, which cannot store how far another topic was read; send "
                "scores to the API, or consume into PostgreSQL or a folder"
            )
        return self._writer.source_offsets(source)

    def append(self, sent: Iterable[SentScore], sender: Sender, spans: Sequence[SourceSpan]) -> None:
        """Append the scores of some records, all or none; SourceMoved where another consumer has read on."""
        task = prepare.events(sent, sender, prepare.defer_checks(self._writer.boards))
        task.sources = spans
        task.alone = True  # a refusal concerns no other request
        self._writer.submit(task)

    def skip(self, spans: Sequence[SourceSpan]) -> None:
        """Move on over records without events."""
        self._writer.skip_sources(spans)
