"""What every ledger promises: what is appended comes back, numbered without gaps, in its player's partition."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.contract.ledger_drafts import (
    ARCADE,
    AT,
    GUILDS,
    PLAYERS,
    REMOVAL,
    Reader,
    by_place,
    draft,
    events_in,
    everything,
    flat,
    keyed,
    places,
    places_of,
    scores,
)
from tests.contract.ledger_places import LedgerPlace
from tests.servers.load_bound import LoadBound

from rankd.domain.partition import partition_of
from rankd.errors import LedgerDamaged, LedgerUnavailable
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind
from rankd.ledger.port import Draft, Ledger

WAIT_S = 60.0


def test_an_empty_ledger_has_no_events(ledger: Ledger) -> None:
    heads = ledger.heads()

    assert (heads.sequences, heads.control, heads.at, heads.ordinal) == ((0,) * ledger.partitions, 0, 0, 0)
    assert ledger.read([0] * ledger.partitions, 100) == []


def test_events_come_back_as_they_were_appended_also_to_the_next_who_opens_it(
    ledger: Ledger, ledger_place: LedgerPlace
) -> None:
    detail = Detail(attributes={"country": "BR"}, keys={"arcade": 7}, has_metadata=True)
    sent = scores(ledger, ("Zoë", -(2**63)), ("bob", 2**63 - 1), ("carol", 0), at=AT + 5, detail=[None, detail, None])
    sent.tiebreak[2] = -1
    removed = scores(ledger, ("bob", 0), context=REMOVAL)

    appended = ledger.append(Draft([sent, removed], AT, 0))

    expected = [
        (EventKind.SCORE, "arcade", "Zoë", -(2**63), 0, AT + 5, None),
        (EventKind.SCORE, "arcade", "bob", 2**63 - 1, 0, AT + 5, detail),
        (EventKind.SCORE, "arcade", "carol", 0, -1, AT + 5, None),
        (EventKind.REMOVE, "arcade", "bob", 0, 0, AT, None),
    ]
    for checked_ledger in ledger_place.now_and_reopened(ledger):
        read = by_place(checked_ledger)
        assert [read[place][1:8] for place in places(appended, 4)] == expected
        assert len(read) == 4


def test_ids_are_kept_to_the_byte(ledger: Ledger) -> None:
    ids = ["é", "e\u0301", "É", "a ", "a", "\U0010ffff", "\uff41"]

    ledger.append(draft(ledger, *((player, 1) for player in ids)))

    assert [player for player, _ in events_in(ledger)] == sorted(ids)


def test_events_stand_in_their_players_partition_in_the_drafts_order(ledger: Ledger) -> None:
    events = [(player, number) for number, player in enumerate(PLAYERS * 2)]

    appended = ledger.append(draft(ledger, *events))

    assert places(appended, len(events)) == places_of([player for player, _ in events], ledger)
    for partition, rows in enumerate(everything(ledger)):
        expected = [event for event in events if partition_of(event[0], ledger.partitions) == partition]
        assert [(row.player, row.score) for row in rows] == expected
        assert [row.sequence for row in rows] == list(range(1, len(expected) + 1))


def test_the_numbering_goes_on_without_gaps_whoever_opens_the_ledger(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    first = ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    reopened = ledger_place.open()
    before = reopened.heads().sequences
    second = reopened.append(draft(reopened, *((player, 2) for player in PLAYERS[:5])))

    assert places(first, len(PLAYERS)) == places_of(PLAYERS, reopened)
    assert places(second, 5) == places_of(PLAYERS[:5], reopened, before)
    assert sum(reopened.heads().sequences) == len(PLAYERS) + 5


def test_positions_are_the_last_sequence_in_each_partition(ledger: Ledger) -> None:
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    events = [(player, 2) for player in (*PLAYERS[:6], *PLAYERS[:3])]

    appended = ledger.append(draft(ledger, *events))

    stand = places(appended, len(events))
    assert appended.positions(0, len(events)) == appended.end == dict(stand)
    assert appended.positions(2, 3) == dict(stand[2:5])
    assert appended.positions(1, 1) == dict([stand[1]])
    heads = ledger.heads().sequences
    assert all(heads[partition] == sequence for partition, sequence in appended.end.items())


# Reading


@pytest.mark.parametrize("events_max", [1, 3, 7, 50])
def test_however_many_are_read_at_once_all_come_in_order(ledger: Ledger, events_max: int) -> None:
    for size in (1, 5, 24, 2, 1, 13):
        ledger.append(draft(ledger, *((player, size) for player in PLAYERS[:size])))
        ledger.append(draft(ledger, (PLAYERS[0], size), context=GUILDS))

    assert everything(ledger, events_max) == everything(ledger)


def test_about_as_many_are_read_as_are_asked_for(ledger: Ledger) -> None:
    for number in range(50):
        ledger.append(draft(ledger, (PLAYERS[number % 24], number), (PLAYERS[0], number)))

    read = sum(len(part.event_run) for part in ledger.read([0] * ledger.partitions, 11))

    assert 11 <= read <= 12  # a commit may be read to its end


def test_a_reader_may_go_back_and_on(ledger: Ledger) -> None:
    for number in range(6):
        ledger.append(draft(ledger, (PLAYERS[number], number)))
    once = everything(ledger, events_max=1)

    reader = Reader(ledger, events_max=2)
    reader.read()
    assert everything(ledger) == once
    while reader.read():
        pass
    assert reader.rows == once
    ledger.append(draft(ledger, (PLAYERS[6], 6)))
    assert reader.read() == 1


def test_partitions_take_turns_but_for_those_that_are_skipped(ledger: Ledger) -> None:
    for number in range(30):
        ledger.append(draft(ledger, *((player, number) for player in PLAYERS)))
    begun = [0] * ledger.partitions

    for skipped in range(ledger.partitions):
        others = set(range(ledger.partitions)) - {skipped}
        assert {part.partition for part in ledger.read(begun, 10)} == {skipped, *others}
        assert {part.partition for part in ledger.read(begun, 10, skipping={skipped})} == others
    assert ledger.read(begun, 10, skipping=range(ledger.partitions)) == []


def test_a_run_of_one_context_is_one_event_run(ledger: Ledger) -> None:
    player = PLAYERS[0]
    ledger.append(draft(ledger, *((player, number) for number in range(50))))
    ledger.append(draft(ledger, (player, 50)))
    ledger.append(draft(ledger, (player, 51), context=GUILDS))

    first, second = ledger.read([0] * ledger.partitions, 100)

    assert (len(first.event_run), first.event_run.first, first.ordinals) == (51, 1, None)
    assert (len(second.event_run), second.event_run.first) == (1, 52)
    assert ledger.context(first.event_run.context) == ARCADE
    assert ledger.context(second.event_run.context) == GUILDS


def test_one_event_can_be_looked_up(ledger: Ledger) -> None:
    events = [(player, number) for number, player in enumerate(PLAYERS)]
    appended = ledger.append(draft(ledger, *events))

    for place, (player, score) in zip(places(appended, len(events)), events, strict=True):
        event_run = ledger.event(*place)
        assert (list(event_run.players), list(event_run.score), event_run.partition, event_run.first) == (
            [player],
            [score],
            *place,
        )
        assert ledger.context(event_run.context) == ARCADE
    with pytest.raises(LedgerDamaged, match="missing"):
        ledger.event(0, ledger.heads().sequences[0] + 1)


def test_a_ledger_that_ends_before_what_was_read_is_refused(ledger: Ledger) -> None:
    after = [0] * ledger.partitions
    after[-1] = 1
    with pytest.raises(LedgerDamaged, match=r"ends at (event )?0, before what was read"):
        ledger.read(after, 10)


def test_a_missing_event_is_found(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    ledger_place.execute("DELETE FROM events WHERE sequence = 2")

    with pytest.raises(LedgerDamaged, match="missing"):
        everything(ledger)


def test_a_reader_in_another_thread_misses_nothing_and_sees_the_end_move_on_only(ledger: Ledger) -> None:
    problems: list[BaseException] = []
    reader, ends, done = Reader(ledger, events_max=5), [ledger.heads().sequences], threading.Event()

    bound = LoadBound()

    def follow() -> None:
        try:
            while bound.take() and (not done.is_set() or reader.read()):
                reader.read()
                ends.append(ledger.heads().sequences)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=follow)
    thread.start()
    for number in range(100):
        newcomer = (f"newcomer-{number}", number)
        ledger.append(draft(ledger, newcomer, *((player, number) for player in PLAYERS[: number % 5])))
    done.set()
    thread.join(WAIT_S)

    assert not thread.is_alive()
    assert problems == []
    assert reader.rows == everything(ledger)
    assert sum(ledger.heads().sequences) == sum(map(len, reader.rows)) == 300
    for before, after in pairwise(ends):
        assert all(
            sequence_before <= sequence_after for sequence_before, sequence_after in zip(before, after, strict=True)
        )


# The ledger's time


@pytest.mark.capability("appends_conditionally")
def test_the_ledgers_time_never_goes_back(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    player = PLAYERS[0]
    assert ledger.append(draft(ledger, (player, 1), at=AT + 1_000)).at == AT + 1_000
    assert ledger.append(draft(ledger, (player, 2), at=AT, key="k")).at == AT + 1_000
    request = ledger.request("sender", "k")
    assert request is not None
    assert request.at == AT + 1_000
    assert [row.at for row in flat(everything(ledger))] == [AT + 1_000, AT]  # those of events are as they were sent

    for checked_ledger in ledger_place.now_and_reopened(ledger):
        assert checked_ledger.heads().at == AT + 1_000


@pytest.mark.capability("appends_conditionally")
def test_the_time_of_a_commit_is_that_of_every_partition_it_reaches(ledger: Ledger) -> None:
    ledger.append(draft(ledger, (PLAYERS[0], 1), at=AT + 1_000))
    assert ledger.append(draft(ledger, *((player, 2) for player in PLAYERS), at=AT)).at == AT + 1_000
    for player in PLAYERS:
        assert ledger.append(draft(ledger, (player, 3), at=AT)).at == AT + 1_000


# Contexts


def test_contexts_have_one_number_for_good(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    boards = {f"board-{number}": AcceptanceContext(3, -12_600, {"raid": AT}) for number in range(1_000)}
    contexts = [ARCADE, GUILDS, Context(EventKind.SCORE, "arcade", "local", boards)]
    numbers = [ledger.number_context(context) for context in contexts]
    assert len(set(numbers)) == 3
    assert [ledger.context(number) for number in numbers] == contexts
    for context in contexts:
        ledger.append(draft(ledger, ("alice", 1), context=context))

    for checked_ledger in ledger_place.now_and_reopened(ledger):
        assert [checked_ledger.context(number) for number in numbers] == contexts
        assert [checked_ledger.number_context(context) for context in contexts] == numbers
        assert (
            checked_ledger.number_context(
                Context(EventKind.SCORE, "arcade", "local", {"arcade": AcceptanceContext(1, 0, {})})
            )
            == numbers[0]
        )
        with pytest.raises(LedgerDamaged, match="context"):
            checked_ledger.context(99_999)


# Which ledger it is


def test_a_stamp_tells_a_ledger_from_any_other(
    ledger: Ledger, ledger_place: LedgerPlace, make_ledger_place: Callable[[], LedgerPlace]
) -> None:
    other_ledger = make_ledger_place().open()
    for score, filled_ledger in ((1, ledger), (2, other_ledger)):
        filled_ledger.append(draft(filled_ledger, *((player, score) for player in PLAYERS)))
    positions = ledger.heads().sequences
    stamp = ledger.stamp(positions)
    assert positions == other_ledger.heads().sequences
    assert None is not stamp != other_ledger.stamp(positions)

    ledger.append(draft(ledger, *((player, 3) for player in PLAYERS)))
    assert ledger.stamp(positions) == ledger_place.open().stamp(positions) == stamp


def test_positions_that_a_ledger_does_not_have_get_no_stamp_where_it_can_tell(ledger: Ledger) -> None:
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    positions = ledger.heads().sequences
    beyond = [sequence + 1 for sequence in positions]

    # Where numbers are given once, one stamp is enough for all positions.
    expected = None if ledger.capabilities.is_sole_writer else ledger.stamp(positions)
    assert ledger.stamp(beyond) == expected


# Appends that fail


def test_an_append_that_failed_has_left_nothing_and_the_next_goes_on(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    before = ledger.heads()
    event_run = scores(ledger, *((player, 2) for player in PLAYERS), ("newcomer", 2), context=GUILDS)
    failing = Draft([event_run], AT, 0, {0: "{}"}, [keyed("k", 0, 1)])

    with ledger_place.refusing_events(), pytest.raises(LedgerUnavailable):
        ledger.append(failing)

    assert ledger.heads() == before
    assert ledger.request("sender", "k") is None
    assert all(row.score == 1 for row in flat(everything(ledger)))
    appended = ledger.append(failing)
    expected = places_of([*PLAYERS, "newcomer"], ledger, before.sequences)
    assert places(appended, len(PLAYERS) + 1) == expected
    for checked_ledger in ledger_place.now_and_reopened(ledger):
        read = by_place(checked_ledger)
        assert {read[place].board for place in expected} == {"guilds"}
        assert len(read) == 2 * len(PLAYERS) + 1


def test_a_context_keeps_its_number_when_an_append_failed(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    with ledger_place.refusing_events(), pytest.raises(LedgerUnavailable):
        ledger.append(draft(ledger, ("alice", 1)))
    late = draft(ledger, ("alice", 2), context=GUILDS)  # numbered before it is known what became of the append

    ledger.append(late)
    ledger.append(draft(ledger, ("alice", 3)))

    assert [(row.board, row.score) for row in flat(everything(ledger_place.open()))] == [("guilds", 2), ("arcade", 3)]
