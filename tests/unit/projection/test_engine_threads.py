"""Beside a writer that never pauses, readers and other Python threads go on."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.servers.load_bound import LOAD_S_MAX, LoadBound
from tests.timing import BUSY_MACHINE

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Rules
from rankd.projection.engine import EngineStore
from rankd.projection.port import Op, UpdateBatch, Verdict

pytestmark = pytest.mark.timed
KEY = InstanceKey("arcade")
BOARD = (KEY, Rules(keep=Keep.LATEST))
PLAYERS = 100_000
RUN_SECONDS = 2.0
TICK_SECONDS = 0.000_5
WAIT_SECONDS_MAX = 60
# What the engine promises of its own work. A wait also holds pauses of a machine that has other things to do: they are
# no work of the engine's, and forgiven up to MACHINE_NS_MAX; the benchmark `reader_p99` shows them on a quiet one.
WAIT_NS_MAX = 1_000_000 * BUSY_MACHINE
MACHINE_NS_MAX = 250_000_000 * BUSY_MACHINE
LONG_ROWS = 400_000


def ids(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{n:07}" for n in range(count)]


@pytest.fixture(scope="module")
def players() -> list[str]:
    return ids("p", PLAYERS)


@pytest.fixture
def store(players: list[str]) -> EngineStore:
    store = EngineStore()
    store.apply(UpdateBatch(instances=[BOARD], players=players, score=array("q", range(PLAYERS))))
    return store


def reads_meanwhile(store: EngineStore, write: Callable[[], None]) -> list[float]:
    """Read a rank at every tick until the writer is done; return how long after its tick each was there, in order.

    Counted from the tick, a read that waits also delays those behind it: nothing is left out of the figures.
    """
    started = threading.Event()
    done = threading.Event()

    def work() -> None:
        started.set()
        try:
            write()
        finally:
            done.set()

    waits, bound = [], LoadBound()
    with ThreadPoolExecutor(max_workers=1) as pool:
        writer = pool.submit(work)
        assert started.wait(WAIT_SECONDS_MAX)
        tick = time.perf_counter()
        while bound.take() and not done.wait(max(0.0, tick - time.perf_counter())):
            assert store.rank(KEY, "p0000007") is not None
            waits.append(time.perf_counter() - tick)
            tick += TICK_SECONDS
        writer.result(WAIT_SECONDS_MAX)
    return sorted(waits)


def assert_nobody_waited_long(name: str, store: EngineStore, waits: list[float]) -> None:
    middle, p99, longest = (f"{waits[part] * 1e3:.2f} ms" for part in (len(waits) // 2, len(waits) * 99 // 100, -1))
    inside = store.longest_waits()
    print(f"{name}: {len(waits)} reads, median {middle}, p99 {p99}, longest {longest}; {inside}")  # noqa: T201
    assert inside.work_ns < WAIT_NS_MAX
    assert inside.let_in_ns < MACHINE_NS_MAX
    assert inside.reader_ns < MACHINE_NS_MAX


def test_a_reader_hardly_waits_for_batches_without_pause(store: EngineStore, players: list[str]) -> None:
    batches = [
        UpdateBatch(
            instances=[BOARD], players=players, score=array("q", [(n * 7919 + turn) % 10**6 for n in range(PLAYERS)])
        )
        for turn in range(4)
    ]
    applied = 0

    def write() -> None:
        nonlocal applied
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            assert store.apply(batches[applied % len(batches)]).verdict is Verdict.APPLIED
            applied += 1

    waits = reads_meanwhile(store, write)
    assert_nobody_waited_long(f"{applied} batches of {PLAYERS} rows", store, waits)

    assert applied > 1
    assert len(waits) > RUN_SECONDS / TICK_SECONDS / 2 / BUSY_MACHINE
    assert waits[len(waits) * 99 // 100] * 1e9 < MACHINE_NS_MAX
    store.check()


LONG_BATCHES = {
    "newcomers": (ids("q", LONG_ROWS), Op.APPLY),
    "newcomers, every other one known": ([f"{'qp'[n % 2]}{n % PLAYERS:07}" for n in range(LONG_ROWS)], Op.APPLY),
    "removals of strangers": (ids("stranger", LONG_ROWS), Op.REMOVE),
    "removals of everybody": (ids("p", PLAYERS)[8:] + ids("p", 7), Op.REMOVE),
}


@pytest.mark.parametrize("name", LONG_BATCHES)
def test_no_reader_waits_for_a_whole_batch_whatever_it_does(store: EngineStore, name: str) -> None:
    players, op = LONG_BATCHES[name]
    rows = len(players)
    batch = UpdateBatch(
        instances=[BOARD],
        players=players,
        score=array("q", [n * 7919 % rows for n in range(rows)]),
        op=bytes([op]) * rows,
    )
    waits = reads_meanwhile(store, lambda: assert_applied(store, batch))
    assert_nobody_waited_long(name, store, waits)


def assert_applied(store: EngineStore, batch: UpdateBatch) -> None:
    assert store.apply(batch).verdict is Verdict.APPLIED


@contextmanager
def counting() -> Iterator[list[int]]:
    """Count in a Python thread, as long as the body runs; the count shows whether that thread was let run."""
    counted = [0]
    over = threading.Event()

    def count() -> None:
        ends_s = time.monotonic() + LOAD_S_MAX
        while not over.is_set() and time.monotonic() < ends_s:
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield counted
    finally:
        over.set()
        thread.join(WAIT_SECONDS_MAX)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[EngineStore, Path]:
    """A store whose whole-store calls take long enough to see whether others run meanwhile."""
    store, players = EngineStore(), ids("p", LONG_ROWS)
    store.apply(
        UpdateBatch(
            instances=[BOARD], players=players, score=array("q", [n * 7919 % LONG_ROWS for n in range(LONG_ROWS)])
        )
    )
    path = tmp_path_factory.mktemp("large") / "boards.rankd"
    store.save(path)
    return store, path


LONG_CALLS: dict[str, Callable[[EngineStore, Path], object]] = {
    "check": lambda store, _path: store.check(),
    "save": lambda store, path: store.save(path.with_suffix(".again")),
    "load": lambda _store, path: EngineStore.load(path),
}


@pytest.mark.parametrize("name", LONG_CALLS)
def test_other_python_threads_run_during_a_long_call(large: tuple[EngineStore, Path], name: str) -> None:
    with counting() as counted:
        before, began = counted[0], time.perf_counter()
        LONG_CALLS[name](*large)
        during, took = counted[0] - before, time.perf_counter() - began
        before, began = counted[0], time.perf_counter()
        while time.perf_counter() - began < took:
            pass
        beside_python = counted[0] - before

    print(f"{name}: {took * 1e3:.0f} ms, counted to {during}; beside a busy Python thread to {beside_python}")  # noqa: T201
    # Beside another Python thread it gets half of the interpreter; beside the engine it should get nearly all.
    assert during > beside_python / 2 / BUSY_MACHINE
