"""The embedded ledger: events as rows of one SQLite file; ledger/port.py has its promises.

Draft → one transaction: players, contexts, events, metadata, requests → synced → witness
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from zlib import crc32

import apsw
import msgspec

from rankd.background import lower_priority
from rankd.errors import RankdError
from rankd.ledger.event import Context, EventRun, control_run, seal
from rankd.ledger.origin import OriginSpan, RequestOrigin
from rankd.ledger.port import NOT_READ, Capabilities, ControlEvent, Draft, KeyedRequest, KeysTaken, SourceMoved
from rankd.ledger.sqlite.checksum import checksum, with_checksum
from rankd.ledger.sqlite.database import Database
from rankd.ledger.sqlite.history import PlayerHistory
from rankd.ledger.sqlite.numbers import ContextNumbers, PlayerNumbers
from rankd.ledger.sqlite.origins import origin_row
from rankd.ledger.sqlite.player_ids import PlayerIds
from rankd.ledger.sqlite.reading import PARTITION, LedgerHead, SqliteReads
from rankd.ledger.sqlite.rows import encoded_details, insert_of, insert_rows, joined, values_of
from rankd.ledger.sqlite.statements import ROWS_PER_STATEMENT_MAX, insert
from rankd.ledger.sqlite.witness import WITNESS_NAME, Witness

__all__ = ["PARTITION", "AppendedRun", "LedgerHead", "SqliteLedger"]
_context_of = attrgetter("context")
_STORE_REQUESTS = "INSERT INTO requests (sender, key, fingerprint, first, upto, at, checksum) VALUES"
_WHERE_EXPIRED = (
    " ON CONFLICT (sender, key) DO UPDATE SET fingerprint = excluded.fingerprint, first = excluded.first,"
    " upto = excluded.upto, at = excluded.at, checksum = excluded.checksum, answer = NULL WHERE requests.at < ?"
)


class _KeyTaken(Exception):
    """A request has the key of one that has not expired."""


class AppendedRun(msgspec.Struct, frozen=True):
    """The places of a draft's events, which are consecutive."""

    before: int  # the sequence before the first
    events: int
    at: int

    @property
    def end(self) -> dict[int, int]:
        """The last sequence."""
        return {PARTITION: self.before + self.events}

    def place(self, index: int) -> tuple[int, int]:
        """Return partition and sequence of an event."""
        return PARTITION, self.before + 1 + index

    def positions(self, first: int, count: int) -> dict[int, int]:
        """Return the last sequence of some of the events."""
        return {PARTITION: self.before + first + count}


class SqliteLedger(SqliteReads):
    """A ledger in a folder, of one partition; one process at a time writes it."""

    capabilities = Capabilities(
        is_sole_writer=True, stores_answers=True, appends_conditionally=True, finds_history=True
    )

    def __init__(self, folder: Path, database: Database, committed: Callable[[], None] = lambda: None) -> None:
        """Check the head of the ledger against its witness; `committed` is called after each durable change."""
        self.players = PlayerNumbers(database)
        with database.writing() as writer:
            super().__init__(database, ContextNumbers(writer))
        self._database: Database = database
        self.player_ids = PlayerIds(database)
        self._player_index = PlayerHistory(database, self.player_ids)
        self._head = self._end()
        self._is_uncertain = False  # whether an append failed, and may have taken effect
        self._was_committed = committed
        self._witness = Witness(folder / WITNESS_NAME)
        with database.reading() as reader:
            changes: int = reader.execute("SELECT count FROM registry_changes").get or 0
        self._witness.check(self._head.sequence, changes)

    def close(self) -> None:
        """Close the witness; the owner of the database closes it."""
        self.players.close()
        self._witness.close()

    def _committed(self) -> LedgerHead:
        """Return the head; after a failed append it is read, in any thread. The next append recovers."""
        return self._end() if self._is_uncertain else self._head

    # Writing

    def load_players(self) -> None:
        """Begin to read the players into memory, in a thread; the first commit reads the rest."""

        def load() -> None:
            lower_priority()
            with suppress(RankdError):  # the first commit meets it again
                self.players.load()

        threading.Thread(target=load, name="rankd-players", daemon=True).start()

    def number_context(self, context: Context) -> int:
        """Return the number of a context; a new one is stored with the next commit."""
        return self._contexts.number(context)

    def record_changes(self, count: int) -> None:
        """Record the number of committed registry changes in the witness."""
        self._witness.record(changes=count)
        self._was_committed()

    def append(self, draft: Draft) -> AppendedRun:
        """Make a draft durable, and set `first` of its runs."""
        if self._is_uncertain:
            self._recover()
        keys = draft.distinct_keys() if draft.requests else []
        if draft.sources:
            self._check_sources(draft)
        before = self._head.sequence
        try:
            self._number_players(draft.event_runs)
            head = self._append(draft)
            if self.players.fresh:
                self.players.saved()
            if self._contexts.fresh:
                self._contexts.saved()
            self._head = head
        except _KeyTaken:  # everything was rolled back
            self.players.forget_fresh()
            stored = self.requests(keys)
            raise KeysTaken(
                [key for key in keys if key in stored and stored[key].at >= draft.forgotten_before]
            ) from None
        except BaseException:
            self._is_uncertain = True  # the commit may have succeeded
            self.players.forget_fresh()
            raise
        self._witness.record(sequence=head.sequence)
        self._was_committed()
        return AppendedRun(before, head.sequence - before, head.at)

    def append_control(
        self,
        events: Sequence[ControlEvent],
        seen: int,
        request: KeyedRequest | None = None,
        *,
        at: int = 0,
        forgotten_before: int = 0,
        origin: RequestOrigin | None = None,
    ) -> Sequence[ControlEvent]:
        """Make control events durable; return them with their sequences."""
        event_runs = [control_run(self.number_context(event.context), event.at, event.detail) for event in events]
        requests = () if request is None else (request,)
        latest = max([at, *(event.at for event in events)])
        origins = () if origin is None else (OriginSpan(origin, 0, len(events)),)
        appended = self.append(
            Draft(event_runs, latest, seen, requests=requests, origins=origins, forgotten_before=forgotten_before)
        )
        return [
            msgspec.structs.replace(event, sequences=(appended.before + number,))
            for number, event in enumerate(events, start=1)
        ]

    def _check_sources(self, draft: Draft) -> None:
        for source, partition, after, _ in draft.sources:
            if self.source_offsets(source).get(partition, NOT_READ) != after:
                raise SourceMoved(f"{source}, partition {partition}: another consumer has read on")

    def _number_players(self, event_runs: Sequence[EventRun]) -> None:
        """Number the players; those who are new get their numbers with this commit."""
        for event_run in event_runs:
            if event_run.players[0]:
                event_run.player = self.players.number(event_run.players)

    def _recover(self) -> None:
        """Read the head again after a failed append, which may have taken effect."""
        self._head = self._end()
        with self._database.writing():  # upkeep uses the connection too
            self._contexts.recover()
        self._is_uncertain = False

    def _append(self, draft: Draft) -> LedgerHead:
        before = self._head
        at = max(draft.at, before.at)
        sequence = before.sequence
        for event_run in draft.event_runs:
            event_run.first = sequence + 1
            sequence += len(event_run.score)
        first, count = before.sequence + 1, sequence - before.sequence
        columns = joined(draft.event_runs) if count else []
        details = encoded_details(draft.event_runs)
        sealed = before.seal
        if count:
            contexts = self._contexts.stored(map(_context_of, draft.event_runs))
            sealed = seal(before.seal, at, first, contexts, columns, details=details or [b""] * count)
        has_more = self.players.fresh or self._contexts.fresh or draft.has_more
        if 0 < count <= ROWS_PER_STATEMENT_MAX and not has_more:  # one statement is its own transaction
            self._database.write_one(insert_of(count), values_of(first, columns, details, sealed))
            return LedgerHead(sequence, sealed, at)
        with self._database.writing() as writer:
            if draft.answers:  # before the requests, which may replace expired ones
                _store_answers(writer, draft.answers)
            if draft.requests:  # before the events: most repeats are found here
                _store_requests(writer, draft, before.sequence, at)
            self.players.save(writer)
            self._contexts.save()
            if count:
                insert_rows(writer, first, columns, details=details, sealed=sealed)
            self._insert_beside(writer, draft, before.sequence)
        return LedgerHead(sequence, sealed, at)

    def _insert_beside(self, writer: apsw.Connection, draft: Draft, before: int) -> None:
        if draft.metadata:
            insert(
                writer,
                "INSERT INTO metadata (sequence, json, checksum) VALUES",
                [(before + 1 + index, json, crc32(json.encode())) for index, json in draft.metadata.items()],
            )
        if draft.origins:
            insert(
                writer,
                "INSERT INTO origins (first, upto, address, user_agent, request_id, checksum) VALUES",
                [
                    origin_row(before + 1 + start, before + start + count, origin)
                    for origin, start, count in draft.origins
                ],
            )
        if draft.sources:
            insert(
                writer,
                "INSERT OR REPLACE INTO sources (source, partition, upto, checksum) VALUES",
                [
                    (*row, checksum(*row))
                    for source, partition, _, upto in draft.sources
                    for row in [(source, partition, upto)]
                ],
            )

    def forget_requests(self, before: int, count_max: int) -> int:
        """Delete at most `count_max` requests older than an instant; return their number."""
        with self._database.reading() as reader:
            if reader.execute("SELECT 1 FROM requests WHERE at < ? LIMIT 1", (before,)).get is None:
                return 0
        with self._database.writing() as writer:
            writer.execute(
                "DELETE FROM requests WHERE (sender, key) IN"
                " (SELECT sender, key FROM requests WHERE at < ? ORDER BY at LIMIT ?)",
                (before, count_max),
            )
            return writer.changes()

    def wait(self, _timeout_s: float) -> None:
        """Return at once: no other process appends."""


def _store_answers(writer: apsw.Connection, answers: Sequence[tuple[str, str, bytes]]) -> None:
    writer.executemany(
        "UPDATE requests SET answer = ?3 WHERE sender = ?1 AND key = ?2 AND answer IS NULL",
        ((sender, key, with_checksum(answer)) for sender, key, answer in answers),
    )


def _store_requests(writer: apsw.Connection, draft: Draft, before: int, at: int) -> None:
    """Insert the requests, in place of expired ones with their keys; raise _KeyTaken when one has not expired."""
    rows = [
        (*row, checksum(*row))
        for sender, key, fingerprint, start, count in draft.requests
        for row in [(sender, key, fingerprint, before + 1 + start, before + start + count, at)]
    ]
    if insert(writer, _STORE_REQUESTS, rows, _WHERE_EXPIRED, draft.forgotten_before) < len(rows):
        raise _KeyTaken
