"""The control topic: which ledger it is, the contexts of events, and what is decided about no player.

Every process reads it from its beginning and judges its records alike. A control record is valid only if its `seen` is
the number of valid control events before it: so the order of the topic compares and sets. A control event takes effect
once it was copied into every partition; the `copied` records say up to which number that is done. The key of its
request is in its record: whoever appends has seen all records before, and so knows whether the key was used.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from rankd.errors import LedgerDamaged, LedgerNewer
from rankd.ledger.event import Context, Detail, decode_context, decode_detail, encode_detail
from rankd.ledger.kafka.records import Barrier
from rankd.ledger.port import ControlEvent, StoredRequest

VERSION = 1  # of the ledger; the newest that is understood
REQUESTS_KEPT_MAX = 100_000  # of those that came with a key; the oldest ones are forgotten first

_NO_DETAIL = msgspec.Raw()


class ControlItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One control event of a record."""

    context: int
    at: int
    detail: msgspec.Raw = _NO_DETAIL


class LedgerRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="ledger"):
    """The first one is the ledger's; later ones are void."""

    identity: str
    partitions: int
    version: int = VERSION


class ContextRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="context"):
    """A context, whose number is this record's offset + 1."""

    context: msgspec.Raw


class ControlKey(msgspec.Struct, frozen=True):
    """The idempotency key of the request that control events came with."""

    sender: str
    key: str
    fingerprint: bytes


class ControlRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="control", omit_defaults=True):
    """Control events that are valid together, or not at all; a request that changed nothing has none."""

    seen: int
    at: int  # the ledger's time
    events: list[ControlItem]
    request: ControlKey | None = None


class CopiedRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="copied"):
    """The control events up to a number are in every partition; those of this copy, at these sequences."""

    number: int
    sequences: list[list[int]]  # of the last control events up to `number`, by partition


TopicRecord = LedgerRecord | ContextRecord | ControlRecord | CopiedRecord

encode_record = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[TopicRecord] = msgspec.json.Decoder(TopicRecord)


class _Kind(msgspec.Struct):
    kind: str


_decode_kind = msgspec.json.Decoder(_Kind).decode
_KINDS = ("ledger", "context", "control", "copied")


def control_item(context: int, at: int, detail: Detail | None) -> ControlItem:
    """Return a control event of a record."""
    return ControlItem(context, at, _NO_DETAIL if detail is None else msgspec.Raw(encode_detail(detail)))


def encode_ledger(identity: str, partitions: int) -> bytes:
    """Return the record that makes a ledger."""
    return encode_record(LedgerRecord(identity, partitions))


def encode_context_record(context: Context) -> bytes:
    """Return the record that numbers a context."""
    return encode_record(ContextRecord(msgspec.Raw(context.key)))


class _Request(NamedTuple):
    """A request that was under a key."""

    fingerprint: bytes
    at: int
    events: int
    number: int  # of the last control event at the time, its own if there are any


class ControlState:
    """What the control topic says so far; from any thread."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._lock = threading.Lock()
        self.next_offset = 0
        self.ledger: LedgerRecord | None = None
        self.copied = 0  # control events that are in every partition
        self.at = 0  # the time of the last valid control record
        self._texts: dict[int, bytes] = {}  # contexts by number
        self._numbers: dict[bytes, int] = {}
        self._contexts: dict[int, Context] = {}  # decoded
        self._items: list[ControlItem] = []  # valid, in order
        self._times: list[int] = []  # the ledger's time of each
        self._sequences: dict[int, tuple[int, ...]] = {}  # by number
        self._valid: dict[int, int] = {}  # by the offset of a valid control record: the number of its last event
        self._requests: dict[tuple[str, str], _Request] = {}  # by sender and key, in order

    @property
    def count(self) -> int:
        """The number of valid control events, copied or not."""
        return len(self._items)

    def add(self, offset: int, value: bytes | None) -> None:
        """Take the next record."""
        record = _decoded(offset, value)
        with self._lock:
            self.next_offset = offset + 1
            if isinstance(record, LedgerRecord):
                self.ledger = self.ledger or record
            elif isinstance(record, ContextRecord):
                text = bytes(record.context)
                self._texts[offset + 1] = text
                self._numbers.setdefault(text, offset + 1)
            elif isinstance(record, ControlRecord):
                self._add_control(offset, record)
            else:
                self._add_copied(record)

    def _add_control(self, offset: int, record: ControlRecord) -> None:
        if record.seen != len(self._items):
            return  # void
        self.at = max(self.at, record.at)
        self._items.extend(record.events)
        self._times.extend([self.at] * len(record.events))
        self._valid[offset] = last = len(self._items)
        if record.request is not None:
            key = record.request.sender, record.request.key
            self._requests.pop(key, None)  # its writer knew that it had expired
            self._requests[key] = _Request(record.request.fingerprint, self.at, len(record.events), last)
            if len(self._requests) > REQUESTS_KEPT_MAX:
                del self._requests[next(iter(self._requests))]

    def _add_copied(self, record: CopiedRecord) -> None:
        first = record.number - len(record.sequences) + 1
        for number, sequences in enumerate(record.sequences, start=first):
            self._sequences.setdefault(number, tuple(sequences))
        self.copied = max(self.copied, record.number)

    def number_of(self, context: Context) -> int | None:
        """Return the number of a context, the first it got; None while it has none."""
        return self._numbers.get(context.key)

    def has_context(self, number: int) -> bool:
        """Return whether a context has this number."""
        return number in self._texts

    def context(self, number: int) -> Context:
        """Return a context; LedgerNewer when it is too new."""
        context = self._contexts.get(number)
        if context is None:
            try:
                context = self._contexts[number] = decode_context(self._texts[number])
            except KeyError:
                raise LedgerDamaged(f"context {number} that events name is missing in the control topic") from None
            except msgspec.DecodeError as problem:
                raise LedgerDamaged(f"context {number} in the control topic is damaged ({problem})") from None
        return context

    def last_of(self, offset: int) -> int | None:
        """Return the number of the last event of a control record; None where the record is void."""
        return self._valid.get(offset)

    def request(self, sender: str, key: str) -> StoredRequest | None:
        """Return the request under a key, once its events are in every partition."""
        with self._lock:
            request = self._requests.get((sender, key))
            if request is None or request.number > self.copied:
                return None
            positions = dict(enumerate(self._sequences.get(request.number, ())))
        return StoredRequest(sender, key, request.fingerprint, request.at, request.events, positions)

    def forget_requests(self, before: int, count_max: int) -> int:
        """Forget at most `count_max` requests older than an instant; return their number."""
        with self._lock:
            old = list(islice((key for key, request in self._requests.items() if request.at < before), count_max))
            for key in old:
                del self._requests[key]
        return len(old)

    def barrier(self, number: int) -> Barrier | None:
        """Return a valid control event as it is read from a partition."""
        if not 1 <= number <= len(self._items):
            return None
        item = self._items[number - 1]
        return Barrier(item.context, item.at, bytes(item.detail) or None)

    def time_of(self, number: int) -> int:
        """Return the ledger's time of a control event."""
        return self._times[number - 1]

    def events(self, after: int, upto: int) -> Sequence[ControlEvent]:
        """Return control events behind a number, in order."""
        with self._lock:
            items = list(enumerate(self._items[after:upto], start=after + 1))
        return [
            ControlEvent(
                self.context(item.context),
                decode_detail(item.detail) if bytes(item.detail) else None,
                item.at,
                number,
                self._sequences.get(number, ()),
            )
            for number, item in items
        ]


def _decoded(offset: int, value: bytes | None) -> TopicRecord:
    try:
        return _decoder.decode(value or b"")
    except msgspec.DecodeError as problem:
        try:
            is_newer = _decode_kind(value or b"").kind not in _KINDS
        except msgspec.DecodeError:
            is_newer = False
        if is_newer:
            raise LedgerNewer("a newer rankd wrote to the ledger's control topic: upgrade rankd") from None
        raise LedgerDamaged(
            f"record {offset} of the ledger's control topic was not written by rankd ({problem}); nothing else may "
            "write to it"
        ) from None
