"""What the embedded library's figures rest on: a real disk, a Redis that keeps a log, parts that add up."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import redis
from benchmarks import disk
from benchmarks.disk import bytes_below, file_system_of, folder_on_disk
from benchmarks.embedded_bench import RING_PLAYERS, RING_SCORES
from benchmarks.embedded_subject import BEGIN_MS, BOARD, WINDOWS, Embedded, SteadyClock, columns_of
from benchmarks.figures import APPEND, RANKD, REDIS, Row, Target
from benchmarks.redis_server import running_redis
from benchmarks.shares import PARTS, Shares, measured_shares

import rankd

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is
needs_redis = pytest.mark.skipif(
    shutil.which("redis-server") is None and os.environ.get("CI") != "true",
    reason="redis-server is not installed: apt-get install redis-server",
)


def test_a_benchmark_writes_to_a_disk_and_leaves_nothing() -> None:
    with folder_on_disk() as folder:
        assert file_system_of(folder) not in disk.IN_MEMORY
        (folder / "data").write_bytes(bytes(100))
        assert bytes_below(folder) == 100

    assert not folder.exists()


def test_a_place_in_memory_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\nmemory {tempfile.gettempdir()} tmpfs rw 0 0\n")
    monkeypatch.setattr(disk, "MOUNTS", mounts)
    monkeypatch.setattr(disk, "ROOT", tmp_path)

    assert file_system_of(tmp_path) == "tmpfs"
    with pytest.raises(RuntimeError, match="TMPDIR"), folder_on_disk():
        pass


@needs_redis
def test_the_rival_of_the_embedded_library_keeps_a_log(tmp_path: Path) -> None:
    with running_redis(append_only=True, parent=tmp_path) as server, redis.Redis(port=server.port) as client:
        settings = client.config_get("append*")
        assert isinstance(settings, dict)
        assert settings["appendonly"] == "yes"
        assert settings["appendfsync"] == "everysec"
        assert server.directory.parent == tmp_path

    assert not list(tmp_path.iterdir())


def test_the_clock_of_a_run_goes_on_from_the_start_of_an_hour() -> None:
    clock = SteadyClock()

    assert BEGIN_MS <= clock.now() <= clock.now() < BEGIN_MS + 3_600_000
    assert isinstance(clock, rankd.SystemClock)


def test_every_event_changes_its_score_in_every_window(tmp_path: Path) -> None:
    subject = Embedded(tmp_path / "data", players=50)
    try:
        for events in subject.workload.joining(50):
            subject.submit_columns([columns_of(events)])
        timed = subject.submit_each(subject.workload.updates(20))
        totals = [subject.boards.top(BOARD, 1, window=window).total for window in WINDOWS]
    finally:
        subject.close()

    assert timed.checksum == timed.operations == 20
    assert totals == [50] * len(WINDOWS)


def test_players_that_come_round_again_meet_other_scores() -> None:
    turns = range(RING_PLAYERS * RING_SCORES)
    met = [(turn % RING_PLAYERS, turn % RING_SCORES) for turn in turns]

    assert len(set(met)) == len(turns)


def test_an_answer_after_opening_again_is_the_one_before(tmp_path: Path) -> None:
    subject = Embedded(tmp_path / "data", players=50)
    try:
        for events in subject.workload.joining(50):
            subject.submit_columns([columns_of(events)])
        players = sorted(set(subject.workload.ids(20)))
        before = subject.places(players)
        assert subject.open_again(with_snapshot=True).replayed == 0
        assert subject.places(players) == before
        assert subject.open_again(with_snapshot=False).replayed == subject.events
        assert subject.places(players) == before
    finally:
        subject.close()


def test_a_part_is_timed_without_the_parts_it_calls() -> None:
    shares = Shares()
    inner = shares.timed("inner", lambda: sum(range(100_000)))
    outer = shares.timed("outer", lambda: inner() + inner())
    outer()
    figures = shares.figures(sum(shares.part_ns.values()))

    assert shares.part_ns["inner"] > shares.part_ns["outer"] > 0
    assert figures["share_rest"] == pytest.approx(0)


def test_parts_that_run_side_by_side_are_said_to_overlap() -> None:
    shares = Shares()
    shares.part_ns = {"engine": 80, "sqlite_read": 60}

    assert shares.figures(100) == pytest.approx(
        {"share_engine": 0.8, "share_sqlite_read": 0.6, "share_overlapping": 0.4}
    )
    assert shares.figures(200) == pytest.approx({"share_engine": 0.4, "share_sqlite_read": 0.3, "share_rest": 0.3})


def test_the_parts_are_put_back_as_they_were() -> None:
    before = [vars(owner)[name] for _, owner, name in PARTS]
    with measured_shares():
        assert all(vars(owner)[name] is not original for (_, owner, name), original in zip(PARTS, before, strict=True))

    assert [vars(owner)[name] for _, owner, name in PARTS] == before


@pytest.mark.parametrize(("ours", "verdict"), [(100.0, "pass"), (124.0, "pass"), (126.0, "miss")])
def test_a_target_may_be_held_against_a_bare_append(ours: float, verdict: str) -> None:
    row = Row(
        name="embedded_submit",
        entries=1,
        unit="ns_per_event",
        samples={RANKD: [ours], APPEND: [100.0], REDIS: [1.0]},
        target=Target(ratio_min=0.8, rival=APPEND),
    )

    assert row.verdict() == verdict
