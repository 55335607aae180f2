"""What a slow reading of a log in memory says that it means.

It shares the applier with what it judges, and nothing else: it goes through each partition record by record, sorts all
events between two control events at once, and applies them one by one as those of one partition.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import NamedTuple

from rankd.ledger.event import Context, Detail, EventKind, EventRun
from rankd.ledger.port import MARK, REPEATS_KNOWN_MS
from rankd.projection.applier import Applier
from rankd.projection.catalogue import Catalogue
from rankd.projection.reference import ReferenceStore
from rankd.projection.state import State

from .log_world import NO_KEY, Defined, Log, Place, after_control, context_under, detail_under, reached_by


class Meaning(NamedTuple):
    """What a log means: ranks, dead letters as (partition, sequence, code), and how many events were repeats."""

    store: ReferenceStore
    refused: set[tuple[int, int, str]]
    repeats: int
    ordered: list[tuple[int, int]]  # the events that reach team boards, as (partition, sequence)


class _Event(NamedTuple):
    time: int
    partition: int
    sequence: int
    place: Place


def meaning_of(log: Log) -> Meaning:
    """Return what a log means, to the letter."""
    contexts: list[Context] = []
    applier = Applier(ReferenceStore(), State(), Catalogue(), lambda number: contexts[number])
    refused: set[tuple[int, int, str]] = set()
    ordered: list[tuple[int, int]] = []
    repeats, applied, defined = 0, 0, Defined({}, {})

    def apply(context: Context, place: Place) -> None:
        nonlocal applied
        applied += 1
        contexts.append(context)
        run = EventRun(
            len(contexts) - 1,
            array("q", [place.at]),
            array("q", [0]),
            array("q", [place.score]),
            array("q", [place.tiebreak]),
            [place.player],
            [place.detail],
            applied,
        )
        applier.apply(run)

    by_control = _between_controls(log)
    seen: list[dict[bytes, tuple[int, bytes]]] = [{} for _ in range(log.partitions)]
    for number, events in enumerate(by_control):
        if number:
            context_number, detail, at = log.controls[number - 1]
            apply(log.context(context_number), Place(context_number, at, at, detail=detail))
            defined = after_control(defined, log.context(context_number), detail)
        # All sorted by time: events that reach no team board do not mind.
        for event in sorted(events):
            place, where = event.place, (event.partition, event.sequence)
            digest, fingerprint = place.key[:16], place.key[16:]
            if place.key != NO_KEY:
                first_time, first_fingerprint = seen[event.partition].get(digest, (-REPEATS_KNOWN_MS, b""))
                if event.time - first_time < REPEATS_KNOWN_MS:
                    if fingerprint == first_fingerprint:
                        repeats += 1
                    else:
                        refused.add((*where, "key_reused"))
                    continue
                seen[event.partition][digest] = event.time, fingerprint
            code, context, detail = _judged(log.context(place.context), place, defined)
            if code is not None:
                refused.add((*where, code))
            else:
                apply(context, replace(place, detail=detail))
                if any(defined.boards[board].team for board in context.boards):
                    ordered.append(where)
    applier.let_go_all()
    assert isinstance(applier.store, ReferenceStore)
    return Meaning(applier.store, refused, repeats, ordered)


def _between_controls(log: Log) -> list[list[_Event]]:
    """Return the events behind each control event, with times that never go back."""
    events: list[list[_Event]] = [[] for _ in range(len(log.controls) + 1)]
    for partition, places in enumerate(log.places):
        number, time = 0, 0
        for sequence, place in places.items():
            time = max(time, place.time)
            if place.number:
                number = max(number, place.number)
            elif place.context != MARK:
                at = place.at if place.is_sent else time
                events[number].append(_Event(time, partition, sequence, replace(place, at=at)))
    return events


def _judged(context: Context, place: Place, defined: Defined) -> tuple[str | None, Context, Detail | None]:
    board = defined.boards.get(context.board)
    if board is None:
        return "board_unknown", context, None
    is_score = context.kind is EventKind.SCORE
    if is_score:
        is_same = {each.id: defined.versions[each.id] for each in reached_by(defined, board)} == {
            board_id: accepted.version for board_id, accepted in context.boards.items()
        }
        if not is_same and not board.open:
            return "board_closed", context, None
        if not is_same and not board.score_min <= place.score <= board.score_max:
            return "invalid_value", context, None
    held = {} if place.detail is None else place.detail.attributes
    detail = detail_under(defined, board, held) if is_score else None
    return None, context_under(defined, board, place.at, context.kind), detail
