"""Reads whose ranks are in another process: made together, shared by those who ask the same at once, used again.

    request → in memory and young enough? → somebody asking already? → Reader, one call to Redis → memory

An answer is kept for `cache_ms`, give or take a part of it, so that what was asked together is not asked again
together. Whoever wrote through this process, or waits for a position, is not given what was read before.
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

from rankd.api.caching import matches
from rankd.api.reader import Drop, settle
from rankd.api.request import Response
from rankd.backend import Read

ANSWERS_MAX = 10_000
BYTES_MAX = 64 * 1024 * 1024
JITTER = 0.25  # of the lifetime
KEPT_CALLS = frozenset({"top", "range", "rank", "around", "distribution"})
TAG_BYTES = 12
NOT_COMPARED = {"position": "", "as_of": 0}

Key = tuple[str, str, int]  # call, board, and a hash of path and query
_encode = msgspec.json.Encoder().encode


class _Kept(NamedTuple):
    """An answer, until when it is used, and how often its board had been written to."""

    response: Response
    until: float
    writes: int


class _Shared:
    """A read that is being made, and who waits for it."""

    __slots__ = ("drop", "waiters")

    def __init__(self) -> None:
        self.waiters: dict[asyncio.Future[Response], None] = {}
        self.drop: Drop = lambda: None


class RemoteReads:
    """Answers that may be used again; on the event loop."""

    def __init__(self, cache_ms: int) -> None:
        """`cache_ms` 0 keeps nothing: then only those who ask at the same moment share an answer."""
        self._lifetime_s = cache_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._bytes = 0
        self._shared: dict[tuple[Key, int], _Shared] = {}  # by what is asked, and after how many writes
        self._writes: dict[str, int] = {}  # by board, through this process
        self.hits = 0
        self.misses = 0

    def wrote(self, board: str) -> None:
        """Note that a board was written to: what was read before is not given any more."""
        self._writes[board] = self._writes.get(board, 0) + 1

    async def answer(self, key: Key, begin: Callable[[Callable[[Read], None]], Drop]) -> Response:
        """Return what a read answers: from memory, from somebody who asks the same now, or by asking.

        `begin` begins the read, calls back on the event loop when it is made, and returns how to drop it.
        """
        writes = self._writes.get(key[1], 0)
        kept = self._kept.get(key)
        if kept is not None and kept.writes == writes and kept.until > monotonic():
            self.hits += 1
            return kept.response
        shared = self._shared.get((key, writes))
        if shared is not None:
            self.hits += 1
        else:
            shared = self._begin(key, writes, begin)
            self.misses += 1
        # Everybody has a future of their own: one who goes away takes nothing from the others.
        waiting: asyncio.Future[Response] = self._loop.create_future()
        shared.waiters[waiting] = None
        try:
            return await waiting
        finally:
            del shared.waiters[waiting]
            if not shared.waiters and self._shared.get((key, writes)) is shared:  # the last has left before it is made
                del self._shared[key, writes]
                shared.drop()

    def _begin(self, key: Key, writes: int, begin: Callable[[Callable[[Read], None]], Drop]) -> _Shared:
        shared = _Shared()
        shared.drop = begin(lambda read: self._take(key, writes, shared, read))
        self._shared[key, writes] = shared
        return shared

    def _take(self, key: Key, writes: int, shared: _Shared, read: Read) -> None:
        if not read.is_wanted:
            return
        del self._shared[key, writes]
        if self._lifetime_s and read.error is None:
            lifetime_s = self._lifetime_s * uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - nobody guesses it
            self._keep(key, _Kept(read.result, monotonic() + lifetime_s, writes))
        for waiting in shared.waiters:
            settle(waiting, read)

    def _keep(self, key: Key, kept: _Kept) -> None:
        before = self._kept.pop(key, None)
        if before is not None:
            self._bytes -= len(before.response.body)
        self._kept[key] = kept
        self._bytes += len(kept.response.body)
        while len(self._kept) > ANSWERS_MAX or self._bytes > BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest.response.body)


def tag_of(answer: msgspec.Struct) -> bytes:
    """Return a tag of what an answer shows, whenever it was asked for."""
    same = msgspec.structs.replace(answer, **NOT_COMPARED)
    return b'W/"%s"' % blake2b(_encode(same), digest_size=TAG_BYTES).hexdigest().encode()


def not_modified(response: Response, if_none_match: bytes | None) -> Response:
    """Return an answer, or that the client has it already."""
    if if_none_match is None:
        return response
    tag = next((value for name, value in response.headers if name == b"etag"), None)
    if tag is None or not matches(if_none_match, tag):
        return response
    return Response(b"", response.headers, 304)
