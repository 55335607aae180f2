"""Scores to submit: rows, columns and single ones, checked as the library checks them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from rankd.domain.board import check_board_id
from rankd.domain.instant import check_at
from rankd.domain.player import check_player
from rankd.domain.scope import check_attributes
from rankd.domain.score import check_tiebreak, encode_metadata
from rankd.errors import InvalidValue
from rankd.intake import scores as column

T = TypeVar("T")
_FIELDS = ("player", "score", "tiebreak", "at", "attributes", "metadata")
_COLUMNS = dict(zip(_FIELDS, ("players", "scores", "tiebreaks", "at", "attributes", "metadata"), strict=True))
_IN_BATCH = re.compile(r"^events\[([0-9]+)\]")
Row = Sequence[object] | Mapping[str, object]


class Event(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One score as the server reads it; `player` is left out where a player's own token names it."""

    board: str
    player: str | None = None
    score: int
    tiebreak: int | None = None
    at: int | None = None
    attributes: dict[str, str] | None = None
    metadata: msgspec.Raw | None = None


class EventBatch(msgspec.Struct):
    """Scores that are submitted all or none."""

    events: list[Event]


def event(
    board: str,
    player: object,
    score: object,
    *,
    tiebreak: object = None,
    at: object = None,
    attributes: object = None,
    metadata: object = None,
    where: str = "",
) -> Event:
    """Return one score, checked; `where` is a prefix for the field of an error."""
    return Event(
        board=board,
        player=None if player is None else check_player(player, f"{where}player"),
        score=column.DeferredBoard().check_score(score, f"{where}score"),
        tiebreak=None if tiebreak is None else check_tiebreak(tiebreak, f"{where}tiebreak"),
        at=None if at is None else check_at(at, f"{where}at"),
        attributes=None if attributes is None else check_attributes(attributes, f"{where}attributes"),
        metadata=None if metadata is None else msgspec.Raw(encode_metadata(metadata, f"{where}metadata")),
    )


def events_of_rows(board: str, rows: Iterable[Row]) -> list[Event]:
    """Return the scores of rows, which are (player, score[, tiebreak]) or mappings."""
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise InvalidValue("rows", f"must be rows such as (player, score); got {type(rows).__name__}")
    return [_event_of_row(board, row, f"rows[{index}]") for index, row in enumerate(rows)]


def events_of_mappings(events: Iterable[Mapping[str, object]]) -> list[Event]:
    """Return scores of several boards; each names its own."""
    if isinstance(events, str | bytes | Mapping) or not isinstance(events, Iterable):
        raise InvalidValue("events", f"must be mappings with board, player and score; got {type(events).__name__}")
    checked = []
    for index, row in enumerate(events):
        where = f"events[{index}]"
        if not isinstance(row, Mapping):
            raise InvalidValue(where, f"must be a mapping with board, player and score; got {type(row).__name__}")
        board = check_board_id(row.get("board"), f"{where}.board")
        checked.append(_event_of_row(board, {name: row[name] for name in row if name != "board"}, where))
    return checked


def _event_of_row(board: str, row: object, where: str) -> Event:
    if isinstance(row, Mapping):
        unknown = [name for name in row if name not in _FIELDS]
        if unknown:
            raise InvalidValue(f"{where}.{unknown[0]!s:.40}", f"is unknown; a score has {', '.join(_FIELDS)}")
        fields = {name: row.get(name) for name in _FIELDS}
    elif isinstance(row, tuple | list) and 2 <= len(row) <= 3:
        fields = dict(zip(_FIELDS, row, strict=False))
    else:
        raise InvalidValue(where, "must be (player, score), (player, score, tiebreak) or a mapping")
    check_player(fields["player"], f"{where}.player")
    return event(board, **fields, where=f"{where}.")


def events_of_columns(
    board: str,
    players: object,
    scores: object,
    *,
    tiebreaks: object,
    at: object,
    attributes: object,
    metadata: object,
) -> list[Event]:
    """Return the scores of columns of one length."""
    ids = column.check_players(players)
    kept = column.check_scores(scores, column.DeferredBoard())
    count = len(kept)
    tied = None if tiebreaks is None else column.check_tiebreaks(tiebreaks)
    times = None if at is None else column.check_instants(at, len(ids))
    known = None if attributes is None else column.check_attribute_column(attributes, len(ids))
    texts = None if metadata is None else column.check_metadata_column(metadata)
    columns = {"players": ids, "tiebreaks": tied, "at": times, "attributes": known, "metadata": texts}
    for name, values in columns.items():
        if values is not None and len(values) != count:
            raise InvalidValue(name, f"must be as many as scores; got {len(values)} and {count}")
    rows = zip(
        ids, kept, _each(tied, count), _each(times, count), _each(known, count), _each(texts, count), strict=True
    )
    return [
        Event(
            board=board,
            player=player,
            score=score,
            tiebreak=tiebreak,
            at=instant,
            attributes=described,
            metadata=None if text is None else msgspec.Raw(text.encode()),
        )
        for player, score, tiebreak, instant, described, text in rows
    ]


def field_of_rows(field: str) -> str:
    """Return the field of a batch as a caller with rows knows it.

    >>> field_of_rows("events[3].score")
    'rows[3].score'
    """
    return _IN_BATCH.sub(r"rows[\1]", field)


def field_of_columns(field: str) -> str:
    """Return the field of a batch as a caller with columns knows it.

    >>> field_of_columns("events[3].score"), field_of_columns("events[3].attributes.level")
    ('scores[3]', 'attributes[3].level')
    """
    match = _IN_BATCH.match(field)
    if match is None:
        return field
    name, dot, rest = field[match.end() + 1 :].partition(".")
    return f"{_COLUMNS[name]}[{match[1]}]{dot}{rest}" if name in _COLUMNS else field


def _each(values: Sequence[T] | None, count: int) -> Sequence[T | None]:
    return [None] * count if values is None else values
