"""Drafts for a ledger of several partitions, and what stands in it as plain rows."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

import psycopg

from rankd.domain.partition import partition_of
from rankd.ledger.event import Accepted, Context, Detail, Kind, Stretch
from rankd.ledger.partitioned import NOT_ORDERED, ControlEvent, Keyed, Part, PartitionedDraft, PartitionedLedger
from rankd.ledger.postgres import PostgresLedger
from rankd.ledger.postgres.appending import CALL_APPEND, Arranged

AT = 1_777_896_000_000  # 2026-05-04T12:00:00Z
NEXT_MONTH = 1_780_272_000_000  # 2026-06-01T00:00:00Z
WAIT_S = 60.0
ARCADE = Context(Kind.SCORE, "arcade", "local", {"arcade": Accepted(1)})
GUILDS = Context(Kind.SCORE, "guilds", "local", {"guilds": Accepted(1)})
REMOVAL = Context(Kind.REMOVE, "arcade", "local", {"arcade": Accepted(1)})

Event = tuple[str, int]


class Seen(NamedTuple):
    """An event as it was read."""

    sequence: int
    kind: Kind
    board: str
    player: str
    score: int
    tiebreak: int
    at: int
    detail: Detail | None
    ordinal: int


@contextmanager
def opened(url: str, **settings: float) -> Iterator[PostgresLedger]:
    """Open a ledger with connections of its own, and close it again."""
    ledger = PostgresLedger(url, **settings)  # type: ignore[arg-type]
    try:
        yield ledger
    finally:
        ledger.close()


def scores(
    ledger: PartitionedLedger,
    *events: Event,
    context: Context = ARCADE,
    at: int = AT,
    tiebreak: int = 0,
    detail: list[Detail | None] | None = None,
) -> Stretch:
    """Make a stretch of (player, score)."""
    return Stretch(
        ledger.number_context(context),
        array("q", [at]) * len(events),
        array("q", bytes(8 * len(events))),
        array("q", [score for _, score in events]),
        array("q", [tiebreak]) * len(events),
        [player for player, _ in events],
        detail,
    )


def draft(
    ledger: PartitionedLedger,
    *events: Event,
    key: str | None = None,
    at: int = AT,
    seen: int = 0,
    context: Context = ARCADE,
    ordered: bool = False,
) -> PartitionedDraft:
    """Make a draft of one stretch, which came in one request."""
    stretch = scores(ledger, *events, at=at, context=context)
    requests = [] if key is None else [keyed(key, 0, len(events))]
    return PartitionedDraft(
        [stretch], at, seen, requests=requests, ordered=frozenset([stretch.context] if ordered else [])
    )


def keyed(key: str, first: int, events: int, fingerprint: bytes = b"fingerprint") -> Keyed:
    """Make a request by a sender everybody is."""
    return Keyed("sender", key, fingerprint, first, events)


def control(
    kind: Kind = Kind.DEFINE, board: str = "arcade", at: int = AT, detail: Detail | None = None
) -> ControlEvent:
    """Make an event about no player."""
    return ControlEvent(Context(kind, board, "admin", {board: Accepted(1)}), detail, at)


class Follower:
    """Reads what is committed, some at a time, and fails where a sequence does not follow the one before."""

    def __init__(self, ledger: PartitionedLedger, events_max: int = 1_000) -> None:
        self._ledger = ledger
        self._events_max = events_max
        self.rows: list[list[Seen]] = [[] for _ in range(ledger.partitions)]

    @property
    def after(self) -> list[int]:
        return [rows[-1].sequence if rows else 0 for rows in self.rows]

    def follow(self) -> int:
        """Read once; return how many events there were."""
        parts = self._ledger.read(self.after, self._events_max)
        for part in parts:
            self._add(part)
        return sum(len(part.stretch) for part in parts)

    def _add(self, part: Part) -> None:
        stretch, rows = part.stretch, self.rows[part.partition]
        context = self._ledger.context(stretch.context)
        assert stretch.partition == part.partition
        assert stretch.first == (rows[-1].sequence if rows else 0) + 1
        nothing: list[Detail | None] = [None] * len(stretch)
        columns = zip(
            stretch.players,
            stretch.score,
            stretch.tiebreak,
            stretch.at,
            stretch.detail or nothing,
            part.ordinals or [NOT_ORDERED] * len(stretch),
            strict=True,
        )
        for sequence, row in enumerate(columns, start=stretch.first):
            rows.append(Seen(sequence, context.kind, context.board, *row))


def everything(ledger: PartitionedLedger, events_max: int = 1_000) -> list[list[Seen]]:
    """Return all events of each partition."""
    follower = Follower(ledger, events_max)
    while follower.follow():
        pass
    return follower.rows


def flat(rows: list[list[Seen]], kind: Kind = Kind.SCORE) -> list[Seen]:
    """Return the events of one kind, partition after partition."""
    return [one for partition in rows for one in partition if one.kind is kind]


def events_in(ledger: PartitionedLedger) -> list[Event]:
    """Return (player, score) of all scores, sorted."""
    return sorted((one.player, one.score) for one in flat(everything(ledger)))


def player_in(partition: int, number: int = 0, partitions: int = 8) -> str:
    """Return the id of a player whose events stand in a partition."""
    names = (f"player-{partition}-{number}-{attempt}" for attempt in count())
    return next(name for name in names if partition_of(name, partitions) == partition)


def wait_until(holds: Callable[[], bool]) -> None:
    """Return when a condition holds; fail when it does not in time."""
    deadline = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        pause.wait(0.005)


def waiting_for_locks(url: str) -> int:
    """Return how many sessions of a database wait for a lock."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def uncommitted(ledger: PostgresLedger, one: PartitionedDraft, taken_back: bool = False) -> Iterator[None]:
    """Have a draft numbered and written, and commit it when the block ends: the transaction that commits last."""
    ledger.make_months(one.at)
    arguments = Arranged(one, ledger.partitions).arguments()
    with ledger.connections.using() as connection, connection.transaction():
        connection.execute(CALL_APPEND, arguments)
        yield
        if taken_back:
            raise psycopg.Rollback
