"""A random board in the reference store and in Redis, and every read asked of both."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.batches import batch_of_rows
from tests.servers.mirrored import KeepingReader, MirroredStore

from rankd.domain.instance import InstanceKey
from rankd.domain.order import (
    SCORE_BOUND_DEFAULT,
    SCORE_MAX_POSSIBLE,
    SCORE_MIN_POSSIBLE,
    TIE_FIELD_MAX,
    Keep,
    Kept,
    Order,
    Ranking,
    Rules,
    Ties,
)
from rankd.domain.position import tokens
from rankd.projection.engine import EngineStore
from rankd.projection.port import READ_ENTRIES_MAX
from rankd.projection.reference import ReferenceStore
from rankd.redis.connection.client import FunctionCall, RedisClient
from rankd.redis.forms import choose_form

Row = tuple[str, int, int]
LOW, HIGH = SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE
ENDS = [LOW, LOW + 1, -1, 0, 1, HIGH - 1, HIGH]
ID_BEGINNINGS = ["p", "é", "日本", "\0", "😀", "\uffff", "z" * 100]
BOARD_NUMBERS = count(1)  # boards that share a server have names of their own
ABSENT = ["nobody", "", "x" * 129, "\ud800"]

# What the scores of a board are like, each with the bounds that a definition would have.
DEFAULT = SCORE_BOUND_DEFAULT
SCORES: dict[str, tuple[int, int, Callable[[random.Random], int]]] = {
    "few": (-20, 20, lambda rng: rng.randint(-20, 20)),
    "almost one": (0, 10, lambda rng: rng.choice([5, 5, 5, 5, 5, 6])),
    "one number in the prefixed form": (LOW, HIGH, lambda rng: 8_192 + rng.randrange(2_048)),
    "some such numbers": (LOW, HIGH, lambda rng: 8_192 + rng.randrange(10_000)),
    "far from zero": (-(2**62), -(2**62) + 10**9, lambda rng: -(2**62) + rng.randrange(10**9)),
    "large neighbours": (-(2**62), 2**62, lambda rng: 2**61 + 2_048 * rng.randrange(-9, 9) + rng.randrange(3)),
    "as by default": (
        -DEFAULT,
        DEFAULT,
        lambda rng: rng.choice(
            [-DEFAULT, DEFAULT, 0, rng.randint(-3, 3), DEFAULT - rng.randrange(5), rng.randint(-DEFAULT, DEFAULT)]
        ),
    ),
    "a number and its sign": (
        0,
        2**53,
        lambda rng: rng.choice([0, 1, 2**53 - rng.randrange(3), rng.randint(0, 2**53)]),
    ),
    "64 bits": (LOW, HIGH, lambda rng: rng.choice([*ENDS, rng.randint(LOW, HIGH)])),
}


class Counting:
    """A client that counts round trips."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self.round_trips = 0

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        self.round_trips += 1
        assert all(call.read_only for call in calls)
        return self._client.call_all(calls)


@dataclass
class Comparison:
    """One instance in both stores; `most_round_trips` are those of the worst call of each read."""

    rows: list[Row]
    rules: Rules
    key: InstanceKey
    shards: int
    reference: ReferenceStore | EngineStore
    mirrored: MirroredStore
    counting: Counting
    most_round_trips: dict[str, int] = field(default_factory=dict)

    @property
    def reader(self) -> KeepingReader:
        return KeepingReader(self.counting, lambda _: self.shards)

    @property
    def players(self) -> list[str]:
        return [player for player, _, _ in self.rows]

    @property
    def rankings(self) -> list[Ranking]:
        return list(Ranking) if self.shards == 1 else [Ranking.ORDINAL, Ranking.COMPETITION]

    def same(self, read: str, *arguments: Any) -> None:
        """Ask both the same and compare the answers."""
        self.counting.round_trips = 0
        reader = self.reader
        result = getattr(reader, read)(self.key, *arguments)
        trips = self.counting.round_trips
        self.most_round_trips[read] = max(self.most_round_trips.get(read, 0), trips)
        assert result == getattr(self.reference, read)(self.key, *arguments), (read, arguments)
        assert reader.query.position == tokens({0: self.mirrored.position(0).sequence})

    def ask_everything(self, rng: random.Random, times: int) -> None:
        """Ask every read `times` times, at random places of the board and beyond its ends."""
        _, _, score_of = next(
            case for case in SCORES.values() if case[:2] == (self.rules.score_min, self.rules.score_max)
        )
        room = 1 << choose_form(self.rules).tie_bits  # tie fields from here on do not fit in the packed form
        self.same("total")
        self.same("digest")
        for _ in range(times):
            ranking = rng.choice(self.rankings)
            player = rng.choice([*self.players, *ABSENT])
            group = [rng.choice([*self.players, *ABSENT]) for _ in range(rng.choice([0, 1, 30]))]
            beyond = [max(LOW, self.rules.score_min - 1), min(HIGH, self.rules.score_max + 1)]
            score, other = (rng.choice([score_of(rng), score_of(rng), *ENDS, *beyond]) for _ in range(2))
            tie = rng.choice([0, 1, 2, room - 1, room, TIE_FIELD_MAX])
            first = rng.randint(1, len(self.rows) + 5)
            many = rng.choice([1, 2, 20, READ_ENTRIES_MAX])
            self.same("score", player)
            self.same("scores", group)
            self.same("rank", player, ranking)
            self.same("ranks", group, ranking)
            self.same("friends", group, ranking)
            self.same("captured", player)
            self.same("range", first, first + rng.choice([-2, 0, 10, READ_ENTRIES_MAX - 1]), ranking)
            self.same("range", 1, many, ranking)
            self.same("following", None, many, ranking)
            self.same("following", (Kept(score, tie), rng.choice(["", "p", "\U0010ffff"])), many, ranking)
            if self.rows:
                there, its_score, its_tie = rng.choice(self.rows)
                self.same("following", (Kept(its_score, its_tie), there), many, ranking)
            self.same("around", player, rng.choice([0, 3, READ_ENTRIES_MAX]), rng.choice([0, 3, 500]), ranking)
            self.same("rank_of_score", score, tie, ranking)
            self.same("count", min(score, other), max(score, other))
            self.same("quantiles", [rng.randint(0, 1_000_000) for _ in range(rng.choice([0, 1, 20]))])
            self.same("histogram", rng.choice([1, 2, 7, 50, 1_000]))


def random_rows(rng: random.Random, score_of: Callable[[random.Random], int], players: int) -> list[Row]:
    """Players with ids of every length and script, and few different tie fields."""
    return [(f"{rng.choice(ID_BEGINNINGS)}{n}", score_of(rng), rng.randrange(4)) for n in range(players)]


def comparison(
    client: RedisClient,
    shards: int,
    rows: list[Row],
    rules: Rules,
    reference: ReferenceStore | EngineStore | None = None,
) -> Comparison:
    """Write the rows to both stores.

    A board of many thousands is compared with the engine: the reference would sort it for every read.
    """
    key = InstanceKey(f"arcade{next(BOARD_NUMBERS)}", "weekly:2026-W18", "country:BR")
    reference, mirrored = reference or ReferenceStore(), MirroredStore(client, shards)
    mirrored.total(key)  # makes the board, also where nobody will stand on it
    for store in (reference, mirrored):
        store.apply(batch_of_rows((key, rules), rows, upto=len(rows)))
        store.capture(key)
    if rules.ties is Ties.PLAYER:
        rows = [(player, score, 0) for player, score, _ in rows]
    return Comparison(rows, rules, key, shards, reference, mirrored, Counting(client))


def random_comparison(client: RedisClient, shards: int, kind: str, rng: random.Random, players: int) -> Comparison:
    """Make a board of one kind of scores, in any order and with any ties."""
    low, high, score_of = SCORES[kind]
    order, ties = rng.choice(list(Order)), rng.choice(list(Ties))
    rules = Rules(keep=Keep.LATEST, order=order, ties=ties, score_min=low, score_max=high)
    return comparison(client, shards, random_rows(rng, score_of, players), rules)
