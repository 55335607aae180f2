"""The last messages of a topic, for watchers that reconnect or read slowly; bounded per topic and per hub."""

from __future__ import annotations

from collections import deque

from rankd.push.messages import Message

HISTORY_MESSAGES_MAX = 64
HISTORY_BYTES_MAX = 256 * 1024  # of one topic
HISTORIES_BYTES_MAX = 64 * 1024 * 1024  # of all


class HistoryBudget:
    """The bytes that all histories of a hub hold."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class MessageHistory:
    """Messages in the order of their offsets; the newest is never dropped."""

    __slots__ = ("_budget", "_bytes", "_complete_from", "_messages")

    def __init__(self, offset: int, budget: HistoryBudget) -> None:
        """A watcher cannot resume from before `offset`."""
        self._complete_from = offset  # the history has every message after this offset
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._budget = budget

    def add(self, message: Message) -> None:
        """Append a message, and drop the oldest ones beyond the limits."""
        messages = self._messages
        messages.append(message)
        self._count(message.size_bytes)
        while len(messages) > 1 and (
            len(messages) > HISTORY_MESSAGES_MAX
            or self._bytes > HISTORY_BYTES_MAX
            or self._budget.bytes > HISTORIES_BYTES_MAX
        ):
            dropped = messages.popleft()
            self._count(-dropped.size_bytes)
            self._complete_from = dropped.offset

    def _count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._budget.bytes += size_bytes

    def after(self, offset: int) -> list[Message] | None:
        """Return the messages after an offset; None where some of them were dropped."""
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
        """Return its bytes to the budget."""
        self._count(-self._bytes)
        self._messages.clear()
