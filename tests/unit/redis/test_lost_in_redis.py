"""What a shard has shown once, it has later too; where not, Redis has lost something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rankd.clock import ManualClock
from rankd.redis.connection.client import FunctionCall
from rankd.redis.heads import ShardHead, read_head
from rankd.redis.keys import LAYOUT_VERSION
from rankd.redis.read import high_water
from rankd.redis.read import rank_source as served
from rankd.redis.read.high_water import HighWater
from rankd.redis.read.rank_source import Heartbeat


def head(*sequences: int, epoch: int = 1) -> ShardHead:
    fields = " ".join(f"p{partition} {epoch}:{sequence}" for partition, sequence in enumerate(sequences))
    return read_head(f"version {LAYOUT_VERSION} time 7 {fields}".encode(), "arcade", 0)


def read(marks: HighWater, shard_head: ShardHead) -> bool:
    """A read that is asked after everything before it was answered."""
    return marks.note("arcade", 0, shard_head, marks.of("arcade", 0))


def test_what_was_shown_is_lacking_until_it_is_there_again() -> None:
    marks = HighWater()
    assert not read(marks, head(5, 5))
    assert not read(marks, head(5, 6))
    assert read(marks, head(5, 5))
    assert read(marks, head(9, 5)), "one partition does not make up for another"
    assert read(marks, head(9, 5, epoch=2)), "whoever ranks now"
    assert read(marks, head(9)), "a partition that is missing"
    assert not read(marks, head(5, 6))
    assert not read(marks, head(9, 9))


def test_a_partition_without_events_is_not_lacking() -> None:
    marks = HighWater()
    assert not read(marks, head(5, 0))
    assert not read(marks, head(6))


def test_each_shard_stands_for_itself() -> None:
    marks = HighWater()
    assert not read(marks, head(9))
    assert not marks.note("arcade", 1, head(5), marks.of("arcade", 1))
    assert not marks.note("words", 0, head(5), marks.of("words", 0))


def test_an_answer_that_was_asked_for_earlier_lacks_nothing() -> None:
    """Two reads at once: the one whose answer is looked at last may have been answered first."""
    marks = HighWater()
    read(marks, head(5))
    before = marks.of("arcade", 0)
    assert not marks.note("arcade", 0, head(7), before)
    assert not marks.note("arcade", 0, head(6), before)
    assert read(marks, head(6))


def test_shards_beyond_the_limit_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(high_water, "SHARDS_MAX", 10)
    marks = HighWater()
    for shard in range(100):
        marks.note("arcade", shard, head(5), None)
        assert marks.of("arcade", shard).head == head(5)
    assert len(marks._heads) <= 10


def test_what_every_shard_has_is_lacking_though_nobody_here_saw_it() -> None:
    floor: dict[int, int] = {}
    marks = HighWater(lambda: floor)
    assert not read(marks, head(3, 3))
    before = marks.of("arcade", 0)
    floor = {0: 4, 1: 3}
    assert not marks.note("arcade", 0, head(3, 3), before), "it was asked for before"
    assert read(marks, head(3, 3))
    assert read(marks, head(4))
    assert not read(marks, head(4, 3))


class Beats:
    """A Redis that has a projector's heartbeat and nothing else."""

    mirrored: bytes | None = None  # of an older projector

    def call_all(self, _calls: Sequence[FunctionCall]) -> list[Any]:
        return [[b"1", b"1000", b"9,9", b"ledger", self.mirrored]]


def test_the_floor_is_what_every_shard_has_by_the_newest_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "BEAT_EVERY_S", 3_600.0)
    beats = Beats()
    heartbeat = Heartbeat(beats, 1_000, ManualClock(1_000).now)
    try:
        floors = [heartbeat.floor]
        for mirrored in (b"7,5,0", b"6,6,0", b"", None):
            beats.mirrored = mirrored
            heartbeat._read()
            floors.append(heartbeat.floor)
        # What a shard has had stays had, whatever Redis says later.
        assert floors == [{}, {0: 7, 1: 5}, {0: 7, 1: 6}, {0: 7, 1: 6}, {0: 7, 1: 6}]
    finally:
        heartbeat.close()
