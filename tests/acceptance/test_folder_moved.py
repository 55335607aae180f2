"""Somebody moves the files of a running server: no second one gets in, and nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from .serving import Serving, serving, start

CONFIG = "[boards.arcade]\n"
LOCKED = 4
ENDS_S = 60.0
PAUSE_S = 0.005  # between two scores
NOTICED_S = 10.0  # of a check five times a second
FILES = ("ledger.db", "ledger.db-wal", "ledger.db-shm")


def move(folder: Path, target: Path, *names: str) -> None:
    target.mkdir(exist_ok=True)
    for name in names:
        (folder / name).rename(target / name)


def copy(folder: Path, target: Path) -> None:
    shutil.copytree(folder, target)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def server(folder: Path) -> Iterator[Serving]:
    with serving(folder, config=CONFIG) as running:
        yield running


class Playing:
    """Scores that are sent one after the other, and which of them were acknowledged."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        self._stopping = threading.Event()
        self._answered = threading.Condition()
        self.acknowledged: list[int] = []
        self.refused: httpx.Response | None = None

    @contextmanager
    def on(self) -> Iterator[None]:
        """Play until a score is refused or the block ends."""
        thread = threading.Thread(target=self._play)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join(ENDS_S)

    def _play(self) -> None:
        with self._server.client(self._server.admin_key) as client:
            for number in range(1, 1_000_000):
                sent = {"board": "arcade", "player": f"p-{number}", "score": number}
                try:
                    answer = client.post("/v1/scores", json=sent)
                except httpx.TransportError:  # the server was killed
                    return
                with self._answered:
                    if answer.status_code == 200:
                        self.acknowledged.append(number)
                    else:
                        self.refused = answer
                    self._answered.notify_all()
                if self.refused is not None or self._stopping.wait(PAUSE_S):
                    return

    def wait(self, condition: Callable[[], bool], wait_s: float = NOTICED_S) -> None:
        with self._answered:
            assert self._answered.wait_for(condition, wait_s), self._server.log.read_text()[-3_000:]


def refuse_second(folder: Path, *, code: int = LOCKED, reason: str = "is in use by") -> None:
    """See that a second server does not start."""
    command = [sys.executable, "-m", "rankd", "serve", "--data", str(folder), "--port", "0"]
    ended = subprocess.run(command, capture_output=True, timeout=ENDS_S, check=False, text=True)
    assert ended.returncode == code, ended.stderr
    assert reason in ended.stderr


def kept(server: Serving) -> set[int]:
    """Return every score that is ranked, by a page at a time."""
    scores: set[int] = set()
    with server.client() as client:
        page = client.get("/v1/boards/arcade/top?limit=1000").json()
        while True:
            scores |= {entry["score"] for entry in page["entries"]}
            if page["next"] is None:
                return scores
            page = client.get("/v1/boards/arcade/top", params={"limit": 1000, "cursor": page["next"]}).json()


def rename_lock(folder: Path) -> None:
    (folder / "lock").rename(folder / "lock.old")


def remove_lock(folder: Path) -> None:
    (folder / "lock").unlink()


def replace_lock(folder: Path) -> None:
    (folder / "lock").unlink()
    (folder / "lock").write_text("1\n")


@pytest.mark.parametrize("change", [rename_lock, remove_lock, replace_lock])
def test_without_its_lock_no_second_server_gets_in_and_the_first_goes_on(
    server: Serving, folder: Path, change: Callable[[Path], None]
) -> None:
    playing = Playing(server)
    with playing.on():
        playing.wait(lambda: len(playing.acknowledged) > 10)
        change(folder)
        refuse_second(folder)
        before = len(playing.acknowledged)
        playing.wait(lambda: len(playing.acknowledged) > before + 10)
    assert playing.refused is None
    assert server.stop() == 0
    with serving(folder) as again:
        assert kept(again) == set(playing.acknowledged)


def test_neither_by_another_path_nor_where_it_was_moved_to_a_second_server_gets_in(
    server: Serving, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(folder)
    refuse_second(tmp_path / "link")
    folder.rename(tmp_path / "moved")
    refuse_second(tmp_path / "moved")


def test_in_another_folder_the_ledger_lets_no_second_server_in(server: Serving, folder: Path, tmp_path: Path) -> None:
    move(folder, tmp_path / "elsewhere", *FILES)

    refuse_second(tmp_path / "elsewhere")


def test_a_lock_that_is_a_link_is_refused(server: Serving, folder: Path, tmp_path: Path) -> None:
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(tmp_path / "somewhere")

    refuse_second(folder, code=3, reason="is a symbolic link; put the file itself there")
    assert not (tmp_path / "somewhere").exists()


def bring_back(folder: Path) -> None:
    (folder / "ledger.old").replace(folder / "ledger.db")


def rename_ledger(folder: Path) -> Callable[[], None]:
    (folder / "ledger.db").rename(folder / "ledger.old")
    return lambda: bring_back(folder)


def rename_ledger_and_lock(folder: Path) -> Callable[[], None]:
    rename_lock(folder)
    return rename_ledger(folder)


def move_all_files(folder: Path) -> Callable[[], None]:
    other_folder = folder.with_name("elsewhere")
    move(folder, other_folder, *FILES)
    return lambda: move(other_folder, folder, *FILES)


def remove_log(folder: Path) -> Callable[[], None]:
    (folder / "ledger.db-wal").unlink()
    return lambda: None


def put_copy_in_place(folder: Path) -> Callable[[], None]:
    shutil.copy(folder / "ledger.db", folder / "copy")
    (folder / "ledger.db").rename(folder / "ledger.old")
    (folder / "copy").rename(folder / "ledger.db")
    return lambda: bring_back(folder)


@pytest.mark.parametrize(
    ("change", "end"),
    [
        (rename_ledger, signal.SIGTERM),
        (rename_ledger, signal.SIGKILL),
        (rename_ledger_and_lock, signal.SIGKILL),
        (move_all_files, signal.SIGTERM),
        (remove_log, signal.SIGKILL),
        (put_copy_in_place, signal.SIGTERM),
        (put_copy_in_place, signal.SIGKILL),
    ],
)
def test_a_ledger_that_is_moved_is_written_no_more_and_loses_nothing(
    server: Serving, folder: Path, change: Callable[[Path], Callable[[], None]], end: signal.Signals
) -> None:
    playing = Playing(server)
    with playing.on():
        playing.wait(lambda: len(playing.acknowledged) > 10)
        put_back = change(folder)
        playing.wait(lambda: playing.refused is not None)
        refuse_second(folder)
    assert playing.refused is not None
    assert (playing.refused.status_code, playing.refused.json()["code"]) == (503, "ledger_unavailable")
    assert playing.refused.json()["detail"].startswith("the ledger is not where it was: nothing is written until")
    assert kept(server) == set(playing.acknowledged)  # it is still read
    assert server.log.read_text().count("was moved, removed or replaced while it was open") == 1
    server.stop(end)

    put_back()
    with serving(folder) as again:
        assert kept(again) == set(playing.acknowledged)


def test_a_folder_that_is_replaced_is_left_alone(server: Serving, folder: Path, tmp_path: Path) -> None:
    """A copy in its place is another ledger: what the first server does at its end must not touch it."""
    moved = tmp_path / "moved"
    playing = Playing(server)
    with playing.on():
        playing.wait(lambda: len(playing.acknowledged) > 10)
        folder.rename(moved)
        playing.wait(lambda: playing.refused is not None)
    refuse_second(moved)
    copy(moved, folder)
    listed = sorted(os.listdir(folder / "snapshots"))
    second = start(folder)
    try:
        second.wait_until_ready()
        with second.client(second.admin_key) as admin:
            sent = {"board": "arcade", "player": "later", "score": 999_999}
            assert admin.post("/v1/scores", json=sent).status_code == 200
        assert server.stop() == 0
        assert sorted(os.listdir(folder / "snapshots")) == listed
        second.stop(signal.SIGKILL)
        with serving(folder) as again:
            assert kept(again) == {*playing.acknowledged, 999_999}
    finally:
        if second.process.poll() is None:
            second.stop(signal.SIGKILL)
    with serving(moved) as first:
        assert kept(first) == set(playing.acknowledged)


def test_a_log_that_was_left_behind_is_not_given_to_a_new_ledger(server: Serving, folder: Path) -> None:
    playing = Playing(server)
    with playing.on():
        playing.wait(lambda: len(playing.acknowledged) > 10)
        (folder / "ledger.db").rename(folder / "ledger.old")
        server.stop(signal.SIGKILL)  # before it may have noticed
    refuse_second(folder, code=5, reason="is missing, and its log is there: put it back")

    (folder / "ledger.old").replace(folder / "ledger.db")
    with serving(folder) as again:
        assert set(playing.acknowledged) <= kept(again)
