"""Reading the embedded ledger: what its writer and the workers beside it have in common.

rows → seals checked → runs of events
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from zlib import crc32

import msgspec

from rankd.errors import LedgerDamaged
from rankd.ledger.audit import AuditedPage, AuditMark, AuditQuery
from rankd.ledger.event import (
    CONTROLS,
    NO_DETAIL,
    NO_SEAL,
    SEAL_BYTES,
    Context,
    EventKind,
    EventRun,
    sealed_at,
)
from rankd.ledger.origin import RequestOrigin
from rankd.ledger.port import Heads, Part, PastEvent, StoredRequest
from rankd.ledger.sqlite.auditing import SqliteAudit
from rankd.ledger.sqlite.checksum import check, without_checksum
from rankd.ledger.sqlite.database import ReadOnlyDatabase
from rankd.ledger.sqlite.history import SEQUENCE_END, PlayerHistory
from rankd.ledger.sqlite.numbers import ContextNumbers
from rankd.ledger.sqlite.origins import SELECT_ORIGINS, origin_in
from rankd.ledger.sqlite.rows import RowColumns, check_seals, event_runs_of

PARTITION = 0  # the only one
_REQUESTS = "SELECT sender, key, fingerprint, first, upto, at, checksum, answer FROM requests "
_SEAL_BETWEEN = (
    "SELECT seal FROM events WHERE sequence >= ? AND sequence < ? AND seal IS NOT NULL ORDER BY sequence LIMIT 1"
)
_NEXT_SEAL = "SELECT sequence, seal FROM events WHERE sequence >= ? AND seal IS NOT NULL ORDER BY sequence LIMIT 1"


class LedgerHead(msgspec.Struct, frozen=True):
    """The end of the ledger."""

    sequence: int
    seal: bytes
    at: int  # the ledger's time at the last commit, which a sent `at` does not change


class SqliteReads:
    """The reads of a ledger in a folder, of one partition; from any thread."""

    partitions = 1
    _player_index: PlayerHistory

    def __init__(self, database: ReadOnlyDatabase, contexts: ContextNumbers) -> None:
        """Read on connections of their own."""
        self._database = database
        self._contexts = contexts
        self._read_upto = (0, NO_SEAL)  # where the last `read` ended

    @property
    def player_index(self) -> PlayerHistory:
        """The index of players' events."""
        return self._player_index

    def _committed(self) -> LedgerHead:
        """Return the committed head."""
        return self._end()

    def heads(self) -> Heads:
        """Return the committed head."""
        head = self._committed()
        return Heads((head.sequence,), 0, head.at)

    def sequences_at(self, at: int) -> tuple[int, ...]:
        """Return the last event that was committed by an instant, by the times in the seals."""
        low, high = 0, self._committed().sequence  # `low` is the end of a commit by then
        with self._database.reading() as reader:
            while low < high:
                middle = (low + high + 1) // 2
                row = reader.execute(_NEXT_SEAL, (middle,)).get
                if row is None:
                    raise LedgerDamaged(f"no commit ends at event {middle} or after it; restore a copy")
                sequence, sealed = row
                if sealed_at(sealed) <= at:
                    low = sequence
                else:
                    high = middle - 1
        return (low,)

    def stamp(self, positions: Sequence[int]) -> str | None:
        """Return the seal of the commit that ended at a position; None where none ended."""
        sealed = self.seal_at(positions[PARTITION]) if len(positions) == self.partitions else None
        return None if sealed is None else sealed.hex()

    def _end(self) -> LedgerHead:
        with self._database.reading() as reader:
            row = reader.execute("SELECT sequence, seal FROM events ORDER BY sequence DESC LIMIT 1").get
        if row is None:
            return LedgerHead(0, NO_SEAL, 0)
        sequence, sealed = row
        if sealed is None or len(sealed) != SEAL_BYTES:
            raise LedgerDamaged(f"the ledger ends at event {sequence} in the middle of a commit; restore a copy")
        return LedgerHead(sequence, sealed, sealed_at(sealed))

    def context(self, number: int) -> Context:
        """Return a context by number."""
        return self._contexts.context(number)

    def read(self, after: Sequence[int], events_max: int, skipping: Collection[int] = ()) -> Sequence[Part]:
        """Return committed events behind a sequence: whole commits, about `events_max` events, with checked seals."""
        (begun,), end = after, self._committed().sequence
        if PARTITION in skipping or begun == end:
            return []
        if begun > end:
            raise LedgerDamaged(f"the ledger ends at event {end}, before what was read of it; is this an older copy?")
        read_upto, sealed = self._read_upto
        before = sealed if read_upto == begun else self.seal_at(begun)
        if before is None:
            raise LedgerDamaged(f"no commit ends at event {begun}; restore a copy of the data folder")
        fetched = self._fetch(begun, min(begun + events_max, end))
        self._read_upto = begun + len(fetched), check_seals(fetched, before, self._contexts.stored)
        return [part for run in event_runs_of(fetched) for part in self._parts(run)]

    def _parts(self, run: EventRun) -> Iterator[Part]:
        if self.context(run.context).kind not in CONTROLS:
            yield Part(PARTITION, run, None)
            return
        for index in range(len(run)):
            yield Part(PARTITION, run.part(index, index + 1), None)

    def seal_at(self, sequence: int) -> bytes | None:
        """Return the seal of the commit that ended with an event; None where none ended."""
        if sequence == 0:
            return NO_SEAL
        with self._database.reading() as reader:
            sealed: bytes | None = reader.execute("SELECT seal FROM events WHERE sequence = ?", (sequence,)).get
        return sealed

    def _fetch(self, after: int, end: int) -> RowColumns:
        with self._database.reading() as reader:
            stop = reader.execute(
                "SELECT min(sequence) FROM events WHERE sequence >= ? AND seal IS NOT NULL",
                (end,),
            ).get
            if stop is None:
                raise LedgerDamaged(f"events after {after} are missing; restore a copy of the data folder")
            return RowColumns(reader, after + 1, stop)

    def event(self, _partition: int, sequence: int) -> EventRun:
        """Return one event as a run of one."""
        with self._database.reading() as reader:
            columns = RowColumns(reader, sequence, sequence)
        return next(event_runs_of(columns))

    def history(self, player: str, limit: int, before: int | None = None, board: str | None = None) -> list[PastEvent]:
        """Return a player's own events, the newest first, optionally before a sequence or of one board."""
        sequences = self.player_index.events_of(player, SEQUENCE_END if before is None else before)
        events = (self.event(PARTITION, sequence) for sequence in sequences)
        of_board = (event for event in events if board is None or self.context(event.context).board == board)
        page = list(islice(of_board, limit))
        metadata = self.metadata([(PARTITION, event.first) for event in page])
        return [self._past_event(event, metadata.get((PARTITION, event.first))) for event in page]

    def _past_event(self, event_run: EventRun, metadata: str | None) -> PastEvent:
        context = self.context(event_run.context)
        detail = (event_run.detail or [None])[0] or NO_DETAIL
        is_score = context.kind is EventKind.SCORE
        origin = self.origin_of(event_run.first)
        return PastEvent(
            sequence=event_run.first,
            kind=context.kind,
            board=context.board,
            at=event_run.at[0],
            score=event_run.score[0] if is_score else None,
            tiebreak=event_run.tiebreak[0] if is_score else None,
            attributes=detail.attributes,
            metadata=None if metadata is None else msgspec.json.decode(metadata, type=dict[str, object]),
            sender=context.sender,
            origin=None if origin is None else origin.address,
        )

    def origin_of(self, sequence: int) -> RequestOrigin | None:
        """Return where an event came from, if that was recorded."""
        with self._database.reading() as reader:
            row: Any = reader.execute(f"{SELECT_ORIGINS} WHERE first <= ? ORDER BY first DESC LIMIT 1", (sequence,)).get
        if row is None or row[1] < sequence:
            return None
        return origin_in(row)

    def committed_at(self, sequence: int, before: int | None = None) -> int | None:
        """Return the ledger's time at the commit of an event; None where it ends at `before` or later."""
        end = SEQUENCE_END if before is None else before
        with self._database.reading() as reader:
            row = reader.execute(_SEAL_BETWEEN, (sequence, end)).get
        return None if row is None else sealed_at(row)

    def audit(self, query: AuditQuery, before: AuditMark | None = None) -> AuditedPage:
        """Return the newest events that a query asks for, optionally behind where an earlier page ended."""
        return SqliteAudit(self, self._database).page(query, before)

    def events_of(self, players: Mapping[str, int], events_max: int) -> Iterator[tuple[str, Sequence[EventRun]]]:
        """Iterate over players with their events before a sequence, the newest first, as runs of one."""
        for player, sequences in self.player_index.events_of_each(players):
            yield player, [self.event(PARTITION, sequence) for sequence in islice(sequences, events_max)]

    def controls_of(self, board: str, _partition: int) -> Sequence[EventRun] | None:
        """Return a board's control events in order, without midnights; None where there are too many."""
        return SqliteAudit(self, self._database).controls_of(board)

    def request(self, sender: str, key: str) -> StoredRequest | None:
        """Return the request stored under a key, until it expires."""
        with self._database.reading() as reader:
            row = reader.execute(_REQUESTS + "WHERE sender = ? AND key = ?", (sender, key)).get
        return None if row is None else _request(row)

    def requests(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], StoredRequest]:
        """Return the requests stored under any of these (sender, key)."""
        return {key: request for key in keys if (request := self.request(*key)) is not None}

    def check(self) -> None:
        """Check every row that no seal covers; LedgerDamaged names the first damaged one."""
        with self._database.reading() as reader:
            twice: str | None = reader.execute("SELECT id FROM players GROUP BY id HAVING count(*) > 1 LIMIT 1").get
            if twice is not None:
                raise LedgerDamaged(f"player {twice!r} has two numbers; restore a copy of the data folder")
            for row in reader.execute(_REQUESTS):
                _request(row)
            for row in reader.execute(SELECT_ORIGINS):
                origin_in(row)
            for sequence, json, stored in reader.execute("SELECT sequence, json, checksum FROM metadata"):
                if crc32(str(json).encode()) != stored:
                    raise LedgerDamaged(
                        f"the metadata of event {sequence} is damaged; restore a copy of the data folder"
                    )

    def sources(self) -> list[str]:
        """Return the names of all sources."""
        with self._database.reading() as reader:
            return [str(source) for (source,) in reader.execute("SELECT DISTINCT source FROM sources ORDER BY source")]

    def source_offsets(self, source: str) -> dict[int, int]:
        """Return the offsets to read next of a source, by partition; without those never read."""
        with self._database.reading() as reader:
            rows: Any = reader.execute(
                "SELECT partition, upto, checksum FROM sources WHERE source = ?", (source,)
            ).fetchall()
        for partition, upto, stored in rows:
            check(f"the offset of {source}", stored, source, partition, upto)
        return {partition: upto for partition, upto, _ in rows}

    def metadata(self, events: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Return the metadata (JSON) of the events that have some."""
        metadata: dict[tuple[int, int], str] = {}
        if not events:
            return metadata
        with self._database.reading() as reader:
            rows = reader.executemany(
                "SELECT sequence, json, checksum FROM metadata WHERE sequence = ?",
                ((sequence,) for _, sequence in events),
            )
            for sequence, json, checksum in rows:
                if crc32(json.encode()) != checksum:
                    raise LedgerDamaged(
                        f"the metadata of event {sequence} is damaged; restore a copy of the data folder"
                    )
                metadata[PARTITION, sequence] = json
        return metadata


def _request(row: Any) -> StoredRequest:
    sender, key, fingerprint, first, upto, at, stored, answer = row
    what = f"the request under the key {key!r:.80}"
    check(what, stored, sender, key, fingerprint, first, upto, at)
    return StoredRequest(
        sender,
        key,
        fingerprint,
        at,
        upto - first + 1,
        {PARTITION: upto},
        None if answer is None else without_checksum(what, answer),
    )
