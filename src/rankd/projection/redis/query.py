"""One read under way: calls to the shards of a board, a round trip at a time, and what their heads add up to.

RedisQuery.every / RedisQuery.some → Client.call_all (one round trip) → Reply of each shard → RedisQuery.position
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.domain.position import tokens
from rankd.errors import RankingUnavailable
from rankd.projection.redis.client import Call
from rankd.projection.redis.forms import Form, read_described
from rankd.projection.redis.heads import Head, least_positions, read_head
from rankd.projection.redis.high_water import HighWater
from rankd.projection.redis.keys import ShardKeys, instance_name

Arguments = Sequence[bytes | int | str]


class Caller(Protocol):
    """What of the client a read needs."""

    def call_all(self, calls: Sequence[Call]) -> list[Any]:
        """Make calls and return their answers in order: one round trip per node."""
        ...


class EachCaller(Caller, Protocol):
    """What of the client is needed where some answers are worth more than none."""

    def call_each(self, calls: Sequence[Call]) -> list[Any]:
        """Make calls that only read; RanksUnavailable stands in place of an answer that is missing."""
        ...


class Reply(NamedTuple):
    """What one shard answered: `values` are none where nobody of this shard stands in the instance."""

    shard: int
    head: Head
    described: bytes  # none where nobody stands in the instance
    values: list[Any]

    @property
    def form(self) -> Form:
        """How this shard writes the scores of the instance."""
        return read_described(self.described).form

    @property
    def total(self) -> int:
        """How many of this shard stand in the instance."""
        return self.values[0] if self.values else 0


class RedisQuery:
    """One read of one instance."""

    def __init__(self, caller: Caller, instance: InstanceKey, shards: int, high_water: HighWater | None = None) -> None:
        """Nothing is asked yet; `high_water` notices shards that have lost something."""
        self._caller = caller
        self._name = instance_name(instance)
        self._heads: dict[tuple[int, bytes], Head] = {}
        self._totals: dict[int, int] = {}
        self._described: dict[int, bytes] = {}
        self.instance = instance
        self.shards = shards
        self.captured: dict[str, int] = {}
        self.metadata: dict[str, tuple[int, int]] = {}
        self._high_water = high_water
        self.has_lost = False  # whether a shard lacked what it had shown before
        self.is_estimated = False  # whether something of the answer is not exact

    def every(self, function: str, *arguments: bytes | int | str) -> list[Reply]:
        """Ask every shard the same in one round trip."""
        return self.some(function, [(shard, arguments) for shard in range(self.shards)])

    def some(self, function: str, questions: Sequence[tuple[int, Arguments]]) -> list[Reply]:
        """Ask shards, each as often and for whatever is listed, in one round trip; replies come in that order."""
        board = self.instance.board
        calls = [
            Call(function, (ShardKeys(board, shard).meta,), (self._name, *arguments), read_only=True)
            for shard, arguments in questions
        ]
        marks = self._high_water
        before = {} if marks is None else {shard: marks.of(board, shard) for shard, _ in questions}
        replies = []
        for (shard, _), (line, described, *values) in zip(questions, self._caller.call_all(calls), strict=True):
            head = read_head(line, board, shard)
            self._heads[shard, line] = head
            if marks is not None and marks.note(board, shard, head, before[shard]):
                self.has_lost = True
            reply = Reply(shard, head, described or b"", values)
            self._totals[shard] = reply.total
            self._described[shard] = reply.described
            replies.append(reply)
        return replies

    def at_once(
        self, function: str, pieces: Mapping[int, Sequence[Arguments]], whole: Callable[[int], Arguments]
    ) -> dict[int, list[Reply]]:
        """Ask shards in several calls each, so that none keeps Redis busy for long, for answers of one instant.

        One round trip. Where something was written to a shard between its calls, it is asked `whole` in another.
        """
        questions = [(shard, piece) for shard, several in pieces.items() for piece in several]
        answers: dict[int, list[Reply]] = {shard: [] for shard in pieces}
        for reply in self.some(function, questions):
            answers[reply.shard].append(reply)
        torn = [shard for shard, replies in answers.items() if len({reply.head.line for reply in replies}) > 1]
        if torn:
            for reply in self.some(function, [(shard, whole(shard)) for shard in torn]):
                answers[reply.shard] = [reply]
        return answers

    @property
    def total(self) -> int:
        """How many stand in the instance, in the shards asked so far, each as of its last reply.

        Of a board with exact_top, whose shards know how many are below it in all of them: everybody.
        """
        return max(self._everybody, self.top)

    @property
    def top(self) -> int:
        """How many of them have an exact place: everybody, but on boards with exact_top."""
        return sum(self._totals.values())

    @property
    def is_cut(self) -> bool:
        """Whether some, of all shards, which have been asked, stand below those who have an exact place."""
        return self._everybody > self.top

    @property
    def has_exact_top(self) -> bool:
        """Whether the instance, somewhere in which somebody stands, is one of which only the top is exact."""
        return any(read_described(told).exact_top for told in self._described.values() if told)

    @property
    def form(self) -> Form:
        """How some shard writes the scores of the instance, somewhere in which somebody stands."""
        return next(read_described(told).form for told in self._described.values() if told)

    @property
    def _everybody(self) -> int:
        told = [read_described(one) for one in self._described.values() if one]
        return max((one.total for one in told if one.exact_top), default=0)

    def check_dense(self, ranking: Ranking) -> None:
        """Refuse dense places on a board whose players are spread over shards."""
        if ranking is Ranking.DENSE and self.shards > 1:
            raise RankingUnavailable(
                f"{self.instance.board}: dense places cannot be counted over {self.shards} shards; "
                "ask for ordinal or competition"
            )

    def note_metadata(self, players: Sequence[str], found: Sequence[bytes | None] | None) -> None:
        """Keep the events that metadata came with."""
        for player, event in zip(players, found or (), strict=False):
            if event is not None:
                partition, sequence = event.split(b":")
                self.metadata[player] = int(partition), int(sequence)

    @property
    def position(self) -> str:
        """How far all that was asked is applied, as clients see it."""
        heads = self._heads.values()
        if len(heads) == 1:
            (head,) = heads
            return head.token
        return tokens({partition: one.sequence for partition, one in least_positions(heads).items()})


def form_of(replies: Sequence[Reply]) -> Form | None:
    """Return the form of the instance as any shard has it: for its order and ties; None where nobody stands in it."""
    return next((reply.form for reply in replies if reply.values), None)
