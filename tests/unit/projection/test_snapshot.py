"""A store in a file and back: equal, or refused with an error that says why; and the file is complete or absent."""

from __future__ import annotations

import os
import random
import resource
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from tests.batches import batch_of_rows
from tests.servers.waiting import join_all

from rankd.domain.instance import InstanceKey
from rankd.domain.order import TIE_FIELD_MAX, Keep, Order, Ranking, Rules, Ties
from rankd.errors import SaveUnderWay, SnapshotDamaged, SnapshotNewer, SnapshotUnreadable
from rankd.projection.engine import EngineStore
from rankd.projection.port import Position, UpdateBatch, walk

FLIPS = 200
MAGIC_BYTES = 8
VERSION = slice(8, 12)
# From one entry to a tree, in every direction.
SIZES = [1, 2, 30, 128, 129, 700, 3, 64]
BOARDS = [
    (InstanceKey(f"board{index}", "daily:2026-05-04", "country:BR"), Rules(Keep.LATEST, order, ties))
    for index, (order, ties) in enumerate((order, ties) for order in Order for ties in Ties)
]


def filled(seed: int) -> EngineStore:
    """A store of several boards, and positions of two partitions."""
    rng = random.Random(seed)
    store = EngineStore()
    players = [f"Zoë {n}" for n in range(max(SIZES))]
    for sequence, (board, size) in enumerate(zip(BOARDS, SIZES, strict=True)):
        rows = []
        for player in players[:size]:
            score = rng.choice([rng.randrange(-(2**63), 2**63), rng.randrange(5)])
            rows.append((player, score, rng.choice([0, rng.randrange(TIE_FIELD_MAX + 1)])))
        store.apply(batch_of_rows(board, rows, epoch=2, after=sequence, upto=sequence + 1))
    store.apply(UpdateBatch(instances=[], players=[], partition=7, epoch=3, upto=2**63 - 1))
    for key, _ in BOARDS[2:6]:
        store.capture(key)
    return store


def digests(store: EngineStore) -> dict[InstanceKey, int]:
    return {key: store.digest(key) for key in store.instances()}


def places(store: EngineStore) -> list[int | None]:
    return [store.captured(key, f"Zoë {n}") for key, _ in BOARDS for n in range(max(SIZES))]


@pytest.fixture
def seed() -> int:
    chosen = random.randrange(2**32)
    print(f"seed {chosen}")  # noqa: T201  shown when the test fails
    return chosen


@pytest.fixture
def store(seed: int) -> EngineStore:
    return filled(seed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "boards.rankd"


@pytest.fixture
def saved(store: EngineStore, path: Path) -> bytes:
    store.save(path)
    return path.read_bytes()


# Round trips


def test_what_is_loaded_is_what_was_saved(store: EngineStore, path: Path) -> None:
    store.save(path)
    loaded = EngineStore.load(path)
    loaded.check()

    assert digests(loaded) == digests(store)
    assert len(digests(store)) == len(BOARDS)
    assert places(loaded) == places(store)
    assert any(places(store))
    for key, _ in BOARDS:
        for ranking in Ranking:
            assert list(walk(loaded, key, 100, ranking)) == list(walk(store, key, 100, ranking))
        assert loaded.quantiles(key, [0, 500_000, 10**6]) == store.quantiles(key, [0, 500_000, 10**6])
        assert loaded.histogram(key, 10) == store.histogram(key, 10)
        assert loaded.rank(key, "Zoë 0", Ranking.DENSE) == store.rank(key, "Zoë 0", Ranking.DENSE)


def test_positions_survive(store: EngineStore, path: Path) -> None:
    store.save(path)
    loaded = EngineStore.load(path)

    assert loaded.position(0) == store.position(0) == Position(2, len(BOARDS))
    assert loaded.position(7) == Position(3, 2**63 - 1)
    assert loaded.position(1) == Position(0, 0)


def test_a_loaded_store_goes_on(store: EngineStore, path: Path) -> None:
    store.save(path)
    loaded = EngineStore.load(path)
    rows = [(f"Zoë {n}", n % 7, n % 3) for n in range(0, 900, 2)]
    for each in (store, loaded):
        answer = each.apply(batch_of_rows(BOARDS[5], rows, epoch=2, after=len(BOARDS), upto=len(BOARDS) + 1))
        assert answer.position.sequence == len(BOARDS) + 1
        assert each.drop(BOARDS[4][0])
        each.check()

    assert digests(loaded) == digests(store)


def test_an_empty_store_is_loaded_empty(path: Path) -> None:
    EngineStore().save(path)
    loaded = EngineStore.load(path)

    assert list(loaded.instances()) == []
    assert loaded.memory().total_bytes == 0


def test_a_later_save_takes_the_place_of_an_earlier_one(store: EngineStore, path: Path) -> None:
    EngineStore().save(path)
    store.save(str(path))

    assert digests(EngineStore.load(str(path))) == digests(store)
    assert os.listdir(path.parent) == [path.name]


def test_saving_changes_nothing(store: EngineStore, path: Path) -> None:
    before = digests(store)
    store.save(path)
    first = path.read_bytes()
    store.save(path)

    assert path.read_bytes() == first
    assert digests(store) == before


# Damage


def test_flipped_bytes_are_each_refused_or_harmless(store: EngineStore, saved: bytes, path: Path, seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for number in range(FLIPS):
        # All of the head, then anywhere.
        at = number if number < VERSION.stop else rng.randrange(len(saved))
        flipped = bytearray(saved)
        flipped[at] ^= rng.randrange(1, 256)
        path.write_bytes(flipped)
        try:
            loaded = EngineStore.load(path)
        except SnapshotUnreadable:
            refused += 1
        else:
            loaded.check()
            assert digests(loaded) == digests(store), f"byte {at}"
            assert places(loaded) == places(store), f"byte {at}"
    assert refused > FLIPS * 9 // 10


def test_a_file_that_is_cut_is_refused(saved: bytes, path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for end in [0, 1, MAGIC_BYTES, *range(9, 60), len(saved) - 1, *(rng.randrange(len(saved)) for _ in range(50))]:
        path.write_bytes(saved[:end])
        with pytest.raises(SnapshotDamaged):
            EngineStore.load(path)


def test_a_file_that_goes_on_is_refused(saved: bytes, path: Path) -> None:
    path.write_bytes(saved + b"\0")
    with pytest.raises(SnapshotDamaged):
        EngineStore.load(path)


@pytest.mark.parametrize("content", [b"", b"\0", b"REDIS0011\xfa\tredis-ver", b"{}", bytes(100_000), b"rankdsnp"])
def test_what_is_no_snapshot_is_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(SnapshotDamaged):
        EngineStore.load(path)


@pytest.mark.parametrize("version", [3, 255, 2**32 - 1])
def test_a_newer_file_is_refused_as_newer(saved: bytes, path: Path, version: int) -> None:
    newer = bytearray(saved)
    newer[VERSION] = version.to_bytes(4, "little")
    path.write_bytes(newer)

    with pytest.raises(SnapshotNewer, match=str(version)):
        EngineStore.load(path)


@pytest.mark.parametrize(("version", "why"), [(0, "no format 0"), (1, "before the first release")])
def test_an_older_format_is_refused(saved: bytes, path: Path, version: int, why: str) -> None:
    older = bytearray(saved)
    older[VERSION] = version.to_bytes(4, "little")
    path.write_bytes(older)

    with pytest.raises(SnapshotDamaged, match=why):
        EngineStore.load(path)


def test_a_missing_file_is_not_a_damaged_one(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        EngineStore.load(path)


def test_a_folder_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        EngineStore.load(tmp_path)


# Complete or absent


@contextmanager
def no_file_longer_than(size_bytes: int) -> Iterator[None]:
    """As on a disk that is nearly full: writing more is an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_save_that_finds_no_room_leaves_the_old_file_and_nothing_else(store: EngineStore, path: Path) -> None:
    EngineStore().save(path)
    old = path.read_bytes()
    with pytest.raises(OSError, match="too large"), no_file_longer_than(2_000):
        store.save(path)

    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]
    store.check()


def test_a_save_that_cannot_take_its_place_leaves_nothing_behind(store: EngineStore, path: Path) -> None:
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        store.save(path)

    assert os.listdir(path.parent) == [path.name]
    assert os.listdir(path) == []


def test_a_save_into_a_folder_that_is_not_there_says_so(store: EngineStore, path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.save(path / "boards.rankd")

    assert not path.exists()


def test_a_store_of_many_players_is_saved_in_several_blocks(path: Path) -> None:
    players = [f"player-{n:06}" for n in range(120_000)]
    store = EngineStore()
    store.apply(
        UpdateBatch(instances=[BOARDS[0]], players=players, score=array("q", [n % 1_000 for n in range(120_000)]))
    )
    store.save(path)
    loaded = EngineStore.load(path)
    loaded.check()

    assert digests(loaded) == digests(store)
    assert path.stat().st_size > 2**21


def test_saves_to_one_path_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    """A store takes one save at a time; two stores of the same content may meet at a path."""
    stores = [filled(seed=11), filled(seed=11)]
    path = tmp_path / "ranks"
    errors: list[BaseException] = []

    def save(store: EngineStore) -> None:
        try:
            for _ in range(20):
                with suppress(SaveUnderWay):
                    store.save(path)
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=save, args=[store]) for store in (*stores, *stores)]
    for thread in threads:
        thread.start()
    join_all(threads)

    assert errors == []
    assert digests(EngineStore.load(path)) == digests(stores[0])
    assert [file.name for file in tmp_path.iterdir()] == ["ranks"]
