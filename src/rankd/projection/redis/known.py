"""What a writer knows of a board in Redis: positions, generations, and the form of each instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankd.projection.port import Position
from rankd.projection.redis.client import Call, Client
from rankd.projection.redis.forms import Form, read_described
from rankd.projection.redis.keys import ShardKeys

FIRST_GENERATION = 1


@dataclass(slots=True)
class KnownBoard:
    """A board as it was found, kept up to date by the one who writes it."""

    board: str
    positions: list[dict[int, Position] | None]  # by shard, when it was looked at
    generations: list[int]  # by shard
    odd: set[bytes]  # instances that shards have in different forms, since one was rolled back: to be written anew
    forms: dict[bytes, tuple[Form, bool]]  # by instance: how it is written, and whether distinct scores are kept


def look_at(client: Client, shards: Mapping[str, int]) -> dict[str, KnownBoard]:
    """Ask every shard of some boards what it has: one round trip per node."""
    asked = [ShardKeys(board, shard).meta for board, count in shards.items() for shard in range(count)]
    answers = iter(client.call_all([Call("rankd_look", [meta], read_only=True) for meta in asked]))
    return {board: _known(board, [next(answers) for _ in range(count)]) for board, count in shards.items()}


def _known(board: str, answers: Sequence[Any]) -> KnownBoard:
    known = KnownBoard(board, [], [], set(), {})
    for generation, _, positions, described in answers:
        known.positions.append(positions_in(positions))
        known.generations.append(int(generation) if generation else FIRST_GENERATION)
        for name, value in zip(described[::2], described[1::2], strict=True):
            found = read_described(value)
            earlier = known.forms.setdefault(name, (found.form, found.dense))
            if earlier != (found.form, found.dense):
                known.odd.add(name)
                if not found.form.is_packed:
                    known.forms[name] = found.form, found.dense
    return known


def positions_in(flat: Sequence[bytes]) -> dict[int, Position] | None:
    """Read positions as functions answer them; None when there are none, for then the shard is not there."""
    positions = {}
    for field, value in zip(flat[::2], flat[1::2], strict=True):
        epoch, _, sequence = value.partition(b":")
        positions[int(field[1:])] = Position(int(epoch), int(sequence))
    return positions or None
