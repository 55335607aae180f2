"""The state of a board in Redis as its writer knows it: positions, generations, and the form of each instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankd.projection.port import Position
from rankd.redis.connection.client import FunctionCall, RedisClient
from rankd.redis.forms import Form, read_described
from rankd.redis.keys import ShardKeys

FIRST_GENERATION = 1


@dataclass(slots=True)
class StoredBoard:
    """A board's state as read from Redis; its writer keeps generations and forms up to date."""

    board: str
    positions: list[dict[int, Position] | None]  # by shard, as read
    generations: list[int]  # by shard
    odd: set[bytes]  # instances whose form differs between shards, after one was rolled back: to be rewritten
    forms: dict[bytes, tuple[Form, bool]]  # by instance: its form, and whether it keeps distinct scores


def read_boards(client: RedisClient, shards: Mapping[str, int]) -> dict[str, StoredBoard]:
    """Read the state of every shard of some boards: one round trip per node."""
    metas = [ShardKeys(board, shard).meta for board, count in shards.items() for shard in range(count)]
    answers = iter(client.call_all([FunctionCall("rankd_state", [meta], read_only=True) for meta in metas]))
    return {board: _known(board, [next(answers) for _ in range(count)]) for board, count in shards.items()}


def _known(board: str, answers: Sequence[Any]) -> StoredBoard:
    known = StoredBoard(board, [], [], set(), {})
    for generation, _, positions, described in answers:
        known.positions.append(positions_in(positions))
        known.generations.append(int(generation) if generation else FIRST_GENERATION)
        for name, value in zip(described[::2], described[1::2], strict=True):
            instance = read_described(value)
            earlier = known.forms.setdefault(name, (instance.form, instance.dense))
            if earlier != (instance.form, instance.dense):
                known.odd.add(name)
                if not instance.form.is_packed:
                    known.forms[name] = instance.form, instance.dense
    return known


def positions_in(flat: Sequence[bytes]) -> dict[int, Position] | None:
    """Parse the positions in a function's answer; None when the shard is missing."""
    positions = {}
    for field, value in zip(flat[::2], flat[1::2], strict=True):
        epoch, _, sequence = value.partition(b":")
        positions[int(field[1:])] = Position(int(epoch), int(sequence))
    return positions or None
