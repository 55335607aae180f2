"""The blocking client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar, Unpack

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


def _method(describe: Callable[P, ClientCall[T]]) -> Callable[Concatenate[Client, P], T]:
    def send(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._send(describe(*args, **kwargs))

    return as_method(send, describe)


class Client(ClientBase):
    """The boards of a server. All methods may be called from any thread.

    with rankd.Client("http://127.0.0.1:8080", token="…") as boards:
        boards.submit("arcade", "alice", 976)
        boards.top("arcade", 10)
    """

    def _open(self, transport: Transport) -> None:
        self._http = httpx.Client(**transport)
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; calls that wait for another attempt raise Closed."""
        self._closed.set()
        self._http.close()

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

    def definitions(self, search: str | None = None) -> Iterator[dict[str, object]]:
        """Iterate over the definitions of all boards, each with its `id`; `search` is a prefix of the id or title."""
        cursor = None
        while True:
            page = self._send(calls.boards_page(search, cursor))
            yield from page.boards
            if (cursor := page.next) is None:
                return

    def list(self, search: str | None = None) -> Sequence[str]:
        """Return the ids of all boards, or of those whose id or title begins with `search`, ignoring case."""
        return [str(definition["id"]) for definition in self.definitions(search)]

    def pages(self, board: str, limit: int = 100, **where: Unpack[ReadOptions]) -> Iterator[Page]:
        """Iterate over the pages of an instance; a player who does not move meanwhile appears exactly once."""
        call: ClientCall[Page] | None = calls.top(board, limit, **where)
        while call is not None:
            page = self._send(call)
            yield page
            call = calls.page_after(page, limit, where)

    def entries(self, board: str, limit: int = 100, **where: Unpack[ReadOptions]) -> Iterator[Entry]:
        """Iterate over an instance in standing order, fetching `limit` entries at a time."""
        for page in self.pages(board, limit, **where):
            yield from page.entries

    def _send(self, call: ClientCall[T]) -> T:
        exchange = Exchange(call, self._connection)
        while True:
            step = exchange.take(self._attempt(exchange.request()))
            if isinstance(step, CallResult):
                return step.value
            self._closed.wait(step.seconds)

    def _attempt(self, request: ClientRequest) -> Reply | ExchangeFailure:
        if self._closed.is_set():
            raise _closed()
        timeout_s = self._connection.timeout_s
        deadline_s = time.monotonic() + timeout_s
        body = bytearray()
        try:
            with self._http.stream(
                request.method, request.url, headers=request.headers, content=request.body
            ) as response:
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > ANSWER_BYTES_MAX:
                        return too_large(ANSWER_BYTES_MAX)
                    if time.monotonic() > deadline_s:
                        return late(timeout_s)
                return Reply(response.status_code, response.headers, bytes(body))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return failure_of(error, timeout_s)
        except RuntimeError:  # closed by another thread just now
            if self._closed.is_set():
                raise _closed() from None
            raise


def _closed() -> Closed:
    return Closed("this client was closed; make another")
