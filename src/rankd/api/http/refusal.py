"""Prepared answers to malformed requests and to connections above the limits."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus

from rankd.api.http.problems import made_response
from rankd.api.http.request import EVERY_ANSWER

KEPT_MAX = 64
_CODES = {408: "too_slow", 431: "too_large", 500: "fault", 503: "overloaded"}


def refusal(status: int, problem: str, date_line: bytes) -> bytes:
    """Return a complete response, after which the connection is closed."""
    head, body = _made(status, problem)
    return b"%b%b\r\n%b" % (head, date_line, body)


@lru_cache(KEPT_MAX)
def _made(status: int, problem: str) -> tuple[bytes, bytes]:
    response = made_response(status, problem, _CODES.get(status, "malformed_request"))
    headers = [*response.headers, *EVERY_ANSWER, (b"content-length", b"%d" % len(response.body))]
    if status == HTTPStatus.UPGRADE_REQUIRED:
        headers += [(b"upgrade", b"websocket"), (b"sec-websocket-version", b"13")]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    return first + lines + b"connection: close\r\n", response.body
