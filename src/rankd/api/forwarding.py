"""Hands requests to the worker that writes, as they came, and passes its answers back.

    client → a worker that reads → Forwarder → worker-0.sock → LocalApp → App of the worker that writes

These are all that change something, and reads and streams of boards that a worker does not keep.

The writer identifies, limits and counts the sender as if the request had come to itself: the client's address goes
along in a header, which only the local socket trusts. Where ranks lag on the worker that reads, it slows down and
refuses scores too: by the credential as it knows it, and by the number of events that the writer has accepted of it.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from rankd.api.app import App
from rankd.api.auth.identity import Identity
from rankd.api.calls.call import Access
from rankd.api.http.eager import in_task
from rankd.api.http.problems import problem_response
from rankd.api.http.request import Forwarded, Header, Receive, RelayedResponse, Request, Response, Send
from rankd.api.local_calls import ConnectionLost, LocalAnswer, LocalClient, NotConnected
from rankd.api.metrics import merged
from rankd.api.service import Service
from rankd.domain.board_selection import BoardSelection
from rankd.errors import LedgerUnavailable, RankdError, RanksUnavailable, Unauthenticated
from rankd.push.topics import parse_topic

PEER = b"x-rankd-peer"
POSITION = b"x-rankd-position"
METRICS_PATH, TICKETS_PATH = "/local/metrics", "/local/tickets/"
SCRAPE_S_MAX = 2.0  # for another worker's figures
_OF_A_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
_NOT_SENT = _OF_A_CONNECTION | {b"expect", b"x-request-id", PEER}
_NOT_PASSED_BACK = _OF_A_CONNECTION | {b"date", POSITION}


class Forwarder:
    """Passes requests from a worker that reads to the one that writes; on the event loop."""

    def __init__(self, writer: LocalClient, service: Service, kept: BoardSelection) -> None:
        """`service` is that of the worker which reads, `kept` are its boards."""
        self._writer = writer
        self._kept = kept
        self._service = service
        self._body_read_s = service.config.limits.body_read_ms / 1_000

    def forward(self, request: Request, scope: dict[str, Any]) -> Awaitable[Response] | None:
        """Return the writer's answer; None where this worker answers itself."""
        call = request.call
        if call is None:
            return None
        if call.is_of_writer:
            return self._change(request, scope)
        if self._kept.is_everything:
            return None
        if call.is_read and not self._kept.keeps(request.arguments[0]):
            return self._read(request, scope)
        if call.name == "stream" and not all(map(self._keeps, request.query.get("topic", "").split("\n"))):
            return self._stream(request, scope)
        return None

    def _keeps(self, topic: str) -> bool:
        try:
            return self._kept.keeps(parse_topic(topic).board)
        except RankdError:
            return True  # refused here

    async def _read(self, request: Request, scope: dict[str, Any]) -> Forwarded:
        """Return the writer's answer to a read."""
        await in_task()
        answer = await self._ask(request, scope, lost="the worker that has this board was lost; ask again in a moment")
        return Forwarded(answer.body, _passed(answer.headers), answer.status)

    async def _stream(self, request: Request, scope: dict[str, Any]) -> RelayedResponse:
        """Return the writer's stream."""
        await in_task()
        try:
            answer, body = await self._writer.stream(_head(request, scope, is_chunked=False))
        except (NotConnected, ConnectionLost):
            raise RanksUnavailable("the worker that has these boards is being started; try again in a moment") from None
        return RelayedResponse(body, _passed(answer.headers), answer.status)

    async def _change(self, request: Request, scope: dict[str, Any]) -> Forwarded:
        """Return the writer's answer to a change, once its position is ranked here: a client reads what it wrote."""
        await in_task()
        is_of_scores = request.call is not None and request.call.access is Access.SCORES
        if is_of_scores:
            request.identity = self._sender(request)
            if delay_s := self._service.write_delay_s(request.identity):  # ranks lag here
                await asyncio.sleep(delay_s)
        lost = "the worker that writes was lost, and this may have been written; send it again, with the same key"
        answer = await self._ask(request, scope, lost)
        if is_of_scores and answer.status == HTTPStatus.OK:
            self._service.count_events(request.identity, _events_of(answer) - 1)  # the first has been counted
        position = next((value.decode() for name, value in answer.headers if name == POSITION), None)
        if position is not None:
            await self._service.wait_for_ranked(position)
        return Forwarded(answer.body, _passed(answer.headers), answer.status)

    def _sender(self, request: Request) -> Identity | None:
        """Return the sender as far as this worker knows; whether the credential is valid is the writer's to say."""
        try:
            return self._service.authenticator.identify(request.headers.get(b"authorization"))
        except RankdError:
            return None

    async def _ask(self, request: Request, scope: dict[str, Any], lost: str) -> LocalAnswer:
        headers = request.headers
        has_length = b"content-length" in headers
        is_chunked = not has_length and b"transfer-encoding" in headers
        has_body = is_chunked or (has_length and headers[b"content-length"] != b"0")
        try:
            receive = self._limited(request.receive) if has_body else None
            return await self._writer.ask(_head(request, scope, is_chunked), receive, is_chunked=is_chunked)
        except NotConnected:
            raise LedgerUnavailable("the worker that writes is being started; send it again in a moment") from None
        except ConnectionLost:
            raise LedgerUnavailable(lost) from None

    def _limited(self, receive: Receive) -> Receive:
        """Return `receive` with a limit of time for its first piece: until then the writer knows nothing of it."""
        is_first = True

        async def receive_in_time() -> Any:
            nonlocal is_first
            if not is_first:
                return await receive()
            is_first = False
            async with asyncio.timeout(self._body_read_s):
                return await receive()

        return receive_in_time

    async def take_ticket(self, ticket: str) -> Identity:
        """Take a ticket from the writer, which gives them all."""
        try:
            answer = await self._writer.get(TICKETS_PATH + ticket)
        except (NotConnected, ConnectionLost):
            raise LedgerUnavailable("the worker that gives tickets is being started; try again in a moment") from None
        if answer.status != 200:
            raise Unauthenticated("ticket: was used, is older than 60 s or was never issued; request another one")
        return msgspec.json.decode(answer.body, type=Identity)


class _Counted(msgspec.Struct):
    """The answer to scores, as far as it is read here."""

    count: int = 1  # given for a batch


def _events_of(answer: LocalAnswer) -> int:
    """Return how many events an answer is about."""
    is_compressed = any(name == b"content-encoding" for name, _ in answer.headers)  # short as it is: by a client's wish
    body = gzip.decompress(answer.body) if is_compressed else answer.body
    return msgspec.json.decode(body, type=_Counted).count


def _head(request: Request, scope: dict[str, Any], is_chunked: bool) -> bytes:
    query, client = scope["query_string"], scope["client"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    method = "GET" if scope["method"] == "HEAD" else scope["method"]  # an answer without a body is cut off here
    lines = [b"%b %b HTTP/1.1" % (method.encode(), target)]
    lines += [b"%b: %b" % header for header in scope["headers"] if header[0] not in _NOT_SENT]
    lines.append(b"x-request-id: " + request.id.encode())
    if client is not None:
        lines.append(PEER + b": " + str(client[0]).encode())
    if is_chunked:
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _passed(headers: list[Header]) -> list[Header]:
    return [header for header in headers if header[0] not in _NOT_PASSED_BACK]


class LocalApp:
    """Answers the other workers, on this worker's local socket."""

    def __init__(self, app: App, service: Service, own_metrics: Callable[[], Awaitable[bytes]]) -> None:
        """`own_metrics` returns the figures of this process alone."""
        self._app = app
        self._service = service
        self._own_metrics = own_metrics

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        path: str = scope["path"]
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif path == METRICS_PATH:
            await _answer(send, Response(await self._own_metrics(), []))
        elif path.startswith(TICKETS_PATH):
            await _answer(send, self._ticket(path.removeprefix(TICKETS_PATH)))
        else:
            await self._forwarded(scope, receive, send)

    def _ticket(self, ticket: str) -> Response:
        live = self._service.live
        try:
            identity = None if live is None else live.tickets.use(ticket)
        except RankdError as problem:
            return problem_response(problem)
        return Response(msgspec.json.encode(identity), [])

    async def _forwarded(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request that came to another worker, as if it had come here, and say which position is ranked."""
        headers: list[Header] = scope["headers"]
        peer = next((value for name, value in headers if name == PEER), None)
        scope["client"] = None if peer is None else (peer.decode(), 0)
        scope["headers"] = [header for header in headers if header[0] != PEER]

        async def send_position(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                position = (POSITION, self._service.boards.position.encode())
                message = {**message, "headers": [*message["headers"], position]}
            await send(message)

        await self._app(scope, receive, send_position)


async def _answer(send: Send, response: Response) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": response.body})


class AllMetrics:
    """The figures of all workers, each with its number as a label; on the event loop."""

    def __init__(
        self, number: int, others: Sequence[tuple[int, LocalClient]], own: Callable[[], Awaitable[bytes]]
    ) -> None:
        """`number` is this worker's, `others` are the rest by number."""
        self._number = number
        self._others = others
        self._own = own

    async def text(self) -> bytes:
        """Return the exposition; a worker that does not answer in time is left out, and is not up."""
        texts = {self._number: await self._own()}
        answers = await asyncio.gather(*(self._of(client) for _, client in self._others))
        texts.update(
            {number: text for (number, _), text in zip(self._others, answers, strict=True) if text is not None}
        )
        return merged(texts, [self._number, *(number for number, _ in self._others)])

    @staticmethod
    async def _of(client: LocalClient) -> bytes | None:
        try:
            async with asyncio.timeout(SCRAPE_S_MAX):
                return (await client.get(METRICS_PATH)).body
        except (NotConnected, ConnectionLost, TimeoutError):
            return None
