"""An instance that needs another form is written anew beside the one there is, and takes its place once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.servers.redis import RedisServer
from tests.servers.redis_contents import contents

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Rules, Ties
from rankd.projection.port import Position, Verdict
from rankd.redis.connection.client import FunctionCall, RedisClient
from rankd.redis.connection.pipelined import Channel, Pending
from rankd.redis.write.changes import InstanceChange, PartitionMove, WriteReply
from rankd.redis.write.mirror import Mirror
from rankd.redis.write.writing import OtherFormNeeded

KEY = InstanceKey("arcade")
RULES = Rules(ties=Ties.PLAYER, score_min=0, score_max=1_000)
BEYOND = 2**62
BEFORE = {f"p{number}": number for number in range(9)}
AFTER = {**BEFORE, "p8": BEYOND}


def rows(scores: dict[str, int], total: int = len(BEFORE)) -> InstanceChange:
    values = array("q", scores.values())
    return InstanceChange(
        KEY, RULES, players=list(scores), score=values, tie=array("q", bytes(8 * len(scores))), total=total
    )


@pytest.fixture
def plain(redis_server: RedisServer) -> Iterator[Any]:
    with redis_server.client() as client:
        yield client


@pytest.fixture
def mirror(redis_client: RedisClient) -> Mirror:
    """A board of nine players, and what becomes of them."""
    mirror = Mirror(redis_client, whole=lambda _: [rows(AFTER)], call_updates_max=3)
    mirror.write("arcade", 1, 0, [PartitionMove(0, 0, 1)], [rows(BEFORE)], time_ms=1)
    return mirror


def standings(scores: dict[str, int]) -> dict[InstanceKey, list[tuple[str, Kept]]]:
    return {KEY: [(player, Kept(score, 0)) for player, score in sorted(scores.items(), key=lambda entry: -entry[1])]}


def test_a_part_that_comes_again_after_its_answer_was_lost_does_nothing(
    mirror: Mirror, plain: Any, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Channel.start

    def start_after_a_lost_answer(channel: Channel, calls: Sequence[FunctionCall]) -> Pending:
        assert len(calls) > 1
        redis_client.call_all(calls[:1])
        return start(channel, calls)

    monkeypatch.setattr(Channel, "start", start_after_a_lost_answer)
    later = {f"q{number}": number for number in range(9)}
    answers = mirror.write(
        "arcade", 1, 0, [PartitionMove(0, 1, 2)], [rows({"p8": BEYOND}), rows_of_another(later)], time_ms=1
    )

    assert answers == [WriteReply(Verdict.APPLIED, {0: Position(0, 2)})]
    assert contents(plain, "arcade")[KEY] == standings(AFTER)[KEY]


def rows_of_another(scores: dict[str, int]) -> InstanceChange:
    change = rows(scores, len(scores))
    change.key = InstanceKey("arcade", "weekly:2026-W18")
    return change


def test_a_write_behind_another_does_not_change_a_form(mirror: Mirror, plain: Any) -> None:
    """Its rows would gather before the one before it has come to its end, and be taken for that one's."""
    first = mirror.send("arcade", 1, 0, [PartitionMove(0, 1, 2)], [rows({"p1": 11})], time_ms=1)
    with pytest.raises(OtherFormNeeded):
        mirror.send("arcade", 1, 0, [PartitionMove(0, 2, 3)], [rows({"p8": BEYOND})], time_ms=1, is_behind=True)

    assert [reply.verdict for reply in first.answers()] == [Verdict.APPLIED]
    assert contents(plain, "arcade") == standings({**BEFORE, "p1": 11})
    mirror.write("arcade", 1, 0, [PartitionMove(0, 2, 3)], [rows({"p8": BEYOND})], time_ms=1)
    assert contents(plain, "arcade") == standings(AFTER)
