"""A rebuild in Redis: a new generation beside the live one, which takes its place when it is complete."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

from rankd.errors import RanksUnavailable
from rankd.projection.port import Position, Verdict
from rankd.projection.redis.blob import ShardCalls, split
from rankd.projection.redis.changes import InstanceChange, Move, Written
from rankd.projection.redis.client import Call, Client, Pending
from rankd.projection.redis.forms import Form, prefixed_form
from rankd.projection.redis.keys import ShardKeys, instance_name
from rankd.projection.redis.known import positions_in
from rankd.projection.redis.operations import LOADING, Head
from rankd.projection.redis.writing import Whole, fits, fitting_form

_UNDER_WAY_MAX = 4  # calls that Redis may be behind: it works while the next ones are made
_SWEPT_A_CALL = 100
_NO_MOVES: tuple[Move, ...] = ()


class Loading:
    """A generation that is being filled. Readers and the live writer do not notice it until `finish`."""

    def __init__(
        self, client: Client, board: str, generations: list[int], epoch: int, *, updates_max: int, whole: Whole | None
    ) -> None:
        """Made by `Mirror.begin`."""
        self._client = client
        self._channel = client.channel()
        self._shards = [ShardKeys(board, shard) for shard in range(len(generations))]
        self._whole = whole
        self._generations = generations
        self._epoch = epoch
        self._updates_max = updates_max
        self._forms: dict[bytes, Form] = {}
        self._under_way: deque[Pending] = deque()

    @classmethod
    def begin(
        cls, client: Client, board: str, shards: int, epoch: int, *, updates_max: int, whole: Whole | None = None
    ) -> Self | None:
        """Name a new generation on every shard; None when another writer has a higher epoch."""
        keys = [ShardKeys(board, shard) for shard in range(shards)]
        answers = client.call_all([Call("rankd_begin", [one.meta], [epoch]) for one in keys])
        if any(answer[0] != b"applied" for answer in answers):
            return None
        return cls(client, board, [int(answer[1]) for answer in answers], epoch, updates_max=updates_max, whole=whole)

    def load(self, changes: Sequence[InstanceChange], *, dense: bool = False) -> None:
        """Add rows; a player sent again has what was sent last. Redis may still be at work when this returns.

        The first rows of an instance decide its form; when later ones do not fit, the whole of it is loaded again.
        """
        head = Head(self._epoch, 0, _NO_MOVES, "", LOADING)
        batches = [
            ShardCalls(keys, generation, self._updates_max)
            for keys, generation in zip(self._shards, self._generations, strict=True)
        ]
        seen: dict[str, int] = {}
        kept_dense = dense and len(self._shards) == 1
        for change in changes:
            for page, form in self._in_form(change):
                for batch, part in zip(batches, split(page, len(batches), seen), strict=True):
                    batch.add(part, form, dense=kept_dense)
        calls = [call for batch in batches for call in batch.made(head)]
        while len(self._under_way) >= _UNDER_WAY_MAX:
            self._settle_one()
        self._under_way.append(self._channel.start(calls))

    def settle(self) -> None:
        """Wait until Redis has all that was loaded so far."""
        while self._under_way:
            self._settle_one()

    def finish(self, positions: Sequence[tuple[int, int]], *, time_ms: int, forced: bool = False) -> list[Written]:
        """Let the new generation take the live one's place on every shard, at these (partition, sequence) positions.

        A position may not go back (GAP) unless `forced`: load what is missing and finish again. What was live before is
        then removed in steps.
        """
        self.settle()
        self._channel.close()
        moves = [text for partition, sequence in positions for text in (str(partition), str(sequence))]
        answers = self._client.call_all(
            [
                Call(
                    "rankd_finish",
                    [keys.meta],
                    [self._epoch, generation, time_ms, "1" if forced else "0", *moves],
                )
                for keys, generation in zip(self._shards, self._generations, strict=True)
            ]
        )
        reached = {partition: Position(self._epoch, sequence) for partition, sequence in positions}
        written = [
            Written(Verdict.APPLIED, reached)
            if answer[0] == b"applied"
            else Written(_verdict(answer[0]), positions_in(answer[3:]))
            for answer in answers
        ]
        if all(one.verdict is Verdict.APPLIED for one in written):
            sweep(self._client, self._shards)
        return written

    def abandon(self) -> None:
        """Give the new generation up and remove what was loaded."""
        self._under_way.clear()
        self._channel.close()
        self._client.call_all([Call("rankd_abandon", [keys.meta], [self._epoch, "loading"]) for keys in self._shards])
        sweep(self._client, self._shards)

    def _settle_one(self) -> None:
        for answer in self._under_way.popleft().answers():
            if answer[0] != b"applied":
                raise RanksUnavailable("another rebuild took the place of this one: begin again if it should not have")

    def _in_form(self, change: InstanceChange) -> Iterator[tuple[InstanceChange, Form]]:
        name = instance_name(change.key)
        form = self._forms.get(name)
        if form is None:
            form = self._forms[name] = fitting_form(change)
        if fits(form, change):
            yield change, form
            return
        if self._whole is None:
            raise AssertionError(f"{change.key.text} needs another form, and nobody gives the whole of it")
        form = self._forms[name] = prefixed_form(change.rules)
        first = True
        for page in self._whole(change.key):
            yield replace(page, cleared=first), form
            first = False
        yield replace(change, cleared=False), form


def sweep(client: Client, shards: Sequence[ShardKeys]) -> None:
    """Remove what is left of generations that are no longer used, some instances a call."""
    left = list(shards)
    while left:
        answers = client.call_all([Call("rankd_sweep", [keys.meta], [_SWEPT_A_CALL]) for keys in left])
        left = [keys for keys, rest in zip(left, answers, strict=True) if rest]


def _verdict(answer: bytes) -> Verdict:
    # Another generation is being loaded: whoever loads this one has been overtaken.
    return Verdict.FENCED if answer == b"other" else Verdict(answer.decode())
