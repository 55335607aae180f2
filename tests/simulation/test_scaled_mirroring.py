"""What the projector sends to Redis: no more than is missing, and nothing stays that is not ranked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.servers.redis import RedisServer

from rankd.errors import RanksUnavailable
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node import projector as projector_module
from rankd.operations.rebuild import Rebuild
from rankd.redis.connection.client import connect
from rankd.redis.connection.pipelined import Channel
from rankd.redis.heartbeat import read_beat
from rankd.redis.keys import ShardKeys
from rankd.redis.read.reader import RedisReader
from rankd.redis.write import backfill, mirroring
from rankd.redis.write.boards import whole_board
from rankd.redis.write.mirror import Mirror
from rankd.redis.write.recording import RecordingStore

from .scaled_by_hand import NOON, Installation, copy_of, put_back

pytestmark = pytest.mark.timeout(300)  # processes that start, fail and catch up
DAY = 86_400_000


def keys_of(plain: Any, board: str) -> list[bytes]:
    return list(plain.scan_iter(f"rankd:{{{board}#*"))


# What Redis has missed


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events were read each time that something was missed."""
    counts: list[int] = []
    original = backfill.Backfill.mark

    def mark(self: backfill.Backfill, lagging: Any) -> set[str]:
        ledger = self._ledger

        class Counted:
            capabilities = ledger.capabilities
            context = staticmethod(ledger.context)

            @staticmethod
            def read(*about: Any) -> Any:
                parts = ledger.read(*about)
                counts.append(sum(len(part.event_run) for part in parts))
                return parts

        self._ledger = Counted  # type: ignore[assignment]
        try:
            return original(self, lagging)
        finally:
            self._ledger = ledger

    monkeypatch.setattr(backfill.Backfill, "mark", mark)
    return counts


def test_what_was_missed_is_read_once_for_all_boards_and_sent_where_it_counts(
    installation: Installation, plain: Any, reads: list[int]
) -> None:
    boards = [f"board-{number}" for number in range(6)]
    for board in boards:
        installation.boards.define(board, windows=["all_time", "daily"], scopes=["country"])
        for country in ("BR", "AR", "UY"):
            rows = [{"player": f"{country}-{n}", "score": n, "attributes": {"country": country}} for n in range(20)]
            installation.boards.submit_many(board, rows)
    installation.boards.define("flat", windows=["all_time", "daily"])
    installation.boards.submit_many("flat", [("ann", 1), ("bob", 2)])
    installation.projector.project()
    older = copy_of(plain)
    for board in boards:
        rows = [{"player": f"BR-{n}", "score": 90, "attributes": {"country": "BR"}} for n in range(5)]
        installation.boards.submit_many(board, rows)
    installation.boards.remove("flat", "ann")
    installation.projector.project()
    put_back(plain, older)
    before, loads = installation.mirroring.rows, installation.mirroring.loads
    installation.projector.project()

    assert sum(reads) == 6 * 5 + 1
    removed_from = 2  # windows
    assert installation.mirroring.rows - before == 6 * 5 * 2 * 2 + removed_from
    assert (installation.mirroring.loads, installation.mirroring.catch_ups) == (loads, len(boards) + 1)
    installation.check()


def test_the_heartbeat_names_what_every_board_has(
    installation: Installation, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projector_module, "BEAT_MS", 0)
    monkeypatch.setattr(projector_module, "BOARD_IDLE_MS", 60_000)
    for board in ("busy", "idle"):
        installation.boards.define(board, shards=2)
    installation.projector.project()
    positions = installation.projector.follower.positions
    with closing(connect(own_redis.url)) as client:
        reader = RedisReader(client, lambda _: 2)

        def stored(board: str) -> dict[int, int]:
            return {number: position.sequence for number, position in reader.positions(board).items()}

        def mirrored() -> dict[int, int]:
            beat = read_beat(client)
            assert beat is not None
            return dict(enumerate(beat.mirrored))

        assert mirrored() == dict(enumerate(positions)) == stored("idle")
        installation.boards.submit("busy", "ann", 1)
        installation.projector.project()
        assert mirrored() == stored("idle") != stored("busy")
        monkeypatch.setattr(projector_module, "BOARD_IDLE_MS", 0)
        installation.projector.project()
        assert mirrored() == stored("idle") == stored("busy")


def test_a_board_with_scopes_whose_removals_were_missed_is_loaded_anew(installation: Installation, plain: Any) -> None:
    installation.boards.define("b", scopes=["country"])
    for player, country in (("ann", "BR"), ("bob", "AR"), ("cid", "AR")):
        installation.boards.submit("b", player, 1, attributes={"country": country})
    installation.projector.project()
    older = copy_of(plain)
    installation.boards.remove("b", "ann")  # the last one there
    installation.projector.project()
    put_back(plain, older)
    loads = installation.mirroring.loads
    installation.projector.project()

    assert installation.mirroring.loads - loads == 1
    installation.check()


def test_late_scores_that_were_missed_are_sent_to_their_own_day(
    installation: Installation, plain: Any, reads: list[int]
) -> None:
    installation.boards.define("b", windows=["daily", "all_time"], late_by="2d")
    installation.boards.submit("b", "ann", 1)
    installation.clock.advance(DAY)
    installation.boards.submit("b", "ann", 2)
    installation.projector.project()
    older = copy_of(plain)
    installation.boards.submit("b", "bob", 3, at=NOON + 1)
    installation.boards.submit("b", "cid", 3)
    installation.projector.project()
    put_back(plain, older)
    before = installation.mirroring.rows
    installation.projector.project()

    assert sum(reads) == 2
    assert installation.mirroring.rows - before == 2 * 2
    installation.check()


def test_boards_that_are_further_behind_than_is_read_are_loaded_anew(
    installation: Installation, plain: Any, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "BACKFILL_EVENTS_MAX", 20)
    for board in ("a", "b"):
        installation.boards.define(board)
        installation.boards.submit(board, "ann", 1)
    installation.projector.project()
    older = copy_of(plain)
    installation.boards.submit_many("a", [(f"p{number}", number) for number in range(21)])
    installation.projector.project()
    put_back(plain, older)
    loads = installation.mirroring.loads
    installation.projector.project()

    assert reads == []
    assert installation.mirroring.loads - loads == 2
    installation.check()


# While Redis is away


def test_no_more_than_a_limit_is_noted_while_redis_is_away(
    installation: Installation, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirroring, "BACKLOG_PLAYERS_MAX", 40)
    for board in ("busy", "quiet"):
        installation.boards.define(board)
    installation.projector.project()
    loads = installation.mirroring.loads
    own_redis.kill()
    for number in range(3):
        installation.boards.submit_many("busy", [(f"p{number}-{n}", n) for n in range(30)])
        installation.boards.submit_many("quiet", [(f"q{number}", 1)])
        with pytest.raises(RanksUnavailable):
            installation.projector.project()
        assert noted(installation.projector.follower.store) <= 40
    own_redis.start()
    installation.projector.project()

    assert installation.mirroring.loads - loads == 1
    installation.check()


def noted(store: RecordingStore) -> int:
    return sum(len(dirty.players) for board in store._dirty.values() for dirty in board.values())


# Deleted boards


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_board_that_is_deleted_while_nobody_ranks_leaves_no_key(
    installation: Installation, plain: Any, is_empty: bool
) -> None:
    for board in ("gone", "stays"):
        installation.boards.define(board, shards=3)
        if not is_empty:
            installation.boards.submit_many(board, [(f"p{number}", number) for number in range(20)])
    installation.projector.project()
    assert len(keys_of(plain, "gone")) >= 3
    installation.boards.delete("gone")
    installation.projector._lease.release()
    installation.replace_projector()
    installation.projector.project()

    assert keys_of(plain, "gone") == []
    installation.check()


def test_a_board_that_is_deleted_leaves_no_key_when_it_was_empty(installation: Installation, plain: Any) -> None:
    installation.boards.define("gone", shards=2)
    installation.projector.project()
    installation.boards.delete("gone")
    installation.projector.project()

    assert keys_of(plain, "gone") == []


def test_a_board_that_is_defined_anew_with_fewer_shards_while_nobody_ranks_has_no_others(
    installation: Installation, plain: Any
) -> None:
    installation.boards.define("b", shards=4)
    installation.boards.submit_many("b", [(f"p{number}", number) for number in range(20)])
    installation.projector.project()
    installation.boards.delete("b")
    installation.boards.define("b", shards=2)
    installation.boards.submit("b", "ann", 1)
    installation.replace_projector()
    installation.projector.project()

    assert not plain.exists(ShardKeys("b", 2).meta, ShardKeys("b", 3).meta)
    assert {key.split(b"#")[1][:1] for key in keys_of(plain, "b")} == {b"0", b"1"}
    installation.check()


def test_a_deleted_board_that_comes_back_with_an_older_redis_leaves_again(
    installation: Installation, plain: Any
) -> None:
    for board in ("gone", "stays"):
        installation.boards.define(board)
        installation.boards.submit(board, "ann", 1)
    installation.projector.project()
    older = copy_of(plain)
    installation.boards.delete("gone")
    installation.projector.project()
    put_back(plain, older)
    installation.projector.project()

    assert keys_of(plain, "gone") == []
    installation.check()


# Idle boards and connections


def test_boards_that_nothing_happened_on_move_on_together(
    installation: Installation, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        installation.boards.define(f"b{number}", shards=1 + number % 2)
    installation.projector.project()
    starts: list[int] = []
    original = Channel.start

    def start(self: Channel, calls: Any) -> Any:
        starts.append(len(calls))
        return original(self, calls)

    monkeypatch.setattr(Channel, "start", start)
    installation.boards.submit("b0", "ann", 1)
    installation.projector.step()

    assert sorted(starts) == [1, 44]  # that of the score, and all others
    installation.projector.project()
    assert {plain.hget(ShardKeys(f"b{number}", 0).meta, "p1") for number in range(30)} == {
        plain.hget(ShardKeys("b0", 0).meta, "p1")
    }


def test_a_projector_that_stands_by_gives_its_connections_back(installation: Installation) -> None:
    installation.boards.define("b")
    for _ in range(3):
        installation.projector.project()
        installation.projector._projector._stand_by()
    client = installation.projector._projector._client
    assert client is not None

    assert client._server.connection_pool._in_use_connections == set()


# Rebuilding


def test_a_board_that_is_deleted_while_others_are_rebuilt_is_left_out(
    installation: Installation, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for board in ("a", "b", "c"):
        installation.boards.define(board)
        installation.boards.submit(board, "ann", 1)
    installation.projector.project()
    original = Mirror.begin

    def begin(self: Mirror, board: str, shards: int, epoch: int) -> Any:
        begun = original(self, board, shards, epoch)
        if board == "b":
            installation.boards.delete("b")
            installation.boards.submit("c", "bob", 2)
            installation.projector.project()
        return begun

    with connect(installation.ranks_url) as client, closing(PostgresLedger(installation.ledger_url)) as ledger:
        rebuilding = Rebuild(ledger, lambda follower: Mirror(client, whole=follower.whole))
        monkeypatch.setattr(Mirror, "begin", begin)
        rebuilt = rebuilding.run(NOON)
        in_use = [*client._server.connection_pool._in_use_connections]

    assert rebuilt.boards == 2
    assert in_use == []
    assert keys_of(plain, "b") == []
    installation.check()


def test_a_load_that_fails_gives_its_connections_back_and_leaves_nothing(
    installation: Installation, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.boards.define("b", shards=2)
    installation.boards.submit_many("b", [(f"p{number}", number) for number in range(20)])
    installation.projector.project()
    before = sorted(keys_of(plain, "b"))

    original = whole_board

    def fail(*about: Any) -> Iterator[Any]:
        yield from original(*about)
        raise RanksUnavailable("as if Redis did not answer")

    with monkeypatch.context() as broken:
        broken.setattr(mirroring, "whole_board", fail)
        with pytest.raises(RanksUnavailable):
            installation.mirroring.load("b", NOON)

    assert sorted(keys_of(plain, "b")) == before
    installation.mirroring.close()
    client = installation.projector._projector._client
    assert client is not None
    assert client._server.connection_pool._in_use_connections == set()
