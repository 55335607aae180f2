"""Where players stood: recorded at each midnight, the same by whoever follows the ledger, and read as a course."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.conftest import MONDAY_NOON, OpenBoards, wait_until

from rankd import Boards, ManualClock
from rankd.errors import InvalidValue, VerificationFailed, WindowUnknown
from rankd.folder import SNAPSHOTS
from rankd.node.open_embedded import HISTORY, embedded_of
from rankd.seasons import history as recording
from rankd.seasons.places import PlacesFile

DAY_MS = 86_400_000
MIDNIGHT = MONDAY_NOON + DAY_MS // 2
PLAYERS = [f"player-{number}" for number in range(30)]
WAIT_S = 30


def play(boards: Boards, clock: ManualClock, days: int, rng: random.Random) -> None:
    """Send scores on some days; on others nothing happens."""
    for _ in range(days):
        if rng.random() < 0.8:
            boards.submit_many("arcade", [(rng.choice(PLAYERS), rng.randint(-50, 1_000)) for _ in range(20)])
            if rng.random() < 0.2:
                boards.remove("arcade", rng.choice(PLAYERS))
        clock.advance(DAY_MS)
    boards.settle()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.places"))}


@pytest.mark.parametrize("order", ["desc", "asc"])
def test_a_course_says_what_as_of_says(boards: Boards, clock: ManualClock, order: str, rng: random.Random) -> None:
    boards.define("arcade", windows=["all_time", "weekly", "daily"], order=order, keep="latest", history={"top": "all"})
    play(boards, clock, 40, rng)
    midnights = {point.at for player in PLAYERS for point in boards.course("arcade", player).points}
    assert len(midnights) > 20
    for window in ("all_time", "weekly"):
        courses = {player: boards.course("arcade", player, window=window) for player in PLAYERS}
        for player, course in courses.items():
            assert [point.at for point in course.points] == sorted({point.at for point in course.points})
            for point in course.points:
                standing = boards.rank("arcade", player, window=point.window, as_of=point.at + 1)
                assert standing is not None
                assert (point.rank, point.score, point.total) == (standing.rank, standing.score, standing.total)
            if course.points:
                assert course.best is not None
                assert course.best.rank == min(point.rank for point in course.points)


def test_an_hourly_course_says_what_as_of_says(
    open_boards: OpenBoards, clock: ManualClock, tmp_path: Path, rng: random.Random
) -> None:
    boards, folder = open_boards(), tmp_path / "data" / HISTORY
    zone = "Asia/Kathmandu"  # whose hours begin at a quarter past in UTC
    boards.define(
        "arcade",
        windows=["daily", "all_time", "hourly"],
        keep="latest",
        time_zone=zone,
        history={"every": "1h", "top": "all"},
    )
    for _ in range(60):
        boards.submit_many("arcade", [(rng.choice(PLAYERS), rng.randint(0, 99)) for _ in range(5)])
        clock.advance(rng.choice([600_000, 3_600_000, 9_000_000]))
    boards.settle()
    for window, least in (("daily", 20), ("all_time", 20), ("hourly", 0)):
        instants = set()
        for player in PLAYERS:
            for point in boards.course("arcade", player, window=window).points:
                instants.add(point.at)
                standing = boards.rank("arcade", player, window=point.window, as_of=point.at + 1)
                assert standing is not None
                assert (point.rank, point.score, point.total) == (standing.rank, standing.score, standing.total)
        assert len(instants) > least if least else not instants
        assert all(instant % 3_600_000 == 900_000 for instant in instants)
    boards.verify()
    before = files(folder)
    boards.close()
    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "data" / SNAPSHOTS)
    again = open_boards()
    again.settle()
    assert files(folder) == before


def test_hours_are_written_so_that_versions_without_them_say_so(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", history={"every": "1h"})
    boards.submit("arcade", "alice", 5)
    clock.advance(5 * 3_600_000)
    boards.submit("arcade", "alice", 6)
    ledger = embedded_of(boards).ledger
    contexts = [ledger.context(ledger.event(0, sequence).context) for sequence in (1, 2, 3, 4)]
    assert [context.kind for context in contexts] == ["define", "score", "hour", "score"]
    assert [context.payload_version for context in contexts] == [1, 1, 2, 1]


def test_a_midnight_after_which_nothing_came_for_days_is_recorded_once(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", history={})
    boards.submit("arcade", "alice", 5)
    clock.advance(5 * DAY_MS)
    boards.settle()
    assert [point.at for point in boards.course("arcade", "alice").points] == [MIDNIGHT + 4 * DAY_MS]


def test_the_first_ones_only_are_recorded_and_the_total_says_how_many_there_were(
    boards: Boards, clock: ManualClock
) -> None:
    boards.define("arcade", history={"top": 2})
    boards.submit_many("arcade", [("alice", 3), ("bob", 2), ("carol", 1)])
    clock.advance(DAY_MS)
    boards.settle()
    (point,) = boards.course("arcade", "bob").points
    assert (point.at, point.window, point.rank, point.score, point.total) == (MIDNIGHT, "all_time", 2, 2, 3)
    assert boards.course("arcade", "carol").points == []
    assert boards.course("arcade", "nobody").points == []


def test_a_replay_records_the_same_files(open_boards: OpenBoards, clock: ManualClock, tmp_path: Path) -> None:
    boards, folder = open_boards(), tmp_path / "data"
    boards.define("arcade", windows=["all_time", "weekly"], history={"top": "all", "keep": "20d"})
    play(boards, clock, 30, random.Random(4))
    boards.close()
    before = files(folder / HISTORY)
    assert 20 < len(before) < 60
    shutil.rmtree(folder / HISTORY)
    shutil.rmtree(folder / SNAPSHOTS)
    again = open_boards()
    again.settle()
    assert files(folder / HISTORY) == before
    again.verify()
    written = embedded_of(again)._places_recorder.written
    again.close()
    shutil.rmtree(folder / SNAPSHOTS)
    third = open_boards()
    third.settle()
    assert files(folder / HISTORY) == before
    assert embedded_of(third)._places_recorder.written < written  # those that are there are not written again


def test_a_checkpoint_waits_for_what_was_recorded_before_it(
    boards: Boards, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, write = threading.Event(), recording.PlaceRecorder._write

    def held(recorder: recording.PlaceRecorder, recorded: Any) -> None:
        assert may_write.wait(WAIT_S)
        write(recorder, recorded)

    monkeypatch.setattr(recording.PlaceRecorder, "_write", held)
    boards.define("arcade", history={})
    boards.submit("arcade", "alice", 5)
    clock.advance(DAY_MS)
    boards.submit("arcade", "alice", 6)  # after midnight
    saving = threading.Thread(target=boards.snapshot)
    saving.start()
    recorder = embedded_of(boards)._places_recorder
    wait_until(lambda: len(recorder._waiting) == 1)
    saving.join(0.05)
    assert saving.is_alive()
    assert boards.submit("arcade", "alice", 7).rank == 1  # commits go on
    may_write.set()
    saving.join(WAIT_S)
    assert not saving.is_alive()
    assert recorder.written == 1


def test_a_disk_that_fails_loses_the_file_and_nothing_else(
    boards: Boards, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recording, "AGAIN_S", 0.001)
    boards.define("arcade", history={})
    boards.submit("arcade", "alice", 5)
    with monkeypatch.context() as failing:
        failing.setattr(recording, "encode_places", full)
        clock.advance(DAY_MS)
        boards.settle()
    assert embedded_of(boards)._places_recorder.failed == 1
    assert "No space left" in caplog.text
    clock.advance(DAY_MS)
    boards.settle()
    assert [point.at for point in boards.course("arcade", "alice").points] == [MIDNIGHT + DAY_MS]
    boards.verify()


def test_what_a_crash_left_and_what_is_too_old_goes(boards: Boards, clock: ManualClock, tmp_path: Path) -> None:
    boards.define("arcade", history={"keep": "3d"})
    boards.submit("arcade", "alice", 5)
    for day in range(6):
        clock.advance(DAY_MS)
        boards.submit("arcade", "alice", 6 + day)
        boards.settle()
        if day == 2:
            folder = tmp_path / "data" / HISTORY / "arcade" / "v1" / "all_time"
            (folder / "draft-1.places").write_bytes(b"cut of")
    assert [point.at for point in boards.course("arcade", "alice").points] == [
        MIDNIGHT + day * DAY_MS for day in (2, 3, 4, 5)
    ]
    assert not list(tmp_path.rglob("draft-*"))


def test_verify_finds_places_that_the_ledger_does_not_have(boards: Boards, clock: ManualClock, tmp_path: Path) -> None:
    boards.define("arcade", history={})
    boards.submit("arcade", "alice", 5)
    clock.advance(DAY_MS)
    boards.submit("arcade", "bob", 6)
    clock.advance(DAY_MS)
    boards.settle()
    boards.verify()
    first, second = sorted((tmp_path / "data" / HISTORY).rglob("*.places"))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    with pytest.raises(VerificationFailed, match="other places"):
        boards.verify()
    first.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(VerificationFailed, match="does not verify"):
        boards.verify()
    first.write_bytes(b"")
    assert [point.at for point in boards.course("arcade", "alice").points] == [MIDNIGHT + DAY_MS]
    first.unlink()
    boards.verify()


def test_finals_are_those_of_closed_windows(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "all_time"], scopes=["country"], history={"top": "all"})
    boards.submit_many(
        "arcade",
        [
            {"player": "alice", "score": 5, "attributes": {"country": "BR"}},
            {"player": "bob", "score": 6, "attributes": {"country": "AR"}},
        ],
    )
    clock.advance(8 * DAY_MS)
    boards.submit("arcade", "alice", 9)
    boards.settle()
    course = boards.course("arcade", "alice", window="weekly")
    (final,) = course.finals
    assert (final.window, final.rank, final.score, final.total) == ("weekly:2026-W19", 2, 5, 2)
    assert (final.percentile, final.top_percent) == (0.0, 100.0)
    assert final.ends_at == MIDNIGHT + 6 * DAY_MS
    assert course.window == "weekly"
    assert boards.course("arcade", "alice").finals == course.finals  # the first window
    assert boards.course("arcade", "alice", window="weekly:2026-W19").finals == course.finals
    assert boards.course("arcade", "alice", window="weekly:2026-W18").finals == []
    assert boards.course("arcade", "alice", window="all_time").finals == []
    in_brazil = boards.course("arcade", "alice", window="weekly", scope="country:BR")
    assert ([final.rank for final in in_brazil.finals], in_brazil.points) == ([1], [])
    assert boards.course("arcade", "alice", window="weekly", since=final.ends_at + 1).finals == []


def test_a_span_and_a_limit_choose_points(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", history={})
    for day in range(6):
        boards.submit("arcade", "alice", day)
        clock.advance(DAY_MS)
    boards.settle()

    def days(**options: int) -> list[int]:
        return [(point.at - MIDNIGHT) // DAY_MS for point in boards.course("arcade", "alice", **options).points]  # type: ignore[arg-type]

    assert days() == [0, 1, 2, 3, 4, 5]
    assert days(since=MIDNIGHT + DAY_MS, until=MIDNIGHT + 3 * DAY_MS) == [1, 2, 3]
    assert days(limit=2) == [4, 5]
    assert days(until=MIDNIGHT + 3 * DAY_MS, limit=2) == [2, 3]


def test_what_cannot_be_asked_is_refused(boards: Boards) -> None:
    boards.define("arcade")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"since": -1}, "since"),
        ({"until": "now"}, "until"),
        ({"since": 5, "until": 4}, "until"),
        ({"limit": 0}, "limit"),
        ({"limit": 1_001}, "limit"),
        ({"window": "weekly:"}, "window"),
        ({"window": "all_time:previous"}, "window"),
    ]
    for options, field in refused:
        with (
            pytest.raises(InvalidValue, match=f"^{field}:")
            if field != "window"
            else pytest.raises((InvalidValue, WindowUnknown))
        ):
            boards.course("arcade", "alice", **options)
    assert boards.course("arcade", "alice").points == []


@pytest.mark.parametrize(
    ("history", "field"),
    [
        ({"every": "2h"}, "history.every"),
        ({"every": "24m"}, "history.every"),
        ({"every": 5}, "history.every"),
        ({"top": 0}, "history.top"),
        ({"top": "some"}, "history.top"),
        ({"top": 1.5}, "history.top"),
        ({"top": True}, "history.top"),
        ({"keep": "1h"}, "history.keep"),
        ({"often": "1d"}, "history"),
        ("1d", "history"),
    ],
)
def test_a_history_that_makes_no_sense_is_refused(boards: Boards, history: object, field: str) -> None:
    with pytest.raises(InvalidValue, match=field):
        boards.define("arcade", history=history)


def test_a_history_needs_what_it_is_about_and_may_change(boards: Boards) -> None:
    with pytest.raises(InvalidValue, match="history: needs a window longer than a day"):
        boards.define("arcade", windows=["daily", "hourly"], history={})
    with pytest.raises(InvalidValue, match="history: needs a window longer than an hour"):
        boards.define("arcade", windows=["hourly"], history={"every": "1h"})
    boards.define("hours", windows=["hourly", "daily"], history={"every": "1h"})
    with pytest.raises(InvalidValue, match="history: needs global"):
        boards.define("arcade", {"scopes": ["country"], "global": False, "history": {}})
    boards.define("arcade", history={"top": 5})
    assert boards.definition("arcade")["history"] == {"every": "1d", "top": 5, "keep": "730d"}
    assert boards.define("arcade", history={"top": "all", "keep": "24h"}).changed
    assert boards.definition("arcade")["history"] == {"every": "1d", "top": "all", "keep": "1d"}
    assert boards.define("arcade").changed
    assert boards.definition("arcade")["history"] is None


def test_a_board_that_was_deleted_shares_nothing_with_the_next_of_its_name(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", history={})
    boards.submit("arcade", "alice", 5)
    clock.advance(DAY_MS)
    boards.settle()
    boards.delete("arcade")
    boards.define("arcade", history={})
    boards.submit("arcade", "alice", 5)
    assert boards.course("arcade", "alice").points == []


def test_a_file_says_what_it_is(boards: Boards, clock: ManualClock, tmp_path: Path) -> None:
    boards.define("arcade", windows=["weekly"], history={})
    boards.submit("arcade", "alice", 5)
    clock.advance(DAY_MS)
    boards.settle()
    (path,) = (tmp_path / "data" / HISTORY).rglob("*.places")
    with PlacesFile(path) as file:
        assert (file.head.board, file.head.window, file.head.at) == ("arcade", "weekly:2026-W19", MIDNIGHT)
        assert path.name == f"{MIDNIGHT}-{file.head.checksum[:16]}.places"
        assert path.parent.name == "weekly@2026-W19"
    assert b"alice" not in path.read_bytes()
