"""Bodies and heads that are not finished, and connections that say nothing: their memory is bounded, and they end.

The healthy client sends scores too.
"""

from __future__ import annotations

import asyncio

import pytest

from .bounds import MIB
from .limits import BODY_READ_WHOLE_S, HEADER_READ_MS
from .target import Target, head, short_and_long
from .wire import Wire, pause, run, wires

CONNECTIONS = {False: 300, True: 1_000}
SLOW = {False: 200, True: 1_000}
IDLE = 2_000
HELD_S = {False: 0.5, True: 5.0}
GROWTH_MIB_MAX = 128.0  # for all bodies together
HEAD_KIB_MAX = 16  # of a connection that has sent nothing, or half a head
STEP_S = 0.15  # between two bytes of a slow client
SLACK_S = 4.0
PATHS = ("/v1/boards/arcade/ranks", "/v1/boards/arcade/friends", "/v1/scores", "/v1/scores/batch")


def begun(path: str, *headers: str) -> bytes:
    return head("POST", path, "Content-Type: application/json", f"Content-Length: {MIB}", *headers)


def outcomes(answers: list[bytes | None]) -> set[str]:
    """Return how connections ended: with which status, without one, or not at all."""
    return {"open" if answer is None else answer[9:12].decode() if answer else "ended" for answer in answers}


@short_and_long
def test_unfinished_bodies_share_a_bounded_memory(target: Target, is_long: bool) -> None:
    """Nobody said who they are; all but the last byte is sent."""
    body = b" " * (MIB - 1)

    async def send(number: int, link: Wire) -> None:
        if await link.send(begun(PATHS[number % len(PATHS)])):
            await link.send(body, 3 * BODY_READ_WHOLE_S)

    async def attack() -> list[bytes | None]:
        async with wires(target.address, CONNECTIONS[is_long]) as links:
            await asyncio.gather(*(send(number, link) for number, link in enumerate(links)))
            await pause(HELD_S[is_long])
            return list(await asyncio.gather(*(link.rest(BODY_READ_WHOLE_S + SLACK_S) for link in links)))

    name = f"{CONNECTIONS[is_long]} unfinished bodies of 1 MiB"
    with target.attack(name, is_long=is_long, growth_mib_max=GROWTH_MIB_MAX, with_scores=True) as attacked:
        ends = outcomes(run(attack(), 120))
        attacked.expect(ends <= {"401", "408", "413", "429", "503", "ended"}, f"each is refused in time: {ends}")


@short_and_long
def test_heads_sent_byte_by_byte_are_cut(target: Target, is_long: bool) -> None:
    sent = head("GET", "/healthz", "X-Slow: " + "a" * 1_000)

    async def attack() -> list[bytes | None]:
        async with wires(target.address, SLOW[is_long]) as links:
            reading = asyncio.gather(*(link.rest(HEADER_READ_MS / 1_000 + SLACK_S) for link in links))
            for number in range(int(HEADER_READ_MS / 1_000 / STEP_S) + 5):
                await asyncio.gather(*(link.send(sent[number : number + 1]) for link in links))
                await pause(STEP_S)
            return list(await reading)

    growth_mib_max = SLOW[is_long] * HEAD_KIB_MAX / 1_024 + 16
    with target.attack(
        f"{SLOW[is_long]} slow heads", is_long=is_long, growth_mib_max=growth_mib_max, with_scores=True
    ) as attacked:
        ends = outcomes(run(attack(), 60))
        attacked.expect(ends <= {"400", "408", "ended"}, f"each is cut in time: {ends}")


@short_and_long
@pytest.mark.parametrize("is_service", [False, True], ids=["anybody", "service"])
def test_bodies_sent_byte_by_byte_are_cut(target: Target, is_service: bool, is_long: bool) -> None:
    """Each byte comes in time; all of them together do not."""
    target.revive()
    path, headers = (PATHS[2], [target.authorization]) if is_service else (PATHS[0], [])

    async def attack() -> list[bytes | None]:
        async with wires(target.address, SLOW[is_long]) as links:
            for link in links:
                await link.send(begun(path, *headers))
            reading = asyncio.gather(*(link.rest(BODY_READ_WHOLE_S + SLACK_S) for link in links))
            for _ in range(int(BODY_READ_WHOLE_S / STEP_S) + 5):
                await asyncio.gather(*(link.send(b" ") for link in links))
                await pause(STEP_S)
                if reading.done():
                    break
            return list(await reading)

    who = "of a service" if is_service else "of nobody"
    with target.attack(
        f"{SLOW[is_long]} slow bodies {who}", is_long=is_long, growth_mib_max=64, with_scores=True
    ) as attacked:
        ends = outcomes(run(attack(), 60))
        attacked.expect(ends <= {"408", "429", "503", "ended"}, f"each is cut in time: {ends}")


@short_and_long
def test_idle_connections_cost_little_and_end(target: Target, is_long: bool) -> None:
    async def attack() -> list[bytes | None]:
        async with wires(target.address, IDLE) as links:
            return list(await asyncio.gather(*(link.rest(HEADER_READ_MS / 1_000 + SLACK_S) for link in links)))

    growth_mib_max = IDLE * HEAD_KIB_MAX / 1_024 + 16
    with target.attack(
        f"{IDLE} idle connections", is_long=is_long, growth_mib_max=growth_mib_max, with_scores=True
    ) as attacked:
        ends = outcomes(run(attack(), 60))
        attacked.expect(ends <= {"400", "408", "ended"}, f"each is ended in time: {ends}")
