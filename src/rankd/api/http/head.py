"""Checks of a request's head, beyond the parser's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

from rankd.api.http.request import ESCAPE, Header

VERSIONS = ("1.1", "1.0")
_HOST = re.compile(rb"[A-Za-z0-9.:_~%!$&'()*+,;=\[\]-]{0,255}")
SERVER_HEADERS = frozenset(
    (b"host", b"expect", b"upgrade", b"transfer-encoding")
)  # headers that the server itself reads

_ASGI = {"version": "3.0", "spec_version": "2.4"}
_UPGRADE = (b"connection", b"upgrade", b"http2-settings")
_FRAGMENT = ord("#")


class RefusedHead(Exception):
    """The request is refused with a status, and its connection closed."""

    def __init__(self, status: int, problem: str) -> None:
        """`problem` names what is wrong."""
        super().__init__(problem)
        self.status = status


def read_server_headers(headers: Iterable[Header], version: str) -> tuple[bool, bool]:
    """Return whether the client waits for 100, and whether it asks for a WebSocket."""
    if version not in VERSIONS:
        raise RefusedHead(505, "this server speaks HTTP/1.1; use that")
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in values and name != b"upgrade":
            raise RefusedHead(400, f"{name.decode()}: must be sent once")
        values[name] = value.lower()
    if b"host" not in values and version == "1.1":
        raise RefusedHead(400, "host: is missing; send it")
    if b"transfer-encoding" in values:
        if version != "1.1":
            raise RefusedHead(400, "transfer-encoding: must not be sent with HTTP/1.0")
        if values[b"transfer-encoding"] != b"chunked":
            raise RefusedHead(501, "transfer-encoding: must be chunked")
    expected = values.get(b"expect")
    if expected is not None and expected != b"100-continue":
        raise RefusedHead(417, "expect: must be 100-continue")
    return expected is not None and version == "1.1", values.get(b"upgrade") == b"websocket"


def check_host(value: bytes) -> None:
    """Refuse a Host that is no name or address."""
    if not _HOST.fullmatch(value):
        raise RefusedHead(400, "host: must be a name or an address, with an optional port")


def check_protocol(line: bytes, method: bytes, target: bytes) -> None:
    """Refuse RTSP and ICE, which the parser accepts as HTTP; `line` begins with the first line."""
    if re.search(rb"%b +%b +(?:RTSP|ICE)/" % (re.escape(method), re.escape(target)), line):
        raise RefusedHead(400, "the request is not HTTP/1.1: its first line must end with HTTP/1.1")


def origin_form(target: bytes) -> bytes:
    """Return path and query of a request's target, which may be an absolute URL."""
    if target[:1] == b"/":
        if _FRAGMENT in target:
            raise RefusedHead(400, "the target of a request must have no fragment")
        return target
    if target == b"*":
        return target
    scheme, separator, rest = target.partition(b"://")
    if separator and scheme.lower() in (b"http", b"https"):
        authority, slash, path = rest.partition(b"/")
        if b"?" not in authority and b"#" not in rest:
            return slash + path if slash else b"/"
    raise RefusedHead(400, "the target of a request must be a path")


def http_scope(
    method: str, version: str, scheme: str, target: bytes, *, headers: list[Header], client: tuple[str, int] | None
) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    path, _, query = origin_form(target).partition(b"?")
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": version,
        "method": method,
        "scheme": scheme,
        "path": path.decode() if ESCAPE not in path else unquote_to_bytes(path).decode(errors="replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": client,
        "server": None,
    }


def head_without_upgrade(scope: dict[str, Any], target: bytes) -> bytes:
    """Return the head of a request without its Upgrade."""
    first = b"%b %b HTTP/%b" % (scope["method"].encode(), target, scope["http_version"].encode())
    lines = [b"%b: %b" % header for header in scope["headers"] if header[0] not in _UPGRADE]
    return b"\r\n".join((first, *lines, b"", b""))
