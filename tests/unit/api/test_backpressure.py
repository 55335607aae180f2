"""Writes while ranks lag: they pass, wait, or are refused, and small senders are refused last."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rankd.errors import Behind
from rankd.intake.backpressure import DELAY_S_MAX, HALVED_EVERY_S, RETRY_AFTER_S_MAX, SENDERS_MAX, Backpressure

from .in_process import InProcess, in_process

MAX_MS = 10_000


class Ranking:
    """Ranks that lag as a test says, and a clock."""

    def __init__(self, lag_max_ms: int = MAX_MS) -> None:
        self.lag_ms: float | None = 0.0
        self.now_s = 100.0
        self.backpressure = Backpressure(lambda: self.lag_ms, lag_max_ms, lambda: self.now_s)

    def passes(self, account: str, events: int = 1) -> bool:
        try:
            self.backpressure.delay_s(account, events)
        except Behind:
            return False
        return True


@pytest.mark.parametrize("lag_ms", [None, 0.0, MAX_MS / 2])
def test_nobody_waits_below_half_of_the_limit(lag_ms: float | None) -> None:
    ranking = Ranking()
    ranking.lag_ms = lag_ms
    assert ranking.backpressure.delay_s("game", 10_000) == 0.0


def test_the_delay_grows_with_the_lag_up_to_a_second() -> None:
    ranking = Ranking()
    delays = []
    for ranking.lag_ms in (5_001.0, 7_500.0, 10_000.0):
        delays.append(ranking.backpressure.delay_s("game", 1))
    assert delays == pytest.approx([0.0002, 0.5 * DELAY_S_MAX, DELAY_S_MAX])


def test_beyond_the_limit_everybody_is_refused_and_hears_when_to_return() -> None:
    ranking = Ranking()
    for ranking.lag_ms, after_s in ((10_001.0, 1), (12_500.0, 3), (1e9, RETRY_AFTER_S_MAX)):
        with pytest.raises(Behind, match=r"limits\.lag_max_ms .* with the same key") as refused:
            ranking.backpressure.delay_s("game", 1)
        assert refused.value.retry_after_s == after_s
    assert ranking.backpressure.refusals == 3


def test_a_limit_of_0_lets_the_backlog_grow() -> None:
    ranking = Ranking(lag_max_ms=0)
    ranking.lag_ms = 1e9
    assert ranking.backpressure.delay_s("game", 1) == 0.0


def test_everybody_is_refused_while_writes_are_held() -> None:
    backpressure = Backpressure(lambda: None, 0, is_held=lambda: True)
    with pytest.raises(Behind, match="held for a moment") as refused:
        backpressure.delay_s("game", 1)
    assert refused.value.retry_after_s == 1


def test_the_sender_of_most_is_refused_while_small_ones_pass() -> None:
    ranking = Ranking()
    ranking.lag_ms = 8_000.0
    for _ in range(5):
        ranking.passes("big", 1_000)
        assert all(ranking.passes(f"small-{number}") for number in range(10))
    assert not ranking.passes("big", 1_000)


def test_two_large_senders_among_small_ones_are_both_refused_first() -> None:
    ranking = Ranking()
    ranking.lag_ms = 8_000.0
    for account in ("one", "other", *(f"small-{number}" for number in range(10))):
        ranking.passes(account, 1_000 if account in ("one", "other") else 1)
    assert (ranking.passes("one", 1_000), ranking.passes("other", 1_000), ranking.passes("small-1")) == (
        False,
        False,
        True,
    )


def test_senders_of_the_same_amount_are_treated_alike() -> None:
    ranking = Ranking()
    ranking.lag_ms = 8_000.0
    assert all(ranking.passes(account, 100) for _ in range(20) for account in ("one", "other", "third"))


def test_a_sole_sender_may_use_the_whole_limit() -> None:
    ranking = Ranking()
    ranking.lag_ms = 9_999.0
    assert all(ranking.passes("game", 10_000) for _ in range(20))


def test_events_whose_number_is_known_afterwards_count_as_well() -> None:
    ranking = Ranking()
    ranking.backpressure.count("one that sent before", 1_000)
    ranking.lag_ms = 8_000.0
    assert ranking.passes("big")
    assert ranking.passes("small")
    ranking.backpressure.count("big", 999)
    assert (ranking.passes("big"), ranking.passes("small")) == (False, True)
    assert ranking.passes("one that sent before")


def test_what_was_sent_some_time_ago_counts_no_more() -> None:
    ranking = Ranking()
    ranking.lag_ms = 8_000.0
    ranking.passes("big", 1_000)
    ranking.passes("small")
    assert not ranking.passes("big")
    ranking.now_s += 20 * HALVED_EVERY_S
    assert ranking.passes("small")
    assert ranking.passes("big")


def test_the_senders_counted_are_bounded() -> None:
    ranking = Ranking()
    ranking.lag_ms = 8_000.0
    for number in range(SENDERS_MAX + 100):
        ranking.passes(f"player-{number}")
    assert len(ranking.backpressure._events) == SENDERS_MAX
    assert ranking.passes("one more")


@pytest.mark.parametrize("target", ["/v1/scores", "/v1/scores/batch"])
def test_a_refused_score_is_429_with_when_to_send_it_again(tmp_path: Path, target: str) -> None:
    async def test(app: InProcess) -> None:
        app.boards.define("arcade")
        app.service.backpressure = Backpressure(lambda: 12_500.0, MAX_MS)
        _, key = app.credentials.create("game", ["scores:write"])
        score = b'{"board": "arcade", "player": "alice", "score": 1}'
        body = score if target == "/v1/scores" else b'{"events": [' + score + b"]}"

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        sent = {"authorization": f"Bearer {key}", "content_type": "application/json"}
        reply = await app.ask("POST", target, receive, **sent)
        assert (reply.status, reply.json()["code"], reply.headers[b"retry-after"]) == (429, "behind", b"3")
        assert app.boards.rank("arcade", "alice") is None

    in_process(tmp_path, test)


def test_scores_that_wait_hold_no_thread(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        app.boards.define("arcade")
        app.service.backpressure = Backpressure(lambda: 0.5 * MAX_MS + 1_000.0, MAX_MS)  # a fifth of a second
        _, key = app.credentials.create("game", ["scores:write"])

        async def submit(player: int) -> int:
            async def receive() -> dict[str, Any]:
                body = b'{"board": "arcade", "player": "p%d", "score": 1}' % player
                return {"type": "http.request", "body": body}

            headers = {"authorization": f"Bearer {key}", "content_type": "application/json"}
            return (await app.ask("POST", "/v1/scores", receive, **headers)).status

        began_s, count = time.monotonic(), 200
        threads = threading.active_count()
        submitted = [asyncio.create_task(submit(player)) for player in range(count)]
        await asyncio.wait(submitted, timeout=DELAY_S_MAX / 20)
        assert threading.active_count() <= threads + 1
        assert await asyncio.gather(*submitted) == [200] * count
        assert time.monotonic() - began_s >= DELAY_S_MAX / 5

    in_process(tmp_path, test)
