"""HTTP/1.1 as the server reads and writes it, byte by byte."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.api.http.serving import RawClient, answering, eventually, exchange, run, serving

from rankd.api.http.connection import HEADERS_MAX
from rankd.api.http.exchange import BODY_BUFFER_BYTES_MAX
from rankd.config.model import LimitsConfig

GET = b"GET /a/b?x=1 HTTP/1.1\r\nHost: here\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"


def echoing(seen: list[dict[str, Any]]) -> Any:
    """Return an application that notes what it was asked, and answers with the body it got."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        seen.append({**scope, "body": body})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return app


def test_a_request_reaches_the_application_whole() -> None:
    async def test() -> None:
        seen: list[dict[str, Any]] = []
        async with serving(echoing(seen)) as server:
            client = await RawClient.to(server)
            await client.send(
                b"POST /p%2Fq?a=b HTTP/1.1\r\nHost: here\r\nX-Odd: Caf\xe9\r\nContent-Length: 5\r\n\r\nhello"
            )
            assert (await client.response())[2] == b"hello"
            client.close()
        assert (seen[0]["method"], seen[0]["raw_path"], seen[0]["path"]) == ("POST", b"/p%2Fq", "/p/q")
        assert (seen[0]["query_string"], seen[0]["http_version"]) == (b"a=b", "1.1")
        assert (b"x-odd", b"Caf\xe9") in seen[0]["headers"]
        assert seen[0]["client"][0] == "127.0.0.1"

    run(test)


def test_a_connection_takes_one_request_after_the_other() -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            client = await RawClient.to(server)
            for _ in range(3):
                await client.send(GET)
                status, headers, body = await client.response()
                assert (status, body) == (200, b"hello")
                assert b"connection" not in headers
                assert headers[b"date"].endswith(b"GMT")
            client.close()

    run(test)


def test_pipelined_requests_are_answered_in_order_and_few_are_read_ahead() -> None:
    async def test() -> None:
        seen: list[dict[str, Any]] = []
        async with serving(echoing(seen)) as server:
            client = await RawClient.to(server)
            count = 2_000
            posts = (b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\n%05d" % n for n in range(count))
            sending = asyncio.create_task(client.send(b"".join(posts)))
            for n in range(count):
                assert (await client.response())[2] == b"%05d" % n
            await sending
            client.close()

    run(test)


def test_a_body_in_chunks_comes_whole_and_its_trailers_are_no_headers() -> None:
    async def test() -> None:
        seen: list[dict[str, Any]] = []
        async with serving(echoing(seen)) as server:
            client = await RawClient.to(server)
            for piece in (CHUNKED, b"3\r\nabc\r\n", b"2;x=y\r\nde\r\n0\r\n", b"Authorization: Bearer forged\r\n\r\n"):
                await client.send(piece)
            assert (await client.response())[2] == b"abcde"
            client.close()
        assert [name for name, _ in seen[0]["headers"]] == [b"host", b"transfer-encoding"]

    run(test)


MALFORMED = {
    "a bare line feed": b"GET / HTTP/1.1\nHost: here\n\n",
    "a bare line feed in the head": b"GET / HTTP/1.1\r\nHost: here\nX: y\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "a length and chunks": CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\n0\r\n\r\n"),
    "a length with a sign": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",
    "a chunk size that is none": CHUNKED + b"zz\r\nab\r\n0\r\n\r\n",
    "a chunk that is longer than it says": CHUNKED + b"2\r\nabc\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": CHUNKED + b"fffffffffffffffff\r\n",
    "a host that is none": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "a fragment": b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a target that is no path": b"GET gopher://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_malformed_gets_400_and_is_counted(sent: bytes) -> None:
    async def test() -> None:
        counted: list[int] = []
        async with serving(answering(), count_malformed=counted.append) as server:
            answer = await exchange(server, sent)
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert b"application/problem+json" in answer
            assert b"connection: close" in answer
            assert answer.count(b"HTTP/1.1 ") == 1
        assert counted == [400]

    run(test)


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (431, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * HEADERS_MAX + b"\r\n"),
        (431, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 70_000 + b"\r\n\r\n"),
        (431, b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
        (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        (431, CHUNKED + b"1;" + b"x" * 200_000),
        (431, CHUNKED + b"0\r\nX: " + b"y" * 200_000),
        (505, b"GET /\r\n\r\n"),
        (417, b"POST / HTTP/1.1\r\nHost: a\r\nExpect: more\r\nContent-Length: 1\r\n\r\na"),
    ],
)
def test_what_is_beyond_a_limit_or_not_spoken_here_is_refused_by_its_own_status(status: int, sent: bytes) -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            assert (await exchange(server, sent)).startswith(b"HTTP/1.1 %d " % status)

    run(test)


def test_a_malformed_request_behind_a_good_one_does_not_cost_the_good_one_its_answer() -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            answer = await exchange(server, GET + b"nonsense\r\n\r\n")
            assert answer.index(b"HTTP/1.1 200") < answer.index(b"HTTP/1.1 400")

    run(test)


def test_http_1_0_ends_with_its_answer() -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            answer = await exchange(server, b"GET / HTTP/1.0\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"hello")

    run(test)


def test_a_whole_url_as_the_target_means_its_path() -> None:
    async def test() -> None:
        seen: list[dict[str, Any]] = []
        async with serving(echoing(seen)) as server:
            sent = b"GET http://here/a?b HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
            assert (await exchange(server, sent)).startswith(b"HTTP/1.1 200")
        assert (seen[0]["raw_path"], seen[0]["query_string"]) == (b"/a", b"b")

    run(test)


def test_a_client_that_expects_100_gets_it_when_the_body_is_wanted() -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            client = await RawClient.to(server)
            await client.send(b"POST / HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(b"ab")
            assert (await client.response())[0] == 200
            client.close()

    run(test)


def test_work_is_cancelled_when_its_client_goes() -> None:
    async def test() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def app(_scope: Any, receive: Any, _send: Any) -> None:
            await receive()
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.set()
                raise

        async with serving(app) as server:
            client = await RawClient.to(server)
            await client.send(GET)
            await began.wait()
            client.close()
            await ended.wait()
            await eventually(lambda: len(server.connections) == 0)

    run(test)


def test_a_body_nobody_asks_for_stays_with_its_client() -> None:
    async def test() -> None:
        asked = asyncio.Event()
        sizes: list[int] = []

        async def app(_scope: Any, receive: Any, send: Any) -> None:
            await asked.wait()
            more = True
            while more:
                message = await receive()
                sizes.append(len(message["body"]))
                more = message["more_body"]
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        size = 64 * 1024 * 1024
        async with serving(app) as server:
            client = await RawClient.to(server)
            await client.send(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % size)
            sending = asyncio.create_task(client.send(b"x" * size))
            done, _ = await asyncio.wait([sending], timeout=0.3)
            assert not done
            asked.set()
            assert (await client.response())[0] == 200
            await sending
            client.close()
        assert sum(sizes) == size
        assert max(sizes) < BODY_BUFFER_BYTES_MAX + 1024 * 1024

    run(test)


def test_an_answer_before_the_body_is_read_reaches_a_client_that_still_sends() -> None:
    async def early(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    async def test() -> None:
        async with serving(early) as server:
            client = await RawClient.to(server)
            await client.send(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 500_000)
            status, headers, _ = await client.response()
            assert (status, headers[b"connection"]) == (413, b"close")
            assert await client.until_closed() == b""

    run(test)


def test_a_stream_is_chunked_and_waits_for_a_client_that_does_not_read() -> None:
    async def test() -> None:
        sent = 0

        async def endless(_scope: Any, _receive: Any, send: Any) -> None:
            nonlocal sent
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 16_384, "more_body": True})
                sent += 16_384

        async with serving(endless) as server:
            client = await RawClient.to(server)
            await client.send(GET)
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert b"transfer-encoding: chunked" in head
            await eventually(lambda: any(connection.is_write_paused for connection in server.connections))
            assert sent < 64 * 1024 * 1024
            client.close()
            await eventually(lambda: len(server.connections) == 0)

    run(test)


def test_an_answer_that_breaks_off_does_not_look_whole() -> None:
    async def broken(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("a fault of the test's own")

    async def test() -> None:
        async with serving(broken) as server:
            answer = await exchange(server, GET)
            assert not answer.endswith(b"0\r\n\r\n")

    run(test)


def test_who_does_not_finish_a_head_or_sends_nothing_more_is_cut() -> None:
    async def test() -> None:
        async with serving(answering(), LimitsConfig(header_read_ms=300, keep_alive_ms=300)) as server:
            slow, idle = await RawClient.to(server), await RawClient.to(server)
            await slow.send(GET[:-2])
            await idle.send(GET)
            assert (await idle.response())[0] == 200
            assert (await slow.until_closed()).startswith(b"HTTP/1.1 408")
            assert await idle.until_closed() == b""

    run(test)


def test_an_idle_connection_makes_room_for_a_new_one() -> None:
    async def test() -> None:
        async with serving(answering(), LimitsConfig(requests_max=2)) as server:
            clients = [await RawClient.to(server) for _ in range(3)]
            await clients[2].send(GET)
            assert (await clients[2].response())[0] == 200
            assert await clients[0].until_closed() == b""
            assert len(server.connections) == 2
            for client in clients:
                client.close()

    run(test)


def test_a_connection_too_many_is_refused_where_all_are_busy() -> None:
    async def test() -> None:
        going = asyncio.Event()

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await going.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        async with serving(app, LimitsConfig(requests_max=1)) as server:
            busy = await RawClient.to(server)
            await busy.send(GET)
            await eventually(lambda: len(server.connections) == 1)
            other = await RawClient.to(server)
            assert (await other.until_closed()).startswith(b"HTTP/1.1 503")
            going.set()
            assert (await busy.response())[0] == 200
            busy.close()

    run(test)


def test_stopping_lets_a_request_end_and_closes_what_is_idle() -> None:
    async def test() -> None:
        going = asyncio.Event()

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await going.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"done"})

        async with serving(app) as server:
            busy, idle = await RawClient.to(server), await RawClient.to(server)
            going.set()
            await idle.send(GET)
            assert (await idle.response())[0] == 200
            going.clear()
            await busy.send(GET)
            await eventually(lambda: sorted(each.deadline > 0 for each in server.connections) == [False, True])
            server.stop_listening()
            assert await idle.until_closed() == b""
            going.set()
            assert (await busy.response())[2] == b"done"
            assert await busy.until_closed() == b""

    run(test)


def test_answers_that_nobody_reads_are_not_made_ahead() -> None:
    async def test() -> None:
        made = 0

        async def large(_scope: Any, _receive: Any, send: Any) -> None:
            nonlocal made
            made += 1
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * 1_000_000})

        async with serving(large) as server:
            client = await RawClient.to(server)
            count = 200
            await client.send(GET * count)
            await eventually(lambda: any(connection.is_write_paused for connection in server.connections))
            assert made < count / 4
            for _ in range(count):
                assert len((await client.response())[2]) == 1_000_000
            assert made == count
            client.close()

    run(test)


def test_a_request_for_another_protocol_is_answered_with_its_body() -> None:
    async def test() -> None:
        seen: list[dict[str, Any]] = []
        async with serving(echoing(seen)) as server:
            client = await RawClient.to(server)
            head = b"POST /x?y HTTP/1.1\r\nHost: here\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            await client.send(head + b"HTTP2-Settings: AAMAAABk\r\nContent-Length: 5\r\n\r\nhello" + GET)
            assert (await client.response())[2] == b"hello"
            assert (await client.response())[0] == 200
            client.close()
        assert [scope["raw_path"] for scope in seen] == [b"/x", b"/a/b"]

    run(test)


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (413, b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000),
        (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (405, b"CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n"),
    ],
)
def test_what_no_client_needs_is_refused(status: int, sent: bytes) -> None:
    async def waiting(_scope: Any, _receive: Any, _send: Any) -> None:
        await asyncio.Event().wait()

    async def test() -> None:
        async with serving(waiting) as server:
            assert (await exchange(server, sent)).startswith(b"HTTP/1.1 %d " % status)

    run(test)


def test_a_client_that_leaves_behind_pipelined_requests_is_noticed() -> None:
    async def test() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def app(_scope: Any, _receive: Any, _send: Any) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with serving(app) as server:
            client = await RawClient.to(server)
            await client.send(GET * 500)
            await began.wait()
            client.close()
            await ended.wait()

    run(test)


def test_who_does_not_read_the_last_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankd.api.http.connection.STALLED_S", 0.2)

    async def test() -> None:
        async with serving(answering(b"x" * 50_000_000)) as server:
            client = await RawClient.to(server)
            await client.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await eventually(lambda: len(server.connections) == 1)
            await eventually(lambda: len(server.connections) == 0)
            client.close()

    run(test)


def test_one_address_cannot_take_all_connections() -> None:
    async def test() -> None:
        going = asyncio.Event()

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await going.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        async with serving(app, LimitsConfig(connections_per_address_max=2)) as server:
            clients = [await RawClient.to(server) for _ in range(2)]
            for client in clients:
                await client.send(GET)
            await eventually(lambda: [connection.deadline for connection in server.connections] == [0.0, 0.0])
            other = await RawClient.to(server)
            assert (await other.until_closed()).startswith(b"HTTP/1.1 503")
            going.set()
            for client in clients:
                assert (await client.response())[0] == 200
                client.close()

    run(test)
