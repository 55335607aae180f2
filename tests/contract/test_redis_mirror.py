"""The mirror writes rows and positions together: all of a write or nothing of it, once."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from tests.servers.redis import RedisServer
from tests.servers.redis_contents import contents, described_of, keys_of

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Rules, Ties
from rankd.errors import RanksNewer, RanksUnavailable
from rankd.projection.port import Position, Verdict
from rankd.redis.connection.client import FunctionCall, RedisClient
from rankd.redis.keys import ShardKeys
from rankd.redis.write.changes import InstanceChange, PartitionMove, WriteReply, dropped
from rankd.redis.write.mirror import Mirror

KEY, WEEK = InstanceKey("arcade"), InstanceKey("arcade", "weekly:2026-W18")
RULES = Rules(ties=Ties.PLAYER, score_min=0, score_max=1_000)
BIG = 2**62


def rows(*entries: tuple[str, int], key: InstanceKey = KEY, gone: tuple[str, ...] = (), **more: Any) -> InstanceChange:
    players = [player for player, _ in entries] + list(gone)
    scores = array("q", [score for _, score in entries] + [0] * len(gone))
    flags = bytes(len(entries)) + b"\1" * len(gone)
    more.setdefault("total", 1)
    return InstanceChange(
        key, RULES, players=players, score=scores, tie=array("q", bytes(8 * len(players))), gone=flags, **more
    )


@pytest.fixture
def plain(redis_server: RedisServer, redis_client: RedisClient) -> Any:
    return redis_server.client()


@pytest.fixture
def mirror(redis_client: RedisClient) -> Mirror:
    return Mirror(redis_client)


def write(
    mirror: Mirror, move: PartitionMove, *changes: InstanceChange, epoch: int = 0, shards: int = 1
) -> list[WriteReply]:
    return mirror.write("arcade", shards, epoch, [move], changes, time_ms=1_000)


def everything(plain: Any) -> dict[bytes, bytes]:
    return {key: plain.dump(key) for key in plain.scan_iter()}


def test_a_shard_nobody_wrote_to_is_not_there(mirror: Mirror) -> None:
    assert mirror.positions("arcade", 3) == [None, None, None]


def test_a_write_brings_rows_and_position(mirror: Mirror, plain: Any) -> None:
    answer = write(mirror, PartitionMove(0, 0, 7), rows(("ann", 5), ("bob", 9), total=2, digest=77))

    assert answer == [WriteReply(Verdict.APPLIED, {0: Position(0, 7)})]
    assert mirror.positions("arcade", 1) == [{0: Position(0, 7)}]
    assert contents(plain, "arcade") == {KEY: [("bob", Kept(9, 0)), ("ann", Kept(5, 0))]}
    described = described_of(plain, KEY)
    assert described is not None
    assert (int(described.digest, 16), described.total) == (77, 2)


def test_the_same_write_again_is_a_duplicate(mirror: Mirror, plain: Any) -> None:
    write(mirror, PartitionMove(0, 0, 7), rows(("ann", 5)))
    before = everything(plain)

    answer = write(mirror, PartitionMove(0, 0, 7), rows(("ann", 6)))

    assert answer == [WriteReply(Verdict.DUP, {0: Position(0, 7)})]
    assert everything(plain) == before


def test_a_write_that_begins_too_late_leaves_a_gap(mirror: Mirror, plain: Any) -> None:
    write(mirror, PartitionMove(0, 0, 7), rows(("ann", 5)))
    before = everything(plain)

    assert write(mirror, PartitionMove(0, 8, 9), rows(("ann", 6))) == [WriteReply(Verdict.GAP, {0: Position(0, 7)})]
    assert everything(plain) == before


def test_a_first_write_that_begins_too_late_finds_no_shard(mirror: Mirror, plain: Any) -> None:
    assert write(mirror, PartitionMove(0, 3, 4), rows(("ann", 6))) == [WriteReply(Verdict.GAP, None)]
    assert everything(plain) == {}


def test_an_older_epoch_is_fenced_wherever_it_begins(mirror: Mirror, plain: Any) -> None:
    write(mirror, PartitionMove(0, 0, 7), rows(("ann", 5)), epoch=2)
    before = everything(plain)

    for after in (0, 7, 9):
        answer = write(mirror, PartitionMove(0, after, 10), rows(("ann", 6)), epoch=1)
        assert answer == [WriteReply(Verdict.FENCED, {0: Position(2, 7)})]
    assert everything(plain) == before


def test_an_empty_write_claims_the_epoch(mirror: Mirror) -> None:
    write(mirror, PartitionMove(0, 0, 7))

    assert write(mirror, PartitionMove(0, 7, 7), epoch=5) == [WriteReply(Verdict.APPLIED, {0: Position(5, 7)})]
    assert write(mirror, PartitionMove(0, 7, 8), epoch=4)[0].verdict is Verdict.FENCED


def test_positions_beyond_what_a_double_holds_are_compared_exactly(mirror: Mirror) -> None:
    write(mirror, PartitionMove(0, 0, BIG), epoch=BIG)

    assert write(mirror, PartitionMove(0, BIG + 1, BIG + 2), epoch=BIG)[0].verdict is Verdict.GAP
    assert write(mirror, PartitionMove(0, BIG - 1, BIG + 2), epoch=BIG)[0].verdict is Verdict.DUP
    assert write(mirror, PartitionMove(0, BIG, BIG + 2), epoch=BIG - 1)[0].verdict is Verdict.FENCED
    assert write(mirror, PartitionMove(0, BIG, BIG + 2), epoch=BIG)[0].positions == {0: Position(BIG, BIG + 2)}


def test_several_partitions_move_together_or_not_at_all(mirror: Mirror, plain: Any) -> None:
    mirror.write("arcade", 1, 0, [PartitionMove(0, 0, 3), PartitionMove(5, 0, 4)], [rows(("ann", 5))], time_ms=1)
    before = everything(plain)

    answer = mirror.write(
        "arcade", 1, 0, [PartitionMove(0, 3, 6), PartitionMove(5, 5, 6)], [rows(("ann", 6))], time_ms=1
    )

    assert answer == [WriteReply(Verdict.GAP, {0: Position(0, 3), 5: Position(0, 4)})]
    assert everything(plain) == before
    answer = mirror.write(
        "arcade", 1, 0, [PartitionMove(0, 3, 6), PartitionMove(5, 4, 6)], [rows(("ann", 6))], time_ms=1
    )
    assert answer[0].verdict is Verdict.APPLIED


def test_who_is_gone_leaves(mirror: Mirror, plain: Any) -> None:
    write(mirror, PartitionMove(0, 0, 1), rows(("ann", 5), ("bob", 9)))
    write(mirror, PartitionMove(0, 1, 2), rows(gone=("bob",)))

    assert contents(plain, "arcade") == {KEY: [("ann", Kept(5, 0))]}


def test_an_instance_ends_with_its_last_player_and_leaves_no_key(mirror: Mirror, plain: Any) -> None:
    write(
        mirror,
        PartitionMove(0, 0, 1),
        rows(("ann", 5), captured={"ann": 1}, metadata={"ann": (3, 9)}),
        rows(("bob", 2), key=WEEK),
    )
    write(mirror, PartitionMove(0, 1, 2), rows(gone=("ann",), total=0))

    assert contents(plain, "arcade") == {WEEK: [("bob", Kept(2, 0))]}
    assert keys_of(plain) == {"meta": 1, "1:i": 1, "1:z": 1}


def test_a_dropped_instance_leaves_no_key(mirror: Mirror, plain: Any) -> None:
    write(mirror, PartitionMove(0, 0, 1), rows(("ann", 5)), rows(("bob", 2), key=WEEK, captured={"bob": 1}))
    write(mirror, PartitionMove(0, 1, 2), dropped(WEEK, RULES))

    assert keys_of(plain) == {"meta": 1, "1:i": 1, "1:z": 1}


def test_everybody_leaves_before_what_follows(mirror: Mirror, plain: Any) -> None:
    write(mirror, PartitionMove(0, 0, 1), rows(("ann", 5), ("bob", 9), captured={"ann": 2, "bob": 1}))
    write(mirror, PartitionMove(0, 1, 2), rows(("cid", 4), cleared=True))

    assert contents(plain, "arcade") == {KEY: [("cid", Kept(4, 0))]}
    assert "1:c" not in keys_of(plain)


def test_metadata_names_the_event_and_is_forgotten(mirror: Mirror, plain: Any) -> None:
    write(mirror, PartitionMove(0, 0, 1), rows(("ann", 5), metadata={"ann": (3, 9), "bob": (0, 2)}))
    write(mirror, PartitionMove(0, 1, 2), rows(("ann", 6), metadata={"bob": None}))

    assert plain.hgetall("rankd:{arcade#0}:1:m:all_time@global") == {b"ann": b"3:9"}


def test_an_idle_shard_is_moved_on(mirror: Mirror) -> None:
    answers = write(mirror, PartitionMove(0, 0, 5), rows(("ann", 5)), shards=4)

    assert answers == [WriteReply(Verdict.APPLIED, {0: Position(0, 5)})] * 4
    assert mirror.positions("arcade", 4) == [{0: Position(0, 5)}] * 4


def test_players_are_spread_over_shards_and_none_is_lost(mirror: Mirror, plain: Any) -> None:
    everybody = [(f"p{number}", number) for number in range(200)]
    write(mirror, PartitionMove(0, 0, 5), rows(*everybody, total=200), shards=4)

    assert contents(plain, "arcade", 4)[KEY] == [(player, Kept(score, 0)) for player, score in reversed(everybody)]
    assert keys_of(plain)["1:z"] == 4


def test_one_shard_that_was_rolled_back_is_brought_forward_alone(mirror: Mirror, plain: Any) -> None:
    everybody = [(f"p{number}", number) for number in range(50)]
    write(mirror, PartitionMove(0, 0, 5), rows(*everybody, total=50), shards=3)
    plain.delete(*plain.scan_iter("rankd:{arcade#1}*"))
    assert mirror.positions("arcade", 3)[1] is None

    answers = mirror.write(
        "arcade", 3, 0, [PartitionMove(0, 0, 5)], [rows(*everybody, total=50)], time_ms=1, shards_only=[1]
    )

    assert answers == [WriteReply(Verdict.APPLIED, {0: Position(0, 5)})]
    assert len(contents(plain, "arcade", 3)[KEY]) == 50


# Large writes


def test_a_large_write_is_cut_and_moves_once(redis_client: RedisClient, plain: Any) -> None:
    mirror = Mirror(redis_client, call_updates_max=7)
    everybody = [(f"p{number}", number) for number in range(50)]

    answer = write(mirror, PartitionMove(0, 0, 5), rows(*everybody, total=50), rows(*everybody[:3], key=WEEK, total=3))

    assert answer == [WriteReply(Verdict.APPLIED, {0: Position(0, 5)})]
    assert len(contents(plain, "arcade")[KEY]) == 50
    assert plain.hget("rankd:{arcade#0}:meta", "cut") is None


@pytest.mark.parametrize("answered", range(8))
def test_a_writer_that_stops_between_two_parts_is_followed_by_one_that_goes_on(
    redis_client: RedisClient, plain: Any, answered: int
) -> None:
    everybody = [(f"p{number}", number) for number in range(50)]
    stopping = Stopping(redis_client, answered)
    write(Mirror(redis_client), PartitionMove(0, 0, 5), rows(("old", 1)))
    with pytest.raises(RanksUnavailable):
        write(Mirror(stopping, call_updates_max=7), PartitionMove(0, 5, 9), rows(*everybody, total=51))

    following = Mirror(redis_client)
    assert following.positions("arcade", 1) == [{0: Position(0, 5)}]
    answer = write(following, PartitionMove(0, 5, 9), rows(*everybody, total=51), epoch=1)

    assert answer == [WriteReply(Verdict.APPLIED, {0: Position(1, 9)})]
    assert len(contents(plain, "arcade")[KEY]) == 51


def test_a_part_does_not_count_without_the_part_before_it(redis_client: RedisClient, plain: Any) -> None:
    everybody = [(f"p{number}", number) for number in range(20)]
    write(Mirror(redis_client), PartitionMove(0, 0, 5), rows(("old", 1)))
    before = everything(plain)
    skipping = Skipping(redis_client)

    answer = write(Mirror(skipping, call_updates_max=7), PartitionMove(0, 5, 9), rows(*everybody, total=21))

    assert answer == [WriteReply(Verdict.GAP, {0: Position(0, 5)})]
    assert everything(plain) == before


def test_writes_may_be_sent_before_the_last_is_answered(mirror: Mirror, plain: Any) -> None:
    sent = [
        mirror.send("arcade", 2, 0, [PartitionMove(0, at, at + 1)], [rows((f"p{at}", at), total=at + 1)], time_ms=1)
        for at in range(10)
    ]

    assert [[reply.verdict for reply in each.answers()] for each in sent] == [[Verdict.APPLIED] * 2] * 10
    assert len(contents(plain, "arcade", 2)[KEY]) == 10


# What is refused


def test_a_call_of_another_layout_is_refused_and_writes_nothing(mirror: Mirror, plain: Any) -> None:
    write(mirror, PartitionMove(0, 0, 1), rows(("ann", 5)))
    plain.hset("rankd:{arcade#0}:meta", "version", "2")
    before = everything(plain)

    with pytest.raises(RanksNewer, match="layout 2"):
        write(mirror, PartitionMove(0, 1, 2), rows(("ann", 6)))
    assert everything(plain) == before


@pytest.mark.parametrize("damage", range(5))
def test_a_damaged_call_writes_nothing(redis_client: RedisClient, plain: Any, damage: int) -> None:
    write(Mirror(redis_client), PartitionMove(0, 0, 1), rows(("ann", 5)))
    before = everything(plain)

    with pytest.raises(RanksUnavailable):
        write(
            Mirror(Damaging(redis_client, damage)), PartitionMove(0, 1, 2), rows(("ann", 6)), rows(("bob", 7), key=WEEK)
        )
    assert everything(plain) == before


class Redirecting(RedisClient):
    """A client whose calls are changed on their way."""

    def __init__(self, client: RedisClient) -> None:
        super().__init__(client._server, answer_wait_s=0.2)

    def changed(self, calls: list[FunctionCall]) -> list[FunctionCall]:
        return calls

    def channel(self) -> Any:
        channel = super().channel()
        start = channel.start
        channel.start = lambda calls: start(self.changed(list(calls)))  # type: ignore[method-assign]
        return channel


class Stopping(Redirecting):
    """Loses its connection after so many calls."""

    def __init__(self, client: RedisClient, answered: int) -> None:
        super().__init__(client)
        self._answered = answered

    def changed(self, calls: list[FunctionCall]) -> list[FunctionCall]:
        assert len(calls) > self._answered
        return [*calls[: self._answered], FunctionCall("rankd_nothing_like_this", [ShardKeys("arcade", 0).meta])]


class Skipping(Redirecting):
    """Forgets the first call."""

    def changed(self, calls: list[FunctionCall]) -> list[FunctionCall]:
        return calls[1:]


class Damaging(Redirecting):
    """Damages what is sent: an argument or a key is missing, or is something else."""

    def __init__(self, client: RedisClient, damage: int) -> None:
        super().__init__(client)
        self._damage = damage

    def changed(self, calls: list[FunctionCall]) -> list[FunctionCall]:
        ((function, keys, arguments, *_),) = calls
        keys, arguments = list(keys), list(arguments)
        match self._damage:
            case 0:
                arguments.pop()
            case 1:
                keys.pop()
            case 2:
                arguments[0] = b"\x90"
            case 3:
                arguments[-1] = b"\x93\x01\x02\x03"
            case 4:
                arguments[-1] = bytes(arguments[-1])[:-3]  # type: ignore[arg-type]
        return [FunctionCall(function, keys, arguments)]
