"""One call with its attempts: what each attempt sends, and what to do with its outcome. No I/O.

    Exchange.request → (a driver sends it) → Reply or ExchangeFailure → Exchange.take → CallResult, Pause, or an error

All attempts of a write have one key, so that the server counts it once however many of them arrive.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from rankd.client.call import ClientCall
from rankd.client.connection import ClientConnection
from rankd.client.problems import error_of
from rankd.client.replies import ExchangeFailure, Reply
from rankd.client.retries import read_retry_after
from rankd.client.signature import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from rankd.errors import InvalidValue, PlayerAbsent, RankdError, Unavailable

T = TypeVar("T")
# 502 and 504 come from a gateway that lost the server, as a broken connection would.
RETRIED_STATUS = frozenset({429, 502, 503, 504})
PREFER = b"wait=2"  # seconds to wait for a rank, where a projector ranks


class ClientRequest(msgspec.Struct, frozen=True):
    """The request of one attempt."""

    method: str
    url: str
    headers: list[tuple[bytes, bytes]]
    body: bytes | None


@dataclass(frozen=True, slots=True)
class CallResult(Generic[T]):
    """The result of a call."""

    value: T


@dataclass(frozen=True, slots=True)
class Pause:
    """How long to wait before the next attempt."""

    seconds: float


class Exchange(Generic[T]):
    """One call and its attempts."""

    def __init__(self, call: ClientCall[T], connection: ClientConnection) -> None:
        """The time limit of all attempts starts now."""
        self._call = call
        self._connection = connection
        self._tried = 0
        self._is_unsent = True  # no attempt has reached the server
        self._began_s = time.monotonic()

    def request(self) -> ClientRequest:
        """Return the next request; each has a new signature, since it contains the time."""
        call = self._call
        self._tried += 1
        headers = []
        if call.body is not None:
            headers.append((b"Content-Type", b"application/json"))
        if call.key is not None:
            headers.append((b"Idempotency-Key", call.key.encode()))
            headers.append((b"Prefer", PREFER))
        secret = call.signing_secret or self._connection.signing_secret
        if call.is_signable and call.key is not None and secret is not None:
            now_s = int(time.time())
            headers.append((TIMESTAMP_HEADER, str(now_s).encode()))
            headers.append((SIGNATURE_HEADER, sign(secret, now_s, call.key, call.body or b"").encode()))
        return ClientRequest(call.method, self._connection.url + call.target, headers, call.body)

    def take(self, outcome: Reply | ExchangeFailure) -> CallResult[T] | Pause:
        """Return the result, or how long to wait for the next attempt; raise other errors."""
        self._is_unsent &= isinstance(outcome, ExchangeFailure) and outcome.is_unsent
        if isinstance(outcome, ExchangeFailure):
            return self._retry(self._unanswered(outcome.problem), None, outcome.is_passing)
        if 200 <= outcome.status < 300:
            return CallResult(self._decode(outcome.body))
        error = error_of(outcome)
        if isinstance(error, PlayerAbsent) and self._call.when_absent is not None:
            return CallResult(self._call.when_absent())
        if isinstance(error, InvalidValue) and self._call.rename_field is not None:
            error = InvalidValue(self._call.rename_field(error.field), error.problem)
        retry_after_s = read_retry_after(outcome.headers.get("retry-after"))
        return self._retry(error, retry_after_s, outcome.status in RETRIED_STATUS)

    def _decode(self, body: bytes) -> T:
        try:
            return self._call.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise self._unanswered(f"sent an answer that cannot be decoded ({problem})") from None

    def _retry(self, error: RankdError, retry_after_s: float | None, may_retry: bool) -> Pause:
        elapsed_s = time.monotonic() - self._began_s
        jitter = random.random()  # noqa: S311 - it spreads out clients and hides nothing
        pause_s = self._connection.retries.pause_s(self._tried, elapsed_s, retry_after_s, jitter) if may_retry else None
        if pause_s is None:
            raise error
        return Pause(pause_s)

    def _unanswered(self, problem: str) -> Unavailable:
        times = "" if self._tried == 1 else f", tried {self._tried} times"
        remedy = "check that it is a rankd server and runs"
        if self._call.key is not None and not self._is_unsent:
            remedy += f"; the call may have counted, so send it again with key={self._call.key!r}"
        return Unavailable(f"{self._connection.url}{self._call.target} {problem}{times}; {remedy}")
