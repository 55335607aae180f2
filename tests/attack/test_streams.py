"""Live connections that never read, while scores come: what is held for them is bounded, and others are served."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from .bounds import LEFT_MIB_MAX
from .target import Target, head, short_and_long
from .web_sockets import text, web_sockets
from .wire import Wire, pause, run, wire, wires

WATCHERS = 256  # as many as one address may have
SCORES_PER_S = 500
BATCH = 10
SECONDS = {False: 2.5, True: 60.0}
WATCHED = [f"p{number}" for number in range(9)]  # with the top 10: as many topics as a connection may have
METADATA = {"replay": "x" * 900}
HELD_MIB_MAX = 64 / 1024  # of one watcher
SLACK_MIB = 24.0
SCORE_MIB = 2 / 1024  # of a score with its metadata, which is cached


async def send_scores(link: Wire, target: Target, seconds: float) -> set[int]:
    """Send scores at their rate, in small batches; every one changes what is watched. Return the statuses."""
    rng = random.Random(3)
    loop = asyncio.get_running_loop()
    began, statuses = loop.time(), set()
    for number in range(int(seconds * SCORES_PER_S / BATCH)):
        scores = [{"board": "arcade", "player": rng.choice(WATCHED), "metadata": METADATA} for _ in range(BATCH)]
        events = [{**score, "score": 10**6 + rng.randrange(10**6)} for score in scores]
        body = json.dumps({"events": events}).encode()
        sized = ("Content-Type: application/json", f"Content-Length: {len(body)}")
        assert await link.send(head("POST", "/v1/scores/batch", target.authorization, *sized) + body)
        answer = await link.answer()
        assert answer is not None
        statuses.add(answer.status)
        await pause(max(0.0, began + (number + 1) * BATCH / SCORES_PER_S - loop.time()))
    return statuses


@short_and_long
@pytest.mark.parametrize("kind", ["SSE", "WebSocket"])
def test_watchers_that_never_read_are_bounded(target: Target, kind: str, is_long: bool) -> None:
    target.revive()
    topics = ["top:arcade", *(f"player:arcade:{player}" for player in WATCHED)]
    asked = head("GET", "/v1/stream?" + "&".join(f"topic={topic}" for topic in topics))
    subscribe = b"".join(text(json.dumps({"op": "subscribe", "topic": topic}).encode()) for topic in topics)

    async def attack() -> set[int]:
        opened = wires if kind == "SSE" else web_sockets
        async with opened(target.address, WATCHERS, receive_bytes=4_096) as links, wire(target.address) as sender:
            for link in links:
                await link.send(asked if kind == "SSE" else subscribe)
            return await send_scores(sender, target, SECONDS[is_long])

    name = f"{WATCHERS} {kind} watchers that never read, {SCORES_PER_S} scores/s"
    kept_mib = SECONDS[is_long] * SCORES_PER_S * SCORE_MIB
    growth_mib_max = WATCHERS * HELD_MIB_MAX + SLACK_MIB + kept_mib
    left_mib_max = LEFT_MIB_MAX + kept_mib
    with target.attack(
        name, is_long=is_long, growth_mib_max=growth_mib_max, left_mib_max=left_mib_max, with_scores=True
    ) as attacked:
        statuses = run(attack(), SECONDS[is_long] + 60)
        attacked.expect(statuses == {200}, f"every score is taken: {statuses}")
