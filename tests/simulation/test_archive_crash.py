"""Killed at any step of an upload or a restore: the archive is whole, and a repetition ends as if nothing had been."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.servers.processes import killed_at_the_end
from tests.unit.backup.conftest import contents

import rankd
from rankd import ManualClock
from rankd.archive.folder_objects import FolderObjects
from rankd.backup.chain import SegmentChain
from rankd.backup.restoring import restore

from .crash_child import send
from .extent import replayable, short_and_long
from .test_crash import run_and_kill

NOON = 1_777_896_000_000
KILLS, KILLS_LONG = 5, 100
REPEATED = 20
RESTORE_S_MAX = 60.0


class Killed(BaseException):
    """The process ends here."""


class KillingObjects:
    """An object store whose user is killed before or after its n-th call."""

    def __init__(self, objects: FolderObjects) -> None:
        self._objects = objects
        self.left: float = float("inf")
        self.is_after = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._objects, name)
        if not callable(value):
            return value

        def call(*arguments: Any) -> Any:
            self.left -= 1
            if self.left < 0 and not self.is_after:
                raise Killed
            result = value(*arguments)
            if self.left < 0:
                raise Killed
            return result

        return call


@pytest.mark.parametrize("is_after", [False, True])
def test_an_upload_killed_at_each_step_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    monkeypatch.setattr("rankd.node.embedded.UPKEEP_EVERY_S", 3_600)
    monkeypatch.setattr("rankd.backup.reading.SEGMENT_ROWS_MAX", 20)
    objects = KillingObjects(FolderObjects(tmp_path / "archive"))
    objects.is_after = is_after
    monkeypatch.setattr("rankd.node.embedded.open_objects", lambda *_, **__: objects)
    clock = ManualClock(NOON)
    killed, is_sent = 0, False
    while not is_sent:
        clock.set(clock.now() + 1_000)
        with rankd.open(tmp_path / "data", clock=clock, archive_url="unused") as boards:
            boards.define("arcade")
            rows = [(f"p{killed}-{number}", number) for number in range(50)]
            boards.submit_many("arcade", rows, key=f"batch-{killed}")
            boards.set_player("alice", name=f"Alice {killed}")
            objects.left = killed
            try:
                boards.backup()
                is_sent = True
            except Killed:
                killed += 1
            objects.left = float("inf")
        _assert_whole(objects, tmp_path / f"copy-{killed}-{is_sent}")
    with rankd.open(tmp_path / "data", clock=clock, archive_url="unused") as boards:
        boards.backup()  # with the answers that were stored at the end
    restore(objects, tmp_path / "restored")

    assert killed > 10, "a backup is made of many steps"
    assert contents(tmp_path / "restored") == contents(tmp_path / "data")


def _assert_whole(objects: Any, target: Path) -> None:
    """Whatever there is of an archive restores a ledger of some moment."""
    chain = SegmentChain(objects)
    if any(segment.header.is_complete for segment in chain.walk(None, chain.last())):
        restore(objects, target)
        with rankd.open(target) as boards:
            boards.verify()


@short_and_long
def test_a_server_that_is_killed_while_it_sends(tmp_path: Path, everything: bool) -> None:
    with replayable() as rng:
        _kill_servers(tmp_path, rng, KILLS_LONG if everything else KILLS)


def _kill_servers(tmp_path: Path, rng: random.Random, kills: int) -> None:
    data, archive, first = tmp_path / "data", tmp_path / "archive", 1
    acknowledged: dict[tuple[str, int, int], str] = {}
    for kill in range(kills):
        child = "simulation.archive_crash_child"
        acknowledged |= run_and_kill(child, [str(data), str(archive)], first, rng.uniform(20, 400))
        first = max(number for _, _, number in acknowledged) + 1
        if not FolderObjects(archive).get("ledger/segments/000000000001"):
            continue
        restored = restore(FolderObjects(archive), tmp_path / f"restored-{kill}")
        with rankd.open(tmp_path / f"restored-{kill}") as boards:
            boards.verify()
            _assert_recognised(boards, acknowledged, restored.events, rng)
    with rankd.open(data, archive_url=str(archive)) as boards:
        boards.backup()
        boards.verify()
    restore(FolderObjects(archive), tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(data)


def _assert_recognised(
    boards: rankd.Boards, acknowledged: dict[tuple[str, int, int], str], upto: int, rng: random.Random
) -> None:
    """What was acknowledged up to the last event of the archive is there, under its key."""
    there = [key for key, position in acknowledged.items() if int(position.partition("-")[2]) <= upto]
    for key in rng.sample(sorted(there), min(REPEATED, len(there))):
        again = send(boards, *key)
        assert (again.position, again.repeated) == (acknowledged[key], True)


@short_and_long
def test_a_restore_that_is_killed_is_repeated(tmp_path: Path, everything: bool) -> None:
    with replayable() as rng:
        _kill_restores(tmp_path, rng, KILLS_LONG if everything else KILLS)


def _kill_restores(tmp_path: Path, rng: random.Random, kills: int) -> None:
    data, archive = tmp_path / "data", tmp_path / "archive"
    with rankd.open(data, archive_url=str(archive)) as boards:
        boards.define("arcade", keep="sum")
        for number in range(20):
            boards.submit_many("arcade", [(f"p{index}", number) for index in range(2_000)], key=f"k{number}")
            boards.backup()
    expected = contents(data)
    for kill in range(kills):
        target = tmp_path / f"restored-{kill}"
        command = [sys.executable, "-m", "rankd", "restore", str(archive), str(target)]
        with killed_at_the_end(subprocess.Popen(command, stdout=subprocess.DEVNULL)) as child:
            try:
                child.wait(rng.uniform(0.4, 1.6))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(RESTORE_S_MAX)
        if (target / "restoring").exists() or not (target / "ledger.db").exists():
            restore(FolderObjects(archive), target)
        assert contents(target) == expected
