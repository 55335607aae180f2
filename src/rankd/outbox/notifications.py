"""Notifications: the first ten of each board, window and scope, when relayed events have changed them.

    relayed events → boards, instants and attributes that they touch → ranked here → instances → read → changed? → sent

An instance is read soon after an event has touched it. A change of who is among the first ten is sent at once, any
other at most once in an interval, so that the last state is always sent in the end. What was sent last is remembered of
a bounded number of instances; of one that is not, the next notification has all entries as changed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Protocol, Unpack

import msgspec

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.resolve import window_gone
from rankd.errors import NotFound, Refused, Unavailable
from rankd.ledger.event import NO_DETAIL, Context, Detail, EventKind, EventRun
from rankd.push.messages import changed_players
from rankd.push.views import ENTRIES
from rankd.reads.answers import Entry, Page
from rankd.reads.instance_ref import InstanceRef, ReadOptions
from rankd.throttled_warnings import ThrottledWarnings

SCHEMA = 1  # of the values
INTERVAL_S = 0.5  # between two notifications of an instance whose first ten stay the same players
INSTANCES_MAX = 10_000  # remembered
READS_AT_ONCE = 250  # between two steps of the relay, which wait meanwhile
MINUTE_MS = 60_000  # windows begin at full minutes
MINUTES_MAX = 32  # of one run of events, the newest: an import of past years notifies of little
UNRANKED_S_MAX = 60.0  # how long events wait to be ranked here
_ENDING = (EventKind.DELETE, EventKind.RESET, EventKind.RETIRE, EventKind.REMOVE)  # touch all instances of a board
_TouchKey = tuple[str, int | None, tuple[tuple[str, str], ...]]  # board, minute, attributes
_log = logging.getLogger("rankd")
_encode = msgspec.json.Encoder().encode


class TopReader(Protocol):
    """Reads what is ranked here: rankd.Boards."""

    def board(self, board: object) -> Board:
        """Return the current definition of a board."""

    def resolve(self, board: str, **where: Unpack[ReadOptions]) -> InstanceRef:
        """Return the instance of a read."""

    def top_in(self, ref: InstanceRef, limit: int = ..., offset: int = ...) -> Page:
        """Return the first entries."""

    def has_ranked(self, positions: Mapping[int, int], board: str | None = ...) -> bool:
        """Tell whether events are ranked."""


class TopChange(msgspec.Struct, frozen=True):
    """What changed since the notification before."""

    set: list[Entry]  # entries that are new, or not as they were
    gone: list[str]  # players who are no longer among the first ten


class TopNotification(msgspec.Struct, frozen=True):
    """The value of a notification."""

    schema: int
    board: str
    window: str
    scope: str
    total: int
    position: str
    as_of: int
    entries: list[Entry]
    changed: TopChange


class _Touch:
    """Events of one minute with the same attributes; `attributes` is None for all instances of the board."""

    __slots__ = ("at", "attributes", "positions", "since_s")

    def __init__(self, at: int, attributes: Mapping[str, str] | None, since_s: float) -> None:
        self.at = at
        self.attributes = attributes
        self.since_s = since_s  # of the first of them
        self.positions: dict[int, int] = {}  # of the last, by partition


class _SentTop:
    """The first ten of an instance, as they were sent last."""

    __slots__ = ("entries", "is_known", "sent_s")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.is_known = False  # whether anything was sent
        self.sent_s = 0.0


class TopNotifications:
    """Finds out which instances changed, and sends notifications of them; used by one thread."""

    def __init__(self, boards: TopReader, send: Callable[[str, bytes | None], None]) -> None:
        """`send` takes an instance's name and the value, None where the instance is gone."""
        self._boards = boards
        self._send = send
        self._touched: dict[_TouchKey, _Touch] = {}  # not ranked here yet
        self._changed: dict[InstanceKey, float] = {}  # to be sent, since when
        self._unread: dict[InstanceKey, None] = {}  # of them, those that events touched since they were read
        self._sent: OrderedDict[InstanceKey, _SentTop] = OrderedDict()  # the one that was sent longest ago is first
        self._warnings = ThrottledWarnings(_log)

    @property
    def oldest_s(self) -> float | None:
        """Since when an event waits for its notifications; None where none does."""
        waiting = [touch.since_s for touch in self._touched.values()]
        return min([*waiting, *self._changed.values()], default=None)

    def touch(self, context: Context, event_run: EventRun, now_s: float) -> None:
        """Note what a run of events has changed."""
        if context.kind is EventKind.SCORE:
            details = {id(detail): detail for detail in event_run.detail or (None,)}.values()
            minutes = [max(event_run.at) // MINUTE_MS]
            if min(event_run.at) // MINUTE_MS < minutes[0]:
                minutes = sorted({at // MINUTE_MS for at in event_run.at})[-MINUTES_MAX:]
            for board in context.boards:
                for detail in details:
                    for minute in minutes:
                        self._touch(board, minute, detail, event_run, now_s)
        elif context.kind in _ENDING:
            for board in context.boards or (context.board,):
                self._touch(board, None, None, event_run, now_s)

    def _touch(self, board: str, minute: int | None, detail: Detail | None, event_run: EventRun, now_s: float) -> None:
        attributes = None if minute is None else (detail or NO_DETAIL).attributes_for(board)
        key = (board, minute, tuple(attributes.items()) if attributes else ())
        touch = self._touched.get(key)
        if touch is None:
            if len(self._touched) >= INSTANCES_MAX:
                self._warn_of_many()
                return
            touch = self._touched[key] = _Touch((minute or 0) * MINUTE_MS, attributes, now_s)
        touch.positions[event_run.partition] = event_run.first + len(event_run) - 1

    def publish(self, now_s: float, *, at_once: bool = False) -> None:
        """Send what is due; everything with `at_once`, if it is ranked."""
        try:
            self._resolve_ranked(now_s)
            self._read_and_send(now_s, at_once=at_once)
        except Unavailable as problem:  # until the next call
            self._warnings.warn("notifications wait: %s", problem)

    def _resolve_ranked(self, now_s: float) -> None:
        """Turn what is ranked here into instances."""
        for key, touch in list(islice(self._touched.items(), READS_AT_ONCE)):
            board, *_ = key
            del self._touched[key]
            if self._boards.has_ranked(touch.positions, board):
                for instance in self._instances(board, touch):
                    self._add(instance, touch.since_s)
            elif now_s - touch.since_s < UNRANKED_S_MAX:
                self._touched[key] = touch  # behind the others

    def _instances(self, board_id: str, touch: _Touch) -> list[InstanceKey]:
        if touch.attributes is None:
            return [instance for instance in self._sent if instance.board == board_id]
        try:
            board = self._boards.board(board_id)
        except NotFound:  # deleted meanwhile
            return []
        return [
            InstanceKey(board_id, instance, scope)
            for _, instance in board.instances_of(board.read_clock(touch.at))
            for scope in board.scopes_of(touch.attributes)
        ]

    def _add(self, instance: InstanceKey, since_s: float) -> None:
        if instance not in self._sent:
            if len(self._sent) >= INSTANCES_MAX:
                idle = next((key for key in self._sent if key not in self._changed), None)
                if idle is None:
                    self._warn_of_many()
                    return
                del self._sent[idle]
            self._sent[instance] = _SentTop()
        self._changed.setdefault(instance, since_s)
        self._unread[instance] = None

    def _read_and_send(self, now_s: float, *, at_once: bool) -> None:
        due = [key for key in self._changed if key in self._unread or now_s >= self._sent[key].sent_s + INTERVAL_S]
        for instance in self._changed.copy() if at_once else due[:READS_AT_ONCE]:
            self._notify(instance, self._sent[instance], now_s, at_once=at_once)

    def _notify(self, instance: InstanceKey, sent: _SentTop, now_s: float, *, at_once: bool) -> None:
        try:
            ref = self._boards.resolve(instance.board, window=instance.window, scope=instance.scope)
            if ref.born is not None:
                raise window_gone(instance.window)
            page = self._boards.top_in(ref, ENTRIES)
        except (NotFound, Refused):  # it was deleted, or is past its retention
            if sent.is_known:
                self._send(instance.text, None)
            self._forget(instance)
            return
        self._unread.pop(instance, None)
        changed = changed_players(sent.entries, page.entries)
        if not changed:
            del self._changed[instance]
            return
        now = {entry.player: entry for entry in page.entries}
        if now.keys() == sent.entries.keys() and now_s < sent.sent_s + INTERVAL_S and not at_once:
            return
        self._send(instance.text, _encode(_notification(page, now, changed)))
        sent.entries, sent.sent_s, sent.is_known = now, now_s, True
        self._sent.move_to_end(instance)
        del self._changed[instance]

    def _forget(self, instance: InstanceKey) -> None:
        self._unread.pop(instance, None)
        del self._changed[instance], self._sent[instance]

    def _warn_of_many(self) -> None:
        problem = Unavailable(f"more than {INSTANCES_MAX:,} instances change at once")
        self._warnings.warn("some notifications are left out: %s", problem)


def _notification(page: Page, now: Mapping[str, Entry], changed: set[str]) -> TopNotification:
    return TopNotification(
        SCHEMA,
        page.board,
        page.window,
        page.scope,
        page.total,
        page.position,
        page.as_of,
        page.entries,
        TopChange(set=[entry for entry in page.entries if entry.player in changed], gone=sorted(changed - now.keys())),
    )
