"""A rebuild in Redis: a new generation beside the live one, which replaces it when complete."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

from rankd.errors import RanksUnavailable
from rankd.projection.port import Position, Verdict
from rankd.redis.connection.client import FunctionCall, Pending, RedisClient
from rankd.redis.forms import Form, prefixed_form
from rankd.redis.keys import KeyKind, ShardKeys, instance_name
from rankd.redis.write.blob import ShardCalls, split
from rankd.redis.write.changes import InstanceChange, PartitionMove, WriteReply
from rankd.redis.write.operations import LOADING, WriteHead
from rankd.redis.write.stored_board import positions_in
from rankd.redis.write.writing import Whole, fits, fitting_form

_IN_FLIGHT_MAX = 4  # batches that Redis works on while the next is encoded
_SWEPT_A_CALL = 100
_DISCARDED_A_CALL = 1_000
_NO_MOVES: tuple[PartitionMove, ...] = ()


class Loading:
    """A generation that is being loaded, invisible to readers and the live writer until `finish`.

    As a context manager it abandons, at its end, a generation that is not live.
    """

    def __init__(
        self,
        client: RedisClient,
        board: str,
        generations: list[int],
        epoch: int,
        *,
        updates_max: int,
        whole: Whole | None,
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
        self._calls = [0] * len(generations)  # by shard; Redis counts them too, to detect a lost one
        self._plain_keys: dict[int, set[bytes]] = {}  # by shard: keys that plain commands added rows to
        self._may_be_plain = True  # while no player is sent twice: retried commands keep no order
        self._switched: dict[int, WriteReply] = {}  # by shard, since our generation is live: the writer's own
        # Sends block while Redis works and socket buffers are full: a thread sends while the next page is encoded.
        self._sender = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rankd-load")
        self._sent: Pending | None = None  # used by the sender thread
        self._in_flight: deque[Future[list[Any]]] = deque()

    @classmethod
    def begin(
        cls, client: RedisClient, board: str, shards: int, epoch: int, *, updates_max: int, whole: Whole | None = None
    ) -> Self | None:
        """Begin a generation on every shard; None when another writer has a higher epoch."""
        metas = [ShardKeys(board, shard).meta for shard in range(shards)]
        answers = client.call_all([FunctionCall("rankd_begin", [meta], [epoch]) for meta in metas])
        if any(answer[0] != b"applied" for answer in answers):
            return None
        return cls(client, board, [int(answer[1]) for answer in answers], epoch, updates_max=updates_max, whole=whole)

    def load(self, changes: Sequence[InstanceChange], *, dense: bool = False) -> None:
        """Add rows, without waiting for Redis; a later row of a player replaces an earlier one.

        The first rows of an instance decide its form; when later ones do not fit, the whole instance is loaded again.
        """
        if any(change.cleared for change in changes):
            self.settle()
            self._may_be_plain = False
        head = WriteHead(self._epoch, 0, _NO_MOVES, "", LOADING)
        batches = [
            ShardCalls(keys, generation, self._updates_max)
            for keys, generation in zip(self._shards, self._generations, strict=True)
        ]
        shard_cache: dict[str, int] = {}
        kept_dense = dense and len(self._shards) == 1
        plain: list[FunctionCall] = []
        for change in changes:
            for page, form in self._in_form(change):
                for shard, part in enumerate(split(page, len(batches), shard_cache)):
                    rest = part
                    if self._may_be_plain and not kept_dense and _is_plain(part, form):
                        plain += self._plain_rows(part, form, shard)
                        rest = replace(part, players=(), score=part.score[:0], tie=part.tie[:0], gone=b"")
                    batches[shard].add(rest, form, dense=kept_dense)
        calls: list[FunctionCall] = []
        for shard, batch in enumerate(batches):
            if shard not in self._switched:
                made = batch.made(head, self._calls[shard])
                self._calls[shard] += len(made)
                calls += made
        calls += plain
        while len(self._in_flight) >= _IN_FLIGHT_MAX:
            self._settle_one()
        self._in_flight.append(self._sender.submit(self._send, calls))

    def settle(self) -> None:
        """Wait until Redis has answered everything loaded so far."""
        self._in_flight.append(self._sender.submit(self._send, ()))
        while self._in_flight:
            self._settle_one()

    def finish(self, positions: Sequence[tuple[int, int]], *, time_ms: int, forced: bool = False) -> list[WriteReply]:
        """Make the new generation live on every shard, at these (partition, sequence) positions.

        A position may not go back (GAP) unless `forced`: load what is missing and finish again, for the remaining
        shards. The former generation is then removed in steps.
        """
        if self._is_live():
            return [written for _, written in sorted(self._switched.items())]
        self.load(())  # an ordered call after all plain commands, which no function counts
        self.settle()
        self._may_be_plain = False  # later rows replace earlier ones
        moves = [text for partition, sequence in positions for text in (str(partition), str(sequence))]
        left = [shard for shard in range(len(self._shards)) if shard not in self._switched]
        flag = "1" if forced else "0"
        answers = self._client.call_all(
            [
                FunctionCall(
                    "rankd_finish",
                    [self._shards[shard].meta],
                    [self._epoch, self._generations[shard], time_ms, flag, self._calls[shard], *moves],
                )
                for shard in left
            ]
        )
        reached = {partition: Position(self._epoch, sequence) for partition, sequence in positions}
        by_shard = dict(self._switched)
        for shard, answer in zip(left, answers, strict=True):
            if answer[0] == b"applied":
                by_shard[shard] = self._switched[shard] = WriteReply(Verdict.APPLIED, reached)
            else:
                by_shard[shard] = WriteReply(_verdict(answer[0]), positions_in(answer[3:]))
        if self._is_live():
            self._stop()
            sweep(self._client, self._shards)
        return [written for _, written in sorted(by_shard.items())]

    def abandon(self) -> None:
        """Abandon the new generation where it is not live, and remove its rows."""
        self._stop()
        calls = [
            FunctionCall("rankd_abandon", [keys.meta], [self._epoch, "loading", generation])
            for keys, generation in zip(self._shards, self._generations, strict=True)
        ]
        self._client.call_all(calls)
        sweep(self._client, self._shards)

    def __enter__(self) -> Self:
        """Return the rebuild; the block's end abandons it unless it is live."""
        return self

    def __exit__(self, *_: object) -> None:
        """Abandon a generation that is not live, and return the connections."""
        self._stop()
        if not self._is_live():
            with suppress(RanksUnavailable):  # the next rebuild sweeps it
                self.abandon()

    def _is_live(self) -> bool:
        return len(self._switched) == len(self._shards)

    def _send(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Send calls, in the sender's thread, and return the answers to the batch before."""
        before, self._sent = self._sent, self._channel.start(calls)
        return before.answers() if before is not None else []

    def _stop(self) -> None:
        """Wait for the sender, and return its connections."""
        self._sender.shutdown(wait=True, cancel_futures=True)
        self._in_flight.clear()
        self._channel.close()

    def _plain_rows(self, part: InstanceChange, form: Form, shard: int) -> list[FunctionCall]:
        """Return plain commands for rows that need no function, which Redis runs faster.

        They follow the call that checks that no other rebuild has begun.
        """
        key = self._shards[shard].of(KeyKind.STANDING, self._generations[shard], instance_name(part.key))
        self._plain_keys.setdefault(shard, set()).add(key)
        rows: list[str] = [""] * (2 * len(part.players))
        rows[::2] = form.encode_packed(part.score, part.tie)
        rows[1::2] = part.players
        step = 2 * self._updates_max
        return [
            FunctionCall("ZADD", [key], rows[first : first + step], is_command=True)
            for first in range(0, len(rows), step)
        ]

    def _settle_one(self) -> None:
        answers = self._in_flight.popleft().result()
        if any(answer[0] != b"applied" for answer in answers if isinstance(answer, list)):
            self._stop()
            self._discard_plain()
            raise RanksUnavailable("another rebuild has begun and replaces this one: begin again if it should not")

    def _discard_plain(self) -> None:
        """Remove rows that arrived after another rebuild had swept this one."""
        calls = []
        for shard, keys in self._plain_keys.items():
            listed = sorted(keys)
            for first in range(0, len(listed), _DISCARDED_A_CALL):
                some = listed[first : first + _DISCARDED_A_CALL]
                calls.append(
                    FunctionCall("rankd_discard", [self._shards[shard].meta, *some], [self._generations[shard]])
                )
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
            raise AssertionError(f"{change.key.text} needs another form, and no source of its whole was given")
        form = self._forms[name] = prefixed_form(change.rules)
        first = True
        for page in self._whole(change.key):
            yield replace(page, cleared=first), form
            first = False
        yield replace(change, cleared=False), form


def _is_plain(part: InstanceChange, form: Form) -> bool:
    return form.is_packed and not part.exact_top and 1 not in part.gone


def sweep(client: RedisClient, shards: Sequence[ShardKeys]) -> None:
    """Remove unused generations, some instances per call."""
    left = list(shards)
    while left:
        answers = client.call_all([FunctionCall("rankd_sweep", [keys.meta], [_SWEPT_A_CALL]) for keys in left])
        left = [keys for keys, rest in zip(left, answers, strict=True) if rest]


def _verdict(answer: bytes) -> Verdict:
    # "other": another generation is being loaded, so this one is superseded.
    return Verdict.FENCED if answer == b"other" else Verdict(answer.decode())


def refusal(answer: bytes) -> Verdict:
    """Return the verdict of a refused write that is not retried; another generation counts as GAP."""
    return Verdict.GAP if answer == b"other" else Verdict(answer.decode())
