"""What stands beside the events: requests by key, answers, metadata, where a request came from, a player's history."""

from __future__ import annotations

import pytest
from tests.contract.ledger_drafts import (
    AT,
    GUILDS,
    NEXT_MONTH,
    PLAYERS,
    REMOVAL,
    draft,
    events_in,
    keyed,
    places,
    scores,
)
from tests.contract.ledger_places import LedgerPlace

from rankd.ledger.event import Detail, EventKind
from rankd.ledger.origin import OriginSpan, RequestOrigin
from rankd.ledger.port import Draft, KeysTaken, Ledger, PastEvent, StoredRequest


@pytest.mark.capability("appends_conditionally")
def test_requests_are_remembered_with_the_last_event_in_each_partition(
    ledger: Ledger, ledger_place: LedgerPlace
) -> None:
    ledger.append(draft(ledger, *((player, 0) for player in PLAYERS)))
    events = [(PLAYERS[index], index) for index in (1, 6, 1, 6, 3)]
    both = [keyed("z", 0, 3, b"one"), keyed("a", 3, 1, b"two")]

    stand = places(ledger.append(Draft([scores(ledger, *events)], AT, 0, requests=both)), 5)

    for checked_ledger in ledger_place.now_and_reopened(ledger):
        assert checked_ledger.request("sender", "z") == StoredRequest("sender", "z", b"one", AT, 3, dict(stand[:3]))
        assert checked_ledger.request("sender", "a") == StoredRequest("sender", "a", b"two", AT, 1, dict(stand[3:4]))
        assert checked_ledger.request("somebody else", "a") is None
        stored_requests = checked_ledger.requests(
            [("sender", "a"), ("sender", "none"), ("sender", "z"), ("somebody else", "a")]
        )
        assert {key: request.fingerprint for key, request in stored_requests.items()} == {
            ("sender", "a"): b"two",
            ("sender", "z"): b"one",
        }
        assert checked_ledger.requests([]) == {}


@pytest.mark.capability("appends_conditionally")
def test_a_key_that_is_taken_lets_nothing_be_written(ledger: Ledger) -> None:
    ledger.append(draft(ledger, ("alice", 1), key="k1"))
    ledger.append(draft(ledger, ("alice", 2), key="k2"))
    before = ledger.heads()
    event_run = scores(ledger, ("bob", 1), ("carol", 2), ("dave", 3), context=GUILDS)
    requests = [keyed("k2", 0, 1), keyed("new", 1, 1), keyed("k1", 2, 1)]

    with pytest.raises(KeysTaken) as raised:
        ledger.append(Draft([event_run], AT, 0, {0: "{}"}, requests))

    assert sorted(raised.value.keys) == [("sender", "k1"), ("sender", "k2")]
    assert ledger.heads() == before
    assert events_in(ledger) == [("alice", 1), ("alice", 2)]
    assert ledger.request("sender", "new") is None


@pytest.mark.capability("appends_conditionally")
def test_a_key_is_taken_also_for_the_next_who_opens_the_ledger(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    ledger.append(draft(ledger, ("alice", 1), key="k"))
    reopened = ledger_place.open()

    with pytest.raises(KeysTaken):
        reopened.append(draft(reopened, ("alice", 2), key="k"))
    assert events_in(reopened) == [("alice", 1)]


def test_one_draft_cannot_have_a_key_twice(ledger: Ledger) -> None:
    event_run = scores(ledger, ("alice", 1), ("bob", 2))
    with pytest.raises(ValueError, match="'k'"):
        ledger.append(Draft([event_run], AT, 0, requests=[keyed("k", 0, 1), keyed("k", 1, 1)]))
    assert events_in(ledger) == []


@pytest.mark.capability("appends_conditionally")
def test_two_senders_may_use_one_key(ledger: Ledger) -> None:
    event_run = scores(ledger, ("alice", 1), ("bob", 2))
    requests = [keyed("k", 0, 1), keyed("k", 1, 1)._replace(sender="another")]
    stand = places(ledger.append(Draft([event_run], AT, 0, requests=requests)), 2)

    stored_requests = ledger.requests([("sender", "k"), ("another", "k")])
    assert {sender: request.positions for (sender, _), request in stored_requests.items()} == {
        "sender": dict(stand[:1]),
        "another": dict(stand[1:]),
    }


@pytest.mark.capability("appends_conditionally")
def test_a_retry_across_a_months_end_counts_once(ledger: Ledger) -> None:
    ledger.append(draft(ledger, ("alice", 1), key="k", at=NEXT_MONTH - 1))

    with pytest.raises(KeysTaken):
        ledger.append(draft(ledger, ("alice", 1), key="k", at=NEXT_MONTH))

    assert ledger.append(draft(ledger, ("alice", 2), at=NEXT_MONTH)).at == NEXT_MONTH
    assert events_in(ledger) == [("alice", 1), ("alice", 2)]


@pytest.mark.capability("appends_conditionally")
def test_a_key_is_free_once_its_request_is_forgotten(ledger: Ledger) -> None:
    ledger.append(draft(ledger, ("alice", 1), key="k"))
    again = draft(ledger, ("alice", 2), key="k", at=AT + 1_000)

    again.forgotten_before = AT
    with pytest.raises(KeysTaken):
        ledger.append(again)
    again.forgotten_before = AT + 1
    stand = places(ledger.append(again), 1)

    assert ledger.request("sender", "k") == StoredRequest("sender", "k", b"fingerprint", AT + 1_000, 1, dict(stand))
    assert events_in(ledger) == [("alice", 1), ("alice", 2)]


@pytest.mark.capability("appends_conditionally")
def test_some_of_the_old_requests_are_forgotten_at_a_time(ledger: Ledger) -> None:
    for number in range(6):
        ledger.append(draft(ledger, ("alice", number), key=f"k{number}", at=AT + number))

    assert ledger.forget_requests(AT + 5, 3) == 3
    assert [ledger.request("sender", f"k{number}") is None for number in range(6)] == [True] * 3 + [False] * 3
    assert ledger.forget_requests(AT + 5, 3) == 2
    assert ledger.forget_requests(AT + 5, 3) == 0
    assert [ledger.request("sender", f"k{number}") is None for number in range(6)] == [True] * 5 + [False]
    ledger.append(draft(ledger, ("alice", 9), key="k0"))
    assert len(events_in(ledger)) == 7


@pytest.mark.capability("appends_conditionally")
def test_a_request_that_changed_nothing_is_remembered_too(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    ends = ledger.heads().sequences
    assert list(ledger.append_control([], seen=0, request=keyed("nothing", 0, 0), at=AT)) == []
    appended = ledger.append(Draft([], AT, 0, requests=[keyed("empty", 0, 0)]))

    assert appended.at == AT
    for checked_ledger in ledger_place.now_and_reopened(ledger):
        assert checked_ledger.heads().sequences == ends
        for key in ("nothing", "empty"):
            stored_request = checked_ledger.request("sender", key)
            assert stored_request is not None
            assert (stored_request.fingerprint, stored_request.at, stored_request.events) == (b"fingerprint", AT, 0)
            assert all(sequence <= ends[partition] for partition, sequence in stored_request.positions.items())
        with pytest.raises(KeysTaken):
            checked_ledger.append(draft(checked_ledger, ("alice", 1), key="nothing"))


@pytest.mark.capability("appends_conditionally")
def test_an_answer_that_came_with_a_later_draft_is_given_again_where_answers_are_stored(
    ledger: Ledger, ledger_place: LedgerPlace
) -> None:
    ledger.append(draft(ledger, ("alice", 1), key="one"))
    ledger.append(draft(ledger, ("alice", 2), key="two"))
    later = draft(ledger, ("alice", 3))
    later.answers = [("sender", "one", b"first")]
    ledger.append(later)
    ledger.append(Draft([], AT, 0, answers=[("sender", "one", b"second"), ("sender", "unknown", b"other")]))

    for checked_ledger in ledger_place.now_and_reopened(ledger):
        stored_requests = checked_ledger.requests([("sender", "one"), ("sender", "two"), ("sender", "unknown")])
        assert {key: request.answer for (_, key), request in stored_requests.items()} == {
            "one": b"first" if checked_ledger.capabilities.stores_answers else None,
            "two": None,
        }
        assert sum(checked_ledger.heads().sequences) == 3


@pytest.mark.capability("appends_conditionally")
def test_an_answer_of_a_request_that_is_forgotten_is_not_that_of_the_next_under_its_key(ledger: Ledger) -> None:
    ledger.append(draft(ledger, ("alice", 1), key="k"))
    again = draft(ledger, ("alice", 2), key="k", at=AT + 1_000)
    again.forgotten_before = AT + 1
    again.answers = [("sender", "k", b"of the first")]
    ledger.append(again)

    stored_request = ledger.request("sender", "k")
    assert stored_request is not None
    assert (stored_request.at, stored_request.answer) == (AT + 1_000, None)


def test_metadata_is_found_by_its_event(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    ledger.append(draft(ledger, *((player, 0) for player in PLAYERS)))
    event_run = scores(ledger, *((player, 1) for player in PLAYERS))

    stand = places(
        ledger.append(Draft([event_run], AT, 0, metadata={0: '{"a":1}', 2: '{"c":"ö"}', 23: "{}"})), len(PLAYERS)
    )

    for checked_ledger in ledger_place.now_and_reopened(ledger):
        assert checked_ledger.metadata([*stand, (0, 999)]) == {
            stand[0]: '{"a":1}',
            stand[2]: '{"c":"ö"}',
            stand[23]: "{}",
        }
        assert checked_ledger.metadata(stand[1:2]) == checked_ledger.metadata([]) == {}


@pytest.mark.capability("finds_history")
def test_a_players_history_has_the_newest_first(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    alice, other = PLAYERS[:2]
    detail = Detail(attributes={"country": "BR"}, has_metadata=True)
    first = scores(ledger, (alice, 10), (other, 20), detail=[detail, None], tiebreak=7)
    appended = [
        ledger.append(
            Draft([first], AT, 0, metadata={0: '{"x":1}'}, origins=[OriginSpan(RequestOrigin("192.0.2.1"), 0, 1)])
        ).place(0),
        ledger.append(draft(ledger, (other, 1), (alice, 30), context=GUILDS, at=AT + 1)).place(1),
        ledger.append(draft(ledger, (alice, 0), context=REMOVAL, at=NEXT_MONTH)).place(0),
    ]
    scored, later, removed = (sequence for _, sequence in appended)

    for checked_ledger in ledger_place.now_and_reopened(ledger):
        history = checked_ledger.history(alice, 10)
        assert history == [
            PastEvent(removed, EventKind.REMOVE, "arcade", NEXT_MONTH, None, None, {}, None, "local"),
            PastEvent(later, EventKind.SCORE, "guilds", AT + 1, 30, 0, {}, None, "local"),
            PastEvent(scored, EventKind.SCORE, "arcade", AT, 10, 7, {"country": "BR"}, {"x": 1}, "local", "192.0.2.1"),
        ]
        assert checked_ledger.history(alice, 2) == history[:2]
        assert checked_ledger.history(alice, 2, before=removed) == history[1:]
        assert checked_ledger.history(alice, 2, board="arcade") == [history[0], history[2]]
        assert checked_ledger.history(alice, 2, board="unknown") == checked_ledger.history("nobody", 2) == []
        assert checked_ledger.history(other, 10)[-1].origin is None


@pytest.mark.capability("finds_history")
def test_the_address_of_a_request_covers_its_events_alone(ledger: Ledger) -> None:
    first_player, second_player = PLAYERS[0], PLAYERS[7]
    event_run = scores(
        ledger, (first_player, 1), (second_player, 2), (first_player, 3), (first_player, 4), (second_player, 5)
    )
    origins = [OriginSpan(RequestOrigin("192.0.2.1"), 0, 3), OriginSpan(RequestOrigin("192.0.2.2"), 4, 1)]
    ledger.append(Draft([event_run], AT, 0, origins=origins))
    ledger.append(draft(ledger, (first_player, 6)))

    assert [(event.score, event.origin) for event in ledger.history(first_player, 9)] == [
        (6, None),
        (4, None),
        (3, "192.0.2.1"),
        (1, "192.0.2.1"),
    ]
    assert [(event.score, event.origin) for event in ledger.history(second_player, 9)] == [
        (5, "192.0.2.2"),
        (2, "192.0.2.1"),
    ]
