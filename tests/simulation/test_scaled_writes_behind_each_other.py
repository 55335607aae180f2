"""A write to Redis begins before the one before it is answered; what is refused is never skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.servers.redis import RedisServer

from rankd.errors import RanksUnavailable
from rankd.node import projector
from rankd.projection.port import Verdict
from rankd.redis.write.changes import WriteReply
from rankd.redis.write.mirror import Mirror, PendingWrite
from rankd.redis.write.writing import OtherFormNeeded

from .scaled_by_hand import Installation, copy_of, put_back

PLAYERS = 40


@pytest.fixture
def steps_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the projector rank ten events at a time, so that there is always more."""
    monkeypatch.setattr(projector, "READ_EVENTS", 10)


def ready(installation: Installation) -> None:
    installation.boards.define("arcade", windows=["all_time", "daily"], shards=2, keep="latest")
    installation.boards.submit_many("arcade", [(f"p{n}", n) for n in range(PLAYERS)])
    installation.projector.project()


@pytest.mark.usefixtures("steps_of_ten")
def test_the_next_write_is_under_way_before_the_last_is_answered(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(installation)
    order: list[str] = []
    send, answers = Mirror.send, PendingWrite.answers

    def noted_send(mirror: Mirror, *about: Any, **more: Any) -> PendingWrite:
        order.append("sent")
        return send(mirror, *about, **more)

    def noted_answers(sent: PendingWrite) -> list[WriteReply]:
        order.append("answered")
        return answers(sent)

    monkeypatch.setattr(Mirror, "send", noted_send)
    monkeypatch.setattr(PendingWrite, "answers", noted_answers)
    installation.boards.submit_many("arcade", [(f"p{n}", n + 100) for n in range(PLAYERS)])
    for _ in range(3):
        assert installation.projector.step()

    assert order == ["sent", "sent", "answered", "sent", "answered"]
    installation.projector.project()
    installation.check()


@pytest.mark.usefixtures("steps_of_ten")
@pytest.mark.parametrize("order", ["scores, then a reset", "a reset, then scores", "a removal, then scores"])
@pytest.mark.parametrize("lost_after", [0, 1, 2])
def test_what_is_behind_a_refused_write_is_refused_too_and_sent_again(
    installation: Installation, plain: Any, order: str, lost_after: int
) -> None:
    """Redis goes back to what it was: before a write, while it is under way, or while the one behind it is."""
    ready(installation)
    older = copy_of(plain)
    boards = installation.boards
    boards.submit_many("arcade", [(f"p{n}", n + 200) for n in range(PLAYERS // 2)])
    installation.projector.project()
    happenings: dict[str, Callable[[], object]] = {
        "scores": lambda: boards.submit_many("arcade", [(f"p{n}", n + 300) for n in range(10)]),
        "a reset": lambda: boards.reset("arcade"),
        "a removal": lambda: boards.remove("arcade", "p3"),
    }
    for step, what in enumerate([*order.split(", then "), "scores"]):
        if step == lost_after:
            put_back(plain, older)
        happenings[what]()
        installation.projector.step()
    installation.projector.project()

    installation.check()


def test_a_server_that_is_away_is_waited_for_once_and_not_for_each_board(
    installation: Installation, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"board-{number}" for number in range(12)]
    for name in names:
        installation.boards.define(name)
    installation.projector.project()
    answers, waited = PendingWrite.answers, list[PendingWrite]()

    def noted(sent: PendingWrite) -> list[WriteReply]:
        try:
            return answers(sent)
        except RanksUnavailable:
            waited.append(sent)
            raise

    monkeypatch.setattr(PendingWrite, "answers", noted)
    for score in (1, 2):  # some are under way, and others behind them
        for name in names:
            installation.boards.submit_many(name, [("ann", score)])  # which wait for no rank
        if score == 1:
            assert installation.projector.step()
            own_redis.kill()
    with pytest.raises(RanksUnavailable):
        installation.projector.step()
    assert len(waited) == 1
    own_redis.start()
    installation.projector.project()

    installation.check()


@pytest.mark.usefixtures("steps_of_ten")
def test_a_write_that_needs_another_form_waits_for_the_one_before_it(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(installation)
    send = Mirror.send

    def refuse(mirror: Mirror, *about: Any, is_behind: bool = False, **more: Any) -> PendingWrite:
        if is_behind:
            raise OtherFormNeeded("arcade")
        return send(mirror, *about, **more)

    monkeypatch.setattr(Mirror, "send", refuse)
    installation.boards.submit_many("arcade", [(f"p{n}", n + 100) for n in range(PLAYERS)])
    installation.projector.project()

    installation.check()


@pytest.mark.usefixtures("steps_of_ten")
def test_a_write_whose_answer_is_lost_leaves_those_behind_it_answered(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers come in their order: one that nobody took would be taken for that of a later call."""
    ready(installation)
    installation.boards.submit_many("arcade", [(f"p{n}", n + 100) for n in range(PLAYERS)])
    assert installation.projector.step()
    answers, asked = PendingWrite.answers, list[PendingWrite]()

    def lose_the_first(sent: PendingWrite) -> list[WriteReply]:
        replies = answers(sent)
        asked.append(sent)
        if len(asked) == 1:
            raise RanksUnavailable("lost")
        assert all(reply.verdict is Verdict.APPLIED for reply in replies)
        return replies

    monkeypatch.setattr(PendingWrite, "answers", lose_the_first)
    with pytest.raises(RanksUnavailable, match="lost"):
        installation.projector.step()
    assert len(asked) == 2
    installation.projector.project()

    installation.check()
