"""An API process that is killed at any moment loses nothing it acknowledged, and what was under way counts once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.redis import RedisServer

from rankd.node.open_thin import open_thin
from rankd.node.shared_stores import SharedStores

from . import scaled_writer_child
from .crash_child import THREADS
from .extent import replayable, short_and_long
from .scaled_installation import recomputed, wait_until_mirrored
from .scaled_processes import Projectors
from .test_crash import Expected, check_after_kill, run_and_kill, under_way

pytestmark = pytest.mark.timeout(300)  # processes that start, fail and catch up
KILLS, KILLS_LONG = 3, 60
KILL_AFTER_MS = (5, 600)
RANKED_WITHIN_MS = 20_000
Urls = tuple[str, str]


@pytest.fixture
def urls(tmp_path: Path, postgres_url: str, own_redis: RedisServer) -> Iterator[Urls]:
    """Where a ledger and ranks are, with a projector at work."""
    SharedStores(postgres_url).migrate()
    projectors = Projectors(postgres_url, own_redis.url, tmp_path)
    projectors.start()
    try:
        projectors.wait_for_holder()
        yield postgres_url, own_redis.url
    finally:
        projectors.end()


def live_and_die(urls: Urls, kills: int, rng: random.Random) -> int:
    """Kill one process after the other; return how many events the busiest acknowledged."""
    expected, first, most = Expected(), 0, 0
    for kill in range(kills):
        acknowledged = run_and_kill(scaled_writer_child.__name__, urls, first, rng.uniform(*KILL_AFTER_MS))
        most = max(most, len(acknowledged))
        with open_thin(SharedStores(urls[0]), urls[1], at_least_wait_ms=RANKED_WITHIN_MS) as boards:
            try:
                for board in ("counts", "latest"):
                    boards.top(board, at_least=boards.position)
                check_after_kill(boards, acknowledged, first, expected, rng)
            except BaseException as error:
                error.add_note(f"after kill {kill}, {len(acknowledged)} acknowledged since the one before")
                raise
        first = 1 + max(number for _, _, number in [*acknowledged, *under_way(acknowledged, first)])
    anew = recomputed(urls[0])
    wait_until_mirrored(anew, urls[1], time.monotonic() + RANKED_WITHIN_MS / 1_000)
    return most


@short_and_long
def test_api_processes_killed_again_and_again_lose_nothing_they_acknowledged(urls: Urls, everything: bool) -> None:
    with replayable() as rng:
        assert live_and_die(urls, KILLS_LONG if everything else KILLS, rng) > THREADS
