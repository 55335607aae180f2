"""The one canonical workload: every contender and every row gets its players, scores and orders from here.

Players are `user_00000000`, 13 bytes; scores are uniform below SCORE_LIMIT, so that at ten million players some
tie. The seed is fixed: two runs, and all contenders of a run, see the same events in the same order.

Order is `asc` with ties by player: exactly that of a Redis sorted set read with ZRANK (score, then member bytewise),
so places are equal to the last one and checksums can be compared, ties included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankd.domain.order import Keep, Order, Rules, Ties

SEED = 20_261_115
SCORE_LIMIT = 1_000_000_000
PLAYERS_MAX = 100_000_000  # what eight digits can name
RULES = Rules(keep=Keep.LATEST, order=Order.ASC, ties=Ties.PLAYER)

_PREFIX = np.frombuffer(b"user_", dtype=np.uint8)
_DIGITS = 8
_LINE_BYTES = len(_PREFIX) + _DIGITS + 1


def player_ids(numbers: NDArray[np.int64]) -> list[str]:
    """Make fresh id strings, lying one after the other in memory as a server that decoded a request has them.

    >>> player_ids(np.array([7, 12_345_678]))
    ['user_00000007', 'user_12345678']
    """
    if len(numbers) == 0:
        return []
    lines = np.empty((len(numbers), _LINE_BYTES), dtype=np.uint8)
    lines[:, : len(_PREFIX)] = _PREFIX
    rest = numbers.astype(np.uint32)
    for column in range(_LINE_BYTES - 2, len(_PREFIX) - 1, -1):
        lines[:, column] = rest % 10 + ord("0")
        rest //= 10
    lines[:, -1] = ord("\n")
    return lines.tobytes().decode("ascii").splitlines()


@dataclass(frozen=True, slots=True)
class Events:
    """Who gets which score, in order."""

    numbers: NDArray[np.int64]
    scores: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    def ids(self) -> list[str]:
        return player_ids(self.numbers)

    def batches(self, rows: int) -> Iterator[Events]:
        for first in range(0, len(self), rows):
            yield Events(self.numbers[first : first + rows], self.scores[first : first + rows])


class Workload:
    """Streams events about a fixed number of players; nothing the size of the board is ever held here."""

    def __init__(self, players: int, stream: int = 0) -> None:
        if not 1 <= players <= PLAYERS_MAX:
            raise ValueError(f"players must be from 1 to {PLAYERS_MAX:,}, not {players:,}")
        self.players = players
        self._rng = np.random.default_rng([SEED, players, stream])

    def scores(self, count: int) -> NDArray[np.int64]:
        return self._rng.integers(0, SCORE_LIMIT, count, dtype=np.int64)

    def joining(self, batch_rows: int) -> Iterator[Events]:
        """Every player once, in random order, with a random score."""
        for first in range(0, self.players, batch_rows):
            numbers = np.arange(first, min(first + batch_rows, self.players), dtype=np.int64)
            yield Events(shuffled(numbers, self.players), self.scores(len(numbers)))

    def updates(self, count: int) -> Events:
        """Random players that exist, with fresh random scores."""
        return Events(self.numbers(count), self.scores(count))

    def numbers(self, count: int) -> NDArray[np.int64]:
        return self._rng.integers(0, self.players, count, dtype=np.int64)

    def permutation(self, count: int) -> NDArray[np.int64]:
        return self._rng.permutation(count)

    def ids(self, count: int) -> list[str]:
        """Random players that exist, as fresh strings."""
        return player_ids(self.numbers(count))


def shuffled(numbers: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Map the numbers below `size` one to one onto themselves, as if at random, without holding a permutation.

    Each step (xor-shift, odd multiplier) is a bijection of the next power of two; values that land at or above
    `size` are mapped again until they do not.

    >>> sorted(shuffled(np.arange(1000), 1000).tolist()) == list(range(1000))
    True
    """
    bits = max(2, (size - 1).bit_length())
    mask = np.uint64((1 << bits) - 1)
    shift = np.uint64((bits + 1) // 2)

    def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        for multiplier in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03):
            values = ((values ^ (values >> shift)) * np.uint64(multiplier)) & mask
        return values ^ (values >> shift)

    places = mixed(numbers.astype(np.uint64))
    while (outside := places >= np.uint64(size)).any():
        places[outside] = mixed(places[outside])
    return places.astype(np.int64)
