"""The embedded ledger: events as rows of one SQLite file; see port.py for what it promises.

    Draft → one transaction: players, contexts, events, metadata, requests → synced → witness

The witness is a small file that is told of each commit after it was synced. SQLite ends a damaged log at the first bad
page and says nothing; a ledger that ends before its witness has lost something, and is refused.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from mmap import mmap
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw
import msgspec

from rankd.errors import LedgerDamaged, LedgerUnavailable
from rankd.ledger.checksum import check, checksum, with_checksum, without_checksum
from rankd.ledger.database import Database
from rankd.ledger.event import (
    NO_DETAIL,
    NO_SEAL,
    SEAL_BYTES,
    Context,
    Kind,
    Single,
    Stretch,
    seal,
    seal_single,
    sealed_at,
)
from rankd.ledger.history import History
from rankd.ledger.numbers import ContextNumbers, PlayerNumbers
from rankd.ledger.port import Draft, Head, PastEvent, Request
from rankd.ledger.rows import INSERT_ONE, Row, check_seals, encoded_details, insert_rows, joined, stretches_of

READ_EVENTS = 50_000  # fetched at a time; a commit is never cut, so more where one is larger
WITNESS_NAME = "witness"
_REQUESTS = "SELECT sender, key, fingerprint, first, upto, at, checksum, answer FROM requests "
_SELECT = (
    "SELECT e.context, e.at, e.player, e.score, e.tiebreak, e.detail, e.seal, p.id"
    " FROM events e LEFT JOIN players p ON p.number = e.player "
)
_WITNESS = struct.Struct("<4sQQI")  # magic, sequence, changes of the registry, CRC-32 of them
_TOLD = struct.Struct("<4sQQ")  # all but the last
_WITNESS_MAGIC = b"RKW1"


class SqliteLedger:
    """A ledger in a folder; opened by one process at a time."""

    def __init__(self, folder: Path, database: Database) -> None:
        """Check the end of the ledger against its witness."""
        self._database = database
        with database.writing() as writer:
            self._players = PlayerNumbers(writer)
            self._contexts = ContextNumbers(writer)
        self.player_index = History(database)
        self._head = self.head()
        self._witness = _Witness(folder / WITNESS_NAME)
        with database.reading() as reader:
            changes: int = reader.execute("SELECT count FROM registry_changes").get or 0
        self._witness.check(self._head.sequence, changes)

    def close(self) -> None:
        """Let go of the witness; the database is closed by whoever opened it."""
        self._witness.close()

    def head(self) -> Head:
        """Return the end as it is on disk."""
        with self._database.reading() as reader:
            row = reader.execute("SELECT sequence, seal FROM events ORDER BY sequence DESC LIMIT 1").get
        if row is None:
            return Head(0, NO_SEAL, 0)
        sequence, sealed = row
        if sealed is None or len(sealed) != SEAL_BYTES:
            raise LedgerDamaged(f"the ledger ends at event {sequence} in the middle of a commit; restore a copy")
        return Head(sequence, sealed, sealed_at(sealed))

    # Writing

    def number_players(self, players: Sequence[str]) -> array[int]:
        """Return the number of each player; those who are new get theirs with the next commit."""
        return self._players.number(players)

    def number_context(self, context: Context) -> int:
        """Return the number of a context; a new one gets its with the next commit."""
        return self._contexts.number(context)

    def forget_numbers(self) -> None:
        """Look at the numbers again: somebody else gave some to players."""
        self._players.forget_fresh()

    def tell_changes(self, count: int) -> None:
        """Let the witness know how often the registry was changed; its transaction is committed."""
        self._witness.tell(changes=count)

    def append(self, draft: Draft) -> Head:
        """Make a draft durable and set `first` of its stretches; return the new end."""
        try:
            head = self._append(draft)
        except BaseException:
            self._players.forget_fresh()
            self._contexts.withdraw()
            # The commit may have succeeded all the same: the caller looks at the end before it goes on.
            raise
        self._players.saved()
        self._contexts.saved()
        self._head = head
        self._witness.tell(sequence=head.sequence)
        return head

    def append_single(self, event: Single) -> Head:
        """Make one event durable and set its number and `first`; return the new end."""
        players, contexts, before = self._players, self._contexts, self._head
        event.player = players.number_one(event.player_id)
        if players.fresh or contexts.fresh:
            stretch = event.stretch()
            head = self.append(Draft([stretch], {}, [], [], event.at))
            event.first = stretch.first
            return head
        first = event.first = before.sequence + 1
        sealed = seal_single(before.seal, event, contexts.text(event.context))
        self._database.write_one(
            INSERT_ONE, (first, event.context, event.at, event.player, event.score, event.tiebreak, None, sealed)
        )
        head = self._head = Head(first, sealed, event.at)
        self._witness.tell(sequence=first)
        return head

    def recover(self) -> Head:
        """Look at the end again after a failed append: what was cut off is there, or it is not."""
        self._head = self.head()
        with self._database.writing() as writer:
            self._players = PlayerNumbers(writer)
            self._contexts = ContextNumbers(writer)
        return self._head

    def _append(self, draft: Draft) -> Head:
        before = self._head
        sequence = before.sequence
        for stretch in draft.stretches:
            stretch.first = sequence + 1
            sequence += len(stretch)
        with self._database.writing() as writer:
            self._players.save()
            self._contexts.save()
            sealed = before.seal
            if draft.stretches:
                sealed = self._insert(writer, draft, before)
            self._insert_beside(writer, draft, before.sequence)
        return Head(sequence, sealed, draft.at)

    def _insert(self, writer: apsw.Connection, draft: Draft, before: Head) -> bytes:
        first = before.sequence + 1
        columns = joined(draft.stretches)
        details = encoded_details(draft.stretches)
        contexts = self._contexts.stored(stretch.context for stretch in draft.stretches)
        sealed = seal(before.seal, draft.at, first, contexts, columns, details=details or [b""] * len(columns[0]))
        insert_rows(writer, first, columns, details, sealed)
        return sealed

    def _insert_beside(self, writer: apsw.Connection, draft: Draft, before: int) -> None:
        if draft.metadata:
            writer.executemany(
                "INSERT INTO metadata (sequence, json, checksum) VALUES (?, ?, ?)",
                ((before + 1 + index, json, crc32(json.encode())) for index, json in draft.metadata.items()),
            )
        if draft.answers:
            writer.executemany(
                "UPDATE requests SET answer = ?3 WHERE sender = ?1 AND key = ?2 AND answer IS NULL",
                ((sender, key, with_checksum(answer)) for sender, key, answer in draft.answers),
            )
        if draft.requests:  # behind the answers, which are of earlier requests under the same key
            writer.executemany(
                "INSERT OR REPLACE INTO requests (sender, key, fingerprint, first, upto, at, checksum)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    (*row, checksum(*row))
                    for request, start, count in draft.requests
                    for row in [
                        (
                            request.sender,
                            request.key,
                            request.fingerprint,
                            before + 1 + start,
                            before + start + count,
                            draft.at,
                        )
                    ]
                ),
            )

    def forget_requests(self, before_at: int, limit: int) -> int:
        """Forget requests older than an instant, at most so many; return how many were."""
        with self._database.reading() as reader:
            if reader.execute("SELECT 1 FROM requests WHERE at < ? LIMIT 1", (before_at,)).get is None:
                return 0
        with self._database.writing() as writer:
            writer.execute(
                "DELETE FROM requests WHERE (sender, key) IN"
                " (SELECT sender, key FROM requests WHERE at < ? ORDER BY at LIMIT ?)",
                (before_at, limit),
            )
            return writer.changes()

    # Reading

    def context(self, number: int) -> Context:
        """Return a context by number."""
        return self._contexts.context(number)

    def read(self, after: int, upto: int | None = None, before: bytes | None = None) -> Iterator[list[Stretch]]:
        """Go through the commits after a sequence, some at a time; `before` is the seal of what ended there."""
        end = self._head.sequence if upto is None else upto
        sealed = self.seal_at(after) if before is None else before
        if sealed is None:
            raise LedgerDamaged(f"no commit ends at event {after}; restore a copy of the data folder")
        while after < end:
            fetched = self._fetch(after, end)
            sealed = check_seals(fetched, after, sealed, self._contexts.stored)
            after += len(fetched)
            yield list(stretches_of(fetched, after - len(fetched) + 1))

    def seal_at(self, sequence: int) -> bytes | None:
        """Return the seal of the commit that ended with an event; None when none did."""
        if sequence == 0:
            return NO_SEAL
        with self._database.reading() as reader:
            sealed: bytes | None = reader.execute("SELECT seal FROM events WHERE sequence = ?", (sequence,)).get
        return sealed

    def _fetch(self, after: int, end: int) -> list[Row]:
        with self._database.reading() as reader:
            stop = reader.execute(
                "SELECT min(sequence) FROM events WHERE sequence >= ? AND seal IS NOT NULL",
                (min(after + READ_EVENTS, end),),
            ).get
            fetched: list[Any] = reader.execute(
                _SELECT + "WHERE e.sequence > ? AND e.sequence <= ? ORDER BY e.sequence",
                (after, stop),
            ).fetchall()
        if stop is None or len(fetched) != stop - after:
            raise LedgerDamaged(f"events after {after} are missing; restore a copy of the data folder")
        return fetched

    def event(self, sequence: int) -> Stretch:
        """Return one event as a stretch of its own."""
        with self._database.reading() as reader:
            fetched: list[Any] = reader.execute(_SELECT + "WHERE e.sequence = ?", (sequence,)).fetchall()
        if not fetched:
            raise LedgerDamaged(f"event {sequence} is missing; restore a copy of the data folder")
        return next(stretches_of(fetched, sequence))

    def history(self, player: str, limit: int, before: int | None = None) -> list[PastEvent]:
        """Return a player's own events, the newest first; those before a sequence when one is given."""
        sequences = (one for one in self.player_index.events_of(player) if before is None or one < before)
        found = list(islice(sequences, limit))
        metadata = self.metadata(found)
        return [self._past_event(self.event(sequence), metadata.get(sequence)) for sequence in found]

    def _past_event(self, stretch: Stretch, metadata: str | None) -> PastEvent:
        context = self.context(stretch.context)
        detail = (stretch.detail or [None])[0] or NO_DETAIL
        is_score = context.kind is Kind.SCORE
        return PastEvent(
            sequence=stretch.first,
            kind=context.kind,
            board=context.board,
            at=stretch.at[0],
            score=stretch.score[0] if is_score else None,
            tiebreak=stretch.tiebreak[0] if is_score else None,
            attributes=detail.attributes,
            metadata=None if metadata is None else msgspec.json.decode(metadata, type=dict[str, object]),
            sender=context.sender,
        )

    def request(self, sender: str, key: str) -> Request | None:
        """Return the request that came under a key, while it is remembered."""
        with self._database.reading() as reader:
            row = reader.execute(_REQUESTS + "WHERE sender = ? AND key = ?", (sender, key)).get
        return None if row is None else _request(row)

    def check(self) -> None:
        """Look at every row that no seal covers; LedgerDamaged names the first that is not as it was written."""
        with self._database.reading() as reader:
            for row in reader.execute(_REQUESTS):
                _request(row)
            for sequence, json, stored in reader.execute("SELECT sequence, json, checksum FROM metadata"):
                if crc32(str(json).encode()) != stored:
                    raise LedgerDamaged(
                        f"the metadata of event {sequence} is damaged; restore a copy of the data folder"
                    )

    def metadata(self, sequences: Sequence[int]) -> dict[int, str]:
        """Return the metadata (JSON) of those events that have some."""
        found: dict[int, str] = {}
        if not sequences:
            return found
        with self._database.reading() as reader:
            rows = reader.executemany(
                "SELECT sequence, json, checksum FROM metadata WHERE sequence = ?", ((one,) for one in sequences)
            )
            for sequence, json, checksum in rows:
                if crc32(json.encode()) != checksum:
                    raise LedgerDamaged(
                        f"the metadata of event {sequence} is damaged; restore a copy of the data folder"
                    )
                found[sequence] = json
        return found


def _request(row: Any) -> Request:
    sender, key, fingerprint, first, upto, at, stored, answer = row
    what = f"the request under the key {key!r:.80}"
    check(what, stored, sender, key, fingerprint, first, upto, at)
    return Request(
        sender, key, fingerprint, first, upto, at, None if answer is None else without_checksum(what, answer)
    )


class _Witness:
    """A few bytes, overwritten at each commit: no sync, so it costs little and survives all but a power cut.

    The file is mapped, as SQLite maps its own index of the log: telling it is a copy in memory and no call.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes: mmap | None = None
        self._sequence = 0
        self._changes = 0

    def check(self, sequence: int, changes: int) -> None:
        self._sequence, self._changes = sequence, changes
        seen = self._read()
        if seen is not None and (seen[0] > sequence or seen[1] > changes):
            what = f"the ledger ends at event {sequence}, and event {seen[0]} was acknowledged"
            if seen[0] <= sequence:
                what = f"{changes} changes of profiles are there, and {seen[1]} were acknowledged"
            raise LedgerDamaged(
                f"{what}: its log is damaged; restore a copy of the data folder. If an older copy of the ledger was "
                f"put here on purpose, take {WITNESS_NAME} and snapshots away"
            )
        try:
            self._map()
        except OSError as problem:
            raise LedgerUnavailable(
                f"{WITNESS_NAME} cannot be written ({problem}); make room, then try again"
            ) from problem

    def _map(self) -> None:
        # Written once before it is mapped: a page that has no place on the disk could not be refused later.
        with self._path.open("r+b", buffering=0) as file:
            file.write(self._told())
            file.truncate(_WITNESS.size)
            self._bytes = mmap(file.fileno(), _WITNESS.size)

    def _read(self) -> tuple[int, int] | None:
        with self._path.open("a+b") as file:
            file.seek(0)
            written = file.read(_WITNESS.size)
        if len(written) != _WITNESS.size:
            return None
        magic, sequence, changes, told = _WITNESS.unpack(written)
        if magic != _WITNESS_MAGIC or told != crc32(written[:-4]):
            return None
        return sequence, changes

    def _told(self) -> bytes:
        told = _TOLD.pack(_WITNESS_MAGIC, self._sequence, self._changes)
        return told + crc32(told).to_bytes(4, "little")

    def tell(self, sequence: int | None = None, changes: int | None = None) -> None:
        self._sequence = self._sequence if sequence is None else sequence
        self._changes = self._changes if changes is None else changes
        if self._bytes is not None:
            self._bytes[:] = self._told()

    def close(self) -> None:
        if self._bytes is not None:
            self._bytes.close()
            self._bytes = None
