"""The engine's account of its memory: complete, given back, and within the figures that README.md names."""

from __future__ import annotations

import os
import random
from array import array

import pytest

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Rules
from rankd.projection.engine import EngineStore, MemoryUse
from rankd.projection.port import Op, UpdateBatch, Verdict

PLAYERS = 250_000  # the index of ids is about as full as at ten million; it is fullest just before its segments part
FIRST_BOARD_BYTES_MAX = 72  # per player, the id included
FURTHER_BOARD_BYTES_MAX = 48
SMALL_BOARDS = 100_000
SMALL_BOARD_PLAYERS = 30
SMALL_ENTRY_BYTES_MAX = 32
SMALL_BOARD_BYTES_MAX = 128
ROWS = 50_000
EMPTY = MemoryUse(0, 0, 0, 0, 0, 0, 0)


def used_bytes(store: EngineStore) -> int:
    """Leave out what is kept ready: at these sizes a region of 2 MiB that has just been begun counts for much."""
    use = store.memory()
    return use.total_bytes - use.idle_bytes


def ids(count: int) -> list[str]:
    return [f"player-{n:06}" for n in range(count)]


def fill(store: EngineStore, key: InstanceKey, players: list[str], rng: random.Random) -> None:
    """Put everybody into a board in random order, in several batches."""
    order = list(range(len(players)))
    rng.shuffle(order)
    for start in range(0, len(order), ROWS):
        part = order[start : start + ROWS]
        answer = store.apply(
            UpdateBatch(
                instances=[(key, Rules(keep=Keep.LATEST))],
                players=[players[number] for number in part],
                score=array("q", [rng.randrange(2**40) for _ in part]),
            )
        )
        assert answer.verdict is Verdict.APPLIED


def test_the_total_is_the_sum_of_the_purposes() -> None:
    store = EngineStore()
    assert store.memory() == EMPTY
    fill(store, InstanceKey("arcade"), ids(5_000), random.Random(1))

    use = store.memory()
    purposes = [use.players_bytes, use.boards_bytes, use.entries_bytes, use.maps_bytes]
    assert all(held > 0 for held in purposes)
    assert use.total_bytes == sum(purposes) + use.idle_bytes
    store.capture(InstanceKey("arcade"))
    captured = store.memory()
    assert captured.captures_bytes > 0
    assert captured.total_bytes == sum(purposes) + captured.captures_bytes + captured.idle_bytes


def test_memory_is_given_back_when_boards_are_dropped() -> None:
    store = EngineStore()
    boards = [InstanceKey(f"board{n}") for n in range(3)]
    for key in boards:
        fill(store, key, ids(20_000), random.Random(1))
    held = used_bytes(store)
    assert store.drop(boards[0])
    assert used_bytes(store) < held * 0.85
    assert store.drop(boards[1])
    assert store.drop(boards[2])

    assert store.memory() == EMPTY
    assert not store.drop(boards[0])


@pytest.mark.parametrize("op", [Op.REMOVE, Op.CLEAR])
def test_memory_is_given_back_when_players_leave(op: Op) -> None:
    store, key, players = EngineStore(), InstanceKey("arcade"), ids(20_000)
    for _ in range(2):
        fill(store, key, players, random.Random(1))
        rows = len(players) if op is Op.REMOVE else 1
        store.apply(
            UpdateBatch(
                instances=[(key, Rules())], players=players, score=array("q", bytes(8 * rows)), op=bytes([op]) * rows
            )
        )
        assert store.total(key) == 0
        assert store.memory() == EMPTY


def test_a_player_costs_little_and_a_further_board_less() -> None:
    store, players, rng = EngineStore(), ids(PLAYERS), random.Random(1)
    fill(store, InstanceKey("first"), players, rng)
    first = used_bytes(store)
    fill(store, InstanceKey("second"), players, rng)
    second = used_bytes(store) - first
    fill(store, InstanceKey("third"), players, rng)
    third = used_bytes(store) - first - second

    print(f"bytes a player: {first / PLAYERS:.1f}, {second / PLAYERS:.1f}, {third / PLAYERS:.1f}")  # noqa: T201
    assert first / PLAYERS <= FIRST_BOARD_BYTES_MAX
    assert second / PLAYERS < FURTHER_BOARD_BYTES_MAX
    assert third / PLAYERS < FURTHER_BOARD_BYTES_MAX


def test_many_small_boards_cost_little_more_than_their_entries() -> None:
    store, players, rng = EngineStore(), ids(PLAYERS), random.Random(1)
    per_batch = 10_000
    for start in range(0, SMALL_BOARDS, per_batch):
        rows = range(per_batch * SMALL_BOARD_PLAYERS)
        # Thirty different players a board: a random one and those behind at a random stride.
        starts = [(rng.randrange(PLAYERS), rng.randrange(1, 5_000)) for _ in range(per_batch)]
        store.apply(
            UpdateBatch(
                instances=[(InstanceKey(f"b{start + n}"), Rules()) for n in range(per_batch)],
                players=players,
                instance=array("I", [row // SMALL_BOARD_PLAYERS for row in rows]),
                player=array(
                    "I",
                    [(first + step * n) % PLAYERS for first, step in starts for n in range(SMALL_BOARD_PLAYERS)],
                ),
                score=array("q", [rng.getrandbits(40) for _ in rows]),
            )
        )
    use = store.memory()
    held = use.total_bytes - use.players_bytes
    board_bytes = held / SMALL_BOARDS
    entries = sum(store.total(InstanceKey(f"b{n}")) for n in range(0, SMALL_BOARDS, 1_000))
    assert entries == SMALL_BOARDS // 1_000 * SMALL_BOARD_PLAYERS

    print(f"bytes a board of {SMALL_BOARD_PLAYERS}: {board_bytes:.0f}")  # noqa: T201
    assert board_bytes <= SMALL_BOARD_PLAYERS * SMALL_ENTRY_BYTES_MAX + SMALL_BOARD_BYTES_MAX


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(
    not os.path.exists("/proc/self/statm") and os.environ.get("CI") != "true",
    reason="only Linux tells what is resident",
)
def test_what_the_engine_says_is_what_the_system_says() -> None:
    players, rng, store = ids(PLAYERS), random.Random(1), EngineStore()
    # The interpreter's own lists grow in the first round; what comes after it shows the engine alone.
    fill(store, InstanceKey("first"), players, rng)
    total_bytes, resident = store.memory().total_bytes, resident_bytes()
    for number in range(4):
        fill(store, InstanceKey(f"further{number}"), players, rng)
    total_bytes, resident = store.memory().total_bytes - total_bytes, resident_bytes() - resident

    print(f"said {total_bytes / 2**20:.1f} MiB, resident {resident / 2**20:.1f} MiB")  # noqa: T201
    assert total_bytes * 0.8 < resident < total_bytes * 1.25
