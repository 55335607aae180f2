"""Drafts for any ledger, and what stands in it as plain rows."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from rankd.domain.partition import partition_of
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind, EventRun
from rankd.ledger.port import NOT_ORDERED, Appended, ControlEvent, Draft, KeyedRequest, Ledger, Part

AT = 1_777_896_000_000  # 2026-05-04T12:00:00Z
NEXT_MONTH = 1_780_272_000_000  # 2026-06-01T00:00:00Z
WAIT_S = 60.0
ARCADE = Context(EventKind.SCORE, "arcade", "local", {"arcade": AcceptanceContext(1)})
GUILDS = Context(EventKind.SCORE, "guilds", "local", {"guilds": AcceptanceContext(1)})
REMOVAL = Context(EventKind.REMOVE, "arcade", "local", {"arcade": AcceptanceContext(1)})
PLAYERS = [f"player-{number}" for number in range(24)]  # some of them in each of a few partitions

Event = tuple[str, int]  # player and score
Place = tuple[int, int]  # partition and sequence


class ReadEvent(NamedTuple):
    """An event as it was read."""

    sequence: int
    kind: EventKind
    board: str
    player: str
    score: int
    tiebreak: int
    at: int
    detail: Detail | None
    ordinal: int


def scores(
    ledger: Ledger,
    *events: Event,
    context: Context = ARCADE,
    at: int = AT,
    tiebreak: int = 0,
    detail: list[Detail | None] | None = None,
) -> EventRun:
    """Make a run of (player, score)."""
    return EventRun(
        ledger.number_context(context),
        array("q", [at]) * len(events),
        array("q", bytes(8 * len(events))),
        array("q", [score for _, score in events]),
        array("q", [tiebreak]) * len(events),
        [player for player, _ in events],
        detail,
    )


def draft(
    ledger: Ledger,
    *events: Event,
    key: str | None = None,
    at: int = AT,
    seen: int = 0,
    context: Context = ARCADE,
    ordered: bool = False,
) -> Draft:
    """Make a draft of one run, which came in one request."""
    event_run = scores(ledger, *events, at=at, context=context)
    requests = [] if key is None else [keyed(key, 0, len(events))]
    return Draft([event_run], at, seen, requests=requests, ordered=frozenset([event_run.context] if ordered else []))


def keyed(key: str, first: int, events: int, fingerprint: bytes = b"fingerprint") -> KeyedRequest:
    """Make a request by a sender everybody is."""
    return KeyedRequest("sender", key, fingerprint, first, events)


def control(
    kind: EventKind = EventKind.DEFINE, board: str = "arcade", at: int = AT, detail: Detail | None = None
) -> ControlEvent:
    """Make an event about no player."""
    return ControlEvent(Context(kind, board, "admin", {board: AcceptanceContext(1)}), detail, at)


def places(appended: Appended, events: int) -> list[Place]:
    """Return partition and sequence of so many events of a draft."""
    return [appended.place(index) for index in range(events)]


def places_of(players: Sequence[str], ledger: Ledger, before: Sequence[int] | None = None) -> list[Place]:
    """Return where events of these players have to stand, behind a sequence of each partition."""
    ends = list(before or [0] * ledger.partitions)
    player_places = []
    for player in players:
        partition = partition_of(player, ledger.partitions)
        ends[partition] += 1
        player_places.append((partition, ends[partition]))
    return player_places


class Reader:
    """Reads what is committed, some at a time, and fails where a sequence does not follow the one before."""

    def __init__(self, ledger: Ledger, events_max: int = 1_000) -> None:
        self._ledger = ledger
        self._events_max = events_max
        self.rows: list[list[ReadEvent]] = [[] for _ in range(ledger.partitions)]

    @property
    def after(self) -> list[int]:
        return [rows[-1].sequence if rows else 0 for rows in self.rows]

    def read(self) -> int:
        """Read once; return how many events there were."""
        parts = self._ledger.read(self.after, self._events_max)
        for part in parts:
            self._add(part)
        return sum(len(part.event_run) for part in parts)

    def _add(self, part: Part) -> None:
        event_run, rows = part.event_run, self.rows[part.partition]
        context = self._ledger.context(event_run.context)
        assert event_run.partition == part.partition
        assert event_run.first == (rows[-1].sequence if rows else 0) + 1
        nothing: list[Detail | None] = [None] * len(event_run)
        columns = zip(
            event_run.players,
            event_run.score,
            event_run.tiebreak,
            event_run.at,
            event_run.detail or nothing,
            part.ordinals or [NOT_ORDERED] * len(event_run),
            strict=True,
        )
        for sequence, row in enumerate(columns, start=event_run.first):
            rows.append(ReadEvent(sequence, context.kind, context.board, *row))


def everything(ledger: Ledger, events_max: int = 1_000) -> list[list[ReadEvent]]:
    """Return all events of each partition."""
    reader = Reader(ledger, events_max)
    while reader.read():
        pass
    return reader.rows


def by_place(ledger: Ledger) -> dict[Place, ReadEvent]:
    """Return all events by partition and sequence."""
    return {(partition, row.sequence): row for partition, rows in enumerate(everything(ledger)) for row in rows}


def flat(rows: list[list[ReadEvent]], kind: EventKind = EventKind.SCORE) -> list[ReadEvent]:
    """Return the events of one kind, partition after partition."""
    return [row for partition in rows for row in partition if row.kind is kind]


def events_in(ledger: Ledger) -> list[Event]:
    """Return (player, score) of all scores, sorted."""
    return sorted((row.player, row.score) for row in flat(everything(ledger)))


def player_in(partition: int, number: int = 0, partitions: int = 8) -> str:
    """Return the id of a player whose events stand in a partition."""
    names = (f"player-{partition}-{number}-{attempt}" for attempt in count())
    return next(name for name in names if partition_of(name, partitions) == partition)
