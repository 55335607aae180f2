"""What is left of an engine when the machine has no more memory: an error, never a wrong rank and never a hang.

Each test runs in a process of its own whose address space is limited, since memory that ran out cannot be had back.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

WAIT_S = 60

PRELUDE = """
import resource
from array import array
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Rules
from rankd.errors import EngineBroken
from rankd.projection.engine import EngineStore
from rankd.projection.port import UpdateBatch

KEY = InstanceKey("arcade")
RULES = Rules(keep=Keep.SUM)
store = EngineStore()

def batch(first, count):
    players = [f"player-{number:0100d}" for number in range(first, first + count)]
    return UpdateBatch([(KEY, RULES)], players, array("q", range(count)))

# The same players on five boards, which two threads share.
KEYS = [InstanceKey("arcade", f"daily:2026-05-0{day}") for day in range(1, 6)]

def batch_in_windows(first, count):
    rows = range(5 * count)
    return UpdateBatch(
        [(key, RULES) for key in KEYS],
        batch(first, count).players,
        array("q", [row // 5 for row in rows]),
        instance=array("I", [row % 5 for row in rows]),
        player=array("I", [row // 5 for row in rows]),
    )

def limit(more_bytes):
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more_bytes, resource.RLIM_INFINITY))

def unlimited():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def run(script: str) -> None:
    code = PRELUDE + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr


def test_a_read_that_cannot_be_answered_leaves_the_store_as_it_was() -> None:
    run("""
    store.apply(batch(0, 20_000))
    limit(256 * 1024)
    failed = False
    for _ in range(50):
        try:
            store.range(KEY, 1, 10_000)
        except MemoryError:
            failed = True
            break
    unlimited()
    assert failed, "memory did not run out; the limit is too high for this test"
    store.apply(batch(20_000, 10))
    assert store.total(KEY) == 20_010
    store.check()
    """)


def test_a_save_gives_up_when_there_is_no_memory_for_its_records_and_batches_go_on() -> None:
    run("""
    import tempfile
    from rankd.errors import SaveInterrupted
    from rankd.projection.port import Op
    everybody = batch(0, 300_000)
    store.apply(everybody)
    # Three of five, evenly: nothing that could be given back becomes empty.
    leave = [everybody.players[n] for part in range(3) for n in range(part, 300_000, 5)]
    removals = [
        UpdateBatch([(KEY, RULES)], leave[n : n + 500], array("q", bytes(4_000)), op=bytes([Op.REMOVE]) * 500)
        for n in range(0, len(leave), 500)
    ]
    saving = store.begin_save()
    limit(256 * 1024)
    for each in removals:
        store.apply(each)  # needs no memory itself
    unlimited()
    try:
        with tempfile.TemporaryDirectory() as folder:
            saving.write(folder + "/never")
    except SaveInterrupted as error:
        assert "memory ran out" in str(error), error
    else:
        raise AssertionError("memory did not run out; the limit is too high for this test")
    assert store.total(KEY) == 120_000
    assert store.memory().saving_bytes == 0
    store.check()
    """)


BATCH_WITHOUT_MEMORY = """
large = make(0, 200_000)
ends = []
for more_mib in range(8, 400, 6):
    store = EngineStore()
    store.apply(make(0, 1_000))
    limit(more_mib << 20)
    try:
        store.apply(large)
        ends.append("applied")
    except MemoryError:
        ends.append("refused")
    unlimited()
    if ends[-1] == "applied":
        assert all(store.total(key) == 200_000 for key in keys)
        break
    try:
        assert all(store.total(key) == 1_000 for key in keys)
        store.check()
    except EngineBroken as error:
        assert "load the last snapshot" in str(error)
        ends[-1] = "broken"
        for attempt in (
            lambda: store.apply(make(0, 1)),
            lambda: store.rank(keys[0], "anybody"),
            lambda: store.drop(keys[0]),
            lambda: store.save("never"),
        ):
            try:
                attempt()
            except EngineBroken:
                continue
            raise AssertionError("a broken store answered")
assert {"refused", "broken", "applied"} <= set(ends), ends
"""


def test_a_batch_that_runs_out_of_memory_changes_nothing_or_breaks_the_store_for_everybody() -> None:
    run("make, keys = batch, [KEY]" + BATCH_WITHOUT_MEMORY)


def test_a_batch_that_two_threads_share_does_so_too() -> None:
    run("make, keys = batch_in_windows, KEYS" + BATCH_WITHOUT_MEMORY)
