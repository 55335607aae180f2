"""A million rows of the kinds boards see, compared row by row with a plain dictionary and a sort.

A failure names its seed; `RANKD_SEED=<seed> pytest tests/property/test_stress.py` plays it again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rankd.domain.digest import digest
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Order, Ranking, Rules, Ties
from rankd.projection.engine import EngineStore
from rankd.projection.port import (
    Applied,
    Op,
    RankedAround,
    RankedEntry,
    RankedStanding,
    RowFlag,
    UpdateBatch,
    Verdict,
    walk,
)

Numbers = npt.NDArray[np.int64]

ROWS = 40_000  # for each of the six kinds
ROWS_LONG = 1_750_000
BATCH_ROWS = [1, 2, 30, 300, 3_000, 9_000]
POOLS = [20_000, 3_000, 300, 30]  # players of each board: blocks, trees, and what is in between
FULL_CHECKS = 5
SAMPLE = 200


@dataclass
class Board:
    """What a board must hold, kept in the plainest way: a dictionary, sorted when asked."""

    key: InstanceKey
    rules: Rules
    pool: int
    kept: dict[int, tuple[int, int]] = field(default_factory=dict)

    def apply(self, op: int, player: int, score: int, tie: int) -> tuple[int, int, int]:
        """Do one row; return its flags, and the scores before and after it (0 where there is none)."""
        if op == Op.CLEAR:
            was_empty = not self.kept
            self.kept.clear()
            return (0 if was_empty else int(RowFlag.SET)), 0, 0
        old = self.kept.get(player)
        new = None if op == Op.REMOVE else self.settled(op, old, score, tie)
        if new is None:
            self.kept.pop(player, None)
        else:
            self.kept[player] = new
        flags = (old is not None) * RowFlag.WAS_PRESENT.value + (new is not None) * RowFlag.IS_PRESENT.value
        flags += (old != new) * RowFlag.SET.value
        return flags, old[0] if old else 0, new[0] if new else 0

    def settled(self, op: int, old: tuple[int, int] | None, score: int, tie: int) -> tuple[int, int]:
        rules = self.rules
        if rules.ties is Ties.PLAYER:
            tie = 0
        if op == Op.PUT:
            return score, tie
        if rules.keep is Keep.SUM:
            score = min(max(score + (old[0] if old else 0), rules.score_min), rules.score_max)
        if old is None:
            return score, tie
        by_value = rules.ties is Ties.VALUE
        if rules.keep is Keep.FIRST:
            return old
        if rules.keep is Keep.BEST:
            better = score > old[0] if rules.order is Order.DESC else score < old[0]
            return (score, tie) if better or (score == old[0] and by_value and tie > old[1]) else old
        return old if score == old[0] and not by_value else (score, tie)

    def standings(self, id_places: Numbers) -> Standings:
        count = len(self.kept)
        players = np.fromiter(self.kept, dtype=np.int64, count=count)
        kept = np.array(list(self.kept.values()), dtype=np.int64).reshape(count, 2)
        score_keys = ~kept[:, 0] if self.rules.order is Order.DESC else kept[:, 0]
        tie_keys = -kept[:, 1] if self.rules.ties in (Ties.LATEST, Ties.VALUE) else kept[:, 1]
        order = np.lexsort((id_places[players], tie_keys, score_keys))
        sorted_scores = kept[order, 0]
        starts = np.ones(count, dtype=bool)
        starts[1:] = sorted_scores[1:] != sorted_scores[:-1]
        ordinal = np.arange(1, count + 1, dtype=np.int64)
        competition = np.maximum.accumulate(np.where(starts, ordinal, 0))
        return Standings(
            players=players[order],
            scores=sorted_scores,
            ties=kept[order, 1],
            ranks={
                Ranking.ORDINAL: ordinal,
                Ranking.COMPETITION: competition,
                Ranking.DENSE: np.cumsum(starts, dtype=np.int64),
            },
        )


@dataclass
class Standings:
    """Everybody in standing order, column by column."""

    players: Numbers
    scores: Numbers
    ties: Numbers
    ranks: dict[Ranking, Numbers]

    def __len__(self) -> int:
        return len(self.players)

    def entries(self, names: list[str], ranking: Ranking, first: int = 0, last: int | None = None) -> list[RankedEntry]:
        cut = slice(max(first, 0), last)
        columns = (self.ranks[ranking][cut], self.players[cut], self.scores[cut], self.ties[cut])
        return [
            RankedEntry(rank, names[player], score, tie)
            for rank, player, score, tie in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def standing(self, names: list[str], ranking: Ranking, place: int) -> RankedStanding:
        (entry,) = self.entries(names, ranking, place, place + 1)
        better = int(self.ranks[Ranking.COMPETITION][place]) - 1
        return RankedStanding(entry.rank, entry.player, entry.score, entry.tie, better, len(self))

    def rank_column(self, asked: Numbers, pool: int, ranking: Ranking) -> Numbers:
        """The rank of each player asked for, -1 where absent."""
        column = np.full(pool, -1, dtype=np.int64)
        column[self.players] = self.ranks[ranking]
        return column[asked]


@dataclass
class Rows:
    """The rows of one batch as columns; `player` is a number within the board's pool."""

    board: Numbers
    player: Numbers
    score: Numbers
    tie: Numbers
    op: Numbers

    def columns(self, names: list[str]) -> dict[str, Any]:
        used, player = np.unique(self.player, return_inverse=True)
        return {
            "players": [names[number] for number in used.tolist()],
            "player": player.astype(np.uint32),
            "score": self.score,
            "tie": self.tie,
            "instance": self.board.astype(np.uint32),
            "op": self.op.astype(np.uint8),
        }


Kind = Callable[[np.random.Generator, int, int, Numbers], tuple[Numbers, Numbers, Numbers]]


def uniform(rng: np.random.Generator, _done: int, size: int, pools: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    return rng.integers(0, pools), rng.integers(low, high, size, endpoint=True), rng.integers(0, 2**48, size)


def tie_heavy(rng: np.random.Generator, _done: int, size: int, pools: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    return rng.integers(0, pools), rng.integers(0, 21, size), np.full(size, 1_777_000_000, dtype=np.int64)


def skewed(rng: np.random.Generator, done: int, size: int, pools: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    score = np.minimum(rng.pareto(0.8, size) * 100, 2.0**52).astype(np.int64)
    return rng.zipf(1.2, size) % pools, score, np.arange(done, done + size) // 50


def growing(rng: np.random.Generator, done: int, size: int, pools: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    step = np.arange(done, done + size)
    return rng.integers(0, pools), step // 3, step // 10


def level(rng: np.random.Generator, _done: int, size: int, pools: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    return rng.integers(0, pools), np.full(size, 42, dtype=np.int64), rng.integers(0, 3, size)


ALL_KEEPS = list(Keep)
KINDS: dict[str, tuple[Kind, list[Keep], Order | None]] = {
    "uniform": (uniform, ALL_KEEPS, None),
    "tie-heavy": (tie_heavy, ALL_KEEPS, None),
    "skewed": (skewed, ALL_KEEPS, None),
    "growing, more is better": (growing, [Keep.BEST], Order.DESC),
    "growing, less is better": (growing, [Keep.LATEST], Order.ASC),
    "everybody level": (level, [Keep.BEST, Keep.LATEST, Keep.FIRST], None),
}


@contextmanager
def replayable() -> Iterator[int]:
    """Give a seed by the seed of the run, or by RANKD_SEED, and name it in a failure."""
    seed = int(os.environ.get("RANKD_SEED") or random.randrange(2**32))
    try:
        yield seed
    except BaseException as error:
        error.add_note(f"play it again with RANKD_SEED={seed}")
        raise


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_of_rows_leaves_what_a_plain_dictionary_would(kind: str, tmp_path: Path) -> None:
    with replayable() as seed:
        run(kind, ROWS, seed, tmp_path / "snapshot")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_stream_of_rows_leaves_what_a_plain_dictionary_would(kind: str, tmp_path: Path) -> None:
    with replayable() as seed:
        run(kind, ROWS_LONG, seed, tmp_path / "snapshot")


def run(kind: str, rows_total: int, seed: int, snapshot: Path) -> None:
    rng = np.random.default_rng(seed)
    draw, keeps, order = KINDS[kind]
    boards = [
        Board(InstanceKey(f"board{number}"), random_rules(rng, keeps, order), pool) for number, pool in enumerate(POOLS)
    ]
    names = random_names(rng, max(POOLS))
    id_places = np.empty(len(names), dtype=np.int64)
    id_places[sorted(range(len(names)), key=lambda player: names[player].encode())] = np.arange(len(names))
    engine = EngineStore()

    done, checked = 0, 0
    while done < rows_total:
        size = min(int(rng.choice(BATCH_ROWS)), rows_total - done)
        rows = random_rows(rng, draw, done, size)
        ranking = rng.choice([None, *Ranking], p=[0.7, 0.1, 0.1, 0.1])
        ranking = ranking and Ranking(ranking)
        dirty = sorted(set(rows.board.tolist()))
        before = {at: boards[at].standings(id_places) for at in dirty} if ranking else {}
        answer = engine.apply(
            UpdateBatch(
                instances=[(board.key, board.rules) for board in boards],
                **rows.columns(names),
                after=done,
                upto=done + size,
                ranks=ranking,
            )
        )
        compare_rows(boards, rows, answer)
        if ranking:
            after = {at: boards[at].standings(id_places) for at in dirty}
            compare_ranks(rows, answer.rank_before, ranking, before)
            compare_ranks(rows, answer.rank_after, ranking, after)
        done += size
        assert answer.position == engine.position(0) == (0, done)
        read_a_few(rng, engine, boards, names)
        if done * FULL_CHECKS // rows_total > checked:
            checked += 1
            engine.check()
            for board in boards:
                compare_everything(rng, engine, board, names, board.standings(id_places))

    compare_digests(engine, boards, names)
    engine.save(snapshot)
    loaded = EngineStore.load(snapshot)
    loaded.check()
    assert loaded.position(0) == engine.position(0)
    for board in boards:
        assert loaded.digest(board.key) == engine.digest(board.key)
        compare_everything(rng, loaded, board, names, board.standings(id_places))


def random_rules(rng: np.random.Generator, keeps: list[Keep], order: Order | None) -> Rules:
    low, high = [(-(2**63), 2**63 - 1), (-(2**53) + 1, 2**53 - 1), (-1_000, 1_000)][rng.integers(3)]
    return Rules(
        keeps[rng.integers(len(keeps))],
        order or list(Order)[rng.integers(2)],
        list(Ties)[rng.integers(4)],
        score_min=low,
        score_max=high,
    )


def random_names(rng: np.random.Generator, count: int) -> list[str]:
    stems = ["p", "player-", "日本-", "a-rather-long-name-for-somebody-who-plays-", "\U0001f600"]
    return [f"{stems[stem]}{number}" for number, stem in enumerate(rng.integers(0, len(stems), count).tolist())]


def random_rows(rng: np.random.Generator, draw: Kind, done: int, size: int) -> Rows:
    board = rng.choice(len(POOLS), size, p=[0.7, 0.15, 0.1, 0.05])
    player, score, tie = draw(rng, done, size, np.array(POOLS, dtype=np.int64)[board])
    op = rng.choice(len(Op), size, p=[0.94, 0.03, 0.0299, 0.0001])
    # A large board cleared again and again would never be large.
    op = np.where((op == Op.CLEAR) & (board == 0) & (rng.random(size) < 0.9), int(Op.APPLY), op)
    return Rows(board, player, score, tie, op)


def compare_rows(boards: list[Board], rows: Rows, answer: Applied) -> None:
    assert answer.verdict is Verdict.APPLIED
    expected = [
        boards[board].apply(op, player, score, tie)
        for board, op, player, score, tie in zip(
            rows.board.tolist(),
            rows.op.tolist(),
            rows.player.tolist(),
            rows.score.tolist(),
            rows.tie.tolist(),
            strict=True,
        )
    ]
    flags, old, new = np.array(expected, dtype=np.int64).T
    np.testing.assert_array_equal(np.asarray(answer.flags), flags)
    was, now = flags & RowFlag.WAS_PRESENT > 0, flags & RowFlag.IS_PRESENT > 0
    np.testing.assert_array_equal(np.asarray(answer.old_score)[was], old[was])
    np.testing.assert_array_equal(np.asarray(answer.new_score)[now], new[now])


def compare_ranks(rows: Rows, column: memoryview | None, ranking: Ranking, standings: dict[int, Standings]) -> None:
    assert column is not None
    answered = np.asarray(column)
    for at, board_standings in standings.items():
        here = rows.board == at
        expected = board_standings.rank_column(rows.player[here], POOLS[at], ranking)
        expected[rows.op[here] == Op.CLEAR] = -1
        np.testing.assert_array_equal(answered[here], expected)


def read_a_few(rng: np.random.Generator, engine: EngineStore, boards: list[Board], names: list[str]) -> None:
    for board in boards:
        assert engine.total(board.key) == len(board.kept)
        asked = rng.integers(0, board.pool, 5).tolist()
        expected = [Kept(*board.kept[player]) if player in board.kept else None for player in asked]
        assert engine.scores(board.key, [names[player] for player in asked]) == expected
        assert engine.score(board.key, names[asked[0]]) == expected[0]


def compare_everything(
    rng: np.random.Generator, engine: EngineStore, board: Board, names: list[str], standings: Standings
) -> None:
    key, total = board.key, len(standings)
    assert engine.total(key) == total
    assert (key in set(engine.instances())) == (total > 0)
    assert list(walk(engine, key, chunk=int(rng.integers(50, 10_000)))) == standings.entries(names, Ranking.ORDINAL)
    if total == 0:
        return
    places = rng.integers(0, total, SAMPLE).tolist()
    for ranking in Ranking:
        expected = [standings.standing(names, ranking, place) for place in places]
        assert engine.ranks(key, [standing.player for standing in expected], ranking) == expected
        for place, standing in zip(places[:20], expected, strict=False):
            assert engine.rank(key, standing.player, ranking) == standing
            assert engine.around(key, standing.player, 7, 5, ranking) == RankedAround(
                standings.entries(names, ranking, place - 7, place),
                standing,
                standings.entries(names, ranking, place + 1, place + 6),
            )
            page = engine.range(key, place + 1, place + 20, ranking)
            assert (page.entries, page.total) == (standings.entries(names, ranking, place, place + 20), total)
    scores = np.sort(standings.scores)
    for low, high in np.sort(rng.choice(scores, (20, 2)), axis=1).tolist():
        expected_count = np.searchsorted(scores, high, "right") - np.searchsorted(scores, low, "left")
        assert engine.count(key, low, high) == expected_count
    ppm = [0, 1, 500_000, 999_999, 1_000_000, *rng.integers(0, 1_000_001, 10).tolist()]
    assert engine.quantiles(key, ppm) == [int(scores[max(1, -(-q * total // 1_000_000)) - 1]) for q in ppm]
    assert sum(bucket.count for bucket in engine.histogram(key, 37)) == total


def compare_digests(engine: EngineStore, boards: list[Board], names: list[str]) -> None:
    for board in boards:
        held = ((names[player], score, tie) for player, (score, tie) in board.kept.items())
        assert engine.digest(board.key) == digest(held)
