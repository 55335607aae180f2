"""One read of an instance: calls to the board's shards, a round trip at a time, and the positions of the answer.

RedisQuery.every / RedisQuery.some → Caller.call_all (one round trip) → ShardReply of each → RedisQuery.position
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.domain.position import tokens
from rankd.errors import RankingUnavailable
from rankd.redis.connection.client import FunctionCall
from rankd.redis.forms import Form, InstanceForm, read_described
from rankd.redis.heads import ShardHead, least_positions, read_head
from rankd.redis.keys import ShardKeys, instance_name
from rankd.redis.read.high_water import HighWater

Arguments = Sequence[bytes | int | str]


class Caller(Protocol):
    """The part of the client that a read uses."""

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Make calls and return their answers in order: one round trip per node."""
        ...


class EachCaller(Caller, Protocol):
    """A caller that can return some answers when others fail."""

    def call_each(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Make read-only calls; RanksUnavailable stands in place of each missing answer."""
        ...


class ShardReply(NamedTuple):
    """The answer of one shard; `values` is empty where the shard has no player in the instance."""

    shard: int
    head: ShardHead
    described: bytes  # empty where the instance has no player
    values: list[Any]

    @property
    def form(self) -> Form:
        """The form of the instance on this shard."""
        return read_described(self.described).form

    @property
    def total(self) -> int:
        """The players of this shard in the instance."""
        return self.values[0] if self.values else 0


class RedisQuery:
    """One read of one instance."""

    def __init__(self, caller: Caller, instance: InstanceKey, shards: int, high_water: HighWater | None = None) -> None:
        """Nothing is read yet; `high_water` detects shards that have lost writes."""
        self._caller = caller
        self._name = instance_name(instance)
        self._heads: dict[tuple[int, bytes], ShardHead] = {}
        self._totals: dict[int, int] = {}
        self._described: dict[int, bytes] = {}
        self.instance = instance
        self.shards = shards
        self.captured: dict[str, int] = {}
        self.metadata: dict[str, tuple[int, int]] = {}
        self._high_water = high_water
        self.has_lost = False  # whether a shard is behind its high water
        self.is_estimated = False  # whether a part of the answer is an estimate

    def every(self, function: str, *arguments: bytes | int | str) -> list[ShardReply]:
        """Make the same call to every shard: one round trip."""
        return self.some(function, [(shard, arguments) for shard in range(self.shards)])

    def some(self, function: str, questions: Sequence[tuple[int, Arguments]]) -> list[ShardReply]:
        """Make calls to the listed shards, in one round trip; replies come in that order."""
        board = self.instance.board
        calls = [
            FunctionCall(function, (ShardKeys(board, shard).meta,), (self._name, *arguments), read_only=True)
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
            reply = ShardReply(shard, head, described or b"", values)
            self._totals[shard] = reply.total
            self._described[shard] = reply.described
            replies.append(reply)
        return replies

    def at_once(
        self, function: str, pieces: Mapping[int, Sequence[Arguments]], whole: Callable[[int], Arguments]
    ) -> dict[int, list[ShardReply]]:
        """Read each shard in several short calls, with one consistent state per shard: one round trip.

        A shard that was written between its calls is read again in a second round trip, by the single call `whole`.
        """
        questions = [(shard, piece) for shard, several in pieces.items() for piece in several]
        answers: dict[int, list[ShardReply]] = {shard: [] for shard in pieces}
        for reply in self.some(function, questions):
            answers[reply.shard].append(reply)
        torn = [shard for shard, replies in answers.items() if len({reply.head.line for reply in replies}) > 1]
        if torn:
            for reply in self.some(function, [(shard, whole(shard)) for shard in torn]):
                answers[reply.shard] = [reply]
        return answers

    @property
    def total(self) -> int:
        """The players in the instance, over the shards read so far, each as of its last reply.

        On a board with exact_top, each shard knows the number over all shards.
        """
        return max(self._total_with_tail, self.top)

    @property
    def top(self) -> int:
        """The players with an exact place: all of them, except on boards with exact_top."""
        return sum(self._totals.values())

    @property
    def is_cut(self) -> bool:
        """Whether some players have no exact place; the query has replies of all shards."""
        return self._total_with_tail > self.top

    @property
    def has_exact_top(self) -> bool:
        """Whether only the top of the instance is exact."""
        return any(instance.exact_top for instance in self._instance_forms())

    @property
    def form(self) -> Form:
        """The form of the instance on any shard; the instance has players."""
        return next(self._instance_forms()).form

    @property
    def _total_with_tail(self) -> int:
        return max((instance.total for instance in self._instance_forms() if instance.exact_top), default=0)

    def _instance_forms(self) -> Iterator[InstanceForm]:
        return (read_described(described) for described in self._described.values() if described)

    def check_dense(self, ranking: Ranking) -> None:
        """Refuse dense places on a board whose players are spread over shards."""
        if ranking is Ranking.DENSE and self.shards > 1:
            raise RankingUnavailable(
                f"{self.instance.board}: dense places cannot be counted over {self.shards} shards; "
                "ask for ordinal or competition"
            )

    def note_metadata(self, players: Sequence[str], events: Sequence[bytes | None] | None) -> None:
        """Store the events that carried the players' metadata."""
        for player, event in zip(players, events or (), strict=False):
            if event is not None:
                partition, sequence = event.split(b":")
                self.metadata[player] = int(partition), int(sequence)

    @property
    def position(self) -> str:
        """The lowest positions of all replies, as clients see them."""
        heads = self._heads.values()
        if len(heads) == 1:
            (head,) = heads
            return head.token
        return tokens({partition: position.sequence for partition, position in least_positions(heads).items()})


def form_of(replies: Sequence[ShardReply]) -> Form | None:
    """Return the form of the instance on any shard, for its order and ties; None where it has no player."""
    return next((reply.form for reply in replies if reply.values), None)
