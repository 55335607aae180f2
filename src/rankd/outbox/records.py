"""Events of the ledger as records of a topic: docs/kafka.md describes key, value and headers.

    event run → JSON of what its events share, once → a record for each event

Records are made by the hundred thousand a second, so that each is little more than one formatted text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count, repeat
from typing import NamedTuple

import msgspec

from rankd.domain.partition import partition_of
from rankd.domain.position import token
from rankd.kafka.clients import Headers, Record
from rankd.ledger.event import NO_DETAIL, Context, Detail, EventKind, EventRun, event_id

SCHEMA = 1  # of the values; a field may be added to it, none changes its meaning
POSITION, EVENT_ID = "rankd-position", "rankd-event-id"  # headers
PLAYERS_CACHED_MAX = 200_000  # a full cache is emptied
FIRST = 0  # the partition of the ledger whose sequence names a control event
_encode = msgspec.json.Encoder(order="deterministic").encode
MetadataOf = Callable[[Sequence[tuple[int, int]]], Mapping[tuple[int, int], str]]


class _Player(NamedTuple):
    """A player as a record's partition, as its key, and in its value."""

    partition: int
    key: bytes
    json: str


class _Players(dict[str, _Player]):
    """Players by id."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self._partitions = partitions

    def __missing__(self, player: str) -> _Player:
        if len(self) >= PLAYERS_CACHED_MAX:
            self.clear()
        made = self[player] = _Player(partition_of(player, self._partitions), player.encode(), _json(player))
        return made


class EventRecords:
    """Makes the records of one topic."""

    def __init__(
        self, topic: str, partitions: int, context_of: Callable[[int], Context], metadata_of: MetadataOf
    ) -> None:
        """`partitions` are the topic's; the functions are the ledger's."""
        self._topic = topic
        self._partitions = partitions
        self._context_of = context_of
        self._metadata_of = metadata_of
        self._players = _Players(partitions)

    def of_players(self, event_run: EventRun) -> list[Record]:
        """Return the records of scores or removals, in order."""
        context = self._context_of(event_run.context)
        topic, head, ledger_partition = self._topic, _head(context) + ',"player":', event_run.partition
        ids = count(event_id(ledger_partition, event_run.first))
        players = map(self._players.__getitem__, event_run.players)
        more = self._more(event_run)
        if context.kind is not EventKind.SCORE:
            texts = (f'{text},"at":{at}' for text, at in zip(more, event_run.at, strict=False))
        elif isinstance(more, repeat):
            texts = (f',"score":{score},"at":{at}' for score, at in zip(event_run.score, event_run.at, strict=True))
        else:
            texts = (
                f',"score":{score},"at":{at}{text}'
                for score, at, text in zip(event_run.score, event_run.at, more, strict=True)
            )
        return [
            (
                topic,
                f"{head}{json}{text}}}",
                key,
                partition,
                None,
                None,
                0,
                [(POSITION, f"{ledger_partition}-{sequence}"), (EVENT_ID, str(number))],
            )
            for sequence, number, (partition, key, json), text in zip(
                count(event_run.first), ids, players, texts, strict=False
            )
        ]

    def of_control(self, event_run: EventRun) -> list[Record]:
        """Return the records of a control event: one for every partition of the topic, without a key."""
        context = self._context_of(event_run.context)
        detail = (event_run.detail or [None])[0] or NO_DETAIL
        value = f'{_head(context)},"at":{event_run.at[0]}'
        if detail.window is not None:
            value += f',"window":{_json(detail.window)}'
        if detail.definition is not None:
            value += f',"definition":{_json(detail.definition)}'
        sequence = event_run.first
        headers: Headers = [(POSITION, token(FIRST, sequence)), (EVENT_ID, str(event_id(FIRST, sequence)))]
        return [
            (self._topic, value + "}", None, partition, None, None, 0, headers) for partition in range(self._partitions)
        ]

    def _more(self, event_run: EventRun) -> Sequence[str] | repeat[str]:
        """Return what else the value of each event has: tiebreak, attributes, metadata."""
        details = event_run.detail
        if details is None and not any(event_run.tiebreak):
            return repeat("")
        texts = [f',"tiebreak":{tiebreak}' if tiebreak else "" for tiebreak in event_run.tiebreak]
        if details is None:
            return texts
        attributes = {id(detail): _attributes(detail) for detail in {id(each): each for each in details}.values()}
        texts = [text + attributes[id(detail)] for text, detail in zip(texts, details, strict=True)]
        with_metadata = [
            (event_run.partition, event_run.first + index)
            for index, detail in enumerate(details)
            if detail is not None and detail.has_metadata
        ]
        if with_metadata:
            for (_, sequence), json in self._metadata_of(with_metadata).items():
                texts[sequence - event_run.first] += f',"metadata":{json}'
        return texts


def _head(context: Context) -> str:
    """Return the beginning of a value, which all events of a context share."""
    fed = [board for board in context.boards if board != context.board]
    acceptance = context.boards.get(context.board)
    head = f'{{"schema":{SCHEMA},"kind":{_json(context.kind)},"board":{_json(context.board)}'
    if acceptance is not None:
        head += f',"version":{acceptance.version}'
    if fed:
        head += f',"feeds":{_json(fed)}'
    return f'{head},"sender":{_json(context.sender)}'


def _attributes(detail: Detail | None) -> str:
    return "" if detail is None or not detail.attributes else f',"attributes":{_json(detail.attributes)}'


def _json(value: object) -> str:
    return _encode(value).decode()
