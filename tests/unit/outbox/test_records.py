"""The records of events: what a ledger holds, as JSON with headers."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.partition import partition_of
from rankd.kafka.clients import Record
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind, EventRun, control_run, event_id
from rankd.outbox.records import EventRecords

PARTITIONS = 6
KINDS = {1: EventKind.SCORE, 2: EventKind.REMOVE, 3: EventKind.RESET}
PLAYERS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


def context_of(number: int) -> Context:
    return Context(KINDS[number], "arcade", 'a "sender"', {"arcade": AcceptanceContext(3), "xp": AcceptanceContext(1)})


def metadata_of(events: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], str]:
    return dict.fromkeys(events, '{"level":4}')


RECORDS = EventRecords("events", PARTITIONS, context_of, metadata_of)


def run_of(
    players: Sequence[str],
    details: list[Detail | None] | None = None,
    tiebreaks: Sequence[int] | None = None,
    context: int = 1,
) -> EventRun:
    count = len(players)
    numbers = array("q", range(count))
    return EventRun(
        context,
        array("q", [1_000 + number for number in range(count)]),
        numbers,
        array("q", [-number for number in range(count)]),
        array("q", tiebreaks or bytes(8 * count)),
        players,
        details,
        first=41,
        partition=5,
    )


def value_of(record: Record) -> dict[str, object]:
    decoded: dict[str, object] = msgspec.json.decode(record[1] or b"")
    return decoded


@given(st.lists(PLAYERS, min_size=1, max_size=30))
def test_each_event_is_a_record_in_its_players_partition(players: list[str]) -> None:
    records = list(RECORDS.of_players(run_of(players)))

    assert len(records) == len(players)
    for number, (player, record) in enumerate(zip(players, records, strict=True)):
        topic, _, key, partition, *_, headers = record
        assert (topic, key, partition) == ("events", player.encode(), partition_of(player, PARTITIONS))
        assert headers == [("rankd-position", f"5-{41 + number}"), ("rankd-event-id", str(event_id(5, 41 + number)))]
        assert value_of(record) == {
            "schema": 1,
            "kind": "score",
            "board": "arcade",
            "version": 3,
            "feeds": ["xp"],
            "sender": 'a "sender"',
            "player": player,
            "score": -number,
            "at": 1_000 + number,
        }


def test_what_few_events_have_is_with_those_that_have_it() -> None:
    brazil = Detail(attributes={"country": "BR"})
    details = [brazil, None, Detail(attributes={"car": 'ré"d'}, has_metadata=True), brazil]

    values = [value_of(record) for record in RECORDS.of_players(run_of(["a", "b", "c", "d"], details, [0, 7, 0, 0]))]

    more = [{name: value[name] for name in ("tiebreak", "attributes", "metadata") if name in value} for value in values]
    assert more == [
        {"attributes": {"country": "BR"}},
        {"tiebreak": 7},
        {"attributes": {"car": 'ré"d'}, "metadata": {"level": 4}},
        {"attributes": {"country": "BR"}},
    ]


def test_a_removal_has_no_score() -> None:
    (record,) = RECORDS.of_players(run_of(["ann"], context=2))

    value = value_of(record)
    assert (value["kind"], value["player"], value["at"]) == ("remove", "ann", 1_000)
    assert "score" not in value


def test_a_control_event_is_in_every_partition_without_a_key() -> None:
    records = RECORDS.of_control(control_run(3, 5_000, Detail(window="daily"), first=9))

    assert [record[3] for record in records] == list(range(PARTITIONS))
    assert {record[2] for record in records} == {None}
    for record in records:
        assert value_of(record)["window"] == "daily"
        assert record[7] == [("rankd-position", "0-9"), ("rankd-event-id", "9")]
