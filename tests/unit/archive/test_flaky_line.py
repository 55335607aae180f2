"""An archive behind a line that is slow and breaks: whatever happens, a window is whole or absent, and gets there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.load_bound import LoadBound
from tests.servers.s3 import S3Server
from tests.servers.slow_line import SlowLine
from tests.servers.waiting import wait_until
from tests.unit.archive.test_windows import paths_in, players_in, position_of, window_of

from rankd.archive import remote_objects
from rankd.archive.remote_objects import RemoteObjects
from rankd.archive.windows import WindowArchive
from rankd.errors import ArchiveUnavailable
from rankd.seasons.archiving import ArchiveStep


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_objects, "REQUEST_S", 2.0)
    monkeypatch.setattr(remote_objects, "RETRIES_MAX", 1)
    monkeypatch.setattr(remote_objects, "BACKOFF_S", 0.01)


@pytest.fixture
def line(s3: S3Server) -> Iterator[SlowLine]:
    line = SlowLine(s3.port, delay_s_max=0.005)
    yield line
    line.close()


def test_a_window_arrives_whole_over_a_line_that_is_cut_again_and_again(
    s3: S3Server, s3_credentials: None, line: SlowLine, tmp_path: Path
) -> None:
    bucket = s3.new_bucket()
    near = RemoteObjects(f"s3://{bucket}", endpoint=s3.endpoint)
    far = WindowArchive(RemoteObjects(f"s3://{bucket}", endpoint=f"http://127.0.0.1:{line.port}"), tmp_path / "scratch")
    archiving, window = ArchiveStep(far, position_of(window_of(3_000)), again_s=0.01), window_of(3_000)
    ended, bound = threading.Event(), LoadBound()

    def cut() -> None:
        while not ended.wait(0.03) and bound.take():
            line.cut()

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        archiving.has(window, lambda: True)
        for _ in range(5):
            players = players_in(WindowArchive(near))
            assert players is None or len(players) == 3_000
        wait_until(lambda: archiving.failed >= 2 or archiving.waiting == 0)
    finally:
        ended.set()
        cutting.join(60)
    wait_until(lambda: archiving.waiting == 0)
    archiving.close()

    assert len(players_in(WindowArchive(near)) or []) == 3_000
    assert len(paths_in(near)) == 2


def test_a_read_while_the_archive_is_away_says_so_and_works_again(
    own_s3: S3Server, s3_credentials: None, tmp_path: Path
) -> None:
    objects = RemoteObjects(f"s3://{own_s3.new_bucket()}", endpoint=own_s3.endpoint)
    window = window_of()
    WindowArchive(objects, tmp_path / "scratch").keep(window, position_of(window))
    reading = WindowArchive(objects, tmp_path / "scratch")
    own_s3.kill()
    with pytest.raises(ArchiveUnavailable):
        players_in(reading)

    own_s3.start()
    assert len(players_in(reading) or []) == 100


def test_what_was_read_once_is_read_from_this_disk(own_s3: S3Server, s3_credentials: None, tmp_path: Path) -> None:
    objects = RemoteObjects(f"s3://{own_s3.new_bucket()}", endpoint=own_s3.endpoint)
    window = window_of()
    WindowArchive(objects, tmp_path / "scratch").keep(window, position_of(window))
    (manifest,) = [each.manifest for each in WindowArchive(objects).manifests()]
    first = WindowArchive(objects, tmp_path / "scratch")
    assert len(players_in(first) or []) == 100
    own_s3.kill()

    again = WindowArchive(objects, tmp_path / "scratch").open(manifest)  # as after a restart
    key = window.instances()[-1]
    assert again.range(key, 1, 100) == window.store.range(key, 1, 100)
    for piece in (tmp_path / "scratch" / "pieces").iterdir():
        piece.write_bytes(b"damaged")
    with pytest.raises(ArchiveUnavailable):
        WindowArchive(objects, tmp_path / "scratch").open(manifest)
