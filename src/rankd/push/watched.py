"""One topic that is watched: what its watchers have seen, and what they were told.

    look (what there is to see) → take (what is different is noted) → publish (one message of all that was noted)

One computation and one encoding serve all who watch. A watcher holds nothing but the offset of the last message it was
sent: whoever is slow finds fewer, newer messages, and whoever is too slow finds a snapshot.

Somebody who comes between two messages is shown what there is at that moment. So a message tells of every player who
was touched since the message before, even of one who came and went: it is true for whoever has seen any of the states
in between.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import NamedTuple, Protocol

from rankd.boards import Boards
from rankd.push.history import History, Room
from rankd.push.messages import NO_OFFSET, Change, Message, Type, conflated, difference
from rankd.push.topics import Kind, Topic
from rankd.push.views import View, view_of
from rankd.reads.meaning import Meant


class Watcher(Protocol):
    """A connection."""

    def wake(self) -> None:
        """There is something to send."""
        ...


class Glance(NamedTuple):
    """What a topic is about, and the fingerprint of that: enough to tell whether there is anything new to see."""

    meant: Meant
    fingerprint: str


class Look(NamedTuple):
    """What was seen of a topic at one moment."""

    number: int  # looks may come back in another order than they began
    fingerprint: str
    view: View


class Watched:
    """A topic with its watchers and the last messages about it."""

    def __init__(self, topic: Topic, boards: Boards, next_offset: Callable[[], int], room: Room) -> None:
        """`next_offset` counts the messages of the whole hub; what this one begins with counts as one."""
        self.topic = topic
        self.name = topic.text
        self.watchers: set[Watcher] = set()
        self.idle_since = 0.0  # when the last watcher left
        # Nobody can go on from an earlier offset: what happened while nobody watched was not noted.
        self.newest = next_offset()
        self._boards = boards
        self._next_offset = next_offset
        self._history = History(self.newest, room)
        self._numbers = count(1)
        self._taken = 0  # the number of the look that was taken last
        self._fingerprint: str | None = None
        self._is_settled = False
        self._view: View | None = None
        self._told: View | None = None  # what the last message was made of, or the first look
        self._touched: set[str] = set()  # players, since the last message
        self._is_touched = False  # their number, since then
        self._is_other = False  # the instance is, since then
        self._gone: object | None = None  # why there is nothing to see
        self._snapshot: Message | None = None
        self._conflated: dict[int, list[Message]] = {}  # by the offset they follow

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to see of it."""
        return self._view is None

    def meant(self) -> Meant:
        """Return what the topic is about now."""
        return self._boards.meant_now(self.topic.board, self.topic.window, self.topic.scope)

    def look(self, *, until_settled: bool = False, seen: Glance | None = None) -> Look | None:
        """Read what there is to see, None when it is what it was. Changes nothing, so it may run in a thread.

        A commit changes one thing after the other: who looks meanwhile may find the fingerprint of all and the standing
        of some. With `until_settled`, what has just changed is looked at once more. `seen` is the fingerprint, where it
        was asked for together with those of others.
        """
        number = next(self._numbers)
        if seen is None:
            meant = self.meant()
            seen = Glance(meant, self._boards.fingerprint_in(meant))
        if self.is_as_before(seen, until_settled=until_settled):
            return None
        return Look(number, _whole(seen), view_of(self._boards, self.topic, seen.meant))

    def is_as_before(self, seen: Glance, *, until_settled: bool = False) -> bool:
        """Tell whether there is nothing to see that was not seen before."""
        return _whole(seen) == self._fingerprint and (self._is_settled or not until_settled)

    def take(self, look: Look | None) -> None:
        """Take what was seen, and note what is different."""
        if look is None or look.number < self._taken:
            return
        self._taken = look.number
        self._is_settled = look.fingerprint == self._fingerprint
        self._fingerprint = look.fingerprint
        before, self._view, self._snapshot = self._view, look.view, None
        if self._told is None:
            self._told = look.view
        if before is None:
            self._is_other = self._gone is not None
            self._gone = None
        elif before.instance != look.view.instance:
            self._is_other = True
        else:
            self._touched |= difference({entry.player: entry for entry in before.entries}, look.view.entries)
            self._is_touched |= before.snapshot.total != look.view.snapshot.total

    def publish(self) -> bool:
        """Make a message of what was noted since the last one; False where there is nothing to tell."""
        view, told = self._view, self._told
        if view is None or told is None:
            return False
        if self._is_other:
            # Another window has begun, or the board is back: what watchers have is about one that is over.
            self._add(Type.RESET, None)
            self._add(Type.SNAPSHOT, view.snapshot)
        elif self._touched or self._is_touched:
            self._add(Type.CHANGE, self._change(told, view))
        else:
            return False
        self._note_nothing()
        self._told = view
        return True

    def _change(self, told: View, view: View) -> Change:
        passed: tuple[str, ...] = ()
        overtaken_by: tuple[str, ...] = ()
        if self.topic.kind is Kind.PLAYER and told.entries and view.entries:
            passed = tuple(sorted(told.ahead & view.behind))
            overtaken_by = tuple(sorted(told.behind & view.ahead))
        return Change(
            set=[entry for entry in view.entries if entry.player in self._touched],
            gone=sorted(self._touched - {entry.player for entry in view.entries}),
            total=view.snapshot.total,
            position=view.snapshot.position,
            passed=passed,
            overtaken_by=overtaken_by,
        )

    def end(self, why: object) -> bool:
        """Tell watchers that there is nothing to see any more; False where they know. It may come back."""
        if self._gone is not None:
            return False
        self._gone = why
        self._view, self._fingerprint = None, None
        self._note_nothing()
        self._add(Type.RESET, why)
        return True

    def _note_nothing(self) -> None:
        self._touched.clear()
        self._is_touched = self._is_other = False

    def _add(self, kind: Type, data: object) -> None:
        message = Message(self.name, kind, self._next_offset(), data)
        self.newest = message.offset
        self._snapshot = None
        self._conflated.clear()
        self._history.add(message)

    def snapshot(self, offset: int) -> list[Message]:
        """Return all there is to see now; the hub is at `offset`."""
        if self._view is None:
            return [Message(self.name, Type.RESET, NO_OFFSET, self._gone)]
        if self._snapshot is None:
            self._snapshot = Message(self.name, Type.SNAPSHOT, offset, self._view.snapshot)
        return [self._snapshot]

    def after(self, offset: int, upto: int) -> list[Message]:
        """Return what somebody has missed who has seen everything up to an offset; the hub is at `upto`."""
        missed = None if offset > upto else self._history.after(offset)
        if missed is not None:
            return missed
        if self._view is None:
            return self.snapshot(upto)
        return [Message(self.name, Type.RESET, NO_OFFSET, None), *self.snapshot(upto)]

    def newest_after(self, offset: int, upto: int) -> list[Message]:
        """Return the same in as few messages as can be: for somebody who is there, and was slow or at rest."""
        found = self._conflated.get(offset)
        if found is None:
            missed = self.after(offset, upto)
            if len(missed) < 2 or missed[0].offset == NO_OFFSET:
                return missed
            found = self._conflated[offset] = conflated(missed)
        return found

    def forget(self) -> None:
        """Give the room of its history back."""
        self._history.forget()


def _whole(seen: Glance) -> str:
    """Return the fingerprint of what is shown: the way places are counted, and the second where scores fade."""
    step = seen.meant.now // 1_000 if seen.meant.board.decay else 0
    return f"{seen.fingerprint}-{seen.meant.ranking}-{step}"
