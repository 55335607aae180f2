"""The engine and the reference do the same, side by side, whatever is asked of them."""

from __future__ import annotations

import random
import tempfile
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rankd.domain.instance import InstanceKey
from rankd.domain.order import (
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
from rankd.errors import InvalidValue, MalformedBatch
from rankd.projection.counting import CountingStore
from rankd.projection.port import READ_ENTRIES_MAX, Applied, Op, RankStore, UpdateBatch, walk
from rankd.projection.reference import ReferenceStore
from rankd.projection.saving import Saving

pytestmark = pytest.mark.timeout(300)  # thousands of steps
DAY = "daily:2026-05-04"
KEYS = [
    InstanceKey("arcade"),
    InstanceKey("arcade", DAY),
    InstanceKey("arcade", DAY, "level:7"),
    InstanceKey("arcade", DAY, "level:8"),
    InstanceKey("xp"),
]
NOWHERE = InstanceKey("nowhere")
PARTITIONS = 3

# Few of each, so that ties, repeats and neighbours at the ends of a range are common.
PLAYERS = [
    "a",
    "aa",
    "ab",
    "b",
    "abcdefgh",
    "abcdefghi",
    "é",
    "日本",
    "\uffff",
    "\U00010000",
    "x" * 127,
    "x" * 128,
    "\0",
]
ABSENT = ["nobody", "", "x" * 129, "\ud800"]
SCORES = [0, 1, 2, 3, -1, SCORE_MAX_POSSIBLE, SCORE_MAX_POSSIBLE - 1, SCORE_MIN_POSSIBLE, SCORE_MIN_POSSIBLE + 1, 2**53]
TIES = [0, 1, 2, TIE_FIELD_MAX]
BOUNDS = [(-(2**53) + 1, 2**53 - 1), (SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE), (-2, 2), (0, 0)]

keys = st.sampled_from([*KEYS, NOWHERE])
rankings = st.sampled_from(Ranking)
players = st.sampled_from([*PLAYERS, *PLAYERS, "p1", "p77", "p499", *ABSENT])
scores = st.sampled_from(SCORES) | st.integers(-5, 5)
ties = st.sampled_from(TIES)
places = st.integers(-1, 40) | st.sampled_from([499, 500, 501, 2_999, READ_ENTRIES_MAX, READ_ENTRIES_MAX + 1, 2**63])
rules = st.builds(
    lambda keep, order, tied, bounds: Rules(keep, order, tied, *bounds),
    st.sampled_from(Keep),
    st.sampled_from(Order),
    st.sampled_from(Ties),
    st.sampled_from(BOUNDS),
)
rows = st.tuples(
    st.sampled_from([Op.APPLY] * 6 + [Op.PUT, Op.PUT, Op.REMOVE, Op.REMOVE, Op.CLEAR]),
    st.sampled_from(range(len(KEYS))),
    st.sampled_from(PLAYERS),
    scores,
    ties,
)
Row = tuple[Op, int, str, int, int]


def outcome(call: Callable[[], object]) -> object:
    """What a call answers, or in which way it is refused, in a form that compares."""
    try:
        answer = call()
    except InvalidValue as error:
        return InvalidValue, error.field
    except MalformedBatch as error:
        return MalformedBatch, error.row
    except TypeError:
        return TypeError
    if isinstance(answer, Applied):
        changes = [answer.row(index) for index in range(len(answer))]
        return answer.verdict, answer.position, changes, list(answer.flags), answer.rank_before is None
    return answer


def copy_of(store: ReferenceStore) -> ReferenceStore:
    """A reference that holds the same, and keeps it."""
    copy = ReferenceStore()
    copy._positions = dict(store._positions)
    copy._instances = {
        key: replace(instance, kept=dict(instance.kept), captured=dict(instance.captured))
        for key, instance in store._instances.items()
    }
    return copy


class EngineBesideReference(RuleBasedStateMachine):
    """Every rule does one thing to both stores and compares what they answer."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = CountingStore()
        self.reference = ReferenceStore()
        self.board_rules: list[Rules] = []
        self.folder = tempfile.TemporaryDirectory()
        self.saving: tuple[Saving, ReferenceStore] | None = None

    def teardown(self) -> None:
        self.folder.cleanup()

    def both(self, call: Callable[[RankStore], object]) -> object:
        expected = outcome(lambda: call(self.reference))
        assert outcome(lambda: call(self.engine)) == expected
        return expected

    @initialize(
        drawn=st.lists(rules, min_size=len(KEYS), max_size=len(KEYS)),
        size=st.integers(0, 200),
        seed=st.integers(0, 2**32),
    )
    def define_and_fill(self, drawn: list[Rules], size: int, seed: int) -> None:
        self.board_rules = drawn
        self.apply_many_rows(size, seed, spread=5, ranks=None)

    # Writing

    def apply(self, batch_rows: Sequence[Row], partition: int = 0, ranks: Ranking | None = None, **fields: Any) -> None:
        epoch, after = self.reference.position(partition)
        table = sorted({player for _, _, player, _, _ in batch_rows}, key=hash)
        at = {player: index for index, player in enumerate(table)}
        batch = UpdateBatch(
            instances=list(zip(KEYS, self.board_rules, strict=True)),
            players=table,
            score=array("q", [row[3] for row in batch_rows]),
            tie=array("q", [row[4] for row in batch_rows]),
            instance=array("I", [row[1] for row in batch_rows]),
            player=array("I", [at[row[2]] for row in batch_rows]),
            op=array("B", [row[0] for row in batch_rows]),
            partition=partition,
            epoch=epoch,
            after=after,
            upto=after + len(batch_rows),
            ranks=ranks,
        )
        self.both(lambda store: store.apply(replace(batch, **fields)))

    @rule(
        batch_rows=st.lists(rows, max_size=12),
        partition=st.integers(0, PARTITIONS - 1),
        ranks=st.none() | rankings,
    )
    def apply_a_few_rows(self, batch_rows: list[Row], partition: int, ranks: Ranking | None) -> None:
        self.apply(batch_rows, partition, ranks)

    @rule(
        size=st.integers(0, 200),
        seed=st.integers(0, 2**32),
        spread=st.sampled_from([1, 5, 1_000]),
        ranks=st.none() | rankings,
    )
    def apply_many_rows(self, size: int, seed: int, spread: int, ranks: Ranking | None) -> None:
        rng = random.Random(seed)
        known = [*PLAYERS, *(f"p{n}" for n in range(rng.choice([0, 30, 500])))]
        ops = [Op.APPLY] * 12 + [Op.PUT, Op.REMOVE]
        batch_rows = [
            (
                rng.choice(ops),
                rng.randrange(len(KEYS)),
                rng.choice(known),
                rng.randint(-spread, spread),
                rng.choice(TIES),
            )
            for _ in range(size)
        ]
        self.apply(batch_rows, ranks=ranks)

    @rule(
        board=st.integers(0, len(KEYS) - 1),
        size=st.integers(500, 3_000),
        seed=st.integers(0, 2**32),
        spread=st.sampled_from([0, 20, 2**62]),
        ranks=st.none() | rankings,
    )
    def grow_past_a_block(self, board: int, size: int, seed: int, spread: int, ranks: Ranking | None) -> None:
        rng = random.Random(seed)
        everybody = rng.sample(range(size), size)
        self.apply(
            [(Op.APPLY, board, f"p{n}", rng.randint(-spread, spread), rng.choice(TIES)) for n in everybody], ranks=ranks
        )
        # Straight away, since the next rule may well make the board small again.
        key = KEYS[board]
        for n in everybody[:2]:
            self.read_one(key, f"p{n}")
            self.read_around(key, f"p{n}", above=5, below=5, ranking=rng.choice(list(Ranking)))
        self.read_many(key, [f"p{n}" for n in everybody[:50]], rng.choice(list(Ranking)))
        self.read_a_range(key, size // 2, size // 2 + 99, rng.choice(list(Ranking)))

    @rule(board=st.integers(0, len(KEYS) - 1), left=st.integers(0, 40), seed=st.integers(0, 2**32))
    def shrink_to_a_few(self, board: int, left: int, seed: int) -> None:
        there = [entry.player for entry in walk(self.reference, KEYS[board])]
        gone = random.Random(seed).sample(there, max(0, len(there) - left))
        self.apply([(Op.REMOVE, board, player, 0, 0) for player in gone])

    @rule(
        batch_rows=st.lists(rows, max_size=3),
        epoch=st.integers(-1, 2),
        after=st.integers(-1, 2),
        upto=st.integers(-1, 3),
    )
    def apply_out_of_turn(self, batch_rows: list[Row], epoch: int, after: int, upto: int) -> None:
        stored = self.reference.position(0)
        self.apply(
            batch_rows, epoch=stored.epoch + epoch, after=stored.sequence + after, upto=stored.sequence + after + upto
        )

    @rule(
        batch_rows=st.lists(rows, min_size=1, max_size=5),
        column=st.sampled_from(["tie", "instance", "player", "op", "players", "instances", "score"]),
        data=st.data(),
    )
    def apply_something_malformed(self, batch_rows: list[Row], column: str, data: st.DataObject) -> None:
        size = len(batch_rows)
        spoilt: dict[str, Any] = {
            "tie": array("q", data.draw(st.lists(st.sampled_from([0, 1, -1, 2**48]), min_size=size, max_size=size))),
            "instance": array("I", data.draw(st.lists(st.integers(0, len(KEYS)), min_size=size, max_size=size))),
            "player": array("I", data.draw(st.lists(st.integers(0, size), min_size=size, max_size=size))),
            "op": array("B", data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))),
            "players": data.draw(st.lists(st.sampled_from([*PLAYERS, *ABSENT, 5]), max_size=6)),
            "instances": [(KEYS[0], replace(self.board_rules[0], keep=data.draw(st.sampled_from(Keep))))] * len(KEYS),
            "score": array("q", [0] * (size - 1)),
        }
        self.apply(batch_rows, **{column: spoilt[column]})

    @rule(
        boards=st.lists(st.integers(0, len(KEYS) - 1), min_size=1, max_size=6),
        event=st.tuples(st.sampled_from([*PLAYERS, *PLAYERS, "", "x" * 200]), scores | st.just(2**63)),
        tie=ties | st.just(-1),
        ahead=st.sampled_from([1, 1, 1, 1, 0, 2]),
        ranks=rankings,
    )
    def apply_one(self, boards: list[int], event: tuple[str, int], tie: int, ahead: int, ranks: Ranking) -> None:
        table = tuple((KEYS[board], self.board_rules[board]) for board in boards)
        for _ in range(2):  # the second time, an adapter may know the table
            at = self.reference.position(0).sequence + ahead
            options: dict[str, Any] = {"at": at, "ranks": ranks, "partition": 0}
            self.both(lambda store, options=options: store.apply_one(table, *event, [tie] * len(table), **options))  # type: ignore[misc]

    @rule(key=keys)
    def drop(self, key: InstanceKey) -> None:
        self.both(lambda store: store.drop(key))

    @rule()
    def drop_window(self) -> None:
        self.both(lambda store: store.drop_window("arcade", DAY))

    @rule(player=st.sampled_from(PLAYERS))
    def look_at_a_window(self, player: str) -> None:
        self.both(lambda store: sorted(store.scopes("arcade", DAY)))
        self.both(lambda store: sorted(store.scopes("arcade", DAY, player)))
        self.both(lambda store: store.window_sum("arcade", DAY))

    @rule(board=st.integers(0, len(KEYS) - 1), drawn=rules)
    def start_anew_by_other_rules(self, board: int, drawn: Rules) -> None:
        self.drop(KEYS[board])
        self.board_rules[board] = drawn

    @rule(board=st.integers(0, len(KEYS) - 1), bounds=st.sampled_from(BOUNDS))
    def change_the_bounds(self, board: int, bounds: tuple[int, int]) -> None:
        self.board_rules[board] = replace(self.board_rules[board], score_min=bounds[0], score_max=bounds[1])

    @rule(key=keys)
    def capture(self, key: InstanceKey) -> None:
        self.both(lambda store: store.capture(key))

    @rule(key=keys)
    def forget_capture(self, key: InstanceKey) -> None:
        self.both(lambda store: store.forget_capture(key))

    @precondition(lambda self: self.saving is None)
    @rule()
    def save_and_load(self) -> None:
        path = Path(self.folder.name) / "snapshot"
        self.engine.save(path)
        self.engine = CountingStore.load(path)

    @precondition(lambda self: self.saving is None)
    @rule()
    def begin_a_save(self) -> None:
        self.saving = self.engine.begin_save(), copy_of(self.reference)

    @precondition(lambda self: self.saving is not None)
    @rule()
    def write_the_save(self) -> None:
        """Whatever was done since it began, the file shows what the reference held then."""
        assert self.saving is not None
        (save, then), self.saving = self.saving, None
        path = Path(self.folder.name) / "background"
        save.write(path)
        loaded = CountingStore.load(path)
        loaded.check()
        assert [loaded.position(partition) for partition in range(PARTITIONS)] == [
            then.position(partition) for partition in range(PARTITIONS)
        ]
        assert set(loaded.instances()) == set(then.instances())
        for key in then.instances():
            entries = list(walk(then, key, READ_ENTRIES_MAX))
            assert list(walk(loaded, key, READ_ENTRIES_MAX)) == entries
            assert loaded.digest(key) == then.digest(key)
            for entry in entries:
                assert loaded.captured(key, entry.player) == then.captured(key, entry.player)

    # Reading

    @rule(key=keys, player=players)
    def read_one(self, key: InstanceKey, player: str) -> None:
        self.both(lambda store: store.score(key, player))
        self.both(lambda store: store.captured(key, player))
        for ranking in Ranking:
            self.both(lambda store, ranking=ranking: store.rank(key, player, ranking))  # type: ignore[misc]

    @rule(key=keys, asked=st.lists(players, max_size=20), ranking=rankings)
    def read_many(self, key: InstanceKey, asked: list[str], ranking: Ranking) -> None:
        self.both(lambda store: store.scores(key, asked))
        self.both(lambda store: store.ranks(key, asked, ranking))
        self.both(lambda store: store.friends(key, asked, ranking))

    @rule(key=keys, first=places, last=places, ranking=rankings)
    def read_a_range(self, key: InstanceKey, first: int, last: int, ranking: Ranking) -> None:
        self.both(lambda store: store.range(key, first, last, ranking))

    @rule(key=keys, after=st.none() | st.tuples(st.builds(Kept, scores, ties), players), limit=places, ranking=rankings)
    def read_on(self, key: InstanceKey, after: tuple[Kept, str] | None, limit: int, ranking: Ranking) -> None:
        self.both(lambda store: store.following(key, after, limit, ranking))

    @rule(key=keys, player=players, above=places, below=places, ranking=rankings)
    def read_around(self, key: InstanceKey, player: str, above: int, below: int, ranking: Ranking) -> None:
        self.both(lambda store: store.around(key, player, above, below, ranking))

    @rule(key=keys, score=scores | st.just(2**63), tie=ties | st.just(-1))
    def ask_where_a_score_would_stand(self, key: InstanceKey, score: int, tie: int) -> None:
        for ranking in Ranking:
            self.both(lambda store, ranking=ranking: store.rank_of_score(key, score, tie, ranking))  # type: ignore[misc]

    @rule(key=keys, low=scores, high=scores | st.just(-(2**63) - 1))
    def count(self, key: InstanceKey, low: int, high: int) -> None:
        self.both(lambda store: store.count(key, low, high))

    @rule(
        key=keys,
        ppm=st.lists(st.integers(0, 1_000_000) | st.sampled_from([0, 1, 500_000, 1_000_000]), max_size=5)
        | st.sampled_from([[-1], [1_000_001]]),
    )
    def read_quantiles(self, key: InstanceKey, ppm: list[int]) -> None:
        self.both(lambda store: store.quantiles(key, ppm))

    @rule(key=keys, buckets=st.integers(-1, 12) | st.sampled_from([999, 1_000, 1_001]))
    def read_a_histogram(self, key: InstanceKey, buckets: int) -> None:
        self.both(lambda store: store.histogram(key, buckets))

    @rule(key=keys, chunk=st.sampled_from([1, 7, 64, 1_000]), ranking=rankings)
    def walk_through(self, key: InstanceKey, chunk: int, ranking: Ranking) -> None:
        # The reference sorts everything for each chunk, so it walks in one go.
        assert list(walk(self.engine, key, chunk, ranking)) == list(
            walk(self.reference, key, READ_ENTRIES_MAX, ranking)
        )

    @rule(key=keys)
    def compare_digests(self, key: InstanceKey) -> None:
        self.both(lambda store: store.digest(key))

    # At every step

    @invariant()
    def the_engine_is_sound_and_holds_what_the_reference_holds(self) -> None:
        self.engine.check()
        assert set(self.engine.instances()) == set(self.reference.instances())
        totals = [self.reference.total(key) for key in KEYS]
        assert [self.engine.total(key) for key in KEYS] == totals
        assert (self.engine.board_entries("arcade"), self.engine.entries) == (sum(totals[:4]), sum(totals))
        for partition in range(PARTITIONS):
            assert self.engine.position(partition) == self.reference.position(partition)


SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


class TestEngineBesideReference(EngineBesideReference.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(
        max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=SLOW_IS_FINE, print_blob=True
    )


@pytest.mark.long
class TestEngineBesideReferenceForLong(EngineBesideReference.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(
        max_examples=2_000, stateful_step_count=80, deadline=None, suppress_health_check=SLOW_IS_FINE, print_blob=True
    )
