"""Builds one write: chooses the form of each instance, and splits its rows over the shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rankd.domain.instance import InstanceKey
from rankd.errors import RanksUnavailable
from rankd.redis.connection.client import FunctionCall, RedisClient
from rankd.redis.forms import Form, choose_form, describe, prefixed_form, written_described
from rankd.redis.keys import ShardKeys, instance_name
from rankd.redis.write.blob import ShardCalls, split, without_gone
from rankd.redis.write.changes import InstanceChange, PartitionMove
from rankd.redis.write.operations import BESIDE, WriteHead
from rankd.redis.write.stored_board import StoredBoard


class OtherFormNeeded(Exception):
    """An instance needs another form, and cannot be rewritten while a write is in flight."""


Whole = Callable[[InstanceKey], Iterable[InstanceChange]]


class WriteCalls:
    """The calls of one write, by shard."""

    def __init__(
        self,
        client: RedisClient,
        known: StoredBoard,
        head: WriteHead,
        updates_max: int,
        *,
        whole: Whole | None,
        dense: bool,
        shards: Sequence[int],
    ) -> None:
        """Begin with an empty call for each of `shards`; other shards are not written."""
        self._client = client
        self._known = known
        self._head = head
        self._updates_max = updates_max
        self._whole = whole
        self._shards = shards
        self._dense = dense and len(known.generations) == 1
        self._batches = self._empty()
        self._shard_of: dict[str, int] = {}

    def calls(self) -> tuple[list[FunctionCall], list[int]]:
        """Return all calls, and the end index of each shard's calls."""
        calls: list[FunctionCall] = []
        boundaries: list[int] = []
        for shard in self._shards:
            calls += self._batches[shard].made(self._head)
            boundaries.append(len(calls))
        return calls, boundaries

    def add(self, change: InstanceChange) -> None:
        """Add the changes of an instance; one that needs another form is rewritten beside its live rows."""
        forms, name = self._known.forms, instance_name(change.key)
        if change.cleared or not change.total:
            forms.pop(name, None)
        if name not in forms:
            form = fitting_form(change)
            if change.total:
                forms[name] = form, self._dense
        else:
            form, was_dense = forms[name]
            if was_dense != self._dense or name in self._known.odd or not fits(form, change):
                self._change_form(change, form if fits(form, change) else prefixed_form(change.rules))
                return
        self._spread(change, form)

    def _spread(self, change: InstanceChange, form: Form) -> None:
        for batch, part in zip(self._batches, self._split(change), strict=True):
            batch.add(part, form, dense=self._dense)

    def _change_form(self, change: InstanceChange, new: Form) -> None:
        """Rewrite an instance beside its live rows; this write swaps them."""
        if self._whole is None:
            raise OtherFormNeeded(change.key.text)
        first = True
        for page in self._whole(change.key):
            self._gather(replace(page, cleared=first), new)
            first = False
        self._known.forms[instance_name(change.key)] = new, self._dense
        described = written_described(
            describe(new, change.digest, change.total, dense=self._dense, exact_top=change.exact_top)
        )
        for batch in self._batches:
            batch.swap(change.key, new, described, dense=self._dense, tailed=bool(change.exact_top))
        if len(self._shards) == len(self._batches):
            self._known.odd.discard(instance_name(change.key))
        rows = [row for row, left in enumerate(change.gone) if left]
        rest = replace(
            change,
            players=[change.players[row] for row in rows],
            score=change.score[: len(rows)],
            tie=change.tie[: len(rows)],
            gone=b"\1" * len(rows),
            in_top=bytes(len(rows)) if change.exact_top else b"",
        )
        self._spread(rest, new)

    def _gather(self, page: InstanceChange, form: Form) -> None:
        moves = [PartitionMove(partition, after, after) for partition, after, _ in self._head.moves]
        head = WriteHead(self._head.epoch, self._head.time_ms, moves, self._head.token, BESIDE)
        calls: list[FunctionCall] = []
        batches = self._empty()
        for shard, part in enumerate(self._split(page)):
            if shard in self._shards:
                batches[shard].add_beside(part, form, dense=self._dense)
                calls += batches[shard].made(head)
        if any(answer[0] != b"applied" for answer in self._client.call_all(calls)):
            raise RanksUnavailable(f"another writer changed the ranks of {page.key.board}: read its positions again")

    def _split(self, change: InstanceChange) -> list[InstanceChange]:
        return split(change, len(self._batches), self._shard_of)

    def _empty(self) -> list[ShardCalls]:
        board, updates_max = self._known.board, self._updates_max
        return [
            ShardCalls(ShardKeys(board, shard), generation, updates_max)
            for shard, generation in enumerate(self._known.generations)
        ]


def fitting_form(change: InstanceChange) -> Form:
    """Return the form for an instance that has none yet."""
    form = choose_form(change.rules, change.tie_resolution_ms)
    return form if fits(form, change) else prefixed_form(change.rules)


def fits(form: Form, change: InstanceChange) -> bool:
    """Return whether a form can encode the rows of a change; removed players have none."""
    stays = without_gone(change) if 1 in change.gone else change
    return form.fits_all(stays.score, stays.tie)
