"""A Redis that may come later than whoever reads from it: connected by the first call that finds it there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rankd.errors import RanksUnavailable, RanksUnusable
from rankd.projection.redis.client import NOBODY, Call, Client

_log = logging.getLogger("rankd")


class LateClient:
    """Makes calls as the client does that `connect` returns, once it returns one; from any thread."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        """Connect, or go on without; a Redis that answers and cannot be used is refused."""
        self._connect = connect
        self._connecting = threading.Lock()
        self._client: Client | None = None
        self._is_closed = False
        self._complained_of: str | None = None
        try:
            self._client = connect()
        except RanksUnavailable as problem:
            _log.warning("Redis is away, and reads are answered as well as can be until it comes: %s", problem)

    def call_all(self, calls: Sequence[Call]) -> list[Any]:
        """Make calls and return their answers in order."""
        return self._connected().call_all(calls)

    def call_each(self, calls: Sequence[Call]) -> list[Any]:
        """Make calls that only read; RanksUnavailable stands in place of an answer that is missing."""
        try:
            return self._connected().call_each(calls)
        except RanksUnavailable as problem:
            return [problem] * len(calls)

    def node_of(self, key: bytes) -> str:
        """Return the name of the server that has a key."""
        return NOBODY if self._client is None else self._client.node_of(key)

    def close(self) -> None:
        """Close every connection."""
        with self._connecting:
            self._is_closed = True
            if self._client is not None:
                self._client.close()

    def _connected(self) -> Client:
        if self._client is not None:
            return self._client
        # One looks for it at a time: many who wait for a host that does not answer would hold everybody up.
        if not self._connecting.acquire(blocking=False):
            raise _nobody()
        try:
            if self._client is None:
                if self._is_closed:
                    raise _nobody()
                self._client = self._connect()
                _log.warning("Redis is there")
            return self._client
        except RanksUnusable as problem:
            if self._complained_of != str(problem):
                self._complained_of = str(problem)
                _log.error("Redis is there, and cannot be used: %s", problem)
            raise RanksUnavailable(f"this Redis cannot be used: {problem}", told=_nobody().told, away=NOBODY) from None
        finally:
            self._connecting.release()


def _nobody() -> RanksUnavailable:
    return RanksUnavailable("Redis is away since this process began; ranks come when it does", away=NOBODY)
