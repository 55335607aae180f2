"""A save beside batches: its file shows the instant at which it began, and nobody waits for it."""

from __future__ import annotations

import os
import random
import threading
from array import array
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.batches import batch_of_rows
from tests.servers.load_bound import LoadBound
from tests.timing import BUSY_MACHINE

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Order, Rules, Ties
from rankd.errors import SaveInterrupted, SaveUnderWay
from rankd.projection.engine import EngineStore
from rankd.projection.port import START, Op, Position, UpdateBatch, Verdict, walk
from rankd.projection.saving import Saving

LARGE = (InstanceKey("large"), Rules(keep=Keep.LATEST))
LEVEL = (InstanceKey("level"), Rules(keep=Keep.SUM, order=Order.ASC, ties=Ties.PLAYER))
SMALL = [(InstanceKey(f"small{n}"), Rules(keep=Keep.LATEST, ties=Ties.VALUE)) for n in range(6)]
BOARDS = [LARGE, LEVEL, *SMALL]
PLAYERS = 3_000
WAIT_SECONDS_MAX = 60
WAIT_NS_MAX = 1_000_000 * BUSY_MACHINE  # of the writer's own work while a reader waits, as test_engine_threads.py says
# More than the engine collects before it writes to its file, and than a pipe takes.
LONG_ROWS = 250_000
# Enough for the engine's memory to grow by many regions.
JOINING_BATCHES = 40
JOINING_ROWS = 10_000

State = dict[InstanceKey, tuple[int, list[int | None]]]


def state(store: EngineStore) -> State:
    """What each board holds and which places of it are captured, in a form that compares."""
    return {
        key: (store.digest(key), [store.captured(key, entry.player) for entry in walk(store, key)])
        for key in store.instances()
    }


def write_something(store: EngineStore, rng: random.Random, rows: int) -> None:
    """Apply a batch of every kind of row, to players of whom some are new and some leave."""
    first = rng.randrange(0, PLAYERS * 2, PLAYERS // 4)
    ops = rng.choices([Op.APPLY, Op.PUT, Op.REMOVE], [5, 2, 2], k=rows)
    instances = [rng.choice([0, 1, *range(len(BOARDS))]) for _ in range(rows)]
    if rng.random() < 0.05:
        ops[0] = Op.CLEAR
    after = store.position(0).sequence
    answer = store.apply(
        UpdateBatch(
            instances=BOARDS,
            players=[f"p{first + (rng.randrange(PLAYERS) if board < 2 else rng.randrange(40))}" for board in instances],
            score=array("q", [rng.randrange(3) if board == 1 else rng.randrange(10_000) for board in instances]),
            tie=array("q", [rng.randrange(3) for _ in range(rows)]),
            instance=array("I", instances),
            op=bytes(ops),
            after=after,
            upto=after + 1,
        )
    )
    assert answer.verdict is Verdict.APPLIED
    if rng.random() < 0.05:
        store.drop(rng.choice(BOARDS)[0])
    if rng.random() < 0.1:
        store.capture(rng.choice(BOARDS)[0])
    if rng.random() < 0.05:
        store.forget_capture(rng.choice(BOARDS)[0])


def filled(rng: random.Random) -> EngineStore:
    store = EngineStore()
    for _ in range(6):
        write_something(store, rng, 2_000)
    for key, _ in BOARDS[:4]:
        store.capture(key)
    return store


@pytest.fixture
def rng() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when the test fails
    return random.Random(seed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "boards.rankd"


def loaded(path: Path) -> EngineStore:
    store = EngineStore.load(path)
    store.check()
    return store


# The instant


def test_what_is_written_is_what_there_was_when_the_save_began(rng: random.Random, path: Path) -> None:
    store = filled(rng)
    for _ in range(5):
        then, position = state(store), store.position(0)
        saving = store.begin_save()
        for _ in range(40):
            write_something(store, rng, rng.choice([1, 30, 500]))
        now = state(store)
        saving.write(path)

        assert state(loaded(path)) == then != now
        assert loaded(path).position(0) == saving.position(0) == position < store.position(0)
        assert state(store) == now
        store.check()


def test_a_save_beside_batches_shows_the_instant_at_which_it_began(rng: random.Random, path: Path) -> None:
    store = filled(rng)
    batches = 0
    with ThreadPoolExecutor(max_workers=1) as pool:
        for _ in range(10):
            then, saving = state(store), store.begin_save()
            writing = pool.submit(saving.write, path)
            while not writing.done():
                write_something(store, rng, rng.choice([1, 8, 300]))
                batches += 1
            writing.result(WAIT_SECONDS_MAX)

            assert state(loaded(path)) == then
            store.check()
    print(f"{batches} batches beside 10 saves")  # noqa: T201
    assert batches > 10


def test_a_save_goes_on_while_both_workers_of_batches_ask_for_memory(path: Path) -> None:
    """One worker asks the system for more while the other notes what it changes: that is no shortage."""
    boards = [(InstanceKey(f"window{n}"), Rules(keep=Keep.LATEST)) for n in range(5)]
    store = EngineStore()
    for number in range(JOINING_BATCHES):
        if number == 1:
            saving = store.begin_save()
        players = [f"{number}-{n}" for n in range(JOINING_ROWS)]
        answer = store.apply(
            UpdateBatch(
                instances=boards,
                players=players,
                score=array("q", range(JOINING_ROWS)) * len(boards),
                instance=array("I", [board for board in range(len(boards)) for _ in players]),
                player=array("I", range(JOINING_ROWS)) * len(boards),
                after=number,
                upto=number + 1,
            )
        )
        assert answer.verdict is Verdict.APPLIED
    saving.write(path)
    assert [loaded(path).total(key) for key, _ in boards] == [JOINING_ROWS] * len(boards)


def test_a_save_knows_its_positions(path: Path) -> None:
    store = EngineStore()
    store.apply(batch_of_rows(LARGE, [("ann", 1)], upto=5))
    store.apply(batch_of_rows(LARGE, [("bob", 1)], partition=3, epoch=2, upto=7))
    saving = store.begin_save()
    store.apply(batch_of_rows(LARGE, [("eve", 1)], after=5, upto=6))
    saving.write(path)

    assert [saving.position(partition) for partition in (0, 1, 3)] == [Position(0, 5), START, Position(2, 7)]
    assert [loaded(path).position(partition) for partition in (0, 1, 3)] == [Position(0, 5), START, Position(2, 7)]


# Nobody waits


def long_store() -> EngineStore:
    store = EngineStore()
    players = [f"player-{n:07}" for n in range(LONG_ROWS)]
    scores = array("q", [n * 7919 % LONG_ROWS for n in range(LONG_ROWS)])
    store.apply(UpdateBatch(instances=[LARGE], players=players, score=scores))
    return store


@contextmanager
def waiting_for_its_file(store: EngineStore) -> Iterator[tuple[Saving, Future[None], int]]:
    """A save of a store that is in the middle of its file: nobody takes what it writes until the body does."""
    reader, writer = os.pipe()
    saving = store.begin_save()

    def write() -> None:
        try:
            store._native.write_save(saving._number, writer)
        finally:
            os.close(writer)

    with ThreadPoolExecutor(max_workers=1) as pool:
        writing = pool.submit(write)
        begun = os.read(reader, 1)  # waits until there is something
        assert begun == b"r"
        try:
            yield saving, writing, reader
        finally:
            while os.read(reader, 2**20):
                pass
            os.close(reader)


def test_batches_and_readers_go_on_while_a_save_waits_for_its_file(path: Path) -> None:
    store = long_store()
    digest = store.digest(LARGE[0])
    with waiting_for_its_file(store) as (_, writing, reader):
        store.apply(batch_of_rows(LARGE, [(f"player-{n:07}", -n) for n in range(0, LONG_ROWS, 7)]))
        store.apply(batch_of_rows(LARGE, [("newcomer", 10**9)]))
        assert store.score(LARGE[0], "player-0000014") == Kept(-14, 0)
        assert store.drop(LARGE[0])
        store.apply(batch_of_rows(LARGE, [("newcomer", 3)]))
        assert not writing.done()

        with path.open("wb") as file:
            file.write(b"r")
            while part := os.read(reader, 2**20):
                file.write(part)
        writing.result(WAIT_SECONDS_MAX)

    assert loaded(path).digest(LARGE[0]) == digest
    assert store.total(LARGE[0]) == 1
    store.check()


@pytest.mark.timed
def test_a_reader_hardly_waits_while_batches_run_beside_saves(path: Path) -> None:
    """A machine that others use may take its time for once; an engine that waits does so every time."""
    waited: list[int] = []
    while len(waited) < 3 and (not waited or waited[-1] >= WAIT_NS_MAX):
        waited.append(longest_work_ns(long_store(), path))
    loaded(path)

    assert min(waited) < WAIT_NS_MAX, waited


def longest_work_ns(store: EngineStore, path: Path) -> int:
    """Return how long the writer worked at most while a reader waited, beside saves."""
    over = threading.Event()
    players = [f"player-{n:07}" for n in range(0, LONG_ROWS, 5)]

    def save() -> int:
        saves, bound = 0, LoadBound()
        while bound.take() and (not over.is_set() or saves == 0):
            store.save(path)
            saves += 1
        return saves

    with ThreadPoolExecutor(max_workers=2) as pool:
        saver = pool.submit(save)
        store.forget_waits()
        for turn in range(30):
            scores = array("q", [(n * 7919 + turn) % LONG_ROWS for n in range(len(players))])
            writer = pool.submit(store.apply, UpdateBatch(instances=[LARGE], players=players, score=scores))
            while not writer.done():
                assert store.rank(LARGE[0], "player-0000007") is not None
            assert writer.result(WAIT_SECONDS_MAX).verdict is Verdict.APPLIED
        over.set()
        saves = saver.result(WAIT_SECONDS_MAX)
    print(f"{saves} saves, {store.longest_waits()}")  # noqa: T201
    return store.longest_waits().work_ns


# How a save ends


def test_a_store_takes_one_save_at_a_time(rng: random.Random, path: Path) -> None:
    store = filled(rng)
    saving = store.begin_save()
    with pytest.raises(SaveUnderWay, match="wait for it"):
        store.begin_save()
    with pytest.raises(SaveUnderWay):
        store.save(path)
    assert os.listdir(path.parent) == []
    saving.write(path)
    store.save(path)


def test_a_save_is_written_once(rng: random.Random, path: Path) -> None:
    saving = filled(rng).begin_save()
    saving.write(path)
    old = path.read_bytes()
    with pytest.raises(SaveInterrupted, match="begin another"):
        saving.write(path)

    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


def test_an_abandoned_save_leaves_no_file_and_no_memory(rng: random.Random, path: Path) -> None:
    store = filled(rng)
    saving = store.begin_save()
    write_something(store, rng, 2_000)
    store.drop(LARGE[0])
    assert store.memory().saving_bytes > 0
    saving.abandon()
    saving.abandon()
    with pytest.raises(SaveInterrupted):
        saving.write(path)

    assert os.listdir(path.parent) == []
    assert store.memory().saving_bytes == 0
    store.check()


def test_a_save_that_is_forgotten_is_abandoned(rng: random.Random) -> None:
    store = filled(rng)
    store.begin_save()
    with store.begin_save():
        pass
    store.begin_save().abandon()


def test_abandoning_a_save_that_is_being_written_makes_it_give_up() -> None:
    store = long_store()
    with waiting_for_its_file(store) as (saving, writing, _):
        saving.abandon()
        assert not writing.done()
    with pytest.raises(SaveInterrupted, match="abandoned"):
        writing.result(WAIT_SECONDS_MAX)

    assert store.memory().saving_bytes == 0
    store.begin_save().abandon()


def test_a_save_that_may_not_remember_enough_is_interrupted_and_the_next_one_is_not(
    rng: random.Random, path: Path
) -> None:
    store = filled(rng)
    saving = store.begin_save(undo_bytes_max=100_000)
    while store.memory().saving_bytes < 100_000:
        write_something(store, rng, 500)
    for _ in range(20):
        write_something(store, rng, 500)
    with pytest.raises(SaveInterrupted, match="try again"):
        saving.write(path)
    assert store.memory().saving_bytes == 0
    assert os.listdir(path.parent) == []
    store.check()

    store.save(path)
    assert state(loaded(path)) == state(store)


def test_a_save_that_finds_no_folder_is_over(rng: random.Random, path: Path) -> None:
    store = filled(rng)
    saving = store.begin_save()
    with pytest.raises(FileNotFoundError):
        saving.write(path / "boards.rankd")

    store.save(path)
    assert state(loaded(path)) == state(store)


def test_what_is_dropped_during_a_save_is_given_back_when_it_ends(rng: random.Random, path: Path) -> None:
    store = filled(rng)
    saving = store.begin_save()
    for key, _ in BOARDS:
        store.drop(key)
    assert list(store.instances()) == []
    assert store.memory().entries_bytes > 0
    saving.write(path)

    assert store.memory().total_bytes == 0
    assert list(loaded(path).instances())
