"""What stands beside the events: requests by key, answers, metadata, where a request came from, a player's history."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.partitioned_drafts import (
    ARCADE,
    AT,
    GUILDS,
    NEXT_MONTH,
    REMOVAL,
    draft,
    events_in,
    keyed,
    opened,
    player_in,
    scores,
)

from rankd.ledger.event import Detail, Kind
from rankd.ledger.partitioned import KeysTaken, PartitionedDraft, Request
from rankd.ledger.port import PastEvent
from rankd.ledger.postgres import PostgresLedger


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[PostgresLedger]:
    with opened(ledger_url) as one:
        yield one


def test_requests_are_remembered_with_the_last_event_in_each_partition(ledger: PostgresLedger) -> None:
    events = [(player_in(1), 1), (player_in(6), 2), (player_in(1), 3), (player_in(6), 4)]
    both = [keyed("z", 0, 3, b"one"), keyed("a", 3, 1, b"two")]

    ledger.append(PartitionedDraft([scores(ledger, *events)], AT, 0, requests=both))

    assert ledger.request("sender", "z") == Request("sender", "z", b"one", AT, 3, {1: 2, 6: 1})
    assert ledger.request("sender", "a") == Request("sender", "a", b"two", AT, 1, {6: 2})
    assert ledger.request("somebody else", "a") is None
    found = ledger.requests([("sender", "a"), ("sender", "none"), ("sender", "z"), ("somebody else", "a")])
    assert {key: one.fingerprint for key, one in found.items()} == {("sender", "a"): b"two", ("sender", "z"): b"one"}
    assert ledger.requests([]) == {}


def test_a_key_that_is_taken_lets_nothing_be_written(ledger: PostgresLedger) -> None:
    ledger.append(draft(ledger, ("alice", 1), key="k1"))
    ledger.append(draft(ledger, ("alice", 2), key="k2"))
    stretch = scores(ledger, ("bob", 1), ("carol", 2), ("dave", 3))
    requests = [keyed("k2", 0, 1), keyed("new", 1, 1), keyed("k1", 2, 1)]

    with pytest.raises(KeysTaken) as raised:
        ledger.append(PartitionedDraft([stretch], AT, 0, {0: "{}"}, requests))

    assert sorted(raised.value.keys) == [("sender", "k1"), ("sender", "k2")]
    assert events_in(ledger) == [("alice", 1), ("alice", 2)]
    assert ledger.request("sender", "new") is None


def test_one_draft_cannot_have_a_key_twice(ledger: PostgresLedger) -> None:
    stretch = scores(ledger, ("alice", 1), ("bob", 2))
    with pytest.raises(ValueError, match="'k'"):
        ledger.append(PartitionedDraft([stretch], AT, 0, requests=[keyed("k", 0, 1), keyed("k", 1, 1)]))


def test_a_retry_across_a_months_end_counts_once(ledger: PostgresLedger) -> None:
    ledger.append(draft(ledger, ("alice", 1), key="k", at=NEXT_MONTH - 1))

    with pytest.raises(KeysTaken):
        ledger.append(draft(ledger, ("alice", 1), key="k", at=NEXT_MONTH))

    assert events_in(ledger) == [("alice", 1)]
    assert ledger.append(draft(ledger, ("alice", 2), at=NEXT_MONTH)).at == NEXT_MONTH
    assert events_in(ledger) == [("alice", 1), ("alice", 2)]


def test_a_key_is_free_once_its_request_is_forgotten(ledger: PostgresLedger) -> None:
    ledger.append(draft(ledger, ("alice", 1), key="k"))
    again = draft(ledger, ("alice", 2), key="k", at=AT + 1_000)

    again.forgotten_before = AT
    with pytest.raises(KeysTaken):
        ledger.append(again)
    again.forgotten_before = AT + 1
    ledger.append(again)

    assert ledger.request("sender", "k") == Request("sender", "k", b"fingerprint", AT + 1_000, 1, {5: 2})


def test_some_of_the_old_requests_are_forgotten_at_a_time(ledger: PostgresLedger) -> None:
    for number in range(6):
        ledger.append(draft(ledger, ("alice", 1), key=f"k{number}", at=AT + number))

    assert ledger.forget_requests(AT + 5, 3) == 3
    assert [ledger.request("sender", f"k{number}") is None for number in range(6)] == [True] * 3 + [False] * 3
    assert ledger.forget_requests(AT + 5, 3) == 2
    assert [ledger.request("sender", f"k{number}") is None for number in range(6)] == [True] * 5 + [False]


def test_metadata_is_found_by_its_event(ledger: PostgresLedger) -> None:
    stretch = scores(ledger, (player_in(1), 1), (player_in(2), 2), (player_in(1), 3))

    ledger.append(PartitionedDraft([stretch], AT, 0, metadata={0: '{"a":1}', 2: '{"c":"ö"}'}))

    assert ledger.metadata([(1, 1), (1, 2), (2, 1), (3, 9)]) == {(1, 1): '{"a":1}', (1, 2): '{"c":"ö"}'}
    assert ledger.metadata([]) == {}


def test_a_players_history_has_the_newest_first(ledger: PostgresLedger) -> None:
    alice, other = player_in(4, 0), player_in(4, 1)
    detail = Detail(attributes={"country": "BR"}, has_metadata=True)
    first = scores(ledger, (alice, 10), (other, 20), detail=[detail, None])
    ledger.append(PartitionedDraft([first], AT, 0, metadata={0: '{"x":1}'}, origins=[("192.0.2.1", 0, 1)]))
    ledger.append(draft(ledger, (other, 1), (alice, 30), context=GUILDS, at=AT + 1))
    ledger.append(draft(ledger, (alice, 0), context=REMOVAL, at=NEXT_MONTH))

    found = ledger.history(alice, 10)

    assert found == [
        PastEvent(5, Kind.REMOVE, "arcade", NEXT_MONTH, None, None, {}, None, "local"),
        PastEvent(4, Kind.SCORE, "guilds", AT + 1, 30, 0, {}, None, "local"),
        PastEvent(1, Kind.SCORE, "arcade", AT, 10, 0, {"country": "BR"}, {"x": 1}, "local", "192.0.2.1"),
    ]
    assert ledger.history(alice, 2) == found[:2]
    assert ledger.history(alice, 2, before=5) == found[1:]
    assert ledger.history(alice, 2, board="arcade") == [found[0], found[2]]
    assert ledger.history(alice, 2, board="unknown") == ledger.history("nobody", 2) == []
    assert ledger.history(other, 10)[-1].origin is None


def test_the_address_of_a_request_covers_its_events_alone(ledger: PostgresLedger) -> None:
    one, other = player_in(0), player_in(7)
    stretch = scores(ledger, (one, 1), (other, 2), (one, 3), (one, 4), (other, 5))
    origins = [("192.0.2.1", 0, 3), ("192.0.2.2", 4, 1)]
    ledger.append(PartitionedDraft([stretch], AT, 0, origins=origins))

    assert [(event.score, event.origin) for event in ledger.history(one, 9)] == [
        (4, None),
        (3, "192.0.2.1"),
        (1, "192.0.2.1"),
    ]
    assert [(event.score, event.origin) for event in ledger.history(other, 9)] == [
        (5, "192.0.2.2"),
        (2, "192.0.2.1"),
    ]
    assert ledger.number_context(ARCADE) == stretch.context
