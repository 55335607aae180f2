"""The ASGI application: routes a request, identifies and limits its sender, runs its call and sends the answer.

    receive → Router.find → Authenticator → Rates → handler (→ Committer | threads) → send

There is no framework in between: the path of a read decides its speed, and all of it is in this file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from time import perf_counter
from typing import Any

from rankd.api import logs
from rankd.api.auth.access import require_reader
from rankd.api.auth.authentication import check_bearer
from rankd.api.auth.identity import require_identity, require_service
from rankd.api.auth.rates import Rates
from rankd.api.calls import about
from rankd.api.calls.call import Access, Call
from rankd.api.calls.router import Router
from rankd.api.calls.routes import CALLS
from rankd.api.http.addresses import Addresses
from rankd.api.http.eager import in_task
from rankd.api.http.negotiation import Compression, Cors
from rankd.api.http.problems import closing_reason, made_response, problem_response
from rankd.api.http.request import (
    EVERY_ANSWER,
    Disconnected,
    Forwarded,
    Header,
    Receive,
    RelayedResponse,
    Request,
    Response,
    Send,
    Streaming,
    check_once,
    read_query,
)
from rankd.api.live.connections import SSE_HEADERS, Live
from rankd.api.live.streams import Stream
from rankd.api.metrics import UNMATCHED, Routes
from rankd.api.service import Service
from rankd.background import ThreadNeeded
from rankd.config.model import Config
from rankd.errors import Overloaded, RankdError, RateExceeded, RouteUnknown, Unauthenticated, Unavailable

AsgiScope = dict[str, Any]
WEBSOCKET_PATH = "/v1/ws"
WEBSOCKET_PARAMETERS = ("ticket", "interval_ms")
COMPRESS_ON_LOOP_BYTES_MAX = 32 * 1024  # some 2 ms; larger answers are compressed in a thread
CLIENT_LEFT = 499  # counted for requests whose client left before the answer; never sent
_CONTINUED = (Streaming, RelayedResponse)  # their answers go on after the request was counted
_log = logging.getLogger("rankd")


class App:
    """Answers requests; runs on one event loop."""

    def __init__(self, config: Config) -> None:
        """Until `start`, only /healthz is answered."""
        server, limits = config.server, config.limits
        self._service: Service | None = None
        self.routes = Routes((call.method, call.path) for call in CALLS)
        self._router: Router[Call] = Router(CALLS)
        self._index = {call.name: index for index, call in enumerate(CALLS)}
        self.rates = Rates(limits)
        self._addresses = Addresses(server.trusted_proxies)
        self._cors = Cors(server.cors_origins)
        self._compression = Compression()
        self._public_read = server.public_read
        self._metrics_token = server.metrics_token.encode()
        self._log_requests = server.log_requests
        self.open = 0

    def start(self, service: Service) -> None:
        """Answer from these boards, which have replayed their ledger."""
        self._service = service
        service.rates = self.rates

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await self._websocket(scope, receive, send)
            return
        began = perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request = Request(headers, receive, logs.request_id(headers.get(b"x-request-id")))
        method = scope["method"]
        self.open += 1
        try:
            try:
                response = await self._answer(scope, request)
            except Exception as problem:
                response = _problem_response(problem, request, scope["path"])
            head, body = response.headers, response.body
            if not isinstance(response, Forwarded):
                encoding = None
                if body and b"accept-encoding" in headers:
                    body, encoding = await self._compress(headers[b"accept-encoding"], response)
                head = self._head(method, request, response, len(body), encoding)
            if not isinstance(response, _CONTINUED):
                await send({"type": "http.response.start", "status": response.status, "headers": head})
                await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
        except (Disconnected, asyncio.CancelledError) as departure:
            self._observe(request, scope, CLIENT_LEFT, perf_counter() - began)
            if isinstance(departure, Disconnected):
                return
            raise
        finally:
            self.open -= 1
            if request.body_held is not None:
                request.body_held.release()
        if not isinstance(response, Forwarded):  # the worker that answered has counted it
            self._observe(request, scope, response.status, perf_counter() - began)
        if isinstance(response, _CONTINUED):
            await self._continue(method, response, head, receive, send)

    async def _answer(self, scope: AsgiScope, request: Request) -> Response:
        """Return the answer, or raise what is wrong with the request."""
        headers, client = request.headers, scope["client"]
        request.address = self._addresses.of(client[0] if client else "", headers.get(b"x-forwarded-for"))
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            self._count_unrouted(request)
            return self._cors.preflight(headers)
        call, service = self._route(scope, request), self._service
        if service is None:
            return _not_ready(call)
        forwarded = None if service.forward is None else service.forward(request, scope)
        if forwarded is not None:
            return await forwarded
        if len(headers) != len(scope["headers"]):
            check_once(scope["headers"])
        if call.is_open:
            if not call.is_probe:
                self._count(call, request)
            return call.handler(service, request)  # type: ignore[return-value]
        if b"authorization" in headers or call.is_of_metrics or "ticket" in request.query:
            await self._identify(service, call, request)
        self._count(call, request)  # before access is checked: a refusal costs as much as many an answer
        if not (call.is_for_readers and self._public_read):
            self._check_access(call, request)
        if call.is_read:
            if "as_of" in request.query:
                request.past = await service.past(request)
            elif "at_least" in request.query or service.boards.is_due(request.arguments[0]):
                await service.catch_up(request)
            if service.remote is not None and call.method == "GET":
                return await service.read_remotely(call, request)
        result = _handle(service, call, request)
        return result if isinstance(result, Response) else await result

    def _route(self, scope: AsgiScope, request: Request) -> Call:
        """Find the call of a request, and read its parameters."""
        method, path, raw_query = (
            scope["method"],
            scope.get("raw_path") or scope["path"].encode(),
            scope["query_string"],
        )
        try:
            call, request.arguments = self._router.find("GET" if method == "HEAD" else method, path)
            request.call = call
            request.target = hash((path, raw_query))
            if raw_query and not call.is_page:
                request.query = read_query(raw_query, call.repeated)
                request.check_query(call.known)
        except RankdError:
            self._count_unrouted(request)
            raise
        return call

    async def _identify(self, service: Service, call: Call, request: Request) -> None:
        """Find out who sends a request; an invalid credential counts against its address too."""
        authorization = request.headers.get(b"authorization")
        try:
            if call.is_of_metrics and self._metrics_token:
                check_bearer(authorization, self._metrics_token)
            else:
                request.identity = await service.identify(request)
        except (Unauthenticated, Unavailable):
            self._count_refusal(request, is_write=call.is_write)
            raise

    def _count_refusal(self, request: Request, *, is_write: bool) -> None:
        """Count an invalid credential, also against its address."""
        self.routes.refused_credentials += 1
        self.rates.take(is_write, None, False, None, request.address)

    def _count_unrouted(self, request: Request) -> None:
        """Count a request without a call against its address; its sender is not identified yet."""
        call = request.call
        if call is None or not call.is_probe:
            self.rates.take(call is not None and call.is_write, None, False, None, request.address)

    def _count(self, call: Call, request: Request) -> None:
        """Count a request against its sender's limits."""
        identity = request.identity
        if identity is None:
            limited = self.rates.take(call.is_write, None, False, None, request.address)
        else:
            limited = self.rates.take(
                call.is_write, identity.account, identity.is_service, identity.player, request.address
            )
        if limited is not None:
            request.more_headers = limited

    async def _continue(
        self, method: str, response: Streaming | RelayedResponse, head: list[Header], receive: Receive, send: Send
    ) -> None:
        """Send an answer that goes on."""
        if isinstance(response, RelayedResponse):
            await _relay(method, response, send)
        else:
            await self._stream(method, response.stream, head, receive, send)

    async def _stream(self, method: str, stream: Stream, head: list[Header], receive: Receive, send: Send) -> None:
        """Send events; an open stream is not an open request, so stopping does not wait for it."""
        if self._service is None or self._service.live is None:
            raise AssertionError("a stream is opened by the service")
        live = self._service.live
        try:
            await in_task()  # inside: a client may leave meanwhile, and its place must be free again
            stream.task = asyncio.current_task()
            if method == "HEAD":
                await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *head]})
                await send({"type": "http.response.body", "body": b""})
                return
            await live.sse(stream, head, receive, send)
        except asyncio.CancelledError:
            if stream.ending is None:  # cancelled by the server, not by us for being too slow
                raise
        finally:
            live.close(stream)

    async def _websocket(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Accept a WebSocket connection, or refuse it as any other request."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request = Request(headers, receive, logs.request_id(headers.get(b"x-request-id")))
        await receive()  # websocket.connect
        try:
            live, stream = await self._open_websocket(scope, request)
        except RankdError as problem:
            await _refuse_websocket(scope, problem, request.id, send)
            return
        stream.task = asyncio.current_task()
        try:
            await send({"type": "websocket.accept"})
            await live.websocket(stream, receive, send)
        except asyncio.CancelledError:
            if stream.ending is None:
                raise
        finally:
            live.close(stream)

    async def _open_websocket(self, scope: AsgiScope, request: Request) -> tuple[Live, Stream]:
        """Check a handshake and add its stream; a refused one counts against its address."""
        client = scope["client"]
        request.address = self._addresses.of(client[0] if client else "", request.headers.get(b"x-forwarded-for"))
        service = self._service
        if service is None or service.live is None:
            raise Overloaded("the server is starting; try again in a moment")
        try:
            if scope["path"] != WEBSOCKET_PATH:
                raise RouteUnknown(f"path: WebSocket connections are accepted at {WEBSOCKET_PATH}")
            if len(request.headers) != len(scope["headers"]):
                check_once(scope["headers"])
            self._cors.check_page(request.headers.get(b"origin"), request.headers.get(b"host"))
            request.query = read_query(scope["query_string"]) if scope["query_string"] else {}
            request.check_query(WEBSOCKET_PARAMETERS)
            request.identity = await service.identify(request)
        except (Unauthenticated, Unavailable):
            self._count_refusal(request, is_write=False)
            raise
        except RankdError:
            self._count_unrouted(request)
            raise
        return service.live, service.live.open(request)

    def _check_access(self, call: Call, request: Request) -> None:
        """Refuse senders who may not make this call at all; handlers check what depends on board and player."""
        access = call.access
        if call.is_of_metrics and self._metrics_token:
            return  # checked with the credential
        if call.is_for_readers:
            if call.name == "stream":  # access is checked for each topic
                require_identity(request.identity)
                return
            player = request.arguments[1] if call.name in ("rank", "course") else None
            require_reader(request.identity, player, is_public=self._public_read)
        elif access is Access.ADMIN:
            require_service(request.identity, access.value)
        else:
            require_identity(request.identity)

    def _head(
        self, method: str, request: Request, response: Response, length: int, encoding: bytes | None
    ) -> list[Header]:
        """Return the headers to send, `length` bytes of body in this encoding with them."""
        headers = [*response.headers, *request.more_headers, *EVERY_ANSWER, (b"x-request-id", request.id.encode())]
        if method != "OPTIONS":
            headers += self._cors.headers(request.headers.get(b"origin"))
        if len(response.body) >= self._compression.bytes_min:
            headers.append((b"vary", b"accept-encoding"))
        if encoding is not None:
            headers.append((b"content-encoding", encoding))
        if response.status not in (204, 304) and not isinstance(response, Streaming):
            headers.append((b"content-length", b"%d" % length))
        return headers

    async def _compress(self, accepted: bytes, response: Response) -> tuple[bytes, bytes | None]:
        """Return a body in an accepted coding, and the coding; a large one is compressed in a thread.

        When the threads are overloaded, it is sent uncompressed.
        """
        body, service = response.body, self._service
        if len(body) <= COMPRESS_ON_LOOP_BYTES_MAX or response.compressed is not None:
            return self._compression.compress(accepted, body, response.compressed)
        if service is None or not self._compression.is_wanted(accepted, len(body)):
            return body, None
        try:
            return await service.in_thread(lambda: self._compression.compress(accepted, body))
        except Overloaded:
            return body, None

    def _observe(self, request: Request, scope: AsgiScope, status: int, seconds: float) -> None:
        call = request.call
        self.routes.observe(UNMATCHED if call is None else self._index[call.name], status, seconds)
        if self._log_requests == "all" or status >= 500 or seconds > logs.SLOW_S:
            logs.log_request(
                self._log_requests,
                request_id=request.id,
                method=scope["method"],
                path=scope["path"],
                status=status,
                seconds=seconds,
                account=None if request.identity is None else request.identity.account,
            )


def _handle(service: Service, call: Call, request: Request) -> Response | Awaitable[Response]:
    """Run a call's handler, in a thread if it would block the event loop."""
    if call.is_heavy is not None and call.is_heavy(request):
        return _handle_in_thread(service, call, request)
    try:
        return call.handler(service, request)
    except ThreadNeeded:
        return _handle_in_thread(service, call, request)


async def _handle_in_thread(service: Service, call: Call, request: Request) -> Response:
    result = await service.in_thread(lambda: call.handler(service, request), call.cost)
    return result if isinstance(result, Response) else await result


def _problem_response(problem: Exception, request: Request, path: str) -> Response:
    """Answer with what went wrong, unless the client left; called while it is handled."""
    if isinstance(problem, RankdError):
        return problem_response(problem, request.id)
    if isinstance(problem, Disconnected):
        raise problem
    if isinstance(problem, TimeoutError):
        return made_response(408, "the request did not arrive completely in time; send it again", "too_slow")
    _log.exception("a request failed", extra={"fields": {"request_id": request.id, "path": path}})
    return made_response(500, "a fault of the server; its log has more", "fault", request_id=request.id)


async def _relay(method: str, response: RelayedResponse, send: Send) -> None:
    """Pass on an answer that goes on, until either side ends it; as a stream, it is not an open request."""
    try:
        await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
        if method != "HEAD":
            while piece := await response.source.piece():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        response.source.close()


def _not_ready(call: Call) -> Response:
    if call.name == "health":
        return about.alive()
    raise Overloaded("the server is starting and replays its ledger; try again in a moment")


async def _refuse_websocket(scope: AsgiScope, problem: RankdError, request_id: str, send: Send) -> None:
    """Answer a handshake with a problem; where the ASGI server cannot, close the connection."""
    if "websocket.http.response" in scope.get("extensions", {}):
        refused = problem_response(problem, request_id)
        headers = [*refused.headers, *EVERY_ANSWER, (b"x-request-id", request_id.encode())]
        await send({"type": "websocket.http.response.start", "status": refused.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": refused.body})
    else:
        code = 1013 if isinstance(problem, Unavailable | RateExceeded) else 1008
        await send({"type": "websocket.close", "code": code, "reason": closing_reason(problem)})
