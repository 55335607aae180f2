"""Requests that break HTTP/1.1: refused once, counted, and the connection closed; what is merely odd is served."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from .malformed_requests import BODY, MALFORMED, SMUGGLED, chunks, get, line, post
from .target import Target, head
from .wire import Answer, Wire, run, wire

END_S = 8.0  # longer than a head or a body may take
NEXT_S = 1.0  # to the next answer or the end; shorter than a connection may be idle, which would end it too
PIPELINED = 1_000
DAMAGED = 3_000
COUNTED = 'rankd_requests_total{method="any",route="unmatched",status="400"}'


@pytest.fixture(scope="module")
def target(target: Target) -> Iterator[Target]:
    """One healthy client beside all of them."""
    with target.attack("malformed requests", is_long=False):
        yield target


async def answers(link: Wire) -> tuple[list[Answer], bool]:
    """Return every answer until the server ends the connection, and whether it does."""
    received: list[Answer] = []
    try:
        while (answer := await link.answer(within_s=NEXT_S if received else END_S)) is not None:
            received.append(answer)
    except TimeoutError:
        return received, False
    return received, not link.unread


def exchange(target: Target, sent: bytes) -> tuple[list[Answer], bool]:
    """Send something on a connection of its own; the client's side stays open."""

    async def exchanged() -> tuple[list[Answer], bool]:
        async with wire(target.address) as link:
            await link.send(sent)
            return await answers(link)

    return run(exchanged(), 2 * END_S)


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_refused_once_and_its_connection_closed(target: Target, name: str) -> None:
    malformed = MALFORMED[name]
    received, is_ended = exchange(target, malformed.sent)

    assert [answer.status for answer in received] in [[status] for status in malformed.statuses]
    assert is_ended


def test_malformed_requests_are_counted(target: Target) -> None:
    before = target.metric(COUNTED)
    refused = 0
    for name in ("no host", "two lengths", "a folded header", "HTTP/0.9 with headers", "nonsense"):
        received, _ = exchange(target, MALFORMED[name].sent)
        refused += received[0].status == 400

    assert refused
    deadline = time.monotonic() + END_S
    while target.metric(COUNTED) < before + refused:  # figures may be a second old
        assert time.monotonic() < deadline, "they were not counted"


# What RFC 9112 asks a server to take, or lets it: statuses of all answers, in order.
CLOSE = "Connection: close"
SIZED = f"Content-Length: {len(BODY)}"
ODD: dict[str, tuple[bytes, list[list[int]]]] = {
    "HTTP/1.0": (line(b"GET /healthz HTTP/1.0"), [[200]]),
    "HTTP/1.0 without a host": (b"GET /healthz HTTP/1.0\r\n\r\n", [[200]]),
    "the absolute form": (line(b"GET http://rankd/healthz HTTP/1.1\r\nConnection: close"), [[200], [400]]),
    "two spaces": (line(b"GET  /healthz HTTP/1.1\r\nConnection: close"), [[200], [400]]),
    "an empty line first": (b"\r\n" + get(CLOSE), [[200], [400]]),
    "a chunk extension": (
        post(b'e;a=b;c="d"\r\n' + BODY + b"\r\n0\r\n\r\n", "Transfer-Encoding: chunked", CLOSE),
        [[200], [400]],
    ),
    "a trailer": (
        post(b"e\r\n" + BODY + b"\r\n0\r\nX-A: b\r\n\r\n", "Transfer-Encoding: chunked", CLOSE),
        [[200], [400]],
    ),
    "chunks of one byte": (
        post(b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n", "Transfer-Encoding: chunked", CLOSE),
        [[200]],
    ),
    "a read with a body": (get(SIZED) + BODY + get(CLOSE), [[200, 200], [400]]),
    "a read with chunks": (get("Transfer-Encoding: chunked") + b"0\r\n\r\n" + get(CLOSE), [[200, 200], [400]]),
    "a request behind the last one": (get(CLOSE) + SMUGGLED, [[200]]),
    "a request behind a refused one": (get("Host: other") + SMUGGLED, [[400]]),
    "a body that is expected": (post(BODY, SIZED, "Expect: 100-continue", CLOSE), [[100, 200], [200]]),
    "something else that is expected": (get("Expect: 200-maybe", CLOSE), [[200], [400], [417]]),
    "two requests": (get() + get(CLOSE), [[200, 200]]),
    "a body and a request": (post(BODY, SIZED) + get(CLOSE), [[200, 200]]),
    "chunks and a request": (chunks(b"e\r\n" + BODY + b"\r\n0\r\n\r\n") + get(CLOSE), [[200, 200]]),
    "a body that says it is empty": (post(b"", "Content-Length: 0") + get(CLOSE), [[400, 200], [422, 200], [400]]),
    "TRACE": (line(b"TRACE /healthz HTTP/1.1\r\nConnection: close"), [[400], [405], [501]]),
    "CONNECT": (line(b"CONNECT rankd:80 HTTP/1.1\r\nConnection: close"), [[400], [404], [405], [501]]),
    "OPTIONS *": (line(b"OPTIONS * HTTP/1.1\r\nConnection: close"), [[200], [204], [400], [404], [405]]),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_request_is_served_or_refused_but_never_answered_twice(target: Target, name: str) -> None:
    sent, expected = ODD[name]
    received, is_ended = exchange(target, sent)

    assert [answer.status for answer in received] in expected
    assert is_ended


def test_a_body_is_asked_for_before_it_is_sent(target: Target) -> None:
    async def wait_for_it() -> list[int]:
        async with wire(target.address) as link:
            await link.send(post(b"", SIZED, "Expect: 100-continue"))
            first = await link.answer()
            await link.send(BODY)
            second = await link.answer()
            return [0 if answer is None else answer.status for answer in (first, second)]

    assert run(wait_for_it(), 2 * END_S) == [100, 200]


@pytest.mark.parametrize("body", [b"", BODY], ids=["nothing", "a body"])
def test_an_answer_to_head_has_no_body(target: Target, body: bytes) -> None:
    async def ask_twice() -> list[Answer | None]:
        async with wire(target.address) as link:
            await link.send(head("HEAD", "/healthz", f"Content-Length: {len(body)}") + body + get(CLOSE))
            return [await link.answer(to_head=True), await link.answer()]

    first, second = run(ask_twice(), 2 * END_S)

    assert first is not None
    assert first.status == 200 or (body and first.status == 400)
    assert first.status == 400 or (second is not None and b'"ok"' in second.body)


def test_a_thousand_requests_at_once_are_answered_in_order(target: Target) -> None:
    asked = [head("GET", f"/v1/boards/arcade/players/p{number % 1_000}") for number in range(PIPELINED)]
    received, is_ended = exchange(target, b"".join(asked) + get(CLOSE))

    assert is_ended
    assert [answer.status for answer in received] == [200] * (PIPELINED + 1)
    assert all(b'"player":"p%d"' % number in answer.body for number, answer in enumerate(received[:-1]))


@pytest.mark.long
def test_a_request_that_is_damaged_at_random_is_served_at_most_once_and_never_left_open(target: Target) -> None:
    rng = random.Random(20)
    whole = [get(), post(BODY, SIZED), chunks(b"e\r\n" + BODY + b"\r\n0\r\n\r\n"), head("GET", "/v1/boards/arcade/top")]
    for _ in range(DAMAGED):
        sent = damaged(rng.choice(whole), rng)

        async def exchanged(sent: bytes = sent) -> tuple[list[Answer], bool]:
            async with wire(target.address) as link:
                await link.send(sent)
                link.end_sending()
                return await answers(link)

        received, is_ended = run(exchanged(), 2 * END_S)
        statuses = [answer.status for answer in received]
        assert is_ended, sent
        assert len(statuses) <= 2, (statuses, sent)
        assert all(status >= 400 for status in statuses[1:]), (statuses, sent)  # a body that lost its length
        assert all(status < 500 or status in (501, 503, 505) for status in statuses), (statuses, sent)


def damaged(request: bytes, rng: random.Random) -> bytes:
    """Return a request with a few bytes changed or left out."""
    sent = bytearray(request)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(sent))
        if rng.random() < 0.5:
            sent[place] = rng.choice(b"\0\r\n :;,+-0aZ\x7f\xff")
        else:
            del sent[place : place + rng.randrange(1, 5)]
    return bytes(sent)
