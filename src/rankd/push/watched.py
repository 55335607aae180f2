"""One topic that is watched: what its watchers have seen, and what they were told.

One computation and one encoding serve all who watch. A watcher holds nothing but the offset of the last message it was
sent: whoever is slow finds fewer, newer messages, and whoever is too slow finds a snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from rankd.boards import Boards
from rankd.push.messages import Change, Message, Type, difference
from rankd.push.topics import Kind, Topic
from rankd.push.views import View, view_of

HISTORY_MESSAGES_MAX = 64
HISTORY_BYTES_MAX = 128 * 1024


class Watcher(Protocol):
    """A connection."""

    def wake(self) -> None:
        """There is something to send."""
        ...


class Look(NamedTuple):
    """What was seen of a topic at one moment."""

    fingerprint: str
    instance: str
    view: View


class Watched:
    """A topic with its watchers and the last messages about it."""

    def __init__(self, topic: Topic, boards: Boards, next_offset: Callable[[], int], offset: int) -> None:
        """`next_offset` counts the messages of the whole hub, of which there have been `offset`."""
        self.topic = topic
        self.name = topic.text
        self.watchers: set[Watcher] = set()
        self.idle_since: float | None = None
        self.newest = offset  # of the last message; a watcher that has it has everything
        self._boards = boards
        self._next_offset = next_offset
        self._complete_from = offset  # every message behind this offset is in the history
        self._history: deque[Message] = deque()
        self._history_bytes = 0
        self._fingerprint: str | None = None
        self._instance: str | None = None
        self._view = View(None, ())
        self._snapshot: Message | None = None

    def look(self) -> Look | None:
        """Read what there is to see, None when it is what it was. Changes nothing, so it may run in a thread."""
        topic = self.topic
        meant = self._boards.meant_now(topic.board, topic.window, topic.scope)
        fingerprint = f"{self._boards.fingerprint_in(meant)}-{meant.now // 1_000 if meant.board.decay else 0}"
        if fingerprint == self._fingerprint:
            return None
        return Look(fingerprint, meant.key.text, view_of(self._boards, topic, meant))

    def take(self, look: Look | None) -> bool:
        """Take what was seen; where watchers have to be told of it, there is a message more."""
        if look is None:
            return False
        is_first, is_other = self._fingerprint is None, self._instance != look.instance
        self._fingerprint, self._instance = look.fingerprint, look.instance
        before, self._view = self._view, look.view
        if is_first:
            return False
        if is_other:
            # Another window has begun: what watchers have is about one that is over.
            self._add(Type.RESET, None)
            self._add(Type.SNAPSHOT, self._view.snapshot)
            return True
        return self._add_difference(before)

    def _add_difference(self, before: View) -> bool:
        view = self._view
        changed, gone = difference({entry.player: entry for entry in before.entries}, view.entries)
        if not changed and not gone and before.snapshot.total == view.snapshot.total:
            return False
        passed: tuple[str, ...] = ()
        overtaken_by: tuple[str, ...] = ()
        if self.topic.kind is Kind.PLAYER and before.entries and view.entries:
            passed = tuple(sorted(before.ahead & view.behind))
            overtaken_by = tuple(sorted(before.behind & view.ahead))
        self._add(
            Type.CHANGE,
            Change(
                set=changed,
                gone=gone,
                total=view.snapshot.total,
                position=view.snapshot.position,
                passed=passed,
                overtaken_by=overtaken_by,
            ),
        )
        return True

    def end(self, data: object) -> None:
        """Tell watchers that there is nothing more to see, and why."""
        self._add(Type.RESET, data)

    def _add(self, kind: Type, data: object) -> None:
        message = Message(self.name, kind, self._next_offset(), data)
        self.newest = message.offset
        self._snapshot = None
        self._history.append(message)
        self._history_bytes += message.size_bytes
        while len(self._history) > HISTORY_MESSAGES_MAX or self._history_bytes > HISTORY_BYTES_MAX:
            dropped = self._history.popleft()
            self._history_bytes -= dropped.size_bytes
            self._complete_from = dropped.offset

    def snapshot(self, offset: int) -> Message:
        """Return all there is to see now; the hub is at `offset`."""
        if self._snapshot is None:
            self._snapshot = Message(self.name, Type.SNAPSHOT, offset, self._view.snapshot)
        return self._snapshot

    def after(self, offset: int, upto: int) -> list[Message]:
        """Return what somebody has missed who has seen everything up to an offset; the hub is at `upto`."""
        if offset < self._complete_from or offset > upto:
            return [Message(self.name, Type.RESET, upto, None), self.snapshot(upto)]
        return [message for message in self._history if message.offset > offset]
