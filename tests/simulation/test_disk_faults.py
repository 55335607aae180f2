"""When the disk fails, a call returns or raises LedgerUnavailable, and nothing is lost, counted twice or invented."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

import rankd.node.embedded
from rankd.errors import LedgerUnavailable, RankdError

from .disk import Fault, FaultyDisk, Operation, troubles
from .disk_scenario import (
    UPKEEP_EVERY_S,
    History,
    Step,
    check_is_one_of,
    check_keys_count_once,
    close_at_last,
    differences,
    observed,
    open_at_last,
    opened,
    play,
    steps,
)
from .extent import STUCK_AFTER_S, replayable, sampled, scratch_folder, short_and_long, without_hanging

# Of each kind of operation; a fault lasts for as many calls before the disk is repaired.
SAMPLE = 10
CALLS_BEFORE_REPAIR = 3
THREADS = 8
TURNS = 12
FAILING = tuple(Operation)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that takes no time to sync: how the disk fails is up to the test."""
    with scratch_folder() as made_for_this:
        yield made_for_this


@pytest.fixture(autouse=True)
def _upkeep_at_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the log be moved and snapshots be taken between the calls of a scenario that is over in a blink."""
    monkeypatch.setattr(rankd.node.embedded, "UPKEEP_EVERY_S", UPKEEP_EVERY_S)


@dataclass
class DiskRepair:
    """Repairs the disk after some failed calls."""

    disk: FaultyDisk
    failures: int = 0

    def failed(self) -> None:
        self.failures += 1
        if self.failures >= CALLS_BEFORE_REPAIR:
            self.disk.repair()


def live_through(folder: Path, scenario: list[Step], fault: Fault) -> int:
    """Play a scenario on a disk that fails; return how often it did."""
    with FaultyDisk() as disk:
        disk.fail(fault)
        repair, history = DiskRepair(disk), History()
        boards = open_at_last(folder, disk.name, repair.failed)
        play(boards, scenario, history, repair.failed)
        close_at_last(boards)
        hits = disk.hits
        disk.repair()

        boards = opened(folder, disk.name)
        check_is_one_of(observed(boards), history)
        check_keys_count_once(boards, history)
        boards.verify()
        boards.close()
    return hits


def go_on_after(folder: Path, scenario: list[Step], fault: Fault) -> int:
    """Play a scenario on a disk that fails, and go on in the same process when it is well again."""
    with FaultyDisk() as disk:
        disk.fail(fault)
        repair, history = DiskRepair(disk), History()
        boards = open_at_last(folder, disk.name, repair.failed)
        play(boards, scenario, history, repair.failed)
        hits = disk.hits
        disk.repair()

        check_is_one_of(observed(boards), history)
        check_keys_count_once(boards, history)
        boards.submit("counts", "the next", 1)
        assert observed(boards).scores["counts"]["the next"] == 1
        boards.verify()
        before = observed(boards)
        boards.close()

        boards = opened(folder, disk.name)
        after = observed(boards)
        assert after == before, differences(after, before)
        boards.verify()
        boards.close()
    return hits


Life = Callable[[Path, list[Step], Fault], int]


def faults(folder: Path, scenario: list[Step], everything: bool, rng: random.Random) -> list[Fault]:
    """Return every fault that can strike while a scenario is played, or a sample of them."""
    with FaultyDisk() as disk:
        boards = opened(folder, disk.name)
        play(boards, scenario, History(), lambda: None)
        boards.close()
        counts = {operation: disk.count(operation) for operation in FAILING}
    chosen = []
    for operation in FAILING:
        possible = [
            Fault(operation, nth, trouble, lasting)
            for nth, trouble, lasting in product(range(1, counts[operation] + 1), troubles(operation), (False, True))
        ]
        chosen += possible if everything else sampled(possible, SAMPLE, rng)
    return chosen


@short_and_long
def test_whatever_fails_each_call_counts_once_or_raises(folder: Path, everything: bool) -> None:
    with replayable() as rng:
        scenario = steps(rng)
        hits: Counter[Operation] = Counter()
        for number, fault in enumerate(faults(folder / "counted", scenario, everything, rng)):
            live, here = rng.choice((live_through, go_on_after)), folder / str(number)

            def live_once(live: Life = live, here: Path = here, fault: Fault = fault) -> None:
                hits[fault.operation] += live(here, scenario, fault)

            try:
                without_hanging(live_once)
            except BaseException as error:
                error.add_note(f"{fault}, {live.__name__}")
                raise
            shutil.rmtree(here)
        assert all(hits[operation] for operation in (Operation.WRITE, Operation.SYNC, Operation.COMMITTED))


def test_whoever_shares_a_commit_that_fails_hears_of_it(folder: Path) -> None:
    with replayable() as rng, FaultyDisk() as disk:
        boards = opened(folder / "data", disk.name)
        boards.define("counts", keep="sum")
        acknowledged: list[str] = []
        failed: list[str] = []

        def send(key: str) -> None:
            try:
                boards.submit("counts", "everybody", 1, key=key)
            except LedgerUnavailable:
                failed.append(key)
            else:
                acknowledged.append(key)

        with ThreadPoolExecutor(THREADS) as pool:
            for turn in range(TURNS):
                operation = rng.choice((Operation.WRITE, Operation.SYNC))
                disk.fail(Fault(operation, rng.randrange(1, 4), rng.choice(troubles(operation))))
                done = [pool.submit(send, f"key-{turn}-{number}") for number in range(2 * THREADS)]
                assert not wait(done, STUCK_AFTER_S).not_done
        disk.repair()
        assert failed
        counted = observed(boards).scores["counts"].get("everybody", 0)
        assert len(acknowledged) <= counted <= len(acknowledged) + len(failed)
        again = [boards.submit("counts", "everybody", 1, key=key).repeated for key in rng.sample(failed, len(failed))]

        assert again.count(True) == counted - len(acknowledged)
        assert observed(boards).scores["counts"]["everybody"] == len(acknowledged) + len(failed)
        boards.verify()
        boards.close()


def test_a_snapshot_that_cannot_be_written_stops_nothing_else(folder: Path) -> None:
    boards = opened(folder / "data")
    boards.define("counts", keep="sum")
    snapshots = folder / "data" / "snapshots"
    shutil.rmtree(snapshots)
    snapshots.touch()
    with pytest.raises(RankdError):
        boards.snapshot()
    assert boards.submit("counts", "alice", 1).score == 1
    boards.close()
    snapshots.unlink()

    boards = opened(folder / "data")
    assert observed(boards).scores["counts"] == {"alice": 1}
    boards.close()


# Of a process of its own, since every file of it is limited: without our VFS, SQLite itself meets the end of the disk.
LIMITED = """
import resource, sys
import rankd

def limit(file_bytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))

with rankd.open(sys.argv[1]) as boards:
    boards.define("counts", keep="sum")
    limit(500_000)
    acknowledged, failed = [], []
    for number in range(200):
        try:
            boards.submit("counts", "alice", 1, key=f"key-{number}")
            acknowledged.append(number)
        except rankd.errors.LedgerUnavailable:
            failed.append(number)
    assert acknowledged and failed
    assert boards.rank("counts", "alice").score == len(acknowledged)
    limit(resource.RLIM_INFINITY)
    for number in failed:
        boards.submit("counts", "alice", 1, key=f"key-{number}")
    assert all(boards.submit("counts", "alice", 1, key=f"key-{number}").repeated for number in range(200))
    assert boards.rank("counts", "alice").score == 200
    boards.verify()
"""


def test_where_no_file_may_grow_nothing_is_acknowledged_until_it_may(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=STUCK_AFTER_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
