"""What a ledger of several partitions promises: what is appended comes back, numbered, in its player's partition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.partitioned_drafts import (
    ARCADE,
    AT,
    GUILDS,
    REMOVAL,
    control,
    draft,
    events_in,
    everything,
    flat,
    keyed,
    opened,
    player_in,
    scores,
)

from rankd.domain.partition import partition_of
from rankd.errors import LedgerDamaged
from rankd.ledger.event import Context, Detail, Kind
from rankd.ledger.partitioned import DefinitionsChanged, KeysTaken, PartitionedDraft, Request
from rankd.ledger.postgres import PostgresLedger

PLAYERS = [player_in(partition, number) for number in range(3) for partition in range(8)]


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[PostgresLedger]:
    with opened(ledger_url) as one:
        yield one


def test_an_empty_ledger_has_no_events(ledger: PostgresLedger) -> None:
    heads = ledger.heads()

    assert (heads.sequences, heads.control, heads.at, heads.ordinal) == ((0,) * 8, 0, 0, 0)
    assert ledger.read([0] * 8, 100) == []
    assert ledger.controls(0) == []


def test_events_come_back_as_they_were_appended(ledger: PostgresLedger) -> None:
    detail = Detail(attributes={"country": "BR"}, keys={"arcade": 7}, has_metadata=True)
    one = scores(ledger, ("Zoë", -(2**53)), ("bob", 2**53), ("carol", 0), at=AT + 5, detail=[None, detail, None])
    one.tiebreak[2] = -1
    gone = scores(ledger, ("bob", 0), context=REMOVAL)

    ledger.append(PartitionedDraft([one, gone], AT, 0))

    found = {(row.player, row.kind): row for row in [*flat(everything(ledger)), *flat(everything(ledger), Kind.REMOVE)]}
    assert {(row.player, row.score, row.tiebreak, row.at) for row in found.values() if row.kind is Kind.SCORE} == {
        ("Zoë", -(2**53), 0, AT + 5),
        ("bob", 2**53, 0, AT + 5),
        ("carol", 0, -1, AT + 5),
    }
    assert found["bob", Kind.SCORE].detail == detail
    assert found["Zoë", Kind.SCORE].detail is None
    assert found["bob", Kind.REMOVE].sequence == found["bob", Kind.SCORE].sequence + 1


def test_events_stand_in_their_players_partition_in_the_drafts_order(ledger: PostgresLedger) -> None:
    events = [(player, number) for number, player in enumerate(PLAYERS * 2)]

    appended = ledger.append(draft(ledger, *events))

    assert list(appended.partition) == [partition_of(player, 8) for player, _ in events]
    for partition, rows in enumerate(everything(ledger)):
        expected = [event for event in events if partition_of(event[0], 8) == partition]
        assert [(row.player, row.score) for row in rows] == expected
        assert [row.sequence for row in rows] == list(range(1, len(expected) + 1))
        mine = [sequence for sequence, of in zip(appended.sequence, appended.partition, strict=True) if of == partition]
        assert mine == [row.sequence for row in rows]


def test_positions_are_the_last_sequence_in_each_partition(ledger: PostgresLedger) -> None:
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    one, other = player_in(2), player_in(5)

    appended = ledger.append(draft(ledger, (one, 1), (other, 2), (one, 3), (other, 4)))

    assert appended.positions(0, 4) == {2: 5, 5: 5}
    assert appended.positions(0, 1) == {2: 4}
    assert ledger.heads().sequences == (3, 3, 5, 3, 3, 5, 3, 3)


def test_reading_goes_on_behind_any_sequence_and_takes_of_each_partition(ledger: PostgresLedger) -> None:
    for number in range(5):
        ledger.append(draft(ledger, *((player, number) for player in PLAYERS)))

    parts = ledger.read([3, 0, 15, 15, 15, 15, 15, 14], 10)

    taken = [(part.partition, part.stretch.first, len(part.stretch)) for part in parts]
    assert taken == [(0, 4, 5), (1, 1, 4), (7, 15, 1)]
    without = ledger.read([3, 0, 15, 15, 15, 15, 15, 14], 10, skipping={0, 7})
    assert [(part.partition, part.stretch.first, len(part.stretch)) for part in without] == [(1, 1, 10)]
    assert everything(ledger, events_max=3) == everything(ledger, events_max=50) == everything(ledger)


def test_a_reader_may_go_back(ledger: PostgresLedger) -> None:
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    assert everything(ledger) == everything(ledger)


def test_a_run_of_one_context_is_one_stretch(ledger: PostgresLedger) -> None:
    player = player_in(3)
    ledger.append(draft(ledger, *((player, number) for number in range(50))))
    ledger.append(draft(ledger, (player, 50)))
    ledger.append(draft(ledger, (player, 51), context=GUILDS))

    first, second = ledger.read([0] * 8, 100)

    assert (len(first.stretch), first.stretch.first, first.ordinals) == (51, 1, None)
    assert (len(second.stretch), second.stretch.first) == (1, 52)
    assert ledger.context(first.stretch.context) == ARCADE
    assert list(first.stretch.player) == [0] * 51


def test_a_ledger_that_ends_before_what_was_read_is_refused(ledger: PostgresLedger) -> None:
    with pytest.raises(LedgerDamaged, match="partition 6 of the ledger ends at 0"):
        ledger.read([0, 0, 0, 0, 0, 0, 1, 0], 10)


def test_a_missing_event_is_refused(ledger: PostgresLedger) -> None:
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    with ledger.connections.using() as connection:
        connection.execute("DELETE FROM events WHERE partition = 4 AND sequence = 2")

    with pytest.raises(LedgerDamaged, match="missing"):
        everything(ledger)


# The ledger's time


def test_the_ledgers_time_never_goes_back(ledger: PostgresLedger) -> None:
    one, other = player_in(0), player_in(1)
    assert ledger.append(draft(ledger, (one, 1), at=AT + 1_000)).at == AT + 1_000
    assert ledger.append(draft(ledger, (other, 1), at=AT)).at == AT
    assert ledger.append(draft(ledger, (one, 2), (other, 2), at=AT)).at == AT + 1_000
    assert ledger.append(draft(ledger, (other, 3), at=AT)).at == AT + 1_000
    assert ledger.heads().at == AT + 1_000
    assert {row.at for row in flat(everything(ledger))} == {AT, AT + 1_000}  # those of events are as they were sent


# Control events


def test_control_events_stand_in_every_partition_before_what_follows(ledger: PostgresLedger) -> None:
    first, second = control(detail=Detail(definition={"keep": "best"})), control(Kind.RESET)
    ledger.append(draft(ledger, (player_in(2), 1)))

    written = ledger.append_control([first, second], seen=0)

    assert [event.number for event in written] == [1, 2]
    assert [event.sequences for event in written] == [(1, 1, 2, 1, 1, 1, 1, 1), (2, 2, 3, 2, 2, 2, 2, 2)]
    assert [(event.context, event.detail, event.at) for event in written] == [
        (one.context, one.detail, one.at) for one in (first, second)
    ]
    assert ledger.controls(0) == written
    assert ledger.controls(1) == written[1:]
    assert ledger.controls(0, 1) == written[:1]
    for rows in everything(ledger):
        copies = [row for row in rows if row.kind is not Kind.SCORE]
        assert [(row.kind, row.player, row.detail) for row in copies] == [
            (Kind.DEFINE, "", first.detail),
            (Kind.RESET, "", None),
        ]


def test_each_control_event_is_read_as_a_stretch_of_its_own(ledger: PostgresLedger) -> None:
    ledger.append_control([control(Kind.MIDNIGHT, at=AT), control(Kind.MIDNIGHT, at=AT + 1)], seen=0)

    parts = ledger.read([0] * 8, 100)

    assert [len(part.stretch) for part in parts] == [1] * 16


@pytest.mark.parametrize("seen", [0, 2])
def test_who_has_not_seen_the_control_events_writes_nothing(ledger: PostgresLedger, seen: int) -> None:
    ledger.append_control([control()], seen=0)
    before = ledger.heads()

    with pytest.raises(DefinitionsChanged):
        ledger.append(draft(ledger, ("alice", 1), key="k", seen=seen))
    with pytest.raises(DefinitionsChanged):
        ledger.append_control([control()], seen=seen, request=keyed("k", 0, 1))

    assert ledger.heads() == before
    assert events_in(ledger) == []
    assert ledger.request("sender", "k") is None
    assert ledger.append(draft(ledger, ("alice", 1), seen=1)).sequence[0] == 2


def test_a_control_event_may_come_with_a_key(ledger: PostgresLedger) -> None:
    (written,) = ledger.append_control([control()], seen=0, request=keyed("k", 0, 1), at=AT + 9)

    assert ledger.request("sender", "k") == Request(
        "sender", "k", b"fingerprint", AT + 9, 1, dict(enumerate(written.sequences))
    )
    with pytest.raises(KeysTaken):
        ledger.append_control([control()], seen=1, request=keyed("k", 0, 1))
    assert ledger.heads().control == 1


def test_a_request_that_changed_nothing_is_remembered_too(ledger: PostgresLedger) -> None:
    assert ledger.append_control([], seen=0, request=keyed("nothing", 0, 0), at=AT) == []
    appended = ledger.append(PartitionedDraft([], AT, 0, requests=[keyed("empty", 0, 0)]))

    assert (len(appended.sequence), appended.at) == (0, AT)
    for key in ("nothing", "empty"):
        assert ledger.request("sender", key) == Request("sender", key, b"fingerprint", AT, 0, {})
    assert ledger.heads().sequences == (0,) * 8


# Ordinals


def test_events_that_reach_a_team_board_are_counted_across_partitions(ledger: PostgresLedger) -> None:
    guilds, arcade = (
        scores(ledger, *((player, number) for number, player in enumerate(PLAYERS)), context=context)
        for context in (GUILDS, ARCADE)
    )
    ledger.append(PartitionedDraft([arcade, guilds], AT, 0, ordered=frozenset([guilds.context])))
    ledger.append(draft(ledger, ("alice", 1)))
    ledger.append(draft(ledger, ("bob", 2), context=GUILDS, ordered=True))

    ordered = [row for row in flat(everything(ledger)) if row.ordinal]
    in_order = sorted(ordered, key=lambda row: row.ordinal)

    assert [row.ordinal for row in in_order] == list(range(1, len(PLAYERS) + 2))
    assert [row.player for row in in_order] == [*PLAYERS, "bob"]
    assert {row.board for row in ordered} == {"guilds"}
    assert ledger.heads().ordinal == len(PLAYERS) + 1


# Contexts


def test_contexts_have_one_number_for_everybody(ledger: PostgresLedger, ledger_url: str) -> None:
    with opened(ledger_url) as other:
        numbers = [ledger.number_context(ARCADE), other.number_context(ARCADE), other.number_context(GUILDS)]
        assert numbers[0] == numbers[1] != numbers[2]
        assert ledger.context(numbers[2]) == GUILDS
        assert ledger.number_context(GUILDS) == numbers[2]
    with pytest.raises(LedgerDamaged):
        ledger.context(99_999)


def test_a_context_may_be_long(ledger: PostgresLedger, ledger_url: str) -> None:
    boards = {f"board-{number}": ARCADE.boards["arcade"] for number in range(1_000)}
    context = Context(Kind.SCORE, "arcade", "local", boards)
    number = ledger.number_context(context)

    with opened(ledger_url) as other:
        assert other.context(number) == context
