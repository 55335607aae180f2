"""What every ledger promises, embedded or on PostgreSQL, seen through an adapter as thin as can be."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from tests.contract.partitioned_drafts import ARCADE, AT, GUILDS, REMOVAL, everything

from rankd.ledger.database import Database
from rankd.ledger.event import Context, Detail, Stretch, rows
from rankd.ledger.partitioned import Keyed, PartitionedDraft
from rankd.ledger.port import Draft, PastEvent, Request
from rankd.ledger.postgres import PostgresLedger
from rankd.ledger.sqlite import SqliteLedger

Place = tuple[int, int]  # partition and sequence


class Event(NamedTuple):
    """One event, as it is sent and as it comes back."""

    player: str
    score: int
    tiebreak: int = 0
    at: int = AT
    detail: Detail | None = None


class Remembered(NamedTuple):
    """A request, as far as both ledgers tell of it."""

    fingerprint: bytes
    at: int
    places: set[Place]  # of its last event in each partition


class AnyLedger(Protocol):
    """What both have in common; one request is one commit."""

    def append(
        self,
        context: Context,
        *events: Event,
        key: str | None = None,
        metadata: Mapping[int, str] | None = None,
        address: str | None = None,
    ) -> list[Place]: ...

    def events(self) -> dict[Place, tuple[Context, Event]]: ...

    def ends(self) -> dict[int, int]: ...

    def request(self, key: str) -> Remembered | None: ...

    def metadata(self, places: Sequence[Place]) -> dict[Place, str]: ...

    def history(
        self, player: str, limit: int, before: int | None = None, board: str | None = None
    ) -> list[PastEvent]: ...

    def close(self) -> None: ...


def stretch_of(context: int, players: array[int], events: Sequence[Event]) -> Stretch:
    return Stretch(
        context,
        array("q", [event.at for event in events]),
        players,
        array("q", [event.score for event in events]),
        array("q", [event.tiebreak for event in events]),
        [event.player for event in events],
        [event.detail for event in events] if any(event.detail for event in events) else None,
    )


class Embedded:
    """The ledger in a folder: one partition."""

    def __init__(self, folder: Path) -> None:
        self._database = Database(folder)
        self._ledger = SqliteLedger(folder, self._database)

    def append(
        self,
        context: Context,
        *events: Event,
        key: str | None = None,
        metadata: Mapping[int, str] | None = None,
        address: str | None = None,
    ) -> list[Place]:
        ledger = self._ledger
        numbers = ledger.number_players([event.player for event in events])
        stretch = stretch_of(ledger.number_context(context), numbers, events)
        requests = [] if key is None else [(Request("sender", key, b"f", 0, 0, 0), 0, len(events))]
        origins = [] if address is None else [(address, 0, len(events))]
        ledger.append(Draft([stretch], metadata or {}, requests, [], AT, origins))
        return [(0, stretch.first + index) for index in range(len(events))]

    def events(self) -> dict[Place, tuple[Context, Event]]:
        return {
            (0, row.sequence): (
                self._ledger.context(stretch.context),
                Event(
                    row.player,
                    row.score,
                    row.tiebreak,
                    row.at,
                    (stretch.detail or [None])[index] if stretch.detail else None,
                ),
            )
            for stretches in self._ledger.read(0)
            for stretch in stretches
            for index, row in enumerate(rows(stretch))
        }

    def ends(self) -> dict[int, int]:
        return {0: self._ledger.head().sequence}

    def request(self, key: str) -> Remembered | None:
        found = self._ledger.request("sender", key)
        return None if found is None else Remembered(found.fingerprint, found.at, {(0, found.upto)})

    def metadata(self, places: Sequence[Place]) -> dict[Place, str]:
        found = self._ledger.metadata([sequence for _, sequence in places])
        return {(0, sequence): json for sequence, json in found.items()}

    def history(self, player: str, limit: int, before: int | None = None, board: str | None = None) -> list[PastEvent]:
        return self._ledger.history(player, limit, before, board)

    def close(self) -> None:
        self._ledger.close()
        self._database.close()


class OnPostgres:
    """The ledger on PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._ledger = PostgresLedger(url)

    def append(
        self,
        context: Context,
        *events: Event,
        key: str | None = None,
        metadata: Mapping[int, str] | None = None,
        address: str | None = None,
    ) -> list[Place]:
        ledger = self._ledger
        stretch = stretch_of(ledger.number_context(context), array("q", bytes(8 * len(events))), events)
        requests = [] if key is None else [Keyed("sender", key, b"f", 0, len(events))]
        origins = [] if address is None else [(address, 0, len(events))]
        appended = ledger.append(PartitionedDraft([stretch], AT, 0, dict(metadata or {}), requests, origins))
        return list(zip(appended.partition, appended.sequence, strict=True))

    def events(self) -> dict[Place, tuple[Context, Event]]:
        contexts = {(one.kind, one.board): one for one in (ARCADE, GUILDS, REMOVAL)}
        return {
            (partition, row.sequence): (
                contexts[row.kind, row.board],
                Event(row.player, row.score, row.tiebreak, row.at, row.detail),
            )
            for partition, of_partition in enumerate(everything(self._ledger))
            for row in of_partition
        }

    def ends(self) -> dict[int, int]:
        return {partition: end for partition, end in enumerate(self._ledger.heads().sequences) if end}

    def request(self, key: str) -> Remembered | None:
        found = self._ledger.request("sender", key)
        return None if found is None else Remembered(found.fingerprint, found.at, set(found.positions.items()))

    def metadata(self, places: Sequence[Place]) -> dict[Place, str]:
        return self._ledger.metadata(places)

    def history(self, player: str, limit: int, before: int | None = None, board: str | None = None) -> list[PastEvent]:
        return self._ledger.history(player, limit, before, board)

    def close(self) -> None:
        self._ledger.close()


Open = Callable[[], AnyLedger]


@pytest.fixture(params=["sqlite", "postgres"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open the ledger of the test; whoever had it open before has it no longer."""
    url = request.getfixturevalue("ledger_url") if request.param == "postgres" else None
    opened: list[AnyLedger] = []

    def make() -> AnyLedger:
        for one in opened:
            one.close()
        opened[:] = [Embedded(tmp_path) if url is None else OnPostgres(url)]
        return opened[0]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def ledger(reopen: Open) -> AnyLedger:
    return reopen()


SOME = [
    Event("alice", 10, detail=Detail(attributes={"country": "BR"})),
    Event("Zoë", -(2**53), -1, AT - 9),
    Event("alice", 2**53, 2**47),
    Event("bob", 0),
]


def test_what_was_appended_is_read_back_also_by_the_next_who_opens_it(ledger: AnyLedger, reopen: Open) -> None:
    first = ledger.append(ARCADE, *SOME)
    second = ledger.append(GUILDS, *SOME[:2])
    third = ledger.append(REMOVAL, Event("bob", 0))

    expected = {place: (ARCADE, event) for place, event in zip(first, SOME, strict=True)}
    expected |= {place: (GUILDS, event) for place, event in zip(second, SOME, strict=False)}
    expected |= {third[0]: (REMOVAL, Event("bob", 0))}
    assert ledger.events() == expected
    assert reopen().events() == expected


def test_numbers_have_no_gaps_and_keep_a_players_order(ledger: AnyLedger) -> None:
    places = [ledger.append(ARCADE, *SOME) for _ in range(3)]

    by_partition: dict[int, list[int]] = {}
    for append in places:
        for partition, sequence in append:
            by_partition.setdefault(partition, []).append(sequence)
    for partition, sequences in by_partition.items():
        assert sequences == list(range(1, ledger.ends()[partition] + 1))
    assert ledger.ends().keys() == by_partition.keys()


def test_a_request_is_remembered_with_its_events(ledger: AnyLedger, reopen: Open) -> None:
    places = ledger.append(ARCADE, *SOME, key="k")
    ledger.append(ARCADE, *SOME)

    last = set(dict(places).items())
    assert ledger.request("k") == Remembered(b"f", AT, last)
    assert ledger.request("unknown") is None
    assert reopen().request("k") == Remembered(b"f", AT, last)


def test_metadata_is_found_by_its_event(ledger: AnyLedger) -> None:
    places = ledger.append(ARCADE, *SOME, metadata={1: '{"a":1}', 3: '{"b":"ö"}'})

    assert ledger.metadata(places) == {places[1]: '{"a":1}', places[3]: '{"b":"ö"}'}
    assert ledger.metadata([]) == {}


def test_a_players_history_has_the_newest_first(ledger: AnyLedger) -> None:
    ledger.append(ARCADE, *SOME, metadata={0: '{"a":1}'}, address="192.0.2.1")
    ledger.append(GUILDS, Event("alice", 30))
    ledger.append(REMOVAL, Event("alice", 0))

    found = ledger.history("alice", 10)

    told = [(one.kind, one.board, one.score, one.attributes, one.metadata, one.origin) for one in found]
    assert told == [
        ("remove", "arcade", None, {}, None, None),
        ("score", "guilds", 30, {}, None, None),
        ("score", "arcade", 2**53, {}, None, "192.0.2.1"),
        ("score", "arcade", 10, {"country": "BR"}, {"a": 1}, "192.0.2.1"),
    ]
    assert ledger.history("alice", 2) == found[:2]
    assert ledger.history("alice", 9, before=found[1].sequence) == found[2:]
    assert ledger.history("alice", 9, board="guilds") == [found[1]]
    assert ledger.history("nobody", 9) == []
