"""Reads that cost the server much more than they cost whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from .target import Target, head, short_and_long, under_attack
from .wire import run, wire

BOARDS = {False: 300, True: 3_000}
DEFINITION = {"description": "ö" * 2_000, "windows": ["all_time", "weekly", "daily"]}
SECONDS = {False: 1.5, True: 20.0}
HAMMERS = 8
WAITERS = 1_000
NEVER = "0-999999999"  # a position that is not reached
PACKED = "Accept-Encoding: gzip"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with under_attack(tmp_path_factory.mktemp("dear")) as running:
        yield running


def define_large_boards(target: Target, count: int) -> None:
    target.revive()
    with target.server.client(target.server.admin_key) as admin:
        if admin.get(f"/v1/boards/large-{count - 1}").status_code == 200:
            return
        for number in range(count):
            assert admin.put(f"/v1/boards/large-{number}", json=DEFINITION).status_code == 200


async def hammer(target: Target, request: bytes, seconds: float, statuses: set[int]) -> None:
    """Ask the same again and again over one connection."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline:
        async with wire(target.address) as link:
            while loop.time() < deadline and await link.send(request):
                answer = await link.answer()
                if answer is None:
                    break
                statuses.add(answer.status)


def hammered(target: Target, requests: list[bytes], seconds: float) -> set[int]:
    """Ask on many connections at the same time, and return the statuses of all answers."""
    statuses: set[int] = set()

    async def together() -> None:
        await asyncio.gather(*(hammer(target, request, seconds, statuses) for request in requests))

    run(together(), seconds + 30)
    return statuses


@short_and_long
@pytest.mark.parametrize("paths", ["/docs /openapi.json", "/v1/boards", "/metrics"])
def test_a_dear_page_in_a_loop_keeps_nobody_waiting(target: Target, paths: str, is_long: bool) -> None:
    define_large_boards(target, BOARDS[is_long])
    every = paths.split() * HAMMERS
    requests = [head("GET", path, *((PACKED,) if number < HAMMERS / 2 else ())) for number, path in enumerate(every)]
    with target.attack(
        f"{paths} from {HAMMERS} connections, {BOARDS[is_long]} boards", is_long=is_long, growth_mib_max=160
    ) as attack:
        statuses = hammered(target, requests[:HAMMERS], SECONDS[is_long])
        attack.expect(200 in statuses and statuses <= {200, 429, 503}, f"200, or 429, or 503 is answered: {statuses}")


@short_and_long
def test_a_thousand_who_wait_for_a_position_keep_nobody_waiting(target: Target, is_long: bool) -> None:
    request = head("GET", f"/v1/boards/arcade/top?at_least={NEVER}")
    with target.attack(f"{WAITERS} waiting with at_least", is_long=is_long, growth_mib_max=96) as attack:
        statuses = hammered(target, [request] * WAITERS, SECONDS[is_long])
        attack.expect(statuses <= {429, 503}, f"429 or 503 is answered: {statuses}")
