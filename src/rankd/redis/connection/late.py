"""A client of a Redis that may start later than this process: the first call that reaches it connects."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rankd.errors import RanksUnavailable, RanksUnusable
from rankd.redis.connection.client import UNKNOWN_SERVER, FunctionCall, RedisClient

_log = logging.getLogger("rankd")


class LateClient:
    """Connects on first success and then passes calls to the client; from any thread."""

    def __init__(self, connect: Callable[[], RedisClient]) -> None:
        """Connect if Redis is reachable; refuse a Redis that answers and cannot be used."""
        self._connect = connect
        self._connecting = threading.Lock()
        self._client: RedisClient | None = None
        self._is_closed = False
        self._last_error: str | None = None
        try:
            self._client = connect()
        except RanksUnavailable as problem:
            _log.warning("Redis is away; reads fall back to stored standings until it is reachable: %s", problem)

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Make calls and return their answers in order."""
        return self._connected().call_all(calls)

    def call_each(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Make read-only calls; RanksUnavailable stands in place of each missing answer."""
        try:
            return self._connected().call_each(calls)
        except RanksUnavailable as problem:
            return [problem] * len(calls)

    def node_of(self, key: bytes) -> str:
        """Return the name of the server that has a key."""
        return UNKNOWN_SERVER if self._client is None else self._client.node_of(key)

    def close(self) -> None:
        """Close every connection."""
        with self._connecting:
            self._is_closed = True
            if self._client is not None:
                self._client.close()

    def _connected(self) -> RedisClient:
        if self._client is not None:
            return self._client
        # One thread connects at a time; the others fail at once instead of waiting for an unresponsive host.
        if not self._connecting.acquire(blocking=False):
            raise _away()
        try:
            if self._client is None:
                if self._is_closed:
                    raise _away()
                self._client = self._connect()
                _log.warning("Redis is reachable")
            return self._client
        except RanksUnusable as problem:
            if self._last_error != str(problem):
                self._last_error = str(problem)
                _log.error("Redis is reachable but cannot be used: %s", problem)
            raise RanksUnavailable(
                f"this Redis cannot be used: {problem}", public_message=_away().public_message, away=UNKNOWN_SERVER
            ) from None
        finally:
            self._connecting.release()


def _away() -> RanksUnavailable:
    return RanksUnavailable("Redis is away since this process began; ranks come when it does", away=UNKNOWN_SERVER)
