"""The last messages of a topic, for those who were away or are slow: bounded for each topic, and for all together."""

from __future__ import annotations

from collections import deque

from rankd.push.messages import Message

HISTORY_MESSAGES_MAX = 64
HISTORY_BYTES_MAX = 256 * 1024  # of one topic
HISTORIES_BYTES_MAX = 64 * 1024 * 1024  # of all


class Room:
    """How much all histories of a hub take."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self.bytes = 0


class History:
    """Messages in the order of their offsets; the newest is always there."""

    __slots__ = ("_bytes", "_complete_from", "_messages", "_room")

    def __init__(self, offset: int, room: Room) -> None:
        """Nothing came about before `offset` that somebody could go on from."""
        self._complete_from = offset  # every message behind this offset is here
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._room = room

    def add(self, message: Message) -> None:
        """Keep a message, and let the oldest go where there is no room."""
        messages = self._messages
        messages.append(message)
        self._count(message.size_bytes)
        while len(messages) > 1 and (
            len(messages) > HISTORY_MESSAGES_MAX
            or self._bytes > HISTORY_BYTES_MAX
            or self._room.bytes > HISTORIES_BYTES_MAX
        ):
            dropped = messages.popleft()
            self._count(-dropped.size_bytes)
            self._complete_from = dropped.offset

    def _count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._room.bytes += size_bytes

    def after(self, offset: int) -> list[Message] | None:
        """Return what somebody has missed who has seen everything up to an offset; None for too long ago."""
        if offset < self._complete_from:
            return None
        newer = []
        for message in reversed(self._messages):
            if message.offset <= offset:
                break
            newer.append(message)
        newer.reverse()
        return newer

    def forget(self) -> None:
        """Give the room back."""
        self._count(-self._bytes)
        self._messages.clear()
