"""Random changes, uploads that fail, restarts and restores: the copy is always a whole one of some moment."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.backup.conftest import contents, digests_of

import rankd
from rankd import Boards, ManualClock
from rankd.archive.folder_objects import FolderObjects
from rankd.backup.restoring import restore
from rankd.errors import ArchiveUnavailable
from rankd.node.open_embedded import embedded_of
from rankd.registry.sqlite.credentials import SqliteCredentials

NOON = 1_777_896_000_000
PLAYERS = [f"p{number}" for number in range(60)]


class Unreliable(FolderObjects):
    """An archive that fails now and then, before or after it has stored what it was given."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder)
        self._rng = rng
        self.failure = 0.0

    def put_new(self, path: str, data: bytes) -> bool:
        if self._rng.random() < self.failure:
            raise ArchiveUnavailable("503")
        is_stored = super().put_new(path, data)
        if self._rng.random() < self.failure:
            raise ArchiveUnavailable("the answer was lost")
        return is_stored


class World:
    """A folder, its archive, and what is known of both."""

    def __init__(self, folder: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.rng = rng
        self.clock = ManualClock(NOON)
        self.objects = Unreliable(folder / "archive", rng)
        monkeypatch.setattr("rankd.node.embedded.open_objects", lambda *_, **__: self.objects)
        self.machine = 0
        self.boards = self.open()
        self.boards.define("arcade", keep="sum", windows=["all_time", "daily"], scopes=["country"])
        self.keys = 0

    @property
    def data(self) -> Path:
        return self.folder / f"machine-{self.machine}"

    def open(self) -> Boards:
        return rankd.open(self.data, clock=self.clock, archive_url="unused")

    def change(self) -> None:
        rng, boards = self.rng, self.boards
        later = rng.choice([0, 1, 1_000, 40_000_000])
        if later > 1_000:
            embedded_of(boards).writer.flush_answers()  # as upkeep does a few times a second
        self.clock.set(self.clock.now() + later)
        self.keys += 1
        key = rng.choice([None, f"key-{self.keys}"])
        country = {"country": rng.choice(["BR", "DE"])}
        match rng.randrange(9):
            case 0 | 1:
                boards.submit("arcade", rng.choice(PLAYERS), rng.randrange(99), key=key, attributes=country)
            case 2 | 3:
                rows = [(player, rng.randrange(99)) for player in rng.choices(PLAYERS, k=rng.randrange(1, 40))]
                boards.submit_many("arcade", rows, key=key)
            case 4:
                metadata = {"n": rng.randrange(9)}
                boards.submit("arcade", rng.choice(PLAYERS), rng.randrange(99), key=key, metadata=metadata)
            case 5:
                boards.set_player(rng.choice(PLAYERS), name=f"Name {rng.randrange(99)}", key=key)
            case 6:
                boards.set_friends(rng.choice(PLAYERS[:4]), rng.sample(PLAYERS, rng.randrange(4)), key=key)
            case 7:
                boards.remove("arcade", rng.choice(PLAYERS), key=key)
            case _:
                with SqliteCredentials(self.data, self.clock) as credentials:
                    credentials.create(f"game-{self.keys}", ["scores:write"])

    def backup(self) -> None:
        """Send until it succeeds; then what is restored is what is there."""
        self.boards.submit("arcade", "p0", 0)  # with it, the answers before it are stored
        for _ in range(100):
            try:
                self.boards.backup()
                break
            except ArchiveUnavailable:
                self.objects.failure /= 2
        else:
            raise AssertionError("the archive never took it")

    def restored(self, name: str) -> Path:
        target = self.folder / name
        restore(self.objects, target)
        return target


@pytest.mark.parametrize("seed", [1, 2, 3, pytest.param(None, marks=pytest.mark.long)])
def test_a_restored_folder_is_the_one_that_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> None:
    rng = random.Random(random.randrange(2**32) if seed is None else seed)
    monkeypatch.setattr("rankd.node.embedded.UPKEEP_EVERY_S", 3_600)
    monkeypatch.setattr("rankd.backup.reading.SEGMENT_ROWS_MAX", 30)
    monkeypatch.setattr("rankd.backup.reading.SEGMENT_CHANGES_MAX", 4)
    monkeypatch.setattr("rankd.backup.columns.ROWS_READ_AT_ONCE", 7)
    world = World(tmp_path, rng, monkeypatch)
    for round_ in range(12 if seed is not None else 100):
        world.objects.failure = rng.choice([0.0, 0.0, 0.3])
        for _ in range(rng.randrange(1, 15)):
            world.change()
        match rng.randrange(4):
            case 0:  # the server is started anew, without having sent everything
                world.boards.close()
                world.boards = world.open()
            case 1:  # the machine is lost, and the server goes on with what the archive has
                world.backup()
                before, ranks = contents(world.data), digests_of(world.boards)
                lost = world.boards
                target = world.restored(f"machine-{world.machine + 1}")
                assert contents(target) == before
                world.machine += 1
                world.boards = world.open()
                assert digests_of(world.boards) == ranks
                lost.close()
            case _:
                world.backup()
                assert contents(world.restored(f"copy-{round_}")) == contents(world.data)
    world.boards.verify()
    world.boards.close()
