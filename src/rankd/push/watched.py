"""One watched topic: its current view, the messages published so far, and its watchers.

    read (the view, if its fingerprint changed) → update (record the differences) → publish (one message for all)

One computation and one encoding serve all watchers. A watcher stores only the offset of the last message sent to it, so
a slow one gets fewer, newer messages, and one that is too slow gets a snapshot.

A watcher that comes between two messages starts from the view of that moment. So a message names every player who
changed since the message before, even one who came and left: it is correct on top of any state in between.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import NamedTuple, Protocol

from rankd.boards import Boards
from rankd.errors import WindowGone
from rankd.push.history import HistoryBudget, MessageHistory
from rankd.push.messages import NO_OFFSET, Change, Message, Type, changed_players, conflate
from rankd.push.topics import Topic, TopicKind
from rankd.push.views import View, view_of
from rankd.reads.instance_ref import InstanceRef
from rankd.reads.standings import Fingerprint


class Watcher(Protocol):
    """A connection that watches topics."""

    def wake(self) -> None:
        """Notify it that there are messages to send."""


class TopicFingerprint(NamedTuple):
    """The instance of a topic and its fingerprint, which changes whenever the view does."""

    ref: InstanceRef
    fingerprint: Fingerprint


class TopicSnapshot(NamedTuple):
    """The view of a topic at one moment."""

    number: int  # reads may return in another order than they began
    fingerprint: Fingerprint
    view: View


class WatchedTopic:
    """A topic with its watchers and its last messages."""

    def __init__(self, topic: Topic, boards: Boards, next_offset: Callable[[], int], budget: HistoryBudget) -> None:
        """`next_offset` counts the messages of the whole hub; the start of a topic takes one offset too."""
        self.topic = topic
        self.name = topic.text
        self.watchers: set[Watcher] = set()
        self.idle_since = 0.0  # when the last watcher left
        # A client cannot resume from an earlier offset: changes without a watcher are not recorded.
        self.newest = next_offset()
        self._boards = boards
        self._next_offset = next_offset
        self._history = MessageHistory(self.newest, budget)
        self._numbers = count(1)
        self._updated_number = 0  # of the snapshot that `update` took last
        self._fingerprint: Fingerprint | None = None
        self._is_settled = False
        self._view: View | None = None
        self._published: View | None = None  # the view as of the last message, or the first view
        # Since the last message:
        self._changed_players: set[str] = set()
        self._is_total_changed = False
        self._is_instance_changed = False
        self._end_data: object | None = None  # why the topic cannot be read
        self._snapshot: Message | None = None
        self._conflated: dict[int, list[Message]] = {}  # by the offset after which they follow

    @property
    def is_blank(self) -> bool:
        """Whether there is no view."""
        return self._view is None

    def resolve(self) -> InstanceRef:
        """Return the topic's current instance."""
        ref = self._boards.resolve_now(self.topic.board, self.topic.window, self.topic.scope)
        if ref.born is not None:
            raise WindowGone(f"topic: {ref.key.window} is past its retention and changes no more; read it instead")
        return ref

    def read(self, *, until_settled: bool = False, fingerprint: TopicFingerprint | None = None) -> TopicSnapshot | None:
        """Read the view; None when it is unchanged. Changes nothing, so it may run in a thread.

        A commit is applied step by step: a read meanwhile may find the final fingerprint beside older standings. With
        `until_settled`, a view that has just changed is read once more. `fingerprint` saves computing it.
        """
        number = next(self._numbers)
        if fingerprint is None:
            ref = self.resolve()
            fingerprint = TopicFingerprint(ref, self._boards.fingerprint_in(ref))
        if self.is_unchanged(fingerprint, until_settled=until_settled):
            return None
        view = view_of(self._boards, self.topic, fingerprint.ref)
        return TopicSnapshot(number, _view_fingerprint(fingerprint), view)

    def is_unchanged(self, fingerprint: TopicFingerprint, *, until_settled: bool = False) -> bool:
        """Tell whether the view is the one that was read last."""
        return _view_fingerprint(fingerprint) == self._fingerprint and (self._is_settled or not until_settled)

    def update(self, snapshot: TopicSnapshot | None) -> None:
        """Take a new view and record the differences; one that is older than the last is ignored."""
        if snapshot is None or snapshot.number < self._updated_number:
            return
        self._updated_number = snapshot.number
        self._is_settled = snapshot.fingerprint == self._fingerprint
        self._fingerprint = snapshot.fingerprint
        before, self._view, self._snapshot = self._view, snapshot.view, None
        if self._published is None:
            self._published = snapshot.view
        if before is None:
            self._is_instance_changed = self._end_data is not None
            self._end_data = None
        elif before.instance != snapshot.view.instance:
            self._is_instance_changed = True
        else:
            entries = {entry.player: entry for entry in before.entries}
            self._changed_players |= changed_players(entries, snapshot.view.entries)
            self._is_total_changed |= before.snapshot.total != snapshot.view.snapshot.total

    def publish(self) -> bool:
        """Make a message of the differences since the last one; False where there are none."""
        view, published = self._view, self._published
        if view is None or published is None:
            return False
        if self._is_instance_changed:
            # Another window has begun, or the board was defined again: watchers hold entries of the old instance.
            self._add(Type.RESET, None)
            self._add(Type.SNAPSHOT, view.snapshot)
        elif self._changed_players or self._is_total_changed:
            self._add(Type.CHANGE, self._change(published, view))
        else:
            return False
        self._clear_changes()
        self._published = view
        return True

    def _change(self, published: View, view: View) -> Change:
        passed: tuple[str, ...] = ()
        overtaken_by: tuple[str, ...] = ()
        if self.topic.kind is TopicKind.PLAYER and published.entries and view.entries:
            passed = tuple(sorted(published.ahead & view.behind))
            overtaken_by = tuple(sorted(published.behind & view.ahead))
        return Change(
            set=[entry for entry in view.entries if entry.player in self._changed_players],
            gone=sorted(self._changed_players - {entry.player for entry in view.entries}),
            total=view.snapshot.total,
            position=view.snapshot.position,
            passed=passed,
            overtaken_by=overtaken_by,
        )

    def end(self, data: object) -> bool:
        """Publish that the topic cannot be read; False where that was published already. It may come back."""
        if self._end_data is not None:
            return False
        self._end_data = data
        self._view, self._fingerprint = None, None
        self._clear_changes()
        self._add(Type.RESET, data)
        return True

    def _clear_changes(self) -> None:
        self._changed_players.clear()
        self._is_total_changed = self._is_instance_changed = False

    def _add(self, kind: Type, data: object) -> None:
        message = Message(self.name, kind, self._next_offset(), data)
        self.newest = message.offset
        self._snapshot = None
        self._conflated.clear()
        self._history.add(message)

    def snapshot(self, offset: int) -> list[Message]:
        """Return the whole view as messages; the hub is at `offset`."""
        if self._view is None:
            return [Message(self.name, Type.RESET, NO_OFFSET, self._end_data)]
        if self._snapshot is None:
            self._snapshot = Message(self.name, Type.SNAPSHOT, offset, self._view.snapshot)
        return [self._snapshot]

    def after(self, offset: int, upto: int) -> list[Message]:
        """Return the messages after an offset, or a reset and a snapshot; the hub is at `upto`."""
        missed = None if offset > upto else self._history.after(offset)
        if missed is not None:
            return missed
        if self._view is None:
            return self.snapshot(upto)
        return [Message(self.name, Type.RESET, NO_OFFSET, None), *self.snapshot(upto)]

    def newest_after(self, offset: int, upto: int) -> list[Message]:
        """Return the same, conflated: for a connected watcher that reads slowly."""
        messages = self._conflated.get(offset)
        if messages is None:
            missed = self.after(offset, upto)
            if len(missed) < 2 or missed[0].offset == NO_OFFSET:
                return missed
            messages = self._conflated[offset] = conflate(missed)
        return messages

    def forget(self) -> None:
        """Return the bytes of its history to the budget."""
        self._history.forget()


def _view_fingerprint(fingerprint: TopicFingerprint) -> Fingerprint:
    """Add what else the view depends on: the ranking, and the second where scores decay."""
    ref = fingerprint.ref
    step = ref.now // 1_000 if ref.board.decay else 0
    return fingerprint.fingerprint, ref.ranking, step
