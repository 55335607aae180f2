"""The embedded ledger: events as rows of one SQLite file; see port.py for what it promises.

Draft → one transaction: players, contexts, events, metadata, requests → synced → witness
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import apsw
import msgspec

from rankd.errors import LedgerDamaged
from rankd.ledger.checksum import check, checksum, with_checksum, without_checksum
from rankd.ledger.database import Database
from rankd.ledger.event import (
    CONTROLS,
    NO_DETAIL,
    NO_SEAL,
    SEAL_BYTES,
    Context,
    Kind,
    Stretch,
    control_run,
    seal,
    sealed_at,
)
from rankd.ledger.history import History
from rankd.ledger.numbers import ContextNumbers, KnownPlayers, PlayerNumbers
from rankd.ledger.port import (
    Capabilities,
    ControlEvent,
    Draft,
    Heads,
    KeyedRequest,
    KeysTaken,
    Part,
    PastEvent,
    Request,
)
from rankd.ledger.rows import (
    Row,
    check_seals,
    encoded_details,
    insert_of,
    insert_rows,
    joined,
    stretches_of,
    values_of,
)
from rankd.ledger.statements import ROWS_PER_STATEMENT_MAX, insert
from rankd.ledger.witness import WITNESS_NAME, Witness

PARTITION = 0  # the only one
_REQUESTS = "SELECT sender, key, fingerprint, first, upto, at, checksum, answer FROM requests "
_SELECT = (
    "SELECT e.context, e.at, e.player, e.score, e.tiebreak, e.detail, e.seal, p.id"
    " FROM events e LEFT JOIN players p ON p.number = e.player "
)


class Head(NamedTuple):
    """The end of the ledger."""

    sequence: int
    seal: bytes
    at: int  # the ledger's time at the last commit; an `at` that was sent does not move it


class AppendedRun(msgspec.Struct, frozen=True):
    """Where the events of a draft stand: one behind the other."""

    before: int  # the sequence that they stand behind
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


class SqliteLedger:
    """A ledger in a folder, of one partition; opened by one process at a time."""

    capabilities = Capabilities(is_sole_writer=True, stores_answers=True)
    partitions = 1

    def __init__(self, folder: Path, database: Database) -> None:
        """Check the end of the ledger against its witness."""
        self._database = database
        with database.writing() as writer:
            self._players = PlayerNumbers(database)
            self._contexts = ContextNumbers(writer)
        self.player_index = History(database)
        self._head = self._end()
        self._is_unsure = False  # whether the last append took effect
        self._read_upto = (0, NO_SEAL)  # where the last `read` ended
        self._witness = Witness(folder / WITNESS_NAME)
        with database.reading() as reader:
            changes: int = reader.execute("SELECT count FROM registry_changes").get or 0
        self._witness.check(self._head.sequence, changes)

    def close(self) -> None:
        """Let go of the witness; the database is closed by whoever opened it."""
        self._witness.close()

    def heads(self) -> Heads:
        """Return the end as it is committed."""
        head = self._committed()
        return Heads((head.sequence,), 0, head.at)

    def stamp(self, positions: Sequence[int]) -> str | None:
        """Return the seal of the commit that ended at a position; None where none did."""
        sealed = self.seal_at(positions[PARTITION]) if len(positions) == self.partitions else None
        return None if sealed is None else sealed.hex()

    def _committed(self) -> Head:
        """Return the end; after a failed append it is looked up, in any thread. The next append recovers from it."""
        return self._end() if self._is_unsure else self._head

    def _end(self) -> Head:
        with self._database.reading() as reader:
            row = reader.execute("SELECT sequence, seal FROM events ORDER BY sequence DESC LIMIT 1").get
        if row is None:
            return Head(0, NO_SEAL, 0)
        sequence, sealed = row
        if sealed is None or len(sealed) != SEAL_BYTES:
            raise LedgerDamaged(f"the ledger ends at event {sequence} in the middle of a commit; restore a copy")
        return Head(sequence, sealed, sealed_at(sealed))

    # Writing

    def next_players(self, count: int) -> KnownPlayers | None:
        """Return some players who would have to be looked up when they come; None when nobody would. In any thread."""
        return self._players.read_next(count)

    def warm_players(self, players: KnownPlayers) -> None:
        """Have those players at hand."""
        self._players.warm(players)

    def number_context(self, context: Context) -> int:
        """Return the number of a context; a new one gets its with the next commit."""
        return self._contexts.number(context)

    def forget_numbers(self) -> None:
        """Look at the numbers again: somebody else gave some to players."""
        self._players.forget_fresh()

    def tell_changes(self, count: int) -> None:
        """Let the witness know how often the registry was changed; its transaction is committed."""
        self._witness.tell(changes=count)

    def append(self, draft: Draft) -> AppendedRun:
        """Make a draft durable, and set `first` of its stretches."""
        if self._is_unsure:
            self._recover()
        if draft.requests:
            self._check_keys(draft)
        before = self._head.sequence
        try:
            self._number_players(draft.stretches)
            head = self._append(draft)
            self._players.saved()
            self._contexts.saved()
            self._head = head
        except BaseException:
            self._is_unsure = True  # the commit may have succeeded all the same
            raise
        self._witness.tell(sequence=head.sequence)
        return AppendedRun(before, head.sequence - before, head.at)

    def append_control(
        self,
        events: Sequence[ControlEvent],
        seen: int,
        request: KeyedRequest | None = None,
        *,
        at: int = 0,
        forgotten_before: int = 0,
    ) -> Sequence[ControlEvent]:
        """Make control events durable; return them with their sequences."""
        stretches = [control_run(self.number_context(event.context), event.at, event.detail) for event in events]
        requests = () if request is None else (request,)
        latest = max([at, *(event.at for event in events)])
        appended = self.append(Draft(stretches, latest, seen, requests=requests, forgotten_before=forgotten_before))
        return [
            msgspec.structs.replace(event, sequences=(appended.before + number,))
            for number, event in enumerate(events, start=1)
        ]

    def _check_keys(self, draft: Draft) -> None:
        found = self.requests(draft.distinct_keys())
        taken = [key for key, request in found.items() if request.at >= draft.forgotten_before]
        if taken:
            raise KeysTaken(taken)

    def _number_players(self, stretches: Sequence[Stretch]) -> None:
        """Number the players; those who are new get their numbers with this commit."""
        of_players = [one for one in stretches if one.players[0]]
        if len(of_players) > 1:  # with one statement for all
            self._players.look_up([player for one in of_players for player in one.players])
        for stretch in of_players:
            stretch.player = self._players.number(stretch.players)

    def _recover(self) -> None:
        """Look at the end again after a failed append: what was cut off is there, or it is not."""
        self._head = self._end()
        self._players.forget_fresh()
        with self._database.writing():  # upkeep uses the connection too
            self._contexts.recover()
        self._is_unsure = False

    def _append(self, draft: Draft) -> Head:
        before = self._head
        at = max(draft.at, before.at)
        sequence = before.sequence
        for stretch in draft.stretches:
            stretch.first = sequence + 1
            sequence += len(stretch)
        first, count = before.sequence + 1, sequence - before.sequence
        columns = joined(draft.stretches) if count else []
        details = encoded_details(draft.stretches)
        sealed = before.seal
        if count:
            contexts = self._contexts.stored([stretch.context for stretch in draft.stretches])
            sealed = seal(before.seal, at, first, contexts, columns, details=details or [b""] * count)
        has_more = self._players.fresh or self._contexts.fresh or draft.has_more
        if 0 < count <= ROWS_PER_STATEMENT_MAX and not has_more:  # one statement: a transaction of its own
            self._database.write_one(insert_of(count), values_of(first, columns, details, sealed))
            return Head(sequence, sealed, at)
        with self._database.writing() as writer:
            self._players.save(writer)
            self._contexts.save()
            if count:
                insert_rows(writer, first, columns, details=details, sealed=sealed)
            self._insert_beside(writer, draft, before.sequence, at)
        return Head(sequence, sealed, at)

    def _insert_beside(self, writer: apsw.Connection, draft: Draft, before: int, at: int) -> None:
        if draft.metadata:
            insert(
                writer,
                "INSERT INTO metadata (sequence, json, checksum) VALUES",
                [(before + 1 + index, json, crc32(json.encode())) for index, json in draft.metadata.items()],
            )
        if draft.origins:
            insert(
                writer,
                "INSERT INTO origins (first, upto, address, checksum) VALUES",
                [
                    (*row, checksum(*row))
                    for address, start, count in draft.origins
                    for row in [(before + 1 + start, before + start + count, address)]
                ],
            )
        if draft.answers:
            writer.executemany(
                "UPDATE requests SET answer = ?3 WHERE sender = ?1 AND key = ?2 AND answer IS NULL",
                ((sender, key, with_checksum(answer)) for sender, key, answer in draft.answers),
            )
        if draft.requests:  # behind the answers, which are of earlier requests under the same key
            insert(
                writer,
                "INSERT OR REPLACE INTO requests (sender, key, fingerprint, first, upto, at, checksum) VALUES",
                [
                    (*row, checksum(*row))
                    for sender, key, fingerprint, start, count in draft.requests
                    for row in [(sender, key, fingerprint, before + 1 + start, before + start + count, at)]
                ],
            )

    def forget_requests(self, before: int, count_max: int) -> int:
        """Forget requests older than an instant, at most so many; return how many were."""
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

    # Reading

    def context(self, number: int) -> Context:
        """Return a context by number."""
        return self._contexts.context(number)

    def read(self, after: Sequence[int], events_max: int, skipping: Collection[int] = ()) -> Sequence[Part]:
        """Return committed events behind a sequence: whole commits, about so many events, with their seals checked."""
        (begun,), end = after, self._committed().sequence
        if PARTITION in skipping or begun == end:
            return []
        if begun > end:
            raise LedgerDamaged(f"the ledger ends at event {end}, before what was read of it; is this an older copy?")
        read_upto, sealed = self._read_upto
        found = sealed if read_upto == begun else self.seal_at(begun)
        if found is None:
            raise LedgerDamaged(f"no commit ends at event {begun}; restore a copy of the data folder")
        fetched = self._fetch(begun, min(begun + events_max, end))
        self._read_upto = begun + len(fetched), check_seals(fetched, begun, found, self._contexts.stored)
        return [part for run in stretches_of(fetched, begun + 1) for part in self._parts(run)]

    def _parts(self, run: Stretch) -> Iterator[Part]:
        if self.context(run.context).kind not in CONTROLS:
            yield Part(PARTITION, run, None)
            return
        for index in range(len(run)):
            yield Part(PARTITION, run.part(index, index + 1), None)

    def wait(self, _timeout_s: float) -> None:
        """Return at once: nobody else appends."""

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
                (end,),
            ).get
            fetched: list[Any] = reader.execute(
                _SELECT + "WHERE e.sequence > ? AND e.sequence <= ? ORDER BY e.sequence",
                (after, stop),
            ).fetchall()
        if stop is None or len(fetched) != stop - after:
            raise LedgerDamaged(f"events after {after} are missing; restore a copy of the data folder")
        return fetched

    def event(self, _partition: int, sequence: int) -> Stretch:
        """Return one event as a stretch of its own."""
        with self._database.reading() as reader:
            fetched: list[Any] = reader.execute(_SELECT + "WHERE e.sequence = ?", (sequence,)).fetchall()
        if not fetched:
            raise LedgerDamaged(f"event {sequence} is missing; restore a copy of the data folder")
        return next(stretches_of(fetched, sequence))

    def history(self, player: str, limit: int, before: int | None = None, board: str | None = None) -> list[PastEvent]:
        """Return a player's own events, the newest first; only those before a sequence, or of a board, if given."""
        sequences = (one for one in self.player_index.events_of(player) if before is None or one < before)
        events = (self.event(PARTITION, sequence) for sequence in sequences)
        of_board = (one for one in events if board is None or self.context(one.context).board == board)
        found = list(islice(of_board, limit))
        metadata = self.metadata([(PARTITION, one.first) for one in found])
        return [self._past_event(one, metadata.get((PARTITION, one.first))) for one in found]

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
            origin=self._origin(stretch.first),
        )

    def _origin(self, sequence: int) -> str | None:
        with self._database.reading() as reader:
            row: Any = reader.execute(
                "SELECT first, upto, address, checksum FROM origins WHERE first <= ? ORDER BY first DESC LIMIT 1",
                (sequence,),
            ).get
        if row is None or row[1] < sequence:
            return None
        first, upto, address, stored = row
        check(f"where the events from {first} on came from", stored, first, upto, address)
        return str(address)

    def request(self, sender: str, key: str) -> Request | None:
        """Return the request that came under a key, while it is remembered."""
        with self._database.reading() as reader:
            row = reader.execute(_REQUESTS + "WHERE sender = ? AND key = ?", (sender, key)).get
        return None if row is None else _request(row)

    def requests(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Request]:
        """Return the requests that came under any of these (sender, key), while they are remembered."""
        return {key: found for key in keys if (found := self.request(*key)) is not None}

    def check(self) -> None:
        """Look at every row that no seal covers; LedgerDamaged names the first that is not as it was written."""
        with self._database.reading() as reader:
            for row in reader.execute(_REQUESTS):
                _request(row)
            for first, upto, address, stored in reader.execute("SELECT first, upto, address, checksum FROM origins"):
                check(f"where the events from {first} on came from", stored, first, upto, address)
            for sequence, json, stored in reader.execute("SELECT sequence, json, checksum FROM metadata"):
                if crc32(str(json).encode()) != stored:
                    raise LedgerDamaged(
                        f"the metadata of event {sequence} is damaged; restore a copy of the data folder"
                    )

    def metadata(self, events: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Return the metadata (JSON) of those events that have some."""
        found: dict[tuple[int, int], str] = {}
        if not events:
            return found
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
                found[PARTITION, sequence] = json
        return found


def _request(row: Any) -> Request:
    sender, key, fingerprint, first, upto, at, stored, answer = row
    what = f"the request under the key {key!r:.80}"
    check(what, stored, sender, key, fingerprint, first, upto, at)
    return Request(
        sender,
        key,
        fingerprint,
        at,
        upto - first + 1,
        {PARTITION: upto},
        None if answer is None else without_checksum(what, answer),
    )
