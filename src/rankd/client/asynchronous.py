"""The client for programs that run on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import httpx

from rankd.client import calls
from rankd.client.call import Call
from rankd.client.connection import ANSWER_BYTES_MAX, Connected, Transport
from rankd.client.exchange import Done, Exchange, Request
from rankd.client.replies import Reply, Trouble, late, too_large, trouble_of
from rankd.client.verbs import as_method
from rankd.errors import Closed
from rankd.reads.answers import Entry, Page
from rankd.reads.meaning import Where

P = ParamSpec("P")
T = TypeVar("T")


def _sends(describe: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    async def send(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._send(describe(*args, **kwargs))

    return as_method(send, describe)


class AsyncClient(Connected):
    """The boards of a server, for one event loop.

    async with rankd.AsyncClient("http://127.0.0.1:8080", token="…") as boards:
        await boards.submit("arcade", "alice", 976)
        await boards.top("arcade", 10)
    """

    def _open(self, transport: Transport) -> None:
        self._http = httpx.AsyncClient(**transport)

    async def __aenter__(self) -> Self:
        """Use the client in a block, at the end of which it is closed."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    define = _sends(calls.define)
    definition = _sends(calls.definition)
    delete = _sends(calls.delete)

    submit = _sends(calls.submit)
    submit_many = _sends(calls.submit_many)
    submit_events = _sends(calls.submit_events)
    remove = _sends(calls.remove)
    reset = _sends(calls.reset)

    top = _sends(calls.top)
    range = _sends(calls.range_of)
    rank = _sends(calls.rank)
    around = _sends(calls.around)
    ranks = _sends(calls.ranks)
    friends = _sends(calls.friends)
    friends_of = _sends(calls.friends_of)
    rank_of_score = _sends(calls.rank_of_score)
    distribution = _sends(calls.distribution)

    player = _sends(calls.player)
    set_player = _sends(calls.set_player)
    stored_friends = _sends(calls.stored_friends)
    set_friends = _sends(calls.set_friends)
    search = _sends(calls.search)
    history = _sends(calls.history)

    ready = _sends(calls.ready)

    async def definitions(self, search: str | None = None) -> AsyncIterator[dict[str, object]]:
        """Go through the definitions of all boards, each with its `id`; or of those whose id or title begins so."""
        cursor = None
        while True:
            page = await self._send(calls.boards_page(search, cursor))
            for definition in page.boards:
                yield definition
            if (cursor := page.next) is None:
                return

    async def list(self, search: str | None = None) -> Sequence[str]:
        """Return the ids of all boards, or of those whose id or title begins with a text, whatever the case."""
        return [str(definition["id"]) async for definition in self.definitions(search)]

    async def pages(self, board: str, limit: int = 100, **where: Unpack[Where]) -> AsyncIterator[Page]:
        """Go through a whole instance, some entries at a time: who does not move meanwhile is seen exactly once."""
        call: Call[Page] | None = calls.top(board, limit, **where)
        while call is not None:
            page = await self._send(call)
            yield page
            call = calls.page_after(page, limit, where)

    async def entries(self, board: str, limit: int = 100, **where: Unpack[Where]) -> AsyncIterator[Entry]:
        """Go through a whole instance in standing order; `limit` entries are fetched at a time."""
        async for page in self.pages(board, limit, **where):
            for entry in page.entries:
                yield entry

    async def _send(self, call: Call[T]) -> T:
        exchange = Exchange(call, self._connection)
        while True:
            step = exchange.take(await self._attempt(exchange.request()))
            if isinstance(step, Done):
                return step.value
            await asyncio.sleep(step.seconds)

    async def _attempt(self, request: Request) -> Reply | Trouble:
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
            return trouble_of(error, timeout_s)
