"""Events about no player stand in every partition, before whatever follows; those of team boards are counted across."""

from __future__ import annotations

from typing import cast

import pytest
from tests.contract.ledger_drafts import (
    ARCADE,
    AT,
    GUILDS,
    PLAYERS,
    control,
    draft,
    events_in,
    everything,
    flat,
    keyed,
    scores,
)
from tests.contract.ledger_places import LedgerPlace

from rankd.errors import LedgerUnavailable
from rankd.ledger.event import Detail, EventKind
from rankd.ledger.port import DefinitionsChanged, Draft, KeysTaken, Ledger, SharedLedger, StoredRequest


def shared(ledger: Ledger) -> SharedLedger | None:
    """Return a ledger that others append to as what it is; None where nobody else does."""
    return None if ledger.capabilities.is_sole_writer else cast(SharedLedger, ledger)


def test_control_events_stand_in_every_partition_before_what_follows(ledger: Ledger) -> None:
    first, second = control(detail=Detail(definition={"keep": "best"})), control(EventKind.RESET)
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    before = ledger.heads().sequences

    written = ledger.append_control([first, second], seen=0)
    ledger.append(draft(ledger, *((player, 2) for player in PLAYERS), seen=ledger.heads().control))

    assert [event.sequences for event in written] == [
        tuple(sequence + 1 for sequence in before),
        tuple(sequence + 2 for sequence in before),
    ]
    assert [(event.context, event.detail, event.at) for event in written] == [
        (event.context, event.detail, event.at) for event in (first, second)
    ]
    for rows, end in zip(everything(ledger), before, strict=True):
        assert {row.score for row in rows[:end]} == {1}
        assert {row.score for row in rows[end + 2 :]} == {2}
        assert [(row.kind, row.player, row.score, row.detail) for row in rows[end : end + 2]] == [
            (EventKind.DEFINE, "", 0, first.detail),
            (EventKind.RESET, "", 0, None),
        ]


def test_control_events_can_be_read_alone_where_the_ledger_is_shared(ledger: Ledger) -> None:
    written = ledger.append_control([control(), control(EventKind.RESET), control(EventKind.MIDNIGHT)], seen=0)

    both = shared(ledger)
    if both is None:
        assert [event.number for event in written] == [0, 0, 0]  # nobody has to name those they have seen
        return
    assert [event.number for event in written] == [1, 2, 3]
    assert both.heads().control == 3
    assert both.controls(0) == written
    assert both.controls(1) == written[1:]
    assert both.controls(0, 1) == written[:1]
    assert both.controls(3) == []


def test_each_control_event_is_read_as_an_event_run_of_its_own(ledger: Ledger) -> None:
    ledger.append_control([control(EventKind.MIDNIGHT, at=AT), control(EventKind.MIDNIGHT, at=AT + 1)], seen=0)

    parts = ledger.read([0] * ledger.partitions, 100)

    assert [(part.partition, part.event_run.first, len(part.event_run), part.event_run.at[0]) for part in parts] == [
        (partition, sequence, 1, AT + sequence - 1) for partition in range(ledger.partitions) for sequence in (1, 2)
    ]


@pytest.mark.capability("appends_conditionally")
@pytest.mark.parametrize("seen", [0, 2])
def test_who_has_not_seen_the_control_events_of_others_writes_nothing(ledger: Ledger, seen: int) -> None:
    ledger.append_control([control()], seen=0)
    before = ledger.heads()

    if ledger.capabilities.is_sole_writer:
        ledger.append(draft(ledger, ("alice", 1), key="k", seen=seen))  # there are no others
        assert events_in(ledger) == [("alice", 1)]
        return
    with pytest.raises(DefinitionsChanged):
        ledger.append(draft(ledger, ("alice", 1), key="k", seen=seen))
    with pytest.raises(DefinitionsChanged):
        ledger.append_control([control()], seen=seen, request=keyed("k", 0, 1))
    assert ledger.heads() == before
    assert events_in(ledger) == []
    assert ledger.request("sender", "k") is None
    assert ledger.append(draft(ledger, ("alice", 1), seen=1)).place(0)[1] == 2


def test_a_control_event_may_come_with_a_key(ledger: Ledger) -> None:
    (written,) = ledger.append_control([control()], seen=0, request=keyed("k", 0, 1), at=AT + 9)
    before = ledger.heads()

    assert before.at == AT + 9
    assert ledger.request("sender", "k") == StoredRequest(
        "sender", "k", b"fingerprint", AT + 9, 1, dict(enumerate(written.sequences))
    )
    with pytest.raises(KeysTaken):
        ledger.append_control([control()], seen=before.control, request=keyed("k", 0, 1))
    assert ledger.heads() == before
    ledger.append_control([control()], before.control, keyed("k", 0, 1), at=AT + 99, forgotten_before=AT + 10)
    assert ledger.heads().sequences == (2,) * ledger.partitions


@pytest.mark.capability("appends_conditionally")
def test_the_time_of_a_control_event_is_that_of_every_partition(ledger: Ledger) -> None:
    ledger.append(draft(ledger, (PLAYERS[0], 1), at=AT + 1_000))
    ledger.append_control([control(at=AT)], seen=0)
    seen = ledger.heads().control

    for player in PLAYERS:
        assert ledger.append(draft(ledger, (player, 1), at=AT, seen=seen)).at == AT + 1_000
    ledger.append_control([control(at=AT + 2_000)], seen)
    assert ledger.heads().at == AT + 2_000


def test_a_control_event_that_could_not_be_written_is_nowhere(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    before = ledger.heads()

    with ledger_place.refusing_events(), pytest.raises(LedgerUnavailable):
        ledger.append_control([control()], seen=0, request=keyed("k", 0, 1))

    assert ledger.heads() == before
    assert ledger.request("sender", "k") is None
    (written,) = ledger.append_control([control()], seen=0, request=keyed("k", 0, 1))
    assert written.sequences == tuple(sequence + 1 for sequence in before.sequences)
    for rows in everything(ledger_place.open()):
        assert [(row.kind, row.board) for row in rows if row.kind is not EventKind.SCORE] == [
            (EventKind.DEFINE, "arcade")
        ]


@pytest.mark.capability("appends_conditionally")
def test_events_that_reach_a_team_board_are_counted_across_partitions(ledger: Ledger) -> None:
    guilds, arcade = (
        scores(ledger, *((player, number) for number, player in enumerate(PLAYERS)), context=context)
        for context in (GUILDS, ARCADE)
    )
    ledger.append(Draft([arcade, guilds], AT, 0, ordered=frozenset([guilds.context])))
    ledger.append(draft(ledger, ("alice", 1)))
    ledger.append(draft(ledger, ("bob", 2), context=GUILDS, ordered=True))

    read = [row for row in flat(everything(ledger)) if row.board == "guilds"]
    if ledger.partitions == 1:  # sequences are the order already; there may be ordinals too
        assert [row.player for row in read] == [*PLAYERS, "bob"]
        return
    ordered = [row for row in flat(everything(ledger)) if row.ordinal]
    in_order = sorted(ordered, key=lambda row: row.ordinal)
    assert [row.ordinal for row in in_order] == list(range(1, len(PLAYERS) + 2))
    assert [row.player for row in in_order] == [*PLAYERS, "bob"]
    assert {row.board for row in ordered} == {"guilds"}
    assert ledger.heads().ordinal == len(PLAYERS) + 1
