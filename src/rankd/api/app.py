"""The ASGI application: a request is routed, its sender identified and limited, its call run, its answer sent.

    receive → Router.find → Authenticator → Rates → handler (→ Committer | threads) → send

There is no framework in between: what a read passes through decides its speed, and all of it is in this file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from rankd.api import about, logs
from rankd.api.access import require_reader
from rankd.api.addresses import Addresses
from rankd.api.authentication import check_bearer
from rankd.api.calls import Access, Call
from rankd.api.identity import require_identity, require_service
from rankd.api.live import SSE_HEADERS, Live
from rankd.api.metrics import UNMATCHED, Routes
from rankd.api.negotiation import Compression, Cors
from rankd.api.problems import closing_reason, made_response, problem_response
from rankd.api.rates import Rates
from rankd.api.request import (
    EVERY_ANSWER,
    Disconnected,
    Header,
    Receive,
    Request,
    Response,
    Streaming,
    check_once,
    read_query,
)
from rankd.api.router import Router
from rankd.api.routes import CALLS
from rankd.api.service import Service
from rankd.api.streams import Stream
from rankd.background import ThreadNeeded
from rankd.config.model import Config
from rankd.errors import Overloaded, RankdError, RateExceeded, RouteUnknown, Unauthenticated, Unavailable

Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
WEBSOCKET_PATH = "/v1/ws"
WEBSOCKET_PARAMETERS = ("ticket", "interval_ms")
COMPRESS_ON_LOOP_BYTES_MAX = 32 * 1024  # some 2 ms; a larger answer is compressed in a thread
CLIENT_LEFT = 499  # counted for requests whose client left before the answer; never sent
PROBES = ("health", "ready")  # never limited: whoever restarts a process that does not answer must not be starved
_log = logging.getLogger("rankd")


class App:
    """Answers requests; runs on one event loop."""

    def __init__(self, config: Config) -> None:
        """Until `start`, it answers that it is there and not ready."""
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
        """Answer from these boards, which have caught up with their ledger."""
        self._service = service
        service.rates = self.rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            response = await self._response(scope, request)
            status, head, body = await self._finish(method, request, response)
            if not isinstance(response, Streaming):
                await send({"type": "http.response.start", "status": status, "headers": head})
                await send({"type": "http.response.body", "body": body})
        except (Disconnected, asyncio.CancelledError) as departure:
            self._note(request, scope, CLIENT_LEFT, perf_counter() - began)
            if isinstance(departure, Disconnected):
                return
            raise
        finally:
            self.open -= 1
            if request.body_held is not None:
                request.body_held.release()
        self._note(request, scope, status, perf_counter() - began)
        if isinstance(response, Streaming):
            await self._stream(method, response.stream, head, receive, send)

    async def _response(self, scope: Scope, request: Request) -> Response:
        """Return the answer, whatever happens on the way to it."""
        headers, method = request.headers, scope["method"]
        try:
            client = scope["client"]
            request.address = self._addresses.of(client[0] if client else "", headers.get(b"x-forwarded-for"))
            if method == "OPTIONS" and b"access-control-request-method" in headers:
                self._count_unrouted(request)
                return self._cors.preflight(headers)
            try:
                call = self._route(scope, request)
            except RankdError:
                self._count_unrouted(request)
                raise
            return await self._answer(call, request, scope)
        except RankdError as problem:
            return problem_response(problem, request.id)
        except TimeoutError:
            return made_response(408, "the request was not sent to its end in time", "too_slow")
        except Disconnected:
            raise
        except Exception:
            _log.exception("a request failed", extra={"fields": {"request_id": request.id, "path": scope["path"]}})
            return made_response(500, "a fault of the server; its log tells more", "fault", request_id=request.id)

    def _route(self, scope: Scope, request: Request) -> Call:
        """Find the call that a request makes, and read its parameters."""
        method, path, raw_query = (
            scope["method"],
            scope.get("raw_path") or scope["path"].encode(),
            scope["query_string"],
        )
        call, request.arguments = self._router.find("GET" if method == "HEAD" else method, path)
        request.call = call
        request.target = hash((path, raw_query))
        if raw_query and not call.is_page:
            request.query = read_query(raw_query, call.repeated)
            request.check_query(call.known)
        return call

    async def _answer(self, call: Call, request: Request, scope: Scope) -> Response:
        service, headers = self._service, request.headers
        if service is None:
            return _not_open_yet(call)
        if len(headers) != len(scope["headers"]):
            check_once(scope["headers"])
        if call.access is Access.OPEN:
            if call.name not in PROBES:
                self._count(call, request)
            return call.handler(service, request)  # type: ignore[return-value]
        authorization = headers.get(b"authorization")
        try:
            if call.access is Access.METRICS and self._metrics_token:
                check_bearer(authorization, self._metrics_token)
            elif authorization is not None or "ticket" in request.query:
                request.identity = await service.identify(request)
        except (Unauthenticated, Unavailable):
            self._count_refusal(request, is_write=call.is_write)
            raise
        self._count(call, request)  # whatever comes of it: a refusal costs as much as many an answer
        self._check_access(call, request)
        if call.is_read and ("at_least" in request.query or service.boards.is_due()):
            await service.catch_up(request)
        if service.remote is not None and call.is_read and call.method == "GET":
            return await service.read_remotely(call, request)
        if call.is_heavy is not None and call.is_heavy(request):
            found = await service.in_thread(lambda: call.handler(service, request), call.cost)
        else:
            try:
                found = call.handler(service, request)
            except ThreadNeeded:
                found = await service.in_thread(lambda: call.handler(service, request), call.cost)
        return found if isinstance(found, Response) else await found

    def _count_refusal(self, request: Request, *, is_write: bool) -> None:
        """Count a credential that does not hold, also against the address it comes from."""
        self.routes.refused_credentials += 1
        self.rates.take(is_write, None, False, None, request.address)

    def _count_unrouted(self, request: Request) -> None:
        """Count a request that comes to no call against the address it comes from; nobody is identified yet."""
        call = request.call
        if call is None or call.name not in PROBES:
            self.rates.take(call is not None and call.is_write, None, False, None, request.address)

    def _count(self, call: Call, request: Request) -> None:
        """Count a request against the limits of whoever makes it."""
        identity = request.identity
        if identity is None:
            limited = self.rates.take(call.is_write, None, False, None, request.address)
        else:
            limited = self.rates.take(
                call.is_write, identity.account, identity.is_service, identity.player, request.address
            )
        if limited is not None:
            request.more_headers = limited

    async def _stream(self, method: str, stream: Stream, head: list[Header], receive: Receive, send: Send) -> None:
        """Send events; an open stream is no open request any more, so that stopping does not wait for it."""
        if self._service is None or self._service.live is None:
            raise AssertionError("a stream is opened by the service")
        live = self._service.live
        stream.task = asyncio.current_task()
        try:
            if method == "HEAD":
                await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *head]})
                await send({"type": "http.response.body", "body": b""})
                return
            await live.sse(stream, head, receive, send)
        except asyncio.CancelledError:
            if stream.ending is None:  # not by us, for being too slow
                raise
        finally:
            live.close(stream)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a WebSocket connection, or refuse it as any other request."""
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

    async def _open_websocket(self, scope: Scope, request: Request) -> tuple[Live, Stream]:
        """Check a handshake and give it its place; one that is refused counts against its address."""
        client = scope["client"]
        request.address = self._addresses.of(client[0] if client else "", request.headers.get(b"x-forwarded-for"))
        service = self._service
        if service is None or service.live is None:
            raise Overloaded("the boards are being opened; come again in a moment")
        try:
            if scope["path"] != WEBSOCKET_PATH:
                raise RouteUnknown(f"path: WebSocket connections are taken at {WEBSOCKET_PATH}")
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
        """Refuse whoever may not make this call at all; handlers check what depends on board and player."""
        access = call.access
        if access is Access.METRICS and self._metrics_token:
            return  # whoever is here has sent it
        if access in (Access.READ, Access.METRICS):
            if self._public_read:
                return
            if call.name == "stream":  # which topics somebody may watch is looked at one by one
                require_identity(request.identity)
                return
            player = request.arguments[1] if call.name == "rank" else None
            require_reader(request.identity, player, is_public=self._public_read)
        elif access is Access.ADMIN:
            require_service(request.identity, access.value)
        else:
            require_identity(request.identity)

    async def _finish(self, method: str, request: Request, response: Response) -> tuple[int, list[Header], bytes]:
        """Return status, headers and body as they are sent."""
        status, body, sent = response.status, response.body, request.headers
        headers = [*response.headers, *request.more_headers, *EVERY_ANSWER, (b"x-request-id", request.id.encode())]
        if method != "OPTIONS":
            headers += self._cors.headers(sent.get(b"origin"))
        if len(body) >= self._compression.bytes_min:
            headers.append((b"vary", b"accept-encoding"))
        accepted = sent.get(b"accept-encoding")
        if accepted is not None and body:
            if len(body) > COMPRESS_ON_LOOP_BYTES_MAX and response.compressed is None:
                body, encoding = await self._compress_in_thread(accepted, body)
            else:
                body, encoding = self._compression.compress(accepted, body, response.compressed)
            if encoding is not None:
                headers.append((b"content-encoding", encoding))
        if status not in (204, 304) and not isinstance(response, Streaming):
            headers.append((b"content-length", b"%d" % len(body)))
        return status, headers, b"" if method == "HEAD" else body

    async def _compress_in_thread(self, accepted: bytes, body: bytes) -> tuple[bytes, bytes | None]:
        """Compress what takes milliseconds beside the event loop; when there is too much to do, send it as it is."""
        if self._service is None or not self._compression.is_wanted(accepted, len(body)):
            return body, None
        try:
            return await self._service.in_thread(lambda: self._compression.compress(accepted, body))
        except Overloaded:
            return body, None

    def _note(self, request: Request, scope: Scope, status: int, seconds: float) -> None:
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


def _not_open_yet(call: Call) -> Response:
    if call.name == "health":
        return about.alive()
    raise Overloaded("the boards are being opened and catch up with their ledger; ask again in a moment")


async def _refuse_websocket(scope: Scope, problem: RankdError, request_id: str, send: Send) -> None:
    """Answer a handshake with a problem, as any other request; where the server cannot, close the connection."""
    if "websocket.http.response" in scope.get("extensions", {}):
        refused = problem_response(problem, request_id)
        headers = [*refused.headers, *EVERY_ANSWER, (b"x-request-id", request_id.encode())]
        await send({"type": "websocket.http.response.start", "status": refused.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": refused.body})
    else:
        code = 1013 if isinstance(problem, Unavailable | RateExceeded) else 1008
        await send({"type": "websocket.close", "code": code, "reason": closing_reason(problem)})
