"""The contender under test: the native engine, through the rank-store port, returning what a user gets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.contender import AROUND, TOP, Call, Timed
from benchmarks.workload import RULES, Events
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking, Rules, Ties
from rankd.projection.engine import EngineStore
from rankd.projection.port import RankedAround, RankedPage, RankedStanding, RowFlag, UpdateBatch, Verdict

ROWS_A_SECOND = 100_000


class Engine:
    """One board in an EngineStore. Ids are lists of `str`, scores NumPy arrays, both made before the clock starts."""

    name = "rankd"
    calls_share = 1.0

    def __init__(self, store: EngineStore | None = None, board: str = "bench", rules: Rules = RULES) -> None:
        self.store = EngineStore() if store is None else store
        self.instance = InstanceKey(board)
        self.rules = rules
        self.ranks_with_updates: Ranking | None = None

    def batch(self, ids: Sequence[str], scores: NDArray[np.int64], after: int) -> UpdateBatch:
        return UpdateBatch(
            instances=[(self.instance, self.rules)],
            players=ids,
            score=scores.data,
            tie=None if self.rules.ties is Ties.PLAYER else np.full(len(scores), _second(after), np.int64).data,
            after=after,
            upto=after + len(scores),
            ranks=self.ranks_with_updates,
        )

    def update(self, events: Events, batch_rows: int, resident_ids: Sequence[str] | None = None) -> Timed:
        """Apply the events; each batch's ids are fresh strings unless they are to be picked from a resident list."""
        position = self.store.position(0).sequence
        elapsed_ns = changed = 0
        for some in events.batches(batch_rows):
            ids = some.ids() if resident_ids is None else [resident_ids[number] for number in some.numbers.tolist()]
            batch = self.batch(ids, some.scores, position)
            began_ns = time.perf_counter_ns()
            applied = self.store.apply(batch)
            elapsed_ns += time.perf_counter_ns() - began_ns
            if applied.verdict is not Verdict.APPLIED:
                raise RuntimeError(f"a batch was answered with {applied.verdict}")
            changed += int(np.count_nonzero(np.frombuffer(applied.flags, dtype=np.uint8) & RowFlag.SET))
            position = batch.upto
        return Timed(len(events), elapsed_ns, changed)

    def ranks(self, players: Sequence[str], batch_players: int) -> Timed:
        elapsed_ns = places = 0
        for first in range(0, len(players), batch_players):
            some = players[first : first + batch_players]
            began_ns = time.perf_counter_ns()
            standings = self.store.ranks(self.instance, some)
            elapsed_ns += time.perf_counter_ns() - began_ns
            places += sum(standing.rank for standing in standings if standing is not None)
        return Timed(len(players), elapsed_ns, places)

    def rank_call(self) -> Call:
        return Call(partial(self.store.rank, self.instance), _place)

    def around_call(self) -> Call:
        return Call(partial(self.store.around, self.instance, above=AROUND, below=AROUND), _places_and_scores_around)

    def top_call(self) -> Call:
        store, instance = self.store, self.instance
        return Call(lambda _: store.range(instance, 1, TOP), _places_and_scores)


def _second(row: int) -> int:
    """The time step of a row, as if ROWS_A_SECOND came in since some day in 2026."""
    return 1_790_000_000 + row // ROWS_A_SECOND


def _place(standing: RankedStanding) -> int:
    return standing.rank


def _places_and_scores_around(around: RankedAround) -> int:
    neighbours = sum(entry.rank + entry.score for entry in around.above + around.below)
    return neighbours + around.player.rank + around.player.score


def _places_and_scores(page: RankedPage) -> int:
    return sum(entry.rank + entry.score for entry in page.entries)
