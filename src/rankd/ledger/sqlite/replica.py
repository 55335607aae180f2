"""The embedded ledger in a process beside the one that writes it: read-only; ledger/port.py has its promises.

    the writer commits → `wait` returns → heads, read

No read transaction stays open, since one would keep the writer from moving its log into the file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from rankd.errors import LedgerUnavailable
from rankd.ledger.event import Context
from rankd.ledger.origin import RequestOrigin
from rankd.ledger.port import Appended, Capabilities, ControlEvent, Draft, KeyedRequest
from rankd.ledger.sqlite.database import NOT_WRITTEN_HERE, ReadOnlyDatabase
from rankd.ledger.sqlite.history import PlayerHistory
from rankd.ledger.sqlite.numbers import ContextNumbers
from rankd.ledger.sqlite.player_ids import PlayerIds
from rankd.ledger.sqlite.reading import SqliteReads
from rankd.ledger.sqlite.rows import RowColumns


class SqliteReplicaLedger(SqliteReads):
    """A ledger that another process writes."""

    capabilities = Capabilities(
        is_sole_writer=False, stores_answers=False, appends_conditionally=True, finds_history=True
    )

    def __init__(self, database: ReadOnlyDatabase, wait: Callable[[float], None]) -> None:
        """`wait` returns when the writer has committed, at the latest after so many seconds."""
        with database.reading() as reader:
            super().__init__(database, ContextNumbers(reader))
        self._wait = wait
        self._reading_contexts = threading.Lock()

    def close(self) -> None:
        """Do nothing: the owner of the database closes it."""

    def wait(self, timeout_s: float) -> None:
        """Return when something may have been appended; a ledger that was replaced is not followed any more."""
        self._wait(timeout_s)
        self._database.check_place()

    def context(self, number: int) -> Context:
        """Return a context by number; one that is not known here is read."""
        self._read_contexts(number)
        return self._contexts.context(number)

    def _fetch(self, after: int, end: int) -> RowColumns:
        columns = super()._fetch(after, end)
        self._read_contexts(max(columns.contexts))  # their seals cover the contexts
        return columns

    def _read_contexts(self, upto: int) -> None:
        if upto > len(self._contexts.texts):
            with self._reading_contexts, self._database.reading() as reader:
                self._contexts.read_on(reader)

    @property
    def player_index(self) -> PlayerHistory:
        """The index of players' events as it is now."""
        return PlayerHistory(self._database, PlayerIds(self._database))

    # Refused: the writer does it

    def append(self, _draft: Draft) -> Appended:
        """Refuse."""
        _refuse()

    def append_control(
        self,
        _events: Sequence[ControlEvent],
        _seen: int,
        _request: KeyedRequest | None = None,
        *,
        at: int = 0,
        forgotten_before: int = 0,
        origin: RequestOrigin | None = None,
    ) -> Sequence[ControlEvent]:
        """Refuse."""
        _refuse()

    def number_context(self, _context: Context) -> int:
        """Refuse."""
        _refuse()

    def forget_requests(self, _before: int, _count_max: int) -> int:
        """Refuse."""
        _refuse()


def _refuse() -> NoReturn:
    raise LedgerUnavailable(NOT_WRITTEN_HERE)
