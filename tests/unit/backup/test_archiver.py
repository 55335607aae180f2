"""The thread that sends a ledger while it is written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.backup.conftest import contents
from tests.unit.conftest import wait_until

import rankd
from rankd import Boards
from rankd.archive.folder_objects import FolderObjects
from rankd.backup import archiver
from rankd.backup.archiver import ArchiveStatus
from rankd.backup.chain import SEGMENTS
from rankd.backup.restoring import restore
from rankd.backup.sending import SegmentSender, send_beside
from rankd.clock import SystemClock
from rankd.errors import ArchiveForked, ArchiveUnavailable


def opened(folder: Path, archive: FolderObjects, every_ms: int = 20) -> Boards:
    boards = rankd.open(
        folder, archive_url=archive.url, archive_segments_every_ms=every_ms, archive_snapshots_every_ms=50
    )
    boards.define("arcade")
    return boards


def is_current(boards: Boards) -> Callable[[], bool]:
    return lambda: boards.archive_status == ArchiveStatus(0, 0)


def test_what_is_written_is_there_soon(tmp_path: Path, archive: FolderObjects) -> None:
    with opened(tmp_path / "data", archive) as boards:
        for number in range(3):
            boards.submit("arcade", f"p{number}", number, key=f"k{number}")
            wait_until(is_current(boards))
        restore(archive, tmp_path / "meanwhile")
        wait_until(lambda: bool(list(archive.list("ledger/snapshots"))))
        boards.submit("arcade", "last", 5)
    restore(archive, tmp_path / "restored")

    assert contents(tmp_path / "restored") == contents(tmp_path / "data"), "the end is sent when it is closed"
    with rankd.open(tmp_path / "meanwhile") as restored:
        assert restored.rank("arcade", "p2") is not None


def test_nothing_is_sent_while_nothing_changes(
    tmp_path: Path, archive: FolderObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = threading.Semaphore(0)
    send = SegmentSender.send

    def count(sender: SegmentSender) -> object:
        sent = send(sender)
        rounds.release()
        return sent

    monkeypatch.setattr(SegmentSender, "send", count)
    with opened(tmp_path / "data", archive) as boards:
        wait_until(is_current(boards))
        before = len(list(archive.list(SEGMENTS)))
        for _ in range(4):
            assert rounds.acquire(timeout=60)
        assert len(list(archive.list(SEGMENTS))) == before


def test_an_archive_that_fails_holds_up_nothing_and_is_behind(
    tmp_path: Path, archive: FolderObjects, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archiver, "BEHIND_WARN_S", 0.0)
    put_new = FolderObjects.put_new
    refuses = threading.Event()

    def refuse(objects: FolderObjects, path: str, data: bytes) -> bool:
        if refuses.is_set():
            raise ArchiveUnavailable("the archive at 10.0.0.7 does not answer", public_message="it does not answer")
        return put_new(objects, path, data)

    monkeypatch.setattr(FolderObjects, "put_new", refuse)
    with opened(tmp_path / "data", archive) as boards:
        wait_until(is_current(boards))
        refuses.set()
        for number in range(5):
            boards.submit("arcade", f"p{number}", number)
        wait_until(lambda: boards.archive_status is not None and boards.archive_status.problem is not None)
        wait_until(lambda: "s behind: as much would be lost" in caplog.text)
        status = boards.archive_status
        assert status is not None
        assert (status.behind_events, status.problem) == (5, "it does not answer")
        assert status.behind_ms > 0
        refuses.clear()
        wait_until(is_current(boards))
    assert caplog.text.count("is tried again: the archive at 10.0.0.7 does not answer") == 1


def test_an_archive_that_never_answers_does_not_keep_a_server_from_ending(
    tmp_path: Path, archive: FolderObjects, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archiver, "CLOSE_S", 0.1)
    hangs, has_ended, put_new = threading.Event(), threading.Event(), FolderObjects.put_new

    def hang(objects: FolderObjects, path: str, data: bytes) -> bool:
        hangs.set()
        assert has_ended.wait(60)
        return put_new(objects, path, data)

    monkeypatch.setattr(FolderObjects, "put_new", hang)
    boards = opened(tmp_path / "data", archive)
    assert hangs.wait(60)
    boards.close()
    sending = next(thread for thread in threading.enumerate() if thread.name == "rankd-segments")
    has_ended.set()
    sending.join(60)

    assert "what it lacks is sent after the next start" in caplog.text
    with opened(tmp_path / "data", archive) as again:
        wait_until(is_current(again))


def test_a_taken_archive_is_logged_once(
    tmp_path: Path, archive: FolderObjects, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "other", archive) as other:
        other.backup()
    with opened(tmp_path / "data", archive) as boards:
        wait_until(lambda: boards.archive_status is not None and boards.archive_status.problem is not None)
        with pytest.raises(ArchiveForked):
            boards.backup()
    assert caplog.text.count("nothing more is sent to the archive") == 1


def test_a_command_may_send_beside_the_server(tmp_path: Path, archive: FolderObjects) -> None:
    with opened(tmp_path / "data", archive, 3_600_000) as boards:
        wait_until(is_current(boards))
        boards.submit("arcade", "alice", 1)
        sent = send_beside(archive, tmp_path / "data", SystemClock())
        assert (sent.position, sent.sent) == (boards.position, 1)
        boards.submit("arcade", "bob", 1)
        assert boards.backup().sent == 1
    restore(archive, tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(tmp_path / "data")
