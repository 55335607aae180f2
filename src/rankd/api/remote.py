"""Reads of ranks in another process: batched, coalesced, and cached for a moment.

    request → cached and fresh? → the same read running? → ReadDispatcher, one call to Redis → cache

An answer is cached for `cache_ms` with some jitter, so that answers that were read together do not expire together. A
client that wrote through this process, or waits for a position, gets no older answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from random import uniform
from time import monotonic
from typing import NamedTuple

import msgspec

from rankd.api.http.caching import matches
from rankd.api.http.request import Response
from rankd.api.reader import Drop, settle
from rankd.backend import Read

CACHED_ANSWERS_MAX = 10_000
BYTES_MAX = 64 * 1024 * 1024
JITTER = 0.25  # of the lifetime
KEPT_CALLS = frozenset({"top", "range", "rank", "around", "distribution"})
TAG_BYTES = 12
NOT_COMPARED = {"position": "", "as_of": 0}

ReadKey = tuple[str, str, int]  # call, board, and a hash of path and query
_encode = msgspec.json.Encoder().encode


class _Kept(NamedTuple):
    """A cached answer, its expiry, and the board's number of writes at that time."""

    response: Response
    until: float
    writes: int


class _Shared:
    """A running read with its waiters."""

    __slots__ = ("drop", "waiters")

    def __init__(self) -> None:
        self.waiters: dict[asyncio.Future[Response], None] = {}
        self.drop: Drop = lambda: None


class RemoteReads:
    """Coalesces and caches reads; on the event loop."""

    def __init__(self, cache_ms: int) -> None:
        """With `cache_ms` 0, only concurrent reads share an answer."""
        self._lifetime_s = cache_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._kept: OrderedDict[ReadKey, _Kept] = OrderedDict()
        self._bytes = 0
        self._shared: dict[tuple[ReadKey, int], _Shared] = {}  # by read and number of writes
        self._writes: dict[str, int] = {}  # by board, through this process

    def wrote(self, board: str) -> None:
        """Record a write to a board: older answers are not used any more."""
        self._writes[board] = self._writes.get(board, 0) + 1

    async def answer(self, key: ReadKey, begin: Callable[[Callable[[Read], None]], Drop]) -> Response:
        """Return the answer to a read: from the cache, from the same read if it is running, or from a new one.

        `begin` starts the read, calls back on the event loop when it is done, and returns how to drop it.
        """
        writes = self._writes.get(key[1], 0)
        kept = self._kept.get(key)
        if kept is not None and kept.writes == writes and kept.until > monotonic():
            return kept.response
        shared = self._shared.get((key, writes)) or self._begin(key, writes, begin)
        # One future for each caller: one that is cancelled does not affect the others.
        waiting: asyncio.Future[Response] = self._loop.create_future()
        shared.waiters[waiting] = None
        try:
            return await waiting
        finally:
            del shared.waiters[waiting]
            if not shared.waiters and self._shared.get((key, writes)) is shared:  # all callers have left
                del self._shared[key, writes]
                shared.drop()

    def _begin(self, key: ReadKey, writes: int, begin: Callable[[Callable[[Read], None]], Drop]) -> _Shared:
        shared = _Shared()
        shared.drop = begin(lambda read: self._take(key, writes, shared, read))
        self._shared[key, writes] = shared
        return shared

    def _take(self, key: ReadKey, writes: int, shared: _Shared, read: Read) -> None:
        if not read.is_wanted:
            return
        del self._shared[key, writes]
        if self._lifetime_s and read.error is None:
            lifetime_s = self._lifetime_s * uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - not a secret
            self._keep(key, _Kept(read.result, monotonic() + lifetime_s, writes))
        for waiting in shared.waiters:
            settle(waiting, read)

    def _keep(self, key: ReadKey, kept: _Kept) -> None:
        before = self._kept.pop(key, None)
        if before is not None:
            self._bytes -= len(before.response.body)
        self._kept[key] = kept
        self._bytes += len(kept.response.body)
        while len(self._kept) > CACHED_ANSWERS_MAX or self._bytes > BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest.response.body)


def tag_of(answer: msgspec.Struct) -> bytes:
    """Return an entity tag of an answer, independent of when it was read."""
    comparable = msgspec.structs.replace(answer, **NOT_COMPARED)
    return b'W/"%s"' % blake2b(_encode(comparable), digest_size=TAG_BYTES).hexdigest().encode()


def not_modified(response: Response, if_none_match: bytes | None) -> Response:
    """Return an answer, or a 304 where the client has it."""
    if if_none_match is None:
        return response
    tag = next((value for name, value in response.headers if name == b"etag"), None)
    if tag is None or not matches(if_none_match, tag):
        return response
    return Response(b"", response.headers, 304)
