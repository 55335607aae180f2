"""One write in the making: the form of each instance is settled, and its rows go to their shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rankd.domain.instance import InstanceKey
from rankd.errors import RanksUnavailable
from rankd.projection.redis.blob import ShardCalls, split, without_gone
from rankd.projection.redis.changes import InstanceChange, Move
from rankd.projection.redis.client import Call, Client
from rankd.projection.redis.forms import Form, choose_form, describe, prefixed_form, written_described
from rankd.projection.redis.keys import ShardKeys, instance_name
from rankd.projection.redis.known import KnownBoard
from rankd.projection.redis.operations import BESIDE, Head


class OtherFormNeeded(Exception):
    """An instance has to be written anew in another form, and nobody may do so now."""


Whole = Callable[[InstanceKey], Iterable[InstanceChange]]


class Writing:
    """The calls of one write, by shard."""

    def __init__(
        self,
        client: Client,
        known: KnownBoard,
        head: Head,
        updates_max: int,
        *,
        whole: Whole | None,
        dense: bool,
        shards: Sequence[int],
    ) -> None:
        """Begin with an empty call for every one of `shards`; the others are left as they are."""
        self._client = client
        self._known = known
        self._head = head
        self._updates_max = updates_max
        self._whole = whole
        self._shards = shards
        self._dense = dense and len(known.generations) == 1
        self._batches = self._empty()
        self._shard_of: dict[str, int] = {}

    def calls(self) -> tuple[list[Call], list[int]]:
        """Return all calls, and where those of each shard end."""
        calls: list[Call] = []
        boundaries: list[int] = []
        for shard in self._shards:
            calls += self._batches[shard].made(self._head)
            boundaries.append(len(calls))
        return calls, boundaries

    def add(self, change: InstanceChange) -> None:
        """Add what changed in an instance; one that needs another form is written anew beside what is there."""
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
        """Write a whole instance anew beside the one there is; this write lets it take its place."""
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
        moves = [Move(partition, after, after) for partition, after, _ in self._head.moves]
        head = Head(self._head.epoch, self._head.time_ms, moves, self._head.token, BESIDE)
        calls: list[Call] = []
        batches = self._empty()
        for shard, part in enumerate(self._split(page)):
            if shard in self._shards:
                batches[shard].add_beside(part, form, dense=self._dense)
                calls += batches[shard].made(head)
        if any(answer[0] != b"applied" for answer in self._client.call_all(calls)):
            raise RanksUnavailable(f"somebody else writes the ranks of {page.key.board}: look at positions again")

    def _split(self, change: InstanceChange) -> list[InstanceChange]:
        return split(change, len(self._batches), self._shard_of)

    def _empty(self) -> list[ShardCalls]:
        generations = enumerate(self._known.generations)
        return [ShardCalls(ShardKeys(self._known.board, shard), one, self._updates_max) for shard, one in generations]


def fitting_form(change: InstanceChange) -> Form:
    """Return the form for an instance that has none yet."""
    form = choose_form(change.rules, change.tie_resolution_ms)
    return form if fits(form, change) else prefixed_form(change.rules)


def fits(form: Form, change: InstanceChange) -> bool:
    """Say whether the rows of a change can be written in a form; who is gone has no row."""
    stays = without_gone(change) if 1 in change.gone else change
    return form.fits_all(stays.score, stays.tie)
