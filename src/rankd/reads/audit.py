"""Who did what: events with their senders, and what each changed.

    AuditQuery → Ledger.audit → events → of each player and board: the events before, ranked anew → AuditPage

A score's effect follows from the player's own events and the board's control events alone, so these are applied to an
empty reference store, by the applier that ranks everything else.
"""

from __future__ import annotations

from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from time import monotonic
from typing import NamedTuple

import msgspec

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept
from rankd.domain.position import token
from rankd.domain.scope import GLOBAL
from rankd.errors import InvalidValue
from rankd.ledger.audit import AuditedEvent, AuditMark, AuditQuery
from rankd.ledger.event import NO_DETAIL, Context, EventKind, EventRun
from rankd.ledger.port import Ledger
from rankd.projection.applier import Applier
from rankd.projection.catalogue import Catalogue
from rankd.projection.reference import ReferenceStore
from rankd.projection.state import State
from rankd.shortening import list_names, quote

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
EARLIER_EVENTS_MAX = 20_000  # applied anew for one page
EFFECTS_S_MAX = 2.0  # until the rest of a page is unknown
CURSOR_CHARACTERS_MAX = 128
_NUMBER_END = 2**62
TEAM = "the board ranks teams"
NO_GLOBAL = "the board has no global scope"
NO_WINDOW = "the board's first window does not hold this instant"
TOO_MANY = "the page's players have too many earlier events; ask for fewer events, or for one player"
NO_CONTROLS = "the board has too many control events, or they are being indexed"


class AuditEntry(msgspec.Struct, frozen=True):
    """One event of the ledger: who sent it, from where, and what it changed."""

    position: str
    kind: EventKind
    sender: str
    board: str
    player: str | None
    at: int
    committed_at: int
    window: str | None
    score: int | None
    old_score: int | None
    new_score: int | None
    unknown: str | None
    address: str | None
    user_agent: str | None
    request_id: str | None


class AuditPage(msgspec.Struct, frozen=True):
    """Events, the newest first; `next` is the `cursor` of older ones, null at the end."""

    events: Sequence[AuditEntry]
    next: str | None


class _Effect(NamedTuple):
    """What an event did to its player's score in the board's first window."""

    window: str | None = None
    old: int | None = None
    new: int | None = None
    unknown: str | None = None


_NO_EFFECT = _Effect()


class Auditor:
    """Answers who did what, from a ledger alone."""

    def __init__(self, ledger: Ledger) -> None:
        """The ledger finds the past events of a player."""
        self._ledger = ledger

    def page(self, query: AuditQuery, before: AuditMark | None) -> AuditPage:
        """Return the newest events that are asked for, optionally behind an earlier page."""
        audited = self._ledger.audit(query, before)
        effects = self._effects(audited.events)
        entries = [_entry(event, effects.get(_place(event), _NO_EFFECT)) for event in audited.events]
        return AuditPage(entries, None if audited.next is None else write_mark(audited.next))

    def _effects(self, events: Sequence[AuditedEvent]) -> dict[tuple[int, int], _Effect]:
        asked: dict[str, dict[str, list[AuditedEvent]]] = {}  # by player and board, the newest first
        for event in events:
            if event.context.kind in (EventKind.SCORE, EventKind.REMOVE):
                asked.setdefault(event.event_run.players[0], {}).setdefault(event.context.board, []).append(event)
        upto = {
            player: max(of_board[0].event_run.first for of_board in boards.values()) for player, boards in asked.items()
        }
        controls_of = cache(self._ledger.controls_of)
        effects: dict[tuple[int, int], _Effect] = {}
        room, until = EARLIER_EVENTS_MAX, monotonic() + EFFECTS_S_MAX
        players = {player: sequence + 1 for player, sequence in upto.items()}
        for player, earlier in self._ledger.events_of(players, EARLIER_EVENTS_MAX + 1):
            room -= len(earlier)
            if room < 0 or monotonic() > until:
                break
            for board, of_board in asked.pop(player).items():
                controls = controls_of(board, of_board[0].event_run.partition)
                if controls is None:
                    effects.update((_place(event), _Effect(unknown=NO_CONTROLS)) for event in of_board)
                else:
                    before = [event_run for event_run in controls if event_run.first < upto[player]]
                    effects.update(self._of_player(player, board, of_board, [*earlier, *before]))
        for boards in asked.values():
            effects.update((_place(event), _Effect(unknown=TOO_MANY)) for events in boards.values() for event in events)
        return effects

    def _of_player(
        self, player: str, board: str, asked: Sequence[AuditedEvent], event_runs: Sequence[EventRun]
    ) -> dict[tuple[int, int], _Effect]:
        wanted = {event.event_run.first: event for event in asked}
        store = ReferenceStore()
        applier = Applier(store, State(), Catalogue(), lambda number: self._context(number, board))
        effects = {}
        number = 1
        for event_run in _joined(self._reaching(board, event_runs), wanted):
            applied = msgspec.structs.replace(event_run, first=number, partition=0)
            number += len(event_run)  # the store takes consecutive events
            event = wanted.get(event_run.first)
            if event is None:
                applier.apply(applied)
                continue
            key, unknown = _instance(applier.catalogue, event)
            old = None if key is None else store.score(key, player)
            applier.apply(applied)
            new = None if key is None else store.score(key, player)
            if key is None:
                effects[_place(event)] = _Effect(unknown=unknown)
            else:
                effects[_place(event)] = _Effect(
                    key.window, _shown(applier.catalogue, event, old), _shown(applier.catalogue, event, new)
                )
        return effects

    def _reaching(self, board: str, event_runs: Sequence[EventRun]) -> Iterator[EventRun]:
        """Iterate over the events that reach a board, in order."""
        for event_run in sorted(event_runs, key=lambda run: run.first):
            context = self._ledger.context(event_run.context)
            if board in context.boards and (context.kind is EventKind.SCORE or context.board == board):
                yield event_run

    def _context(self, number: int, board: str) -> Context:
        """Return a context as if its events reached one board only."""
        context = self._ledger.context(number)
        return msgspec.structs.replace(context, boards={board: context.boards[board]})


def _joined(event_runs: Iterable[EventRun], alone: Container[int]) -> Iterator[EventRun]:
    """Put consecutive events of one context into one run, but for those that are asked for."""
    for _, group in groupby(event_runs, lambda run: run.first if run.first in alone else -run.context):
        runs = list(group)
        yield runs[0] if len(runs) == 1 else _one_run(runs)


def _one_run(runs: Sequence[EventRun]) -> EventRun:
    """Return runs of one event as one run; they are used for other boards, too, and stay as they are."""
    details = [None if run.detail is None else run.detail[0] for run in runs]
    return EventRun(
        runs[0].context,
        array("q", [run.at[0] for run in runs]),
        array("q", [run.player[0] for run in runs]),
        array("q", [run.score[0] for run in runs]),
        array("q", [run.tiebreak[0] for run in runs]),
        [run.players[0] for run in runs],
        details if any(details) else None,
        runs[0].first,
        runs[0].partition,
    )


def _instance(catalogue: Catalogue, event: AuditedEvent) -> tuple[InstanceKey | None, str | None]:
    """Return the instance of the board's first window that an event is in, or why there is none."""
    board, at = _board(catalogue, event), event.event_run.at[0]
    if board.team is not None:
        return None, TEAM
    if not board.with_global:
        return None, NO_GLOBAL
    first = board.first_window
    reading = event.context.boards[board.id].reading(at)
    instance = next((name for window, name in board.instances_of(reading) if window.name == first.name), None)
    return (None, NO_WINDOW) if instance is None else (InstanceKey(board.id, instance, GLOBAL), None)


def _shown(catalogue: Catalogue, event: AuditedEvent, kept: Kept | None) -> int | None:
    return None if kept is None else _board(catalogue, event).shown_score(kept.score, event.committed)


def _board(catalogue: Catalogue, event: AuditedEvent) -> Board:
    context = event.context
    return catalogue.board(context.board, context.boards[context.board].version)


def _place(event: AuditedEvent) -> tuple[int, int]:
    return event.event_run.partition, event.event_run.first


def _entry(event: AuditedEvent, effect: _Effect) -> AuditEntry:
    event_run, context, origin = event.event_run, event.context, event.origin
    detail = (event_run.detail or [None])[0] or NO_DETAIL
    return AuditEntry(
        position=token(*_place(event)),
        kind=context.kind,
        sender=context.sender,
        board=context.board,
        player=event_run.players[0] or None,
        at=event_run.at[0],
        committed_at=event.committed,
        window=effect.window or detail.window,
        score=event_run.score[0] if context.kind is EventKind.SCORE else None,
        old_score=effect.old,
        new_score=effect.new,
        unknown=effect.unknown,
        address=None if origin is None else origin.address,
        user_agent=None if origin is None else origin.user_agent,
        request_id=None if origin is None else origin.request_id,
    )


def check_kind(value: object) -> EventKind:
    """Return a kind of events, or refuse one that does not exist."""
    try:
        return EventKind(value)  # type: ignore[arg-type]
    except ValueError:
        raise InvalidValue("kind", f"must be one of {list_names([*EventKind])}; got {quote(value)}") from None


def write_mark(mark: AuditMark) -> str:
    """Return where a page ended, as text."""
    return urlsafe_b64encode(msgspec.msgpack.encode(mark)).rstrip(b"=").decode()


def read_mark(value: object) -> AuditMark:
    """Parse a cursor; it must be the `next` of an answer.

    >>> read_mark(write_mark(AuditMark(0, 0, 8731))).sequence
    8731
    """
    if isinstance(value, str) and len(value) <= CURSOR_CHARACTERS_MAX and value.isascii():
        try:
            mark = msgspec.msgpack.decode(urlsafe_b64decode(value + "=" * (-len(value) % 4)), type=AuditMark)
        except (ValueError, msgspec.DecodeError):
            mark = None
        if mark is not None and all(-1 <= number < _NUMBER_END for number in mark):
            return mark
    raise InvalidValue("cursor", "must be the `next` of an earlier page, unchanged")
