"""Messages to watchers: a snapshot first, then changes; each is encoded once for all watchers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

NO_OFFSET = 0  # of a message that a client cannot resume from
_OVERHEAD_BYTES = 256
_encode = msgspec.json.Encoder().encode


class Type(StrEnum):
    """The type of a message."""

    SNAPSHOT = "snapshot"  # the body of the matching read
    CHANGE = "change"  # the difference to the message before
    RESET = "reset"  # drop the state: a snapshot follows


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """New and changed entries, and players who left."""

    set: Sequence[Any]
    gone: Sequence[str]
    total: int
    position: str
    passed: Sequence[str] = ()  # of a player's topic: neighbours who were ahead and are behind now
    overtaken_by: Sequence[str] = ()  # neighbours who were behind and are ahead now


_decode_change = msgspec.json.Decoder(Change).decode


class Message:
    """One message of a topic; a frame is encoded when the first watcher needs it."""

    __slots__ = ("_data", "_sse", "_text", "offset", "topic", "type")

    def __init__(self, topic: str, kind: Type, offset: int, data: object) -> None:
        """`data` is encoded at once, since the caller may change it."""
        self.topic = topic
        self.type = kind
        self.offset = offset
        self._data = b"{}" if data is None else _encode(data)
        self._sse: bytes | None = None
        self._text: str | None = None

    @property
    def size_bytes(self) -> int:
        """About how many bytes the message takes with both frames."""
        return 3 * len(self._data) + _OVERHEAD_BYTES

    def change(self) -> Change:
        """Decode the data of a change."""
        return _decode_change(self._data)

    def sse(self, epoch: str) -> bytes:
        """Return the message as a server-sent event."""
        if self._sse is None:
            self._sse = self.sse_at(epoch, self.offset)
        return self._sse

    def sse_at(self, epoch: str, offset: int) -> bytes:
        """Return the message as a server-sent event whose id resumes from another offset."""
        # The data names the topic, since a stream may carry several.
        rest = b"}" if self._data == b"{}" else b"," + self._data[1:]
        head = f"id: {epoch}-{offset}\nevent: {self.type}\ndata: ".encode()
        return b"".join((head, b'{"topic":', _encode(self.topic), rest, b"\n\n"))

    def text(self, epoch: str) -> str:
        """Return the message as the text of a WebSocket frame."""
        if self._text is None:
            frame = {"type": self.type, "topic": self.topic, "id": f"{epoch}-{self.offset}"}
            self._text = _encode({**frame, "data": msgspec.Raw(self._data)}).decode()
        return self._text


def encode_events(batch: Sequence[Message], epoch: str, sent_upto: int) -> bytes:
    """Return messages, in the order of their offsets, as server-sent events to a client that has all up to `sent_upto`.

    A stream of several topics resumes from one id, which must not skip messages that were not sent yet: another topic's
    snapshot, or conflated changes. So only the last event of a batch moves the id.
    """
    *others, last = batch
    return b"".join([*(message.sse_at(epoch, sent_upto) for message in others), last.sse(epoch)])


def conflate(messages: Sequence[Message]) -> list[Message]:
    """Merge consecutive messages of a topic: drop those before the last reset, and merge the changes into one."""
    first = max((index for index, message in enumerate(messages) if message.type is Type.RESET), default=0)
    kept = [message for message in messages[first:] if message.type is not Type.CHANGE]
    changes = [message for message in messages[first:] if message.type is Type.CHANGE]
    return [*kept, _merge(changes)] if len(changes) > 1 else [*kept, *changes]


def _merge(messages: Sequence[Message]) -> Message:
    entries: dict[str, Any] = {}
    gone: dict[str, None] = {}
    passed: Counter[str] = Counter()
    changes = [message.change() for message in messages]
    for change in changes:
        for player in change.gone:
            entries.pop(player, None)
            gone[player] = None
        for entry in change.set:
            entries[entry["player"]] = entry
            gone.pop(entry["player"], None)
        passed.update(change.passed)
        passed.subtract(change.overtaken_by)
    last = changes[-1]
    merged = Change(
        set=sorted(entries.values(), key=lambda entry: entry["rank"]),
        gone=list(gone),
        total=last.total,
        position=last.position,
        passed=sorted(player for player, times in passed.items() if times > 0),
        overtaken_by=sorted(player for player, times in passed.items() if times < 0),
    )
    return Message(messages[-1].topic, Type.CHANGE, messages[-1].offset, merged)


def changed_players(before: Mapping[str, Any], now: Sequence[Any]) -> set[str]:
    """Return the players whose entries are new or changed, and those who left."""
    changed = {entry.player for entry in now if before.get(entry.player) != entry}
    return changed | (before.keys() - {entry.player for entry in now})
