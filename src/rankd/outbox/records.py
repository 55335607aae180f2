"""Events of the ledger as records of a topic: docs/kafka.md describes key, value and headers.

    event run → JSON of what its events share, once → a record for each event

Records are made by the hundred thousand a second, so that each is little more than one formatted text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count

import msgspec

from rankd.domain.partition import partition_of
from rankd.domain.position import token
from rankd.kafka.clients import Headers, Record
from rankd.ledger.event import NO_DETAIL, Context, Detail, EventKind, EventRun, event_id

SCHEMA = 1  # of the values; a field may be added to it, none changes its meaning
POSITION, EVENT_ID = "rankd-position", "rankd-event-id"  # headers
FIRST = 0  # the partition of the ledger whose sequence names a control event
_encoder = msgspec.json.Encoder(order="deterministic")
MetadataOf = Callable[[Sequence[tuple[int, int]]], Mapping[tuple[int, int], str]]


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

    def of_players(self, event_run: EventRun) -> Iterator[Record]:
        """Iterate over the records of scores or removals, in order."""
        topic, ledger_partition, partitions = self._topic, event_run.partition, self._partitions
        context = self._context_of(event_run.context)
        head = _head(context) + ',"player":'
        texts = self._texts(event_run, is_score=context.kind is EventKind.SCORE)
        names = _encoder.encode_lines(event_run.players).decode().split("\n")  # JSON has no line ends of its own
        return (
            (
                topic,
                f"{head}{name}{text}}}",
                player.encode(),
                partition_of(player, partitions),
                None,
                None,
                0,
                [(POSITION, f"{ledger_partition}-{sequence}"), (EVENT_ID, str(number))],
            )
            for sequence, number, player, name, text in zip(
                count(event_run.first),
                count(event_id(ledger_partition, event_run.first)),
                event_run.players,
                names,
                texts,
                strict=False,
            )
        )

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

    def _texts(self, event_run: EventRun, *, is_score: bool) -> Iterable[str]:
        """Return what the value of each event has behind its player."""
        if not is_score:
            return (f',"at":{at}' for at in event_run.at)
        scores = zip(event_run.score, event_run.at, strict=True)
        if event_run.detail is None and not any(event_run.tiebreak):
            return (f',"score":{score},"at":{at}' for score, at in scores)
        return (
            f',"score":{score},"at":{at}{more}' for (score, at), more in zip(scores, self._more(event_run), strict=True)
        )

    def _more(self, event_run: EventRun) -> list[str]:
        """Return the fields that few events have: tiebreak, attributes, metadata."""
        details: Sequence[Detail | None] = event_run.detail or [None] * len(event_run)
        attributes = {id(detail): _attributes(detail) for detail in {id(each): each for each in details}.values()}
        texts = [
            f',"tiebreak":{tiebreak}{attributes[id(detail)]}' if tiebreak else attributes[id(detail)]
            for tiebreak, detail in zip(event_run.tiebreak, details, strict=True)
        ]
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
    return _encoder.encode(value).decode()
