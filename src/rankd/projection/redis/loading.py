"""A rebuild in Redis: a new generation beside the live one, which takes its place when it is complete."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

from rankd.errors import RanksUnavailable
from rankd.projection.port import Position, Verdict
from rankd.projection.redis.blob import ShardCalls, split
from rankd.projection.redis.changes import InstanceChange, Move, Written
from rankd.projection.redis.client import Call, Client, Pending
from rankd.projection.redis.forms import Form, prefixed_form
from rankd.projection.redis.keys import Kind, ShardKeys, instance_name
from rankd.projection.redis.known import positions_in
from rankd.projection.redis.operations import LOADING, Head
from rankd.projection.redis.writing import Whole, fits, fitting_form

_UNDER_WAY_MAX = 4  # calls that Redis may be behind: it works while the next ones are made
_SWEPT_A_CALL = 100
_DISCARDED_A_CALL = 1_000
_NO_MOVES: tuple[Move, ...] = ()


class Loading:
    """A generation that is being filled. Readers and the live writer do not notice it until `finish`.

    As a context it gives up, at its end, whatever was not put in place.
    """

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
        self._calls = [0] * len(generations)  # by shard: Redis counts them too, so that none is lost unseen
        self._plain_keys: dict[int, set[bytes]] = {}  # by shard: that rows were added to by commands
        self._may_be_plain = True  # while nobody is sent twice: commands that are made again keep no order
        # By shard: where ours is the live generation, which is not ours to write.
        self._switched: dict[int, Written] = {}
        # A socket takes no more than its buffers hold while Redis works: the next page is made beside the waiting.
        self._sender = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rankd-load")
        self._sent: Pending | None = None  # the sender's
        self._under_way: deque[Future[list[Any]]] = deque()

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
        if any(change.cleared for change in changes):
            self.settle()
            self._may_be_plain = False
        head = Head(self._epoch, 0, _NO_MOVES, "", LOADING)
        batches = [
            ShardCalls(keys, generation, self._updates_max)
            for keys, generation in zip(self._shards, self._generations, strict=True)
        ]
        seen: dict[str, int] = {}
        kept_dense = dense and len(self._shards) == 1
        plain: list[Call] = []
        for change in changes:
            for page, form in self._in_form(change):
                for shard, part in enumerate(split(page, len(batches), seen)):
                    rest = part
                    if self._may_be_plain and not kept_dense and _is_plain(part, form):
                        plain += self._plain_rows(part, form, shard)
                        rest = replace(part, players=(), score=part.score[:0], tie=part.tie[:0], gone=b"")
                    batches[shard].add(rest, form, dense=kept_dense)
        calls: list[Call] = []
        for shard, batch in enumerate(batches):
            if shard not in self._switched:
                made = batch.made(head, self._calls[shard])
                self._calls[shard] += len(made)
                calls += made
        calls += plain
        while len(self._under_way) >= _UNDER_WAY_MAX:
            self._settle_one()
        self._under_way.append(self._sender.submit(self._send, calls))

    def settle(self) -> None:
        """Wait until Redis has all that was loaded so far."""
        self._under_way.append(self._sender.submit(self._send, ()))
        while self._under_way:
            self._settle_one()

    def finish(self, positions: Sequence[tuple[int, int]], *, time_ms: int, forced: bool = False) -> list[Written]:
        """Let the new generation take the live one's place on every shard, at these (partition, sequence) positions.

        A position may not go back (GAP) unless `forced`: load what is missing and finish again, for the shards that are
        left. What was live before is then removed in steps.
        """
        if self._is_live():
            return [one for _, one in sorted(self._switched.items())]
        self.load(())  # whoever has this call has all before it, also those that no function counts
        self.settle()
        self._may_be_plain = False  # rows that follow are newer, and may be those of the live writer soon
        moves = [text for partition, sequence in positions for text in (str(partition), str(sequence))]
        left = [shard for shard in range(len(self._shards)) if shard not in self._switched]
        flag = "1" if forced else "0"
        answers = self._client.call_all(
            [
                Call(
                    "rankd_finish",
                    [self._shards[shard].meta],
                    [self._epoch, self._generations[shard], time_ms, flag, self._calls[shard], *moves],
                )
                for shard in left
            ]
        )
        reached = {partition: Position(self._epoch, sequence) for partition, sequence in positions}
        written = dict(self._switched)
        for shard, answer in zip(left, answers, strict=True):
            if answer[0] == b"applied":
                written[shard] = self._switched[shard] = Written(Verdict.APPLIED, reached)
            else:
                written[shard] = Written(_verdict(answer[0]), positions_in(answer[3:]))
        if self._is_live():
            self._stop()
            sweep(self._client, self._shards)
        return [one for _, one in sorted(written.items())]

    def abandon(self) -> None:
        """Give the new generation up where it is not live, and remove what was loaded."""
        self._stop()
        calls = [
            Call("rankd_abandon", [keys.meta], [self._epoch, "loading", generation])
            for keys, generation in zip(self._shards, self._generations, strict=True)
        ]
        self._client.call_all(calls)
        sweep(self._client, self._shards)

    def __enter__(self) -> Self:
        """Return the rebuild; what is not put in place is given up with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give up what was not put in place, and the connections in any case."""
        self._stop()
        if not self._is_live():
            with suppress(RanksUnavailable):  # the next rebuild sweeps it
                self.abandon()

    def _is_live(self) -> bool:
        return len(self._switched) == len(self._shards)

    def _send(self, calls: Sequence[Call]) -> list[Any]:
        """Send calls, in the sender's thread, and return the answers to those before them."""
        before, self._sent = self._sent, self._channel.start(calls)
        return before.answers() if before is not None else []

    def _stop(self) -> None:
        """Let the sender end what it has begun, whatever comes of it, and give its connections back."""
        self._sender.shutdown(wait=True, cancel_futures=True)
        self._under_way.clear()
        self._channel.close()

    def _plain_rows(self, part: InstanceChange, form: Form, shard: int) -> list[Call]:
        """Return the commands for rows that need no function: Redis is quicker without, and nobody reads them yet.

        They go after the call that finds out whether this rebuild is still the one.
        """
        key = self._shards[shard].of(Kind.STANDING, self._generations[shard], instance_name(part.key))
        self._plain_keys.setdefault(shard, set()).add(key)
        rows: list[str] = [""] * (2 * len(part.players))
        rows[::2] = form.encode_packed(part.score, part.tie)
        rows[1::2] = part.players
        step = 2 * self._updates_max
        return [Call("ZADD", [key], rows[first : first + step], is_command=True) for first in range(0, len(rows), step)]

    def _settle_one(self) -> None:
        answers = self._under_way.popleft().result()
        if any(answer[0] != b"applied" for answer in answers if isinstance(answer, list)):
            self._stop()
            self._discard_plain()
            raise RanksUnavailable("another rebuild took the place of this one: begin again if it should not have")

    def _discard_plain(self) -> None:
        """Remove rows that came after whoever took over had swept what it found of us."""
        calls = []
        for shard, keys in self._plain_keys.items():
            listed = sorted(keys)
            for first in range(0, len(listed), _DISCARDED_A_CALL):
                some = listed[first : first + _DISCARDED_A_CALL]
                calls.append(Call("rankd_discard", [self._shards[shard].meta, *some], [self._generations[shard]]))
        self._client.call_all(calls)

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


def _is_plain(part: InstanceChange, form: Form) -> bool:
    return form.is_packed and not part.exact_top and 1 not in part.gone


def sweep(client: Client, shards: Sequence[ShardKeys]) -> None:
    """Remove what is left of generations that are no longer used, some instances a call."""
    left = list(shards)
    while left:
        answers = client.call_all([Call("rankd_sweep", [keys.meta], [_SWEPT_A_CALL]) for keys in left])
        left = [keys for keys, rest in zip(left, answers, strict=True) if rest]


def _verdict(answer: bytes) -> Verdict:
    # Another generation is being loaded: whoever loads this one has been overtaken.
    return Verdict.FENCED if answer == b"other" else Verdict(answer.decode())


def refusal(answer: bytes) -> Verdict:
    """Return what a writer is told who does not say it again: of another generation, that it has to look first."""
    return Verdict.GAP if answer == b"other" else Verdict(answer.decode())
