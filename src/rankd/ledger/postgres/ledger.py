"""The ledger on PostgreSQL; ledger/port.py has its promises.

    draft → one call of `append_1`: heads locked in ascending order, numbers given, everything inserted → committed

Each call is its own transaction, so heads are never locked during a network round trip. Writers cannot deadlock: all
lock heads in ascending order, then keys in ascending order, and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import psycopg

from rankd.domain.partition import PARTITIONS_MAX
from rankd.errors import InvalidValue, LedgerDamaged, LedgerUnavailable
from rankd.ledger.audit import AuditedPage, AuditMark, AuditQuery
from rankd.ledger.backlog import Backlog
from rankd.ledger.event import Context, EventRun, decode_detail
from rankd.ledger.origin import RequestOrigin
from rankd.ledger.port import (
    CONTROLS_MAX,
    Appended,
    Capabilities,
    ControlEvent,
    Draft,
    Heads,
    KeyedRequest,
    Part,
    PastEvent,
    StoredRequest,
)
from rankd.ledger.postgres.appending import (
    CALL_APPEND_CONTROL,
    CALL_APPEND_CONTROL_FROM,
    TEAMS,
    OrderedDraft,
    control_arguments,
    control_origin_arguments,
    raise_refused,
)
from rankd.ledger.postgres.auditing import PostgresAudit
from rankd.ledger.postgres.backlog import PostgresBacklog
from rankd.ledger.postgres.connections import (
    ANSWER_WAIT_S,
    CONNECTIONS_MAX,
    Connections,
    FailFastConnections,
    PostgresConnection,
)
from rankd.ledger.postgres.contexts import Contexts
from rankd.ledger.postgres.migrations import check_component, migrate_component, scripts_of
from rankd.ledger.postgres.packing import Bigints, Smallints, Texts
from rankd.ledger.postgres.reading import (
    SELECT_COMMITTED,
    SELECT_EVENTS,
    SELECT_HISTORY,
    SELECT_REQUESTS,
    parts_of,
    past_event,
)
from rankd.ledger.vector import shares

COMPONENT = "ledger"
PARTITIONS = 8
MONTHS_AHEAD = 4  # the current one included
READERS_MAX = 4  # connections for optional reads
LARGE_EVENTS = 20_000  # an append of more may take longer,
EVENT_WAIT_S = 0.0002  # by so much per event
POLL_FIRST_S = 0.01  # doubled while nothing is appended, so that an idle node leaves the processor to reads
POLL_MAX_S = 0.04
_APPEND_ATTEMPTS_MAX = 3
_SEQUENCE_MAX = 2**63 - 1
# Every statement uses an index, even if its plan was made while the month's table was empty.
_SETTINGS = {"enable_seqscan": "off", "enable_bitmapscan": "off", "plan_cache_mode": "force_generic_plan"}


def migrate(url: str, partitions: int | None = None, *, now: int = 0) -> int:
    """Create or update the ledger; return its former version, 0 for a new one.

    `partitions` are fixed at creation (8 by default); `now`, in ms, is when monthly tables begin, by default the
    server's time. Safe to run twice and concurrently.
    """
    if partitions is not None and not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidValue("partitions", f"must be from 1 to {PARTITIONS_MAX}; got {partitions}")

    def finish(connection: PostgresConnection) -> None:
        connection.execute(
            "INSERT INTO ledger (one, identity, partitions) VALUES (1, gen_random_uuid(), %s) ON CONFLICT DO NOTHING",
            (partitions or PARTITIONS,),
        )
        (stored,) = connection.execute("SELECT partitions FROM ledger").fetchone() or (0,)
        if partitions not in (None, stored):
            raise InvalidValue(
                "partitions", f"is {stored} in this ledger and cannot be changed; for {partitions}, create another one"
            )
        connection.execute(
            "INSERT INTO heads (partition, sequence, control, at)"
            " SELECT generate_series(%s, %s - 1), 0, 0, 0 ON CONFLICT DO NOTHING",
            (TEAMS, stored),
        )
        connection.execute(
            "SELECT make_months(coalesce(nullif(%s::bigint, 0), extract(epoch FROM now())::bigint * 1000), %s)",
            (now, MONTHS_AHEAD),
        )

    return migrate_component(url, COMPONENT, known_scripts(), finish)


def known_scripts() -> list[str]:
    """Return the migration scripts of the ledger, one per version."""
    return scripts_of(__package__)


class PostgresLedger:
    """A ledger in a migrated database; from any thread."""

    def __init__(self, url: str, *, pool_max: int = CONNECTIONS_MAX, answer_wait_s: float = ANSWER_WAIT_S) -> None:
        """Connect, and refuse a schema that is older or newer than this rankd supports."""
        self._connections = Connections(url, pool_max, answer_wait_s=answer_wait_s, settings=_SETTINGS)
        self._readers = FailFastConnections(url, READERS_MAX, settings=_SETTINGS)
        self.backlog: Backlog = PostgresBacklog(self._connections)
        self._contexts = Contexts(self._connections)
        # By partition: the last sequence read and its commit time. Later events have no earlier commit time.
        self._read_upto: dict[int, tuple[int, int]] = {}
        self._heads_read: tuple[int, ...] | None = None  # at the last `read`
        try:
            with self._connections.using() as connection:
                check_component(connection, COMPONENT, len(known_scripts()))
                row = connection.execute("SELECT partitions, identity::text FROM ledger").fetchone()
        except BaseException:
            self._connections.close()
            raise
        if row is None:
            raise LedgerUnavailable("the ledger's creation is incomplete: run `rankd migrate`")
        self._partitions, self._identity = int(row[0]), str(row[1])

    capabilities = Capabilities(
        is_sole_writer=False, stores_answers=False, appends_conditionally=True, finds_history=True
    )

    def stamp(self, _positions: Sequence[int]) -> str:
        """Return the ledger's identity: its sequences are never reused."""
        return self._identity

    @property
    def partitions(self) -> int:
        """The number of partitions, fixed when the ledger is created."""
        return self._partitions

    @property
    def identity(self) -> str:
        """The unique identity of this ledger."""
        return self._identity

    @property
    def connections(self) -> Connections:
        """The connections, for other tables in the same database."""
        return self._connections

    def close(self) -> None:
        """Close the connections."""
        self._readers.close()
        self._connections.close()

    def heads(self) -> Heads:
        """Return the committed heads."""
        rows = self._fetch("SELECT sequence, control, at FROM heads ORDER BY partition")
        if len(rows) != self._partitions + 1:
            raise LedgerDamaged("heads of partitions are missing; restore a backup of the database")
        teams, *parts = rows
        return Heads(tuple(part[0] for part in parts), parts[0][1], max(part[2] for part in parts), teams[0])

    def sequences_at(self, at: int) -> tuple[int, ...]:
        """Return the last sequence of each partition that was committed by an instant; all partitions share a search.

        The heads of a commit are locked together and get one time, so it is before the instant in all of them or none.
        """
        low, high = [0] * self._partitions, list(self.heads().sequences)
        while unsettled := [partition for partition in range(self._partitions) if low[partition] < high[partition]]:
            middle = {partition: (low[partition] + high[partition] + 1) // 2 for partition in unsettled}
            rows = self._fetch(SELECT_COMMITTED, (Smallints([*middle]), Bigints([*middle.values()])))
            if len(rows) != len(middle):
                raise LedgerDamaged("events that the heads count are missing; restore a backup of the database")
            for partition, sequence, committed in rows:
                if committed <= at:
                    low[partition] = sequence
                else:
                    high[partition] = sequence - 1
        return tuple(low)

    # Writing

    def append(self, draft: Draft) -> Appended:
        """Make a draft durable."""
        arranged = OrderedDraft(draft, self._partitions)
        statement, arguments = arranged.call()
        bases, committed = self._call(statement, arguments, arranged.count)
        return arranged.appended(bases, committed)

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
        """Make control events durable, in every partition; return them with their numbers and sequences."""
        contexts = [self.number_context(event.context) for event in events]
        arguments = control_arguments(
            events, contexts, seen=seen, at=at, request=request, forgotten_before=forgotten_before
        )
        statement = CALL_APPEND_CONTROL
        if origin is not None and events:
            statement = CALL_APPEND_CONTROL_FROM
            arguments += control_origin_arguments(origin, len(events))
        ends, numbered, _ = self._call(statement, arguments)
        return [
            msgspec.structs.replace(event, number=numbered - later, sequences=tuple(end - later for end in ends))
            for later, event in zip(range(len(events) - 1, -1, -1), events, strict=True)
        ]

    def _call(self, statement: str, arguments: Sequence[Any], events: int = 0) -> Any:
        at, cause = int(arguments[1]), ""
        for _ in range(_APPEND_ATTEMPTS_MAX):
            with self._connections.using() as connection, ExitStack() as stack:
                if events > LARGE_EVENTS:
                    stack.enter_context(connection.waiting_longer(events * EVENT_WAIT_S))
                try:
                    return connection.execute(statement, arguments, prepare=True, binary=True).fetchone()
                except psycopg.errors.CheckViolation as violation:
                    cause = str(violation).partition("\n")[0]  # the month has no table yet, and nothing was written
                    # A server process that saw the month begin beside others may miss its table for ever.
                    connection.close()
                except psycopg.Error as problem:
                    raise_refused(problem)
                    raise
            self.prepare(max(at, self.heads().at))
        raise LedgerUnavailable(f"the tables of this month could not be created ({cause}); run `rankd migrate`")

    def tend(self, _awaited: int | None = None) -> None:
        """Do nothing: the database completes every append."""

    def prepare(self, now: int) -> None:
        """Create the tables of an instant's month and of the next months."""
        self._fetch("SELECT make_months(%s, %s)", (now, MONTHS_AHEAD))

    def number_context(self, context: Context) -> int:
        """Return the number of a context; a new context gets a number that every process will see."""
        return self._contexts.number(context)

    def forget_requests(self, before: int, count_max: int) -> int:
        """Delete at most `count_max` requests older than an instant; return their number."""
        with self._connections.using() as connection:
            return connection.execute(
                "DELETE FROM requests USING ("
                " SELECT sender, key FROM requests WHERE at < %s ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED) AS old"
                " WHERE requests.sender = old.sender AND requests.key = old.key",
                (before, count_max),
                prepare=True,
            ).rowcount

    # Reading

    def controls(self, after: int, count_max: int = CONTROLS_MAX) -> Sequence[ControlEvent]:
        """Return the first `count_max` control events behind a number, in order."""
        rows = self._fetch(
            "SELECT number, context, at, detail, sequences FROM controls WHERE number > %s ORDER BY number LIMIT %s",
            (after, count_max),
        )
        self._contexts.load(row[1] for row in rows)
        return [
            ControlEvent(
                self.context(context), None if detail is None else decode_detail(detail), at, number, tuple(sequences)
            )
            for number, context, at, detail, sequences in rows
        ]

    def read(self, after: Sequence[int], events_max: int, skipping: Collection[int] = ()) -> Sequence[Part]:
        """Return committed events behind a sequence of each partition, in order within each, about `events_max` in all.

        Heads change in the same transaction as their events, so events up to a head can be read at any later time.
        """
        heads = self._heads_read = self.heads().sequences
        waiting = [head - begun for head, begun in zip(heads, after, strict=True)]
        if min(waiting) < 0:
            partition = next(index for index, count in enumerate(waiting) if count < 0)
            raise LedgerDamaged(
                f"partition {partition} of the ledger ends at {heads[partition]}, before what was read of it; "
                "is this an older copy of the database?"
            )
        for partition in skipping:
            waiting[partition] = 0
        taken = [(partition, count) for partition, count in enumerate(shares(waiting, events_max)) if count]
        if not taken:
            return []
        rows = self._fetch(
            SELECT_EVENTS,
            (
                Smallints([partition for partition, _ in taken]),
                Bigints([after[partition] for partition, _ in taken]),
                Bigints([after[partition] + count for partition, count in taken]),
                Bigints([self._committed_since(partition, after[partition]) for partition, _ in taken]),
            ),
        )
        if len(rows) != sum(count for _, count in taken):
            raise LedgerDamaged("events that the heads count are missing; restore a backup of the database")
        self._contexts.load({row[2] for row in rows})
        parts = list(parts_of(rows, after, self.context))
        end = 0
        for partition, count in taken:
            end += count
            self._read_upto[partition] = (rows[end - 1][1], rows[end - 1][9])
        return parts

    def wait(self, timeout_s: float) -> None:
        """Return when something was appended since the last `read`, at the latest after `timeout_s`.

        It polls the heads: NOTIFY takes a lock that all commits share.
        """
        deadline = time.monotonic() + timeout_s
        pause, pause_s = threading.Event(), POLL_FIRST_S
        while self._heads_read is not None and self.heads().sequences == self._heads_read:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            pause.wait(min(pause_s, left_s))
            pause_s = min(2 * pause_s, POLL_MAX_S)

    def _committed_since(self, partition: int, after: int) -> int:
        sequence, committed = self._read_upto.get(partition, (0, 0))
        return committed if sequence <= after else 0

    def context(self, number: int) -> Context:
        """Return a context by number."""
        return self._contexts.context(number)

    def event(self, partition: int, sequence: int) -> EventRun:
        """Return one event as a run of one."""
        rows = self._fetch(
            SELECT_EVENTS,
            (Smallints([partition]), Bigints([sequence - 1]), Bigints([sequence]), Bigints([0])),
        )
        if not rows:
            raise LedgerDamaged(f"event {sequence} of partition {partition} is missing; restore a backup")
        self._contexts.load({rows[0][2]})
        (part,) = parts_of(rows, {partition: sequence - 1}, self.context)
        return part.event_run

    def request(self, sender: str, key: str) -> StoredRequest | None:
        """Return the request stored under a key, until it expires."""
        return self.requests([(sender, key)]).get((sender, key))

    def requests(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], StoredRequest]:
        """Return the requests stored under any of these (sender, key)."""
        if not keys:
            return {}
        rows = self._fetch(
            SELECT_REQUESTS, (Texts([sender.encode() for sender, _ in keys]), Texts([key.encode() for _, key in keys]))
        )
        return {
            (sender, key): StoredRequest(
                sender, key, bytes(fingerprint), at, events, dict(zip(partitions, sequences, strict=True))
            )
            for sender, key, fingerprint, at, events, partitions, sequences in rows
        }

    def sources(self) -> list[str]:
        """Return the names of all sources."""
        return [str(source) for (source,) in self._fetch("SELECT DISTINCT source FROM sources ORDER BY source", ())]

    def source_offsets(self, source: str) -> dict[int, int]:
        """Return the offsets to read next of a source, by partition; without those never read."""
        return dict(self._fetch("SELECT partition, upto FROM sources WHERE source = %s", (source,)))

    def metadata(self, events: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Return the metadata (JSON) of events, by partition and sequence, that have some."""
        if not events:
            return {}
        rows = self._look_up(
            "SELECT partition, sequence, json FROM unnest(%s, %s) AS asked (partition, sequence)"
            " JOIN metadata USING (partition, sequence)",
            (Smallints([partition for partition, _ in events]), Bigints([sequence for _, sequence in events])),
        )
        return {(partition, sequence): json for partition, sequence, json in rows}

    def history(self, player: str, limit: int, before: int | None = None, board: str | None = None) -> list[PastEvent]:
        """Return a player's own events, the newest first, with sequences of the player's partition."""
        values = {
            "player": player,
            "before": _SEQUENCE_MAX if before is None else before,
            "board": board,
            "limit": limit,
        }
        rows = self._look_up(SELECT_HISTORY, values)
        self._contexts.load({row[2] for row in rows})
        return [past_event(row, self.context(row[2])) for row in rows]

    def audit(self, query: AuditQuery, before: AuditMark | None = None) -> AuditedPage:
        """Return the newest events that a query asks for, optionally behind where an earlier page ended."""
        return PostgresAudit(self, self._look_up, self._contexts).page(query, before)

    def events_of(self, players: Mapping[str, int], events_max: int) -> Iterator[tuple[str, Sequence[EventRun]]]:
        """Iterate over players with their events before a sequence, the newest first, as runs of one."""
        audit = PostgresAudit(self, self._look_up, self._contexts)
        for player, before in players.items():
            yield player, audit.events_of(player, before, events_max)

    def controls_of(self, board: str, partition: int) -> Sequence[EventRun] | None:
        """Return a board's control events in order, without midnights; None where there are too many."""
        return PostgresAudit(self, self._look_up, self._contexts).controls_of(board, partition)

    def _look_up(self, statement: str, values: Any) -> list[Any]:
        """Run an optional read, which fails fast while PostgreSQL is away."""
        with self._readers.using() as connection:
            return connection.execute(statement, values, prepare=True, binary=True).fetchall()

    def _fetch(self, statement: str, values: Any = ()) -> list[Any]:
        with self._connections.using() as connection:
            return connection.execute(statement, values, prepare=True, binary=True).fetchall()
