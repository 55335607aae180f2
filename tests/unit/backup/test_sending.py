"""What a ledger sends to its archive: everything, once, and nothing beside another writer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.backup.conftest import contents, digests_of
from tests.unit.conftest import OpenBoards

from rankd import Boards, ManualClock
from rankd.archive.folder_objects import FolderObjects
from rankd.backup.chain import SegmentChain, path_of
from rankd.backup.restoring import restore
from rankd.errors import ArchiveDamaged, ArchiveForked, ArchiveUnavailable, Refused
from rankd.ledger.port import NOT_READ, SourceSpan
from rankd.registry.sqlite.credentials import SqliteCredentials


def numbers_in(archive: FolderObjects) -> list[int]:
    return SegmentChain(archive).numbers()


def assert_restores(archive: FolderObjects, folder: Path, target: Path) -> None:
    restore(archive, target)
    assert contents(target) == contents(folder)


def test_everything_there_is_comes_back(
    archived: Boards, archive: FolderObjects, tmp_path: Path, clock: ManualClock
) -> None:
    with SqliteCredentials(tmp_path / "data", clock) as credentials:
        _, token = credentials.create("game", ["scores:write"])
        credentials.create_signing_key("client")
    archived.submit("arcade", "alice", 976, attributes={"country": "BR"}, key="k1", metadata={"car": "red"})
    archived.submit_many("arcade", [(f"p{number}", number) for number in range(200)], key="k2")
    for number in range(20):
        archived.set_player(f"p{number}", name=f"Player {number}", key=f"profile-{number}")
    archived.set_friends("alice", ["p1", "p2"])
    archived.set_friends("p1", ["alice"])
    archived.set_friends("p1", [])
    archived.sources.skip([SourceSpan("topic", 0, NOT_READ, 17)])
    archived.submit("arcade", "bob", 5)  # the answers before it are stored with it
    sent = archived.backup()

    assert sent.position == archived.position
    assert sent.sent > 8, "segments are small in these tests"
    assert_restores(archive, tmp_path / "data", tmp_path / "restored")
    with SqliteCredentials(tmp_path / "restored", clock) as credentials:
        assert credentials.find(token) is not None
        assert credentials.signing_key("client") is not None


def test_nothing_is_sent_twice(archived: Boards, archive: FolderObjects) -> None:
    archived.submit("arcade", "alice", 1)
    archived.backup()
    there = numbers_in(archive)

    assert archived.backup().sent == 0
    assert numbers_in(archive) == there


def test_a_change_without_an_event_is_sent(
    archived: Boards, archive: FolderObjects, tmp_path: Path, clock: ManualClock
) -> None:
    archived.set_player("alice", name="Alice")
    archived.backup()
    archived.set_player("alice", name="Alicia")
    archived.set_friends("alice", ["bob"])
    archived.backup()
    archived.set_friends("alice", [])
    assert archived.archive_status is not None
    assert archived.archive_status.behind_events == 1
    archived.backup()
    with SqliteCredentials(tmp_path / "data", clock) as credentials:
        credentials.create("game", ["players:write"])
    archived.backup()
    archived.sources.skip([SourceSpan("topic", 0, NOT_READ, 3)])
    archived.backup()

    assert_restores(archive, tmp_path / "data", tmp_path / "restored")


def test_the_archive_says_where_to_go_on(
    open_boards: OpenBoards, archived: Boards, archive: FolderObjects, tmp_path: Path
) -> None:
    archived.submit("arcade", "alice", 1, key="k1")
    archived.backup()
    archived.close()
    without = open_boards()  # goes on while nothing is sent
    without.submit_many("arcade", [(f"p{number}", number) for number in range(300)], key="k2")
    without.set_player("alice", name="Alice")
    without.close()
    again = open_boards(archive_url=archive.url)
    again.submit("arcade", "bob", 2)
    again.backup()

    assert_restores(archive, tmp_path / "data", tmp_path / "restored")


def test_a_segment_whose_answer_was_lost_is_not_sent_again(
    archived: Boards, archive: FolderObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_new = FolderObjects.put_new

    def lose(objects: FolderObjects, path: str, data: bytes) -> bool:
        put_new(objects, path, data)
        raise ArchiveUnavailable("the archive does not answer")

    archived.submit("arcade", "alice", 1)
    archived.backup()
    archived.submit("arcade", "bob", 1)
    with monkeypatch.context() as patched:
        patched.setattr(FolderObjects, "put_new", lose)
        with pytest.raises(ArchiveUnavailable):
            archived.backup()
    archived.submit("arcade", "carol", 1)
    archived.backup()

    assert_restores(archive, tmp_path / "data", tmp_path / "restored")


def test_another_ledger_is_refused(open_boards: OpenBoards, archived: Boards, archive: FolderObjects) -> None:
    archived.backup()
    other = open_boards("other", archive_url=archive.url)
    other.define("arcade")

    with pytest.raises(ArchiveForked, match=r"belongs to another ledger.*name another archive\.url") as refusal:
        other.backup()
    assert archive.url not in refusal.value.public_message
    assert other.archive_status is not None
    assert other.archive_status.problem == refusal.value.public_message
    assert archived.backup().sent == 0


def test_an_older_copy_of_the_folder_is_refused(
    open_boards: OpenBoards, archived: Boards, archive: FolderObjects, tmp_path: Path
) -> None:
    archived.submit("arcade", "alice", 1)
    archived.close()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    live = open_boards(archive_url=archive.url)
    live.submit("arcade", "bob", 2)
    live.backup()

    copy = open_boards("copy", archive_url=archive.url)
    with pytest.raises(ArchiveForked, match="older copy"):
        copy.backup()
    copy.submit("arcade", "carl", 2)  # as many events, of the same instant and score
    copy.close()
    again = open_boards("copy", archive_url=archive.url)
    with pytest.raises(ArchiveForked, match="older copy"):
        again.backup()
    live.submit("arcade", "dora", 2)
    live.backup()
    assert_restores(archive, tmp_path / "data", tmp_path / "restored")


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_restored_folder_takes_over_and_the_old_one_is_refused(
    open_boards: OpenBoards, archived: Boards, archive: FolderObjects, tmp_path: Path, is_idle: bool
) -> None:
    archived.submit("arcade", "alice", 1)
    archived.backup()
    restore(archive, tmp_path / "restored")
    restored = open_boards("restored", archive_url=archive.url)
    assert digests_of(restored) == digests_of(archived)
    restored.backup()

    if not is_idle:
        archived.submit("arcade", "bob", 2)
    with pytest.raises(ArchiveForked, match="another server has taken over"):
        archived.backup()
    with pytest.raises(ArchiveForked, match="another server has taken over"):
        archived.backup()
    restored.submit("arcade", "carol", 3)
    restored.backup()
    assert_restores(archive, tmp_path / "restored", tmp_path / "third")


def test_of_two_that_take_over_at_once_one_is_refused(
    open_boards: OpenBoards, archived: Boards, archive: FolderObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived.backup()
    archived.close()
    restore(archive, tmp_path / "first")
    restore(archive, tmp_path / "second")
    first = open_boards("first", archive_url=archive.url)
    second = open_boards("second", archive_url=archive.url)
    put_new = FolderObjects.put_new

    def come_second(objects: FolderObjects, path: str, data: bytes) -> bool:
        monkeypatch.setattr(FolderObjects, "put_new", put_new)
        first.backup()
        return put_new(objects, path, data)

    monkeypatch.setattr(FolderObjects, "put_new", come_second)
    with pytest.raises(ArchiveForked, match="another server has taken over"):
        second.backup()


def test_a_lost_archive_gets_everything_again(
    archived: Boards, archive: FolderObjects, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    archived.submit("arcade", "alice", 1)
    archived.set_player("alice", name="Alice")
    archived.backup()
    shutil.rmtree(archive.url)
    archived.submit("arcade", "bob", 1)
    archived.backup()

    assert "is empty: everything is sent again" in caplog.text
    assert_restores(archive, tmp_path / "data", tmp_path / "restored")


def test_nothing_is_sent_behind_a_segment_that_is_missing(archived: Boards, archive: FolderObjects) -> None:
    for player in ("alice", "zed"):
        archived.submit("arcade", player, 1)
        archived.backup()
    last = numbers_in(archive)[-1]
    archive.delete(path_of(last))
    archived.submit("arcade", "bob", 1)

    with pytest.raises(ArchiveDamaged, match=f"segment {last} of the archive"):
        archived.backup()
    assert archived.archive_status is not None
    assert archived.archive_status.behind_events == 1
    assert "lacks what was sent" in (archived.archive_status.problem or "")


def test_boards_without_an_archive_have_no_backup(boards: Boards) -> None:
    assert boards.archive_status is None
    with pytest.raises(Refused, match=r"archive\.url"):
        boards.backup()
