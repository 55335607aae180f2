"""The records of the event partitions: events, the barriers of control events, and time marks.

    draft → encode_draft → value, partition and player of each event → brokers → EventRecord columns → decode → Parts

An event's record has its player as the key, and the writer's ledger time as its time. Its value is a header, then the
parts that its flags name: the key of its request, the JSON of its detail and of its metadata, the sender's address. A
barrier or a mark has no key. All numbers are little-endian.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby, repeat
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from rankd._columns import extent
from rankd.domain.partition import partition_of
from rankd.errors import LedgerDamaged, LedgerNewer
from rankd.ledger.event import EventRun, decode_column, encode_column
from rankd.ledger.port import KEY_BYTES, MARK, Draft, KeyedRequest, LogColumns, Part

RECORD_VERSION = 1  # the newest that is understood, and of what is written
HAS_DETAIL = 2
HAS_METADATA = 4
HAS_KEY = 8
IS_SENT_AT = 16  # the sender gave `at`
HAS_ORIGIN = 32
BARRIER, TIME_MARK = 1, 2

_HEADER = Struct("<BBIqqq")  # version, flags, context, at, score, tiebreak
_KEY = Struct("<QQ16s")  # digest, fingerprint
_LENGTH = Struct("<I")  # of a part of varying length, before it
_PLACE = Struct("<BBI")  # version, BARRIER or TIME_MARK, number
_NO_KEY = bytes(KEY_BYTES)
_ODD = 0x9E3779B97F4A7C15  # spreads the digests of one request
_WORD = 2**64 - 1
_SENT = bytes(flags >> 4 & 1 for flags in range(256))  # a table for bytes.translate

EncodedEvent = tuple[bytes, bytes, int]  # value, player, partition


class EventRecord(NamedTuple):
    """A record as it was read."""

    offset: int
    time: int
    key: bytes | None
    value: bytes


class Barrier(NamedTuple):
    """A control event as it is read from a partition."""

    context: int
    at: int
    detail: bytes | None


# Writing


def encode_draft(draft: Draft, partitions: int) -> list[EncodedEvent]:
    """Return the records of a draft's events, in its order."""
    events = sum(map(len, draft.event_runs))
    flags, parts = bytearray(events), _parts(draft, events)
    encoded: list[EncodedEvent] = []
    first = 0
    for event_run in draft.event_runs:
        count = len(event_run)
        if not count:
            continue
        own = flags[first : first + count]
        if extent(event_run.at) != (draft.at, draft.at):
            own = bytearray(0 if at == draft.at else IS_SENT_AT for at in event_run.at)
        if parts is not None:
            own = bytearray(flag | added for flag, (added, _) in zip(own, parts[first : first + count], strict=True))
        columns = (own, repeat(event_run.context), event_run.at, event_run.score, event_run.tiebreak)
        values: Iterable[bytes] = map(_HEADER.pack, repeat(RECORD_VERSION), *columns)
        if parts is not None:
            values = [value + tail for value, (_, tail) in zip(values, parts[first : first + count], strict=True)]
        encoded.extend(
            (value, player.encode(), partition_of(player, partitions))
            for value, player in zip(values, event_run.players, strict=True)
        )
        first += count
    return encoded


def _parts(draft: Draft, events: int) -> list[tuple[int, bytes]] | None:
    """Return flags and encoded parts of each event; None where no event has any."""
    if not (draft.requests or draft.metadata or draft.origins or any(run.detail for run in draft.event_runs)):
        return None
    flags, tails = bytearray(events), [b""] * events
    for request in draft.requests:
        for index, key in zip(range(request.first, request.first + request.events), keys_of(request), strict=True):
            flags[index] |= HAS_KEY
            tails[index] = key
    first = 0
    for event_run in draft.event_runs:
        if event_run.detail is not None:
            for index, text in enumerate(encode_column(event_run.detail), start=first):
                if text:
                    flags[index] |= HAS_DETAIL
                    tails[index] += _sized(text)
        first += len(event_run)
    for index, json in draft.metadata.items():
        flags[index] |= HAS_METADATA
        tails[index] += _sized(json.encode())
    for origin, start, count in draft.origins:
        for index in range(start, start + count):
            flags[index] |= HAS_ORIGIN
            tails[index] += _sized(origin.address.encode())
    return list(zip(flags, tails, strict=True))


def keys_of(request: KeyedRequest) -> Iterator[bytes]:
    """Return the key of each event of a request: a digest of sender, key and index, and the fingerprint."""
    named = b"%b\0%b" % (request.sender.encode(), request.key.encode())
    low, high = Struct("<QQ").unpack(blake2b(named, digest_size=16).digest())
    for index in range(request.events):
        yield _KEY.pack((low + index * _ODD) & _WORD, high, request.fingerprint)


def encode_barrier(number: int) -> bytes:
    """Return the value of the copy of a control event."""
    return _PLACE.pack(RECORD_VERSION, BARRIER, number)


def encode_mark() -> bytes:
    """Return the value of a time mark."""
    return _PLACE.pack(RECORD_VERSION, TIME_MARK, 0)


def _sized(text: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text


# Reading


class Decoder:
    """Decodes the records of one ledger."""

    def __init__(
        self, barrier: Callable[[int], Barrier], note_metadata: Callable[[int, int, str], None] = lambda *_: None
    ) -> None:
        """`barrier` returns a control event by number; `note_metadata` gets partition, sequence and JSON."""
        self._barrier = barrier
        self._note_metadata = note_metadata

    def parts(self, partition: int, records: Sequence[EventRecord]) -> Iterator[Part]:
        """Decode records in the order of their offsets; LedgerDamaged where one is no record of ours."""
        start, count = 0, len(records)
        while start < count:
            end = start + 1
            if records[start].key is None:
                yield self._place(partition, records[start])
            else:
                end = _end_of_run(records, start)
                yield from self._events(partition, records[start:end])
            start = end

    def _place(self, partition: int, record: EventRecord) -> Part:
        if len(record.value) < _PLACE.size:
            _raise_damaged(partition, record)
        version, kind, number = _PLACE.unpack_from(record.value)
        check_version(version)
        times, nothing = array("q", [record.time]), array("q", [0])
        if kind == TIME_MARK:
            event_run = EventRun(MARK, times, nothing, nothing, nothing, [""], None, record.offset + 1, partition)
            return Part(partition, event_run, None, LogColumns(times, None, None))
        if kind != BARRIER:
            _raise_damaged(partition, record)
        control = self._barrier(number)
        details = decode_column([control.detail])
        at = array("q", [control.at])
        event_run = EventRun(
            control.context, at, nothing, nothing, nothing, [""], details, record.offset + 1, partition
        )
        return Part(partition, event_run, None, LogColumns(times, None, None, number))

    def _events(self, partition: int, records: Sequence[EventRecord]) -> Iterator[Part]:
        offsets, times, keys, values = zip(*records, strict=True)
        headers = b"".join([value[: _HEADER.size] for value in values])
        if len(headers) != _HEADER.size * len(values):
            _raise_damaged(partition, next(record for record in records if len(record.value) < _HEADER.size))
        versions, flags, contexts, at, score, tiebreak = zip(*_HEADER.iter_unpack(headers), strict=True)
        check_version(max(versions))
        flagged = bytes(flags)
        whole = EventRun(
            0,
            array("q", at),
            array("q", bytes(8 * len(records))),
            array("q", score),
            array("q", tiebreak),
            [key.decode() for key in keys],
            None,
            offsets[0] + 1,
            partition,
        )
        log = LogColumns(array("q", times), flagged.translate(_SENT), None)
        if any(flag & ~IS_SENT_AT for flag in set(flagged)):
            log = self._with_parts(whole, log, flagged, values)
        start = 0
        for context, group in groupby(contexts):
            end = start + sum(1 for _ in group)
            yield _cut(whole, log, context, start, end)
            start = end

    def _with_parts(self, event_run: EventRun, log: LogColumns, flags: bytes, values: Sequence[bytes]) -> LogColumns:
        """Set the details of a run, note its metadata, and return its columns with the keys."""
        details: list[bytes | None] = [None] * len(values)
        request_keys = [_NO_KEY] * len(values)
        try:
            for index, (flag, value) in enumerate(zip(flags, values, strict=True)):
                place = _HEADER.size
                if flag & HAS_KEY:
                    request_keys[index] = value[place : place + KEY_BYTES]
                    place += KEY_BYTES
                    if place > len(value):
                        raise ValueError("it ends early")
                if flag & HAS_DETAIL:
                    details[index], place = _part(value, place)
                if flag & HAS_METADATA:
                    json, place = _part(value, place)
                    self._note_metadata(event_run.partition, event_run.first + index, json.decode())
            if any(details):
                event_run.detail = decode_column(details)
        except (ValueError, IndexError) as problem:
            raise LedgerDamaged(
                f"partition {event_run.partition} of the ledger's topic has a damaged record from {event_run.first} on"
                f" ({problem})"
            ) from None
        has_keys = any(flag & HAS_KEY for flag in set(flags))
        return log._replace(keys=b"".join(request_keys) if has_keys else None)


def metadata_in(value: bytes) -> str | None:
    """Return the metadata in an event's value, if it has some."""
    flags = value[1]
    if not flags & HAS_METADATA:
        return None
    place = _HEADER.size + (KEY_BYTES if flags & HAS_KEY else 0)
    if flags & HAS_DETAIL:
        _, place = _part(value, place)
    return _part(value, place)[0].decode()


def check_version(version: int) -> None:
    """Refuse a record of a newer version."""
    if version > RECORD_VERSION:
        raise LedgerNewer(
            f"the ledger holds records of version {version}, and this rankd knows versions up to {RECORD_VERSION}: "
            "upgrade rankd"
        )


def _end_of_run(records: Sequence[EventRecord], start: int) -> int:
    """Return the index behind the events from `start` on whose offsets follow each other."""
    ahead = records[start].offset - start
    count = len(records)
    if records[-1].offset - (count - 1) == ahead and None not in map(itemgetter(2), records[start:]):
        return count
    end = start + 1
    while end < count and records[end].key is not None and records[end].offset - end == ahead:
        end += 1
    return end


def _cut(whole: EventRun, log: LogColumns, context: int, start: int, end: int) -> Part:
    event_run = whole.part(start, end)
    event_run.context = context
    if event_run.detail is not None and not any(event_run.detail):
        event_run.detail = None
    sent = None if log.sent is None else log.sent[start:end]
    keys = None if log.keys is None else log.keys[start * KEY_BYTES : end * KEY_BYTES]
    columns = LogColumns(
        log.times[start:end],
        sent if sent and any(sent) else None,
        keys if keys is not None and keys.count(0) < len(keys) else None,
    )
    return Part(event_run.partition, event_run, None, columns)


def _part(value: bytes, place: int) -> tuple[bytes, int]:
    """Return a part of varying length, and where the next one begins."""
    begin = place + _LENGTH.size
    end = begin + int.from_bytes(value[place:begin], "little")
    if end > len(value):
        raise ValueError("it ends early")
    return value[begin:end], end


def _raise_damaged(partition: int, record: EventRecord) -> None:
    raise LedgerDamaged(
        f"record {record.offset} in partition {partition} of the ledger's topic was not written by rankd; nothing else "
        "may write to it"
    )
