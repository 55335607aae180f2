"""WebSocket connections that send without end, or do not read: at most 64 KiB are held for each, whatever it sends."""

from __future__ import annotations

import asyncio

from .bounds import MIB, WEB_SOCKET_HELD_MIB_MAX
from .target import Target, head, short_and_long
from .web_sockets import (
    ABNORMAL,
    CONTINUATION,
    FINAL,
    HANDSHAKE,
    PING,
    TEXT,
    close_code,
    frame,
    read_frame,
    text,
    web_socket,
    web_sockets,
)
from .wire import Wire, run, wires

CONNECTIONS = 20
SLACK_MIB = 16.0  # for the connections themselves, and what allocators round up
MESSAGE_MIB = {False: 8, True: 60}
FLOOD_S = {False: 1.5, True: 15.0}
FLOOD_BYTES_MAX = 64 * MIB
TAKEN_BYTES_MAX = 16 * MIB  # by a server that stops reading, with what the system buffers on both sides
FRAGMENT = b"x" * 4_000
CLAIMED = (1 * MIB, 2**40, 2**62)
TOO_MUCH = {1008, 1009}
CUT_S = 10.0


def held_mib_max(connections: int) -> float:
    return connections * WEB_SOCKET_HELD_MIB_MAX + SLACK_MIB


async def pour(link: Wire, first: bytes, piece: bytes, bytes_max: int, seconds: float) -> int:
    """Send a beginning, then a piece again and again, until the server ends it; return how much it took."""
    sent = len(first)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    if await link.send(first):
        while sent < bytes_max and (left := deadline - loop.time()) > 0 and await link.send(piece, left):
            sent += len(piece)
    return sent


@short_and_long
def test_messages_that_are_never_finished_are_cut(target: Target, is_long: bool) -> None:
    """Each fragment is small; only together they are large."""
    bytes_max = MESSAGE_MIB[is_long] * MIB

    async def attack() -> list[int | None]:
        piece = frame(CONTINUATION, FRAGMENT) * 16
        async with web_sockets(target.address, CONNECTIONS) as links:
            codes = asyncio.gather(*(close_code(link, 40) for link in links))
            await asyncio.gather(*(pour(link, frame(TEXT, FRAGMENT), piece, bytes_max, 30) for link in links))
            return list(await asyncio.wait_for(codes, CUT_S))

    name = f"{CONNECTIONS} unfinished messages of {MESSAGE_MIB[is_long]} MiB"
    with target.attack(name, is_long=is_long, growth_mib_max=held_mib_max(CONNECTIONS)) as attacked:
        codes = run(attack(), 60)
        attacked.expect(set(codes) <= TOO_MUCH, f"it ends with 1008 or 1009: {set(codes)}")


@short_and_long
def test_a_flood_of_empty_fragments_is_cut(target: Target, is_long: bool) -> None:
    async def attack() -> list[int | None]:
        piece = frame(CONTINUATION) * 2_000
        async with web_sockets(target.address, CONNECTIONS) as links:
            codes = asyncio.gather(*(close_code(link, FLOOD_S[is_long] + CUT_S) for link in links))
            poured = (pour(link, frame(TEXT), piece, FLOOD_BYTES_MAX, FLOOD_S[is_long]) for link in links)
            await asyncio.gather(*poured)
            return list(await asyncio.wait_for(codes, FLOOD_S[is_long] + 2 * CUT_S))

    with target.attack(
        f"empty fragments on {CONNECTIONS} connections", is_long=is_long, growth_mib_max=held_mib_max(CONNECTIONS)
    ) as attacked:
        codes = run(attack(), FLOOD_S[is_long] + 40)
        attacked.expect(set(codes) <= TOO_MUCH, f"it ends with 1008 or 1009: {set(codes)}")


@short_and_long
def test_pongs_that_nobody_reads_are_not_piled_up(target: Target, is_long: bool) -> None:
    """The server may end such connections or stop reading from them; it may not go on for ever."""

    async def attack() -> list[int]:
        piece = frame(FINAL | PING, b"p" * 125) * 50
        async with web_sockets(target.address, CONNECTIONS, receive_bytes=4_096) as links:
            poured = (pour(link, b"", piece, FLOOD_BYTES_MAX, FLOOD_S[is_long]) for link in links)
            return list(await asyncio.gather(*poured))

    with target.attack(
        f"unread pongs on {CONNECTIONS} connections", is_long=is_long, growth_mib_max=held_mib_max(CONNECTIONS)
    ) as attacked:
        taken = run(attack(), FLOOD_S[is_long] + 40)
        attacked.expect(max(taken) < TAKEN_BYTES_MAX, f"no more is taken: {max(taken) / MIB:.1f} MiB were")


@short_and_long
def test_frames_that_claim_to_be_huge_are_cut_before_they_come(target: Target, is_long: bool) -> None:
    connections = 200 if is_long else CONNECTIONS

    async def attack() -> list[int | None]:
        async with web_sockets(target.address, connections) as links:
            for number, link in enumerate(links):
                await link.send(frame(FINAL | TEXT, b"x" * 1_000, claimed=CLAIMED[number % len(CLAIMED)]))
            return list(await asyncio.gather(*(close_code(link, CUT_S) for link in links)))

    with target.attack(
        f"{connections} frames that claim to be huge", is_long=is_long, growth_mib_max=held_mib_max(connections)
    ) as attacked:
        codes = run(attack(), 40)
        attacked.expect(set(codes) <= TOO_MUCH, f"it ends with 1008 or 1009: {set(codes)}")


@short_and_long
def test_frames_that_come_byte_by_byte_are_understood(target: Target, is_long: bool) -> None:
    connections = 200 if is_long else CONNECTIONS
    asked = text(b'{"op":"subscribe","topic":"top:arcade"}')

    async def attack() -> list[tuple[int, bytes] | None]:
        async with web_sockets(target.address, connections) as links:
            for number in range(len(asked)):
                for link in links:
                    await link.send(asked[number : number + 1])
            return list(await asyncio.gather(*(read_frame(link) for link in links)))

    with target.attack(
        f"{connections} frames byte by byte", is_long=is_long, growth_mib_max=held_mib_max(connections)
    ) as attacked:
        received = run(attack(), 40)
        whole = sum(message is not None and b'"snapshot"' in message[1] for message in received)
        attacked.expect(whole == connections, f"each is answered: {whole} were")


@short_and_long
def test_what_follows_a_close_is_not_heard(target: Target, is_long: bool) -> None:
    connections = 200 if is_long else CONNECTIONS
    goodbye = frame(FINAL | 0x8, b"\x03\xe8")

    async def closed(number: int) -> int | None:
        async with web_socket(target.address) as link:
            after = (goodbye * 1_000, text(b"{}") * 1_000, frame(FINAL | PING, b"p") * 1_000)[number % 3]
            await link.send(goodbye + after)
            return await close_code(link, CUT_S)

    async def attack() -> list[int | None]:
        return list(await asyncio.gather(*(closed(number) for number in range(connections))))

    with target.attack(
        f"{connections} that go on after a close", is_long=is_long, growth_mib_max=held_mib_max(connections)
    ) as attacked:
        codes = run(attack(), 40)
        attacked.expect(set(codes) <= {1000, 1002, ABNORMAL}, f"it ends with 1000 or as a fault: {set(codes)}")


@short_and_long
def test_handshakes_that_are_never_finished_are_ended(target: Target, is_long: bool) -> None:
    connections = 1_000 if is_long else 200

    async def attack() -> list[bytes | None]:
        begun = head("GET", "/v1/ws", *HANDSHAKE)[:-2] + b"X-Slow: "
        async with wires(target.address, connections) as links:
            for link in links:
                await link.send(begun)
            return list(await asyncio.gather(*(link.rest(CUT_S) for link in links)))

    with target.attack(
        f"{connections} unfinished handshakes", is_long=is_long, growth_mib_max=held_mib_max(connections)
    ) as attacked:
        answers = run(attack(), 40)
        attacked.expect(None not in answers, f"each is ended: {answers.count(None)} were not")
        firsts = {answer[:12] for answer in answers if answer}
        attacked.expect(firsts <= {b"HTTP/1.1 408", b"HTTP/1.1 400"}, f"nothing but 408 is answered: {firsts}")
