"""A segment is read as it was written, or refused."""

from __future__ import annotations

import random

import msgspec
import pytest

from rankd.backup.columns import EVENTS, PLAYERS, Columns
from rankd.backup.segment import (
    FORMAT,
    LedgerCursor,
    SegmentHeader,
    decode_segment,
    digest_of,
    encode_payload,
    encode_segment,
)
from rankd.errors import ArchiveDamaged

NAME = "ledger/segments/000000000001"


def tables_of(rng: random.Random, events: int) -> dict[str, Columns]:
    numbers = [[rng.randrange(-(2**63), 2**63) for _ in range(events)] for _ in EVENTS.numbers]
    numbers[EVENTS.numbers.index("at")] = [rng.randrange(2**42) for _ in range(events)]
    details = [rng.choice([None, '{"attributes":{"country":"BR"}}']) for _ in range(events)]
    seals = [rng.choice([None, rng.randbytes(24)]) for _ in range(events)]
    return {"events": [*numbers, details, seals], "players": [list(range(1, events + 1)), ["é\n\0"] * events]}


def encoded(tables: dict[str, Columns]) -> bytes:
    payload, payload_bytes = encode_payload(tables)
    header = SegmentHeader(
        number=1,
        ledger="a" * 16,
        previous="",
        writer="b" * 16,
        generation=1,
        after=LedgerCursor(),
        upto=LedgerCursor(5, "seal", 3, 1, 0),
        is_complete=True,
        at=7,
        read_at=8,
        every_ms=9,
        rows={name: len(columns[0]) for name, columns in tables.items()},
        payload_bytes=payload_bytes,
        payload_digest=digest_of(payload),
    )
    return encode_segment(header, payload)


@pytest.mark.parametrize("events", [1, 2, 1_000])
def test_rows_come_back_as_they_were(rng: random.Random, events: int) -> None:
    tables = tables_of(rng, events)
    data = encoded(tables)

    segment = decode_segment(data, NAME)
    assert segment.tables == tables
    assert segment.header.upto == LedgerCursor(5, "seal", 3, 1, 0)
    assert segment.digest == digest_of(data)
    assert PLAYERS.columns == ("number", "id")


def test_any_changed_byte_is_noticed(rng: random.Random) -> None:
    data = encoded(tables_of(rng, 50))
    for place in [*range(60), *(rng.randrange(len(data)) for _ in range(300))]:
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        with pytest.raises(ArchiveDamaged, match="segment"):
            decode_segment(bytes(damaged), NAME)


def test_a_shortened_segment_is_noticed(rng: random.Random) -> None:
    data = encoded(tables_of(rng, 50))
    for length in [0, 1, 31, 32, 100, len(data) - 1]:
        with pytest.raises(ArchiveDamaged, match=NAME):
            decode_segment(data[:length], NAME)


def test_a_newer_format_is_named(rng: random.Random) -> None:
    data = bytearray(encoded(tables_of(rng, 1)))
    data[8] = FORMAT + 1
    with pytest.raises(ArchiveDamaged, match="upgrade rankd"):
        decode_segment(bytes(data), NAME)


def test_a_payload_that_would_fill_the_memory_is_refused() -> None:
    payload, payload_bytes = encode_payload({"players": [[1], ["x" * 1_000_000]]})
    header = decode_segment(encoded({"players": [[1], ["x"]]}), NAME).header
    changed = msgspec.structs.replace(header, payload_digest=digest_of(payload), payload_bytes=payload_bytes // 2)
    with pytest.raises(ArchiveDamaged, match=NAME):
        decode_segment(encode_segment(changed, payload), NAME)
