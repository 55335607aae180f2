"""A call until it is answered: what each attempt sends, and what becomes of what it brings back. No I/O.

    Exchange.request → (a driver sends it) → Reply or Trouble → Exchange.take → Done, Pause, or an error is raised

A write carries one key through all its attempts, so that the server counts it once however many of them arrive.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from rankd.client.call import Call
from rankd.client.connection import Connection
from rankd.client.problems import error_of
from rankd.client.replies import Reply, Trouble
from rankd.client.retries import read_retry_after
from rankd.client.signature import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from rankd.errors import InvalidValue, PlayerAbsent, RankdError, Unavailable

T = TypeVar("T")
# 502 and 504 are a gateway that lost the server: a connection that broke off, seen from further away.
AGAIN = frozenset({429, 502, 503, 504})
PREFER = b"wait=2"  # seconds for a rank, where another process makes them


class Request(msgspec.Struct, frozen=True):
    """What one attempt sends."""

    method: str
    url: str
    headers: list[tuple[bytes, bytes]]
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The answer is here."""

    value: T


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so long and send the request again."""

    seconds: float


class Exchange(Generic[T]):
    """One call and its attempts."""

    def __init__(self, call: Call[T], connection: Connection) -> None:
        """The time that all attempts share begins now."""
        self._call = call
        self._connection = connection
        self._tried = 0
        self._is_unsent = True  # no attempt has reached the server
        self._began_s = time.monotonic()

    def request(self) -> Request:
        """Return what to send; a signature is made anew, since it carries the time."""
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
        return Request(call.method, self._connection.url + call.target, headers, call.body)

    def take(self, outcome: Reply | Trouble) -> Done[T] | Pause:
        """Return the answer or how long to wait for the next attempt; raise what cannot be helped."""
        self._is_unsent &= isinstance(outcome, Trouble) and outcome.is_unsent
        if isinstance(outcome, Trouble):
            return self._again(self._unanswered(outcome.problem), None, outcome.is_passing)
        if 200 <= outcome.status < 300:
            return Done(self._decoded(outcome.body))
        error = error_of(outcome)
        if isinstance(error, PlayerAbsent) and self._call.when_absent is not None:
            return Done(self._call.when_absent())
        if isinstance(error, InvalidValue) and self._call.field_as_given is not None:
            error = InvalidValue(self._call.field_as_given(error.field), error.problem)
        asked_s = read_retry_after(outcome.headers.get("retry-after"))
        return self._again(error, asked_s, outcome.status in AGAIN)

    def _decoded(self, body: bytes) -> T:
        try:
            return self._call.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise self._unanswered(f"answers with something that cannot be read ({problem})") from None

    def _again(self, error: RankdError, asked_s: float | None, may_repeat: bool) -> Pause:
        elapsed_s = time.monotonic() - self._began_s
        chance = random.random()  # noqa: S311 - it spreads out clients and hides nothing
        pause_s = self._connection.retries.pause_s(self._tried, elapsed_s, asked_s, chance) if may_repeat else None
        if pause_s is None:
            raise error
        return Pause(pause_s)

    def _unanswered(self, problem: str) -> Unavailable:
        times = "" if self._tried == 1 else f", tried {self._tried} times"
        remedy = "see that it is a rankd server and runs"
        if self._call.key is not None and not self._is_unsent:
            remedy += f"; nobody knows whether the call counted, so send it again with key={self._call.key!r}"
        return Unavailable(f"{self._connection.url}{self._call.target} {problem}{times}; {remedy}")
