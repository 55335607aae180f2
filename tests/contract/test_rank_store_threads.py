"""Every method may be called from any thread, and a read sees one instant of its instance."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from tests.batches import batch_of_rows
from tests.servers.load_bound import LoadBound

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Ranking, Rules
from rankd.projection.port import RankStore, Verdict

KEY = InstanceKey("arcade")
BATCHES = 60


def test_reads_beside_a_writer_are_each_of_one_instant(store: RankStore) -> None:
    board = (KEY, Rules(keep=Keep.LATEST))
    players = [f"p{n}" for n in range(50)]
    done = threading.Event()

    def write() -> None:
        try:
            for batch in range(BATCHES):
                rows = [(player, (batch + 1) * 1_000 + n * 7 % 50) for n, player in enumerate(players)]
                answer = store.apply(batch_of_rows(board, rows, after=batch * 50, upto=(batch + 1) * 50))
                assert answer.verdict is Verdict.APPLIED
        finally:
            done.set()

    def read() -> int:
        reads, bound = 0, LoadBound()
        while bound.take() and (not done.is_set() or reads == 0):
            position = store.position(0)
            page = store.range(KEY, 1, 100)
            assert len(page.entries) == page.total
            assert [entry.rank for entry in page.entries] == list(range(1, page.total + 1))
            assert all(above.score > below.score for above, below in pairwise(page.entries))
            assert len({entry.player for entry in page.entries}) == page.total
            # What a read shows is at least as new as a position read before it.
            assert all(entry.score >= position.sequence // 50 * 1_000 for entry in page.entries)
            standing = store.rank(KEY, "p7", Ranking.COMPETITION)
            assert standing is None or standing.rank == standing.better + 1 <= standing.total
            for place in store.ranks(KEY, players):
                assert place is None or place.rank <= place.total
            store.digest(KEY)
            assert set(store.instances()) <= {KEY}
            reads += 1
        return reads

    with ThreadPoolExecutor(max_workers=3) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        writer = pool.submit(write)
        writer.result(timeout=60)
        assert all(reader.result(timeout=60) > 0 for reader in readers)
    assert store.position(0).sequence == BATCHES * 50


def test_writers_of_several_partitions_lose_nothing(store: RankStore) -> None:
    board = (KEY, Rules(keep=Keep.SUM))

    def write(partition: int) -> None:
        for batch in range(BATCHES):
            rows = [("shared", 1), (f"own{partition}", 1)]
            answer = store.apply(batch_of_rows(board, rows, partition=partition, after=batch, upto=batch + 1))
            assert answer.verdict is Verdict.APPLIED

    with ThreadPoolExecutor(max_workers=4) as pool:
        for writer in [pool.submit(write, partition) for partition in range(4)]:
            writer.result(timeout=60)

    assert [kept and kept.score for kept in store.scores(KEY, ["shared", "own0", "own3"])] == [
        4 * BATCHES,
        BATCHES,
        BATCHES,
    ]


def test_one_of_many_writers_with_the_same_batch_applies_it(store: RankStore) -> None:
    board = (KEY, Rules(keep=Keep.SUM))
    for batch in range(BATCHES):
        together = threading.Barrier(4)

        def write(after: int, together: threading.Barrier) -> Verdict:
            rows = batch_of_rows(board, [("ann", 1)], after=after, upto=after + 1)
            together.wait(timeout=60)
            return store.apply(rows).verdict

        with ThreadPoolExecutor(max_workers=4) as pool:
            verdicts = [writer.result(timeout=60) for writer in [pool.submit(write, batch, together) for _ in range(4)]]
        assert sorted(verdicts) == [Verdict.APPLIED, Verdict.DUP, Verdict.DUP, Verdict.DUP]

    kept = store.score(KEY, "ann")
    assert kept is not None
    assert kept.score == BATCHES
