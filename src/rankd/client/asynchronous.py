"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import httpx

from rankd.client import calls
from rankd.client.call import ClientCall
from rankd.client.connection import ANSWER_BYTES_MAX, ClientBase, Transport
from rankd.client.exchange import CallResult, ClientRequest, Exchange
from rankd.client.replies import ExchangeFailure, Reply, failure_of, late, too_large
from rankd.client.verbs import as_method
from rankd.errors import Closed
from rankd.reads.answers import Entry, Page
from rankd.reads.instance_ref import ReadOptions

P = ParamSpec("P")
T = TypeVar("T")


def _method(describe: Callable[P, ClientCall[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    async def send(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._send(describe(*args, **kwargs))

    return as_method(send, describe)


class AsyncClient(ClientBase):
    """The boards of a server, used on one event loop.

    async with rankd.AsyncClient("http://127.0.0.1:8080", token="…") as boards:
        await boards.submit("arcade", "alice", 976)
        await boards.top("arcade", 10)
    """

    def _open(self, transport: Transport) -> None:
        self._http = httpx.AsyncClient(**transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    define = _method(calls.define)
    definition = _method(calls.definition)
    delete = _method(calls.delete)

    submit = _method(calls.submit)
    submit_many = _method(calls.submit_many)
    submit_events = _method(calls.submit_events)
    remove = _method(calls.remove)
    reset = _method(calls.reset)

    top = _method(calls.top)
    range = _method(calls.range_of)
    rank = _method(calls.rank)
    course = _method(calls.course)
    around = _method(calls.around)
    ranks = _method(calls.ranks)
    friends = _method(calls.friends)
    friends_of = _method(calls.friends_of)
    rank_of_score = _method(calls.rank_of_score)
    distribution = _method(calls.distribution)

    player = _method(calls.player)
    set_player = _method(calls.set_player)
    stored_friends = _method(calls.stored_friends)
    set_friends = _method(calls.set_friends)
    search = _method(calls.search)
    history = _method(calls.history)
    audit = _method(calls.audit)

    ready = _method(calls.ready)

    async def definitions(self, search: str | None = None) -> AsyncIterator[dict[str, object]]:
        """Iterate over the definitions of all boards, each with its `id`; `search` is a prefix of the id or title."""
        cursor = None
        while True:
            page = await self._send(calls.boards_page(search, cursor))
            for definition in page.boards:
                yield definition
            if (cursor := page.next) is None:
                return

    async def list(self, search: str | None = None) -> Sequence[str]:
        """Return the ids of all boards, or of those whose id or title begins with `search`, ignoring case."""
        return [str(definition["id"]) async for definition in self.definitions(search)]

    async def pages(self, board: str, limit: int = 100, **where: Unpack[ReadOptions]) -> AsyncIterator[Page]:
        """Iterate over the pages of an instance; a player who does not move meanwhile appears exactly once."""
        call: ClientCall[Page] | None = calls.top(board, limit, **where)
        while call is not None:
            page = await self._send(call)
            yield page
            call = calls.page_after(page, limit, where)

    async def entries(self, board: str, limit: int = 100, **where: Unpack[ReadOptions]) -> AsyncIterator[Entry]:
        """Iterate over an instance in standing order, fetching `limit` entries at a time."""
        async for page in self.pages(board, limit, **where):
            for entry in page.entries:
                yield entry

    async def _send(self, call: ClientCall[T]) -> T:
        exchange = Exchange(call, self._connection)
        while True:
            step = exchange.take(await self._attempt(exchange.request()))
            if isinstance(step, CallResult):
                return step.value
            await asyncio.sleep(step.seconds)

    async def _attempt(self, request: ClientRequest) -> Reply | ExchangeFailure:
        if self._http.is_closed:
            raise Closed("this client was closed; make another")
        timeout_s = self._connection.timeout_s
        body = bytearray()
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._http.stream(
                    request.method, request.url, headers=request.headers, content=request.body
                ) as response,
            ):
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > ANSWER_BYTES_MAX:
                        return too_large(ANSWER_BYTES_MAX)
                return Reply(response.status_code, response.headers, bytes(body))
        except TimeoutError:
            return late(timeout_s)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return failure_of(error, timeout_s)
