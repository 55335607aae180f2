"""The records of a ledger on Kafka: whatever is written is read, however it is cut and whatever is between."""

from __future__ import annotations

from array import array
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.partition import partition_of
from rankd.errors import LedgerDamaged
from rankd.ledger.event import Detail, EventRun
from rankd.ledger.kafka.looking_up import ENTRY_CHARACTERS, MetadataCache
from rankd.ledger.kafka.records import (
    Barrier,
    Decoder,
    EventRecord,
    encode_barrier,
    encode_draft,
    encode_mark,
    keys_of,
    metadata_in,
)
from rankd.ledger.origin import OriginSpan, RequestOrigin
from rankd.ledger.port import KEY_BYTES, MARK, Draft, KeyedRequest

AT = 1_777_896_000_000
NO_KEY = bytes(KEY_BYTES)
DETAILS = [None, Detail(attributes={"country": "BR"}), Detail(attributes={"guild": "ö" * 40}, has_metadata=True)]
NUMBERS = st.integers(-(2**63), 2**63 - 1)

Row = tuple[int, str, int, int, int, Detail | None, bytes, str | None]  # context, player, at, score, tiebreak, detail …


@st.composite
def drafts(draw: st.DrawFn) -> tuple[Draft, list[Row]]:
    """Make a draft, and its events as rows."""
    runs, rows = list[EventRun](), list[Row]()
    metadata = dict[int, str]()
    for _ in range(draw(st.integers(1, 4))):
        size, context = draw(st.integers(1, 6)), draw(st.integers(1, 3))
        details = draw(st.none() | st.lists(st.sampled_from(DETAILS), min_size=size, max_size=size))
        at = [draw(st.sampled_from([AT, AT, AT - 1])) for _ in range(size)]
        players = [draw(st.sampled_from(["alice", "Zoë", "\U0010ffff"])) for _ in range(size)]
        score, tiebreak = [draw(NUMBERS) for _ in range(size)], [draw(NUMBERS) for _ in range(size)]
        columns = array("q", at), array("q", [0] * size), array("q", score), array("q", tiebreak)
        runs.append(EventRun(context, *columns, players, details))
        for index in range(size):
            if draw(st.booleans()):
                metadata[len(rows)] = draw(st.sampled_from(["{}", '{"a":"ö"}']))
            detail = details[index] if details else None
            rows.append((context, players[index], at[index], score[index], tiebreak[index], detail, NO_KEY, None))
    events = len(rows)
    first = draw(st.integers(0, events - 1))
    requests = [KeyedRequest("a", "k", b"f" * 16, first, draw(st.integers(0, events - first)))]
    keys = {first + index: key for index, key in enumerate(keys_of(requests[0]))}
    origins = [OriginSpan(RequestOrigin("192.0.2.1", "game/1"), 0, draw(st.integers(0, events)))]
    rows = [(*row[:6], keys.get(index, NO_KEY), metadata.get(index)) for index, row in enumerate(rows)]
    return Draft(runs, AT, 0, metadata, requests, origins), rows


@given(drafts(), st.lists(st.sampled_from(["mark", "barrier", "gap"]), max_size=4), st.integers(0, 30))
def test_what_is_written_is_read(made: tuple[Draft, list[Row]], between: list[str], place: int) -> None:
    draft, rows = made
    encoded = encode_draft(draft, 1)
    assert [partition for _, _, partition in encoded] == [partition_of(row[1], 1) for row in rows]
    expected: list[Row | str] = list(rows)
    place = min(place, len(rows))
    expected[place:place] = [name for name in between if name != "gap"]
    offsets = count(100)
    records: list[EventRecord] = []
    for index in range(len(rows) + 1):
        if index == place:
            for name in between:
                offset = next(offsets)
                if name != "gap":
                    value = encode_mark() if name == "mark" else encode_barrier(7)
                    records.append(EventRecord(offset, AT, None, value))
        if index < len(rows):
            value, key, _ = encoded[index]
            assert metadata_in(value) == rows[index][7]
            records.append(EventRecord(next(offsets), AT, key, value))
    noted: dict[int, str] = {}
    decoder = Decoder(
        lambda number: Barrier(1_000 + number, AT, None), lambda _, sequence, json: noted.update({sequence: json})
    )

    entries: list[Row | str] = []
    sequences: list[int] = []
    for part in decoder.parts(3, records):
        run, log = part.event_run, part.log
        assert log is not None
        assert part.partition == run.partition == 3
        assert part.ordinals is None
        assert len(log.times) == len(run)
        for index in range(len(run)):
            sequences.append(run.first + index)
            if run.context == MARK or log.number:
                entries.append("mark" if run.context == MARK else "barrier")
                continue
            key = log.keys[index * KEY_BYTES : (index + 1) * KEY_BYTES] if log.keys else NO_KEY
            assert (run.at[index] != AT) == bool(log.sent and log.sent[index])
            detail = run.detail[index] if run.detail else None
            row = (run.context, run.players[index], run.at[index], run.score[index], run.tiebreak[index], detail)
            entries.append((*row, key, noted.get(run.first + index)))
    assert entries == expected
    assert sequences == [record.offset + 1 for record in records]


@pytest.mark.parametrize("cut", [1, 20, 40, 65, 75])
def test_a_record_that_ends_early_is_damaged(cut: int) -> None:
    number = array("q", [AT])
    run = EventRun(1, number, number, number, number, ["alice"], [DETAILS[2]] if cut > 62 else None)
    metadata = {0: "{}"} if cut > 62 else {}
    ((value, key, _),) = encode_draft(Draft([run], AT, 0, metadata, [KeyedRequest("a", "k", b"f", 0, 1)]), 1)
    decoder = Decoder(lambda _: Barrier(1, AT, None))
    assert len(list(decoder.parts(0, [EventRecord(0, AT, key, value)]))) == 1

    with pytest.raises(LedgerDamaged):
        list(decoder.parts(0, [EventRecord(0, AT, key, value[:cut])]))


def test_the_oldest_metadata_makes_room() -> None:
    cache = MetadataCache(characters_max=3 * ENTRY_CHARACTERS + 30)
    for sequence in range(1, 6):
        cache.note(0, sequence, None if sequence == 4 else "x" * 10)

    metadata, unknown = cache.find([(0, sequence) for sequence in range(1, 6)])
    assert (metadata, unknown) == ({(0, 3): "x" * 10, (0, 5): "x" * 10}, [(0, 1), (0, 2)])
