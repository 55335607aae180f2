"""Random drafts, appended by several writers at once, are read back as the writers were answered."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import attrgetter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.ledger_drafts import AT, GUILDS, REMOVAL, Reader, ReadEvent, places
from tests.contract.postgres_ledgers import opened
from tests.servers.postgres import PostgresServer
from tests.servers.waiting import WAIT_S

from rankd.domain.partition import partition_of
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind, EventRun
from rankd.ledger.port import Appended, Draft, KeyedRequest
from rankd.ledger.postgres import PostgresLedger, migrate

WRITERS = 3
CONTEXTS = [
    GUILDS,
    REMOVAL,
    *(
        Context(EventKind.SCORE, "arcade", f"sender-{number}", {"arcade": AcceptanceContext(number)})
        for number in range(3)
    ),
]
NUMBERS = st.integers(-(2**63), 2**63 - 1)
# Everything but control characters, and halves of characters.
PLAYERS = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
DETAILS = st.none() | st.builds(Detail, attributes=st.dictionaries(PLAYERS, PLAYERS, max_size=2))


class Event(msgspec.Struct, frozen=True):
    """One event before it is anybody's."""

    context: int  # index in CONTEXTS
    player: str
    score: int
    tiebreak: int
    at: int
    detail: Detail | None
    metadata: str | None


EVENTS = st.builds(
    Event,
    context=st.integers(0, len(CONTEXTS) - 1),
    player=PLAYERS,
    score=NUMBERS,
    tiebreak=NUMBERS,
    at=st.integers(AT, AT + 1_000),
    detail=DETAILS,
    metadata=st.none() | st.just('{"m":"ü"}'),
)
DRAFTS = st.lists(st.lists(EVENTS, min_size=1, max_size=12), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def ledgers(postgres: PostgresServer) -> Iterator[list[PostgresLedger]]:
    """The same ledger, as several processes have it; what one example wrote is behind what the next one reads."""
    with postgres.database() as url:
        migrate(url, 5, now=AT)
        opening = [opened(url) for _ in range(WRITERS)]
        yield [manager.__enter__() for manager in opening]
        for manager in opening:
            manager.__exit__(None, None, None)


def event_runs_of(ledger: PostgresLedger, events: list[Event]) -> list[EventRun]:
    made = []
    for context, group in groupby(events, attrgetter("context")):
        run = list(group)
        made.append(
            EventRun(
                ledger.number_context(CONTEXTS[context]),
                array("q", [event.at for event in run]),
                array("q", bytes(8 * len(run))),
                array("q", [event.score for event in run]),
                array("q", [event.tiebreak for event in run]),
                [event.player for event in run],
                [event.detail for event in run] if any(event.detail for event in run) else None,
            )
        )
    return made


def draft_of(ledger: PostgresLedger, events: list[Event], key: str) -> Draft:
    half = len(events) // 2
    return Draft(
        event_runs_of(ledger, events),
        AT,
        0,
        {index: event.metadata for index, event in enumerate(events) if event.metadata is not None},
        [
            KeyedRequest("s", f"{key}-first", b"f", 0, half),
            KeyedRequest("s", f"{key}-rest", b"f", half, len(events) - half),
        ],
        ordered=frozenset([ledger.number_context(GUILDS)]),
    )


@settings(max_examples=20, deadline=None)
@given(work=st.lists(DRAFTS, min_size=WRITERS, max_size=WRITERS))
def test_what_many_wrote_is_read_back(ledgers: list[PostgresLedger], work: list[list[list[Event]]]) -> None:
    before = ledgers[0].heads()
    keys = [f"{sum(before.sequences)}-{writer}" for writer in range(WRITERS)]

    def write(writer: int) -> list[Appended]:
        ledger = ledgers[writer]
        return [
            ledger.append(draft_of(ledger, events, f"{keys[writer]}-{number}"))
            for number, events in enumerate(work[writer])
        ]

    with ThreadPoolExecutor(WRITERS) as threads:
        of_writers = list(threads.map(write, range(WRITERS), timeout=WAIT_S))

    reader = Reader(ledgers[0], events_max=7)
    reader.rows = [[ReadEvent(end, EventKind.SCORE, "", "", 0, 0, 0, None, 0)] for end in before.sequences]
    while reader.read():
        pass
    read = {(partition, row.sequence): row for partition, rows in enumerate(reader.rows) for row in rows[1:]}

    expected: dict[tuple[int, int], Event] = {}
    for drafts, appends in zip(work, of_writers, strict=True):
        for events, appended in zip(drafts, appends, strict=True):
            stand = places(appended, len(events))
            assert [partition for partition, _ in stand] == [partition_of(event.player, 5) for event in events]
            expected.update(zip(stand, events, strict=True))
    assert read.keys() == expected.keys()
    for place, event in expected.items():
        row, context = read[place], CONTEXTS[event.context]
        assert row[1:8] == (
            context.kind,
            context.board,
            event.player,
            event.score,
            event.tiebreak,
            event.at,
            event.detail,
        )
        assert bool(row.ordinal) == (context is GUILDS)
    metadata = ledgers[1].metadata(list(expected))
    assert metadata == {place: event.metadata for place, event in expected.items() if event.metadata is not None}
    ordinals = sorted(row.ordinal for row in read.values() if row.ordinal)
    assert ordinals == list(range(before.ordinal + 1, ledgers[0].heads().ordinal + 1))
    check_requests(ledgers[2], keys, work, of_writers)


def check_requests(
    ledger: PostgresLedger, keys: list[str], work: list[list[list[Event]]], of_writers: list[list[Appended]]
) -> None:
    for key, drafts, appends in zip(keys, work, of_writers, strict=True):
        for number, (sent, appended) in enumerate(zip(drafts, appends, strict=True)):
            count = len(sent)
            half = count // 2
            for name, first, events in (("first", 0, half), ("rest", half, count - half)):
                request = ledger.request("s", f"{key}-{number}-{name}")
                assert request is not None
                assert (request.events, request.at) == (events, appended.at)
                assert request.positions == appended.positions(first, events)
