"""While a writer is at work, every read shows one instant of its instance."""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from tests.servers.load_bound import LoadBound

from rankd.domain.instance import InstanceKey
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE, Keep, Kept, Order, Ranking, Rules, Ties, sort_key
from rankd.projection.engine import EngineStore
from rankd.projection.port import Op, RankedEntry, RankedStanding, UpdateBatch, Verdict, walk

RUN_SECONDS = 2.0
WAIT_SECONDS_MAX = 60
PLAYERS = [f"p{n}" for n in range(3_000)]
ROWS = 1_500

# Grows only: nobody leaves and no score falls. In batch n every score sent is n * STEP or a little more.
GROWS = (InstanceKey("grows"), Rules(keep=Keep.BEST, ties=Ties.EARLIEST))
STEP = 1_000
# Comes and goes: from nobody to thousands and back, through every form the engine has for a board.
CHURNS = (InstanceKey("churns"), Rules(keep=Keep.LATEST, order=Order.ASC, ties=Ties.VALUE))
# Is written once: whatever is done beside it, it reads the same.
RESTS = (InstanceKey("rests"), Rules(keep=Keep.SUM, ties=Ties.PLAYER))


class Writer:
    """Applies batches until the time is over, all of them to both moving boards."""

    def __init__(self, engine: EngineStore, seed: int) -> None:
        self.engine = engine
        self.rng = random.Random(seed)
        self.over = threading.Event()

    def run(self) -> int:
        deadline = time.monotonic() + RUN_SECONDS
        batch = 0
        try:
            while time.monotonic() < deadline:
                batch += 1
                self.write(batch)
        finally:
            self.over.set()
        return batch

    def write(self, batch: int) -> None:
        rng = self.rng
        known = min(len(PLAYERS), 10 * batch)
        # Everybody known is in each batch, so that from its position on no score may be older.
        rows = [(0, Op.APPLY, player, batch * STEP + rng.randrange(5), batch) for player in range(known)]
        if batch % 7 == 0:
            rows.append((1, Op.CLEAR, 0, 0, 0))
        leave = batch % 3 == 2
        for _ in range(ROWS):
            op = Op.REMOVE if leave and rng.random() < 0.9 else Op.APPLY
            rows.append((1, op, rng.randrange(len(PLAYERS)), rng.randrange(-20, 20), rng.randrange(3)))
        rng.shuffle(rows)
        answer = self.engine.apply(
            UpdateBatch(
                instances=[GROWS, CHURNS],
                players=PLAYERS,
                instance=array("I", [row[0] for row in rows]),
                op=array("B", [row[1] for row in rows]),
                player=array("I", [row[2] for row in rows]),
                score=array("q", [row[3] for row in rows]),
                tie=array("q", [row[4] for row in rows]),
                after=batch - 1,
                upto=batch,
                ranks=Ranking.ORDINAL if batch % 5 == 0 else None,
            )
        )
        assert answer.verdict is Verdict.APPLIED


def in_order(rules: Rules, entries: list[RankedEntry]) -> None:
    keys = [sort_key(rules, Kept(entry.score, entry.tie), entry.player) for entry in entries]
    assert all(above < below for above, below in pairwise(keys))
    assert len({entry.player for entry in entries}) == len(entries)


def counted(entries: list[RankedEntry], ranking: Ranking) -> None:
    for above, below in pairwise(entries):
        level = above.score == below.score
        match ranking:
            case Ranking.ORDINAL:
                assert below.rank == above.rank + 1
            case Ranking.COMPETITION:
                assert below.rank == above.rank if level else below.rank > above.rank
            case Ranking.DENSE:
                assert below.rank == above.rank + (not level)


def read_pages(engine: EngineStore, rng: random.Random) -> None:
    for key, rules in (GROWS, CHURNS):
        ranking = rng.choice(list(Ranking))
        first = rng.choice([1, 1, 5, 500])
        page = engine.range(key, first, first + 299, ranking)
        in_order(rules, page.entries)
        counted(page.entries, ranking)
        assert len(page.entries) == max(0, min(300, page.total - first + 1))
        if first == 1 and page.entries:
            assert page.entries[0].rank == 1
        after = (Kept(rng.randrange(-20, 20), 1), "p5")
        following = engine.following(key, after, 50, ranking).entries
        in_order(rules, following)
        counted(following, ranking)
        assert all(
            sort_key(rules, Kept(entry.score, entry.tie), entry.player) > sort_key(rules, *after) for entry in following
        )


def read_neighbours(engine: EngineStore, rng: random.Random) -> None:
    for key, rules in (GROWS, CHURNS):
        around = engine.around(key, rng.choice(PLAYERS), 10, 10)
        if around is None:
            continue
        me = around.player
        entries = [*around.above, RankedEntry(me.rank, me.player, me.score, me.tie), *around.below]
        in_order(rules, entries)
        counted(entries, Ranking.ORDINAL)
        assert len(around.above) == min(10, me.rank - 1)
        assert len(around.below) == min(10, me.total - me.rank)
        assert me.better < me.rank <= me.total


def read_many(engine: EngineStore, rng: random.Random) -> None:
    asked = rng.sample(PLAYERS, 200)
    for key, rules in (GROWS, CHURNS):
        standings: list[RankedStanding] = [standing for standing in engine.ranks(key, asked) if standing is not None]
        # One instant: one total, and ranks that stand in the order of the scores shown with them.
        assert len({standing.total for standing in standings}) <= 1
        standings.sort(key=lambda standing: standing.rank)
        in_order(rules, [RankedEntry(s.rank, s.player, s.score, s.tie) for s in standings])
        for above, below in pairwise(standings):
            assert above.rank < below.rank
            assert above.better == below.better if above.score == below.score else above.better < below.better
        friends = engine.friends(key, asked)
        in_order(rules, [RankedEntry(friend.rank, friend.player, friend.score, friend.tie) for friend in friends])
        assert [friend.rank for friend in friends] == list(range(1, len(friends) + 1))
        assert all(above.global_rank < below.global_rank for above, below in pairwise(friends))


def read_statistics(engine: EngineStore, _rng: random.Random) -> None:
    key = GROWS[0]
    before = engine.total(key)
    count = engine.count(key, SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE)
    buckets = engine.histogram(key, 20)
    place = engine.rank_of_score(key, SCORE_MIN_POSSIBLE, 0)
    after = engine.total(key)
    assert before <= count <= sum(bucket.count for bucket in buckets) <= place.total <= after
    assert place.rank == place.total + 1
    for key, _ in (GROWS, CHURNS):
        quantiles = engine.quantiles(key, [0, 250_000, 500_000, 1_000_000])
        assert quantiles is None or quantiles == sorted(quantiles)
        engine.digest(key)


def read_what_rests(engine: EngineStore, rng: random.Random) -> None:
    key, rules = RESTS
    player = rng.randrange(1_000)
    assert engine.total(key) == 1_000
    assert engine.score(key, PLAYERS[player]) == Kept(player % 10, 0)
    entries = list(walk(engine, key, chunk=333))
    in_order(rules, entries)
    assert len(entries) == 1_000
    assert engine.digest(key) == engine.digest(key) != 0


def read_how_fresh(engine: EngineStore, rng: random.Random) -> None:
    asked = rng.sample(PLAYERS, 50)
    sequence = engine.position(0).sequence
    kept = engine.scores(GROWS[0], asked)
    total = engine.total(GROWS[0])
    later = engine.position(0).sequence
    assert sequence <= later
    # At least as new as the position read before, and of no batch that had not begun when the one after was read.
    assert total >= min(len(PLAYERS), 10 * sequence)
    for player, standing in zip(asked, kept, strict=True):
        if PLAYERS.index(player) < 10 * sequence:
            assert standing is not None
        if standing is not None:
            assert standing.tie * STEP <= standing.score < (standing.tie + 1) * STEP
            assert standing.tie <= later + 1
            if PLAYERS.index(player) < 10 * sequence:
                assert standing.tie >= sequence


READS: list[Callable[[EngineStore, random.Random], None]] = [
    read_pages,
    read_neighbours,
    read_many,
    read_statistics,
    read_what_rests,
    read_how_fresh,
]


def test_every_read_beside_a_writer_is_of_one_instant() -> None:
    seed = random.randrange(2**32)
    engine = EngineStore()
    engine.apply(
        UpdateBatch(instances=[RESTS], players=PLAYERS[:1_000], score=array("q", [n % 10 for n in range(1_000)]))
    )
    writer = Writer(engine, seed)

    def read(reader: int) -> int:
        rng = random.Random(seed + reader)
        rounds, bound = 0, LoadBound()
        while not writer.over.is_set() and bound.take():
            for read_once in READS:
                read_once(engine, rng)
            rounds += 1
        return rounds

    with ThreadPoolExecutor(max_workers=5) as pool:
        readers = [pool.submit(read, number) for number in range(1, 4)]
        batches = pool.submit(writer.run).result(timeout=WAIT_SECONDS_MAX)
        rounds = [reader.result(timeout=WAIT_SECONDS_MAX) for reader in readers]

    assert batches > 1
    assert min(rounds) > 0
    assert engine.position(0).sequence == batches
    assert engine.total(GROWS[0]) == min(len(PLAYERS), 10 * batches)
    engine.check()
