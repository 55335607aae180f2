"""What the head of a request must be, beyond what the parser sees to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rankd.api.request import Header

VERSIONS = ("1.1", "1.0")
HOST = re.compile(rb"[A-Za-z0-9.:_~%!$&'()*+,;=\[\]-]{0,255}")
NOTED = frozenset((b"host", b"expect", b"upgrade", b"transfer-encoding"))  # headers that the server itself reads

_UPGRADE = (b"connection", b"upgrade", b"http2-settings")


class RefusedHead(Exception):
    """A request is answered with a status, and its connection ends."""

    def __init__(self, status: int, problem: str) -> None:
        """`problem` names what is wrong."""
        super().__init__(problem)
        self.status = status


def read_noted(noted: Iterable[Header], version: str) -> tuple[bool, bool]:
    """Return whether the client waits for 100, and whether it asks for a WebSocket."""
    if version not in VERSIONS:
        raise RefusedHead(505, "HTTP/1.1 is spoken here")
    values: dict[bytes, bytes] = {}
    for name, value in noted:
        if name in values and name != b"upgrade":
            raise RefusedHead(400, f"{name.decode()}: must be sent once")
        values[name] = value.lower()
    if b"host" not in values and version == "1.1":
        raise RefusedHead(400, "host: must be sent")
    if b"transfer-encoding" in values:
        if version != "1.1":
            raise RefusedHead(400, "transfer-encoding: must not be sent with HTTP/1.0")
        if values[b"transfer-encoding"] != b"chunked":
            raise RefusedHead(501, "transfer-encoding: must be chunked")
    expected = values.get(b"expect")
    if expected is not None and expected != b"100-continue":
        raise RefusedHead(417, "expect: must be 100-continue")
    return expected is not None and version == "1.1", values.get(b"upgrade") == b"websocket"


def check_protocol(line: bytes, method: bytes, target: bytes) -> None:
    """Refuse RTSP and ICE, whose requests the parser takes for HTTP ones; `line` has the first line and more."""
    if re.search(rb"%b +%b +(?:RTSP|ICE)/" % (re.escape(method), re.escape(target)), line):
        raise RefusedHead(400, "the request is not HTTP/1.1: its first line must end with HTTP/1.1")


def origin_form(target: bytes) -> bytes:
    """Return path and query of a request's target, which may be a whole URL."""
    if target[:1] == b"/":
        if b"#" in target:
            raise RefusedHead(400, "the target of a request has no fragment")
        return target
    if target == b"*":
        return target
    scheme, separator, rest = target.partition(b"://")
    if separator and scheme.lower() in (b"http", b"https"):
        authority, slash, path = rest.partition(b"/")
        if b"?" not in authority and b"#" not in rest:
            return slash + path if slash else b"/"
    raise RefusedHead(400, "the target of a request must be a path")


def head_without_upgrade(scope: dict[str, Any], target: bytes) -> bytes:
    """Return the head of a request as if it had not asked for another protocol."""
    first = b"%b %b HTTP/%b" % (scope["method"].encode(), target, scope["http_version"].encode())
    lines = [b"%b: %b" % header for header in scope["headers"] if header[0] not in _UPGRADE]
    return b"\r\n".join((first, *lines, b"", b""))
