"""The first lines of a request say which protocol and which host it is for; only HTTP is spoken here."""

from __future__ import annotations

import pytest
from tests.unit.api.http.serving import RawClient, answering, eventually, exchange, run, serving

from rankd.api.http.connection import HttpConnection


@pytest.mark.parametrize("first", [b"GET /a RTSP/1.0", b"OPTIONS * RTSP/1.1", b"SOURCE /a ICE/1.0"])
def test_another_protocol_gets_400(first: bytes) -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            assert (await exchange(server, first + b"\r\nHost: here\r\n\r\n")).startswith(b"HTTP/1.1 400")

    run(test)


def test_rtsp_is_refused_wherever_the_pieces_of_its_first_line_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        sent, pieces = b"GET /a RTSP/1.0\r\nHost: here\r\n\r\n", list[int]()
        read = HttpConnection.buffer_updated

        def noted(connection: HttpConnection, size: int) -> None:
            pieces.append(size)
            read(connection, size)

        monkeypatch.setattr(HttpConnection, "buffer_updated", noted)
        async with serving(answering()) as server:
            for cut in range(1, len(b"GET /a RTSP/1.0\r\n")):
                pieces.clear()
                client = await RawClient.to(server)
                await client.send(sent[:cut])
                await eventually(lambda: bool(pieces))
                await client.send(sent[cut:])
                assert (await client.until_closed()).startswith(b"HTTP/1.1 400"), cut

    run(test)


def test_a_request_that_speaks_of_rtsp_is_served() -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            sent = b"POST /a HTTP/1.1\r\nHost: here\r\nX: see RTSP/1.0\r\nContent-Length: 9\r\n\r\nit RTSP/1"
            client = await RawClient.to(server)
            await client.send(sent)
            assert (await client.response())[0] == 200
            client.close()

    run(test)


def test_every_host_is_checked_whatever_came_before_it() -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            for host, status in ((b"here", b"200"), (b"here", b"200"), (b"he re", b"400"), (b"he re", b"400")):
                answer = await exchange(server, b"GET / HTTP/1.0\r\nHost: %b\r\n\r\n" % host)
                assert answer.startswith(b"HTTP/1.1 " + status)

    run(test)
