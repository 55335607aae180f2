"""Every place where a request can put text, as the request that puts it there; and texts that are nasty to look at.

A place takes as much as it can hold: a body of a megabyte, a head of 60,000 bytes, a frame of 4,000.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from .target import head
from .web_sockets import HANDSHAKE, frame

BODY_BYTES = 1_000_000
HEAD_BYTES = 60_000
FRAME_BYTES = 3_900
JSON, LINES = "application/json", "application/x-ndjson"
SCORE = {"board": "arcade", "player": "p1", "score": 5}

# Repeated until a place is full. Each is what one of the usual patterns for secrets, names or lines begins with.
PATTERNS = {
    "addresses": "http://",
    "pairs": "a:",
    "users": "://user:",
    "bearers": "bearer ",
    "tokens": "token=",
    "keys": "rk_",
    "underscores": "_",
    "quotes": "\"'\\",
    "controls": "\x00\x01\x1b[\x7f\x85\r\n",
    "directions": "\u202e\u0301\u2066\u200f\ufeff",
}

Encode = Callable[[str], str]


class Place(NamedTuple):
    """Where text goes: how a text is written there, how many bytes there are, and the request with it."""

    bytes_max: int
    encode: Encode
    request: Callable[[str, str], bytes]  # the Authorization header, the encoded text
    is_web_socket: bool = False

    def fill(self, pattern: str) -> str:
        """Return a text that fills the place when it is written."""
        return pattern * max(1, self.bytes_max // len(self.encode(pattern).encode()))


def in_json(value: object) -> str:
    """Return a value as JSON, with other alphabets as they are."""
    return json.dumps(value, ensure_ascii=False)


def _escaped(text: str) -> str:
    return in_json(text)[1:-1]


def _document(method: str, target: str, document: Callable[[str], object], media: str = JSON) -> Place:
    """A field of a JSON document, its name or its value: whatever depends on the text."""

    def request(authorization: str, text: str) -> bytes:
        body = in_json(document(text)).encode()
        sized = (f"Content-Type: {media}", f"Content-Length: {len(body)}")
        return head(method, target, authorization, *sized) + body

    return Place(BODY_BYTES, _escaped, request)


def _raw_body(method: str, target: str) -> Place:
    def request(authorization: str, text: str) -> bytes:
        body = text.encode()
        return head(method, target, authorization, f"Content-Type: {JSON}", f"Content-Length: {len(body)}") + body

    return Place(BODY_BYTES, str, request)


def _target(method: str, before: str, behind: str = "", bytes_max: int = HEAD_BYTES) -> Place:
    def request(authorization: str, text: str) -> bytes:
        return head(method, f"{before}{quote(text, safe='')}{behind}", authorization)

    return Place(bytes_max, lambda text: quote(text, safe=""), request)


def _header(name: str, before: str = "", target: str = "/v1/boards/arcade/top") -> Place:
    """A header of a read; a score for those that only matter there."""

    def request(authorization: str, text: str) -> bytes:
        others = [] if name == "Authorization" else [authorization]
        if target != "/v1/scores":
            return head("GET", target, *others, f"{name}: {before}{text}")
        body = in_json(SCORE).encode()
        others += [] if name == "Content-Type" else [f"Content-Type: {JSON}"]
        return head("POST", target, *others, f"{name}: {before}{text}", f"Content-Length: {len(body)}") + body

    return Place(HEAD_BYTES, str, request)


def _frame(document: Callable[[str], object]) -> Place:
    def request(_authorization: str, text: str) -> bytes:
        return frame(0x81, in_json(document(text)).encode())

    return Place(FRAME_BYTES, _escaped, request, is_web_socket=True)


def _board(of: Callable[[str], dict[str, Any]]) -> Place:
    return _document("PUT", "/v1/boards/text", of)


READ = "/v1/boards/arcade"
PERIOD = {"name": "summer", "start": 0, "end": 1}
PLACES: dict[str, Place] = {
    # Scores
    "score, unknown field": _document("POST", "/v1/scores", lambda text: {**SCORE, text: 1}),
    "score, board": _document("POST", "/v1/scores", lambda text: {**SCORE, "board": text}),
    "score, player": _document("POST", "/v1/scores", lambda text: {**SCORE, "player": text}),
    "score, score": _document("POST", "/v1/scores", lambda text: {**SCORE, "score": text}),
    "score, attribute's name": _document("POST", "/v1/scores", lambda text: {**SCORE, "attributes": {text: "x"}}),
    "score, attribute": _document("POST", "/v1/scores", lambda text: {**SCORE, "attributes": {"country": text}}),
    "score, metadata": _document("POST", "/v1/scores", lambda text: {**SCORE, "metadata": {"a": [{text: text[:9]}]}}),
    "score, no JSON": _raw_body("POST", "/v1/scores"),
    "batch, unknown field": _document("POST", "/v1/scores/batch", lambda text: {"events": [SCORE], text: 1}),
    "batch, event's field": _document("POST", "/v1/scores/batch", lambda text: {"events": [SCORE, {**SCORE, text: 1}]}),
    "batch, event's player": _document(
        "POST", "/v1/scores/batch", lambda text: {"events": [{**SCORE, "player": text}]}
    ),
    "lines, unknown field": _document("POST", "/v1/scores/batch", lambda text: {**SCORE, text: 1}, LINES),
    "lines, player": _document("POST", "/v1/scores/batch", lambda text: {**SCORE, "player": text}, LINES),
    # Groups
    "ranks, unknown field": _document("POST", f"{READ}/ranks", lambda text: {"players": [], text: 1}),
    "ranks, player": _document("POST", f"{READ}/ranks", lambda text: {"players": [text]}),
    "friends, unknown field": _document("POST", f"{READ}/friends", lambda text: {"players": [], text: 1}),
    "friends, player": _document("POST", f"{READ}/friends", lambda text: {"players": ["p1", text]}),
    "reset, window": _document("POST", f"{READ}/reset", lambda text: {"window": text}),
    # Players
    "player, unknown field": _document("PUT", "/v1/players/text", lambda text: {text: "x"}),
    "player, name": _document("PUT", "/v1/players/text", lambda text: {"name": text}),
    "player, avatar": _document("PUT", "/v1/players/text", lambda text: {"avatar_url": f"https://{text}"}),
    "player, country": _document("PUT", "/v1/players/text", lambda text: {"country": text}),
    "player, attribute's name": _document("PUT", "/v1/players/text", lambda text: {"attributes": {text: "x"}}),
    "player, attribute": _document("PUT", "/v1/players/text", lambda text: {"attributes": {"guild": text}}),
    "player, friend": _document("PUT", "/v1/players/text/friends", lambda text: {"players": [text]}),
    # Boards
    "board, unknown field": _board(lambda text: {text: 1}),
    "board, title": _board(lambda text: {"title": text}),
    "board, description": _board(lambda text: {"description": text}),
    "board, keep": _board(lambda text: {"keep": text}),
    "board, keep's window": _board(lambda text: {"keep": {text: "best"}}),
    "board, window": _board(lambda text: {"windows": [text]}),
    "board, window's name": _board(lambda text: {"windows": [{"name": text, "reset": "0 18 * * 5"}]}),
    "board, window's reset": _board(lambda text: {"windows": [{"name": "raid", "reset": text}]}),
    "board, window's field": _board(lambda text: {"windows": [{"name": "raid", "reset": "0 18 * * 5", text: 1}]}),
    "board, period's name": _board(lambda text: {"periods": [{**PERIOD, "name": text}]}),
    "board, period's start": _board(lambda text: {"periods": [{**PERIOD, "start": text}]}),
    "board, period's field": _board(lambda text: {"periods": [{**PERIOD, text: 1}]}),
    "board, time zone": _board(lambda text: {"time_zone": text}),
    "board, scope": _board(lambda text: {"scopes": [text]}),
    "board, feed": _board(lambda text: {"feeds": [text]}),
    "board, team's attribute": _board(lambda text: {"team": {"attribute": text, "by": "sum"}}),
    "board, team's field": _board(lambda text: {"team": {"attribute": "guild", "by": "sum", text: 1}}),
    "board, decay": _board(lambda text: {"decay": {"factor": 0.9, "every": text}}),
    "board, retention's window": _board(lambda text: {"retention": {text: "1d"}}),
    "board, late_by": _board(lambda text: {"late_by": text}),
    "board, signing": _board(lambda text: {"signing": text}),
    # Queries
    "query, name": _target("GET", f"{READ}/top?", "=1"),
    "query, window": _target("GET", f"{READ}/top?window="),
    "query, scope": _target("GET", f"{READ}/top?scope=country:"),
    "query, ranking": _target("GET", f"{READ}/top?ranking="),
    "query, limit": _target("GET", f"{READ}/top?limit="),
    "query, cursor": _target("GET", f"{READ}/top?cursor="),
    "query, at_least": _target("GET", f"{READ}/top?at_least="),
    "query, search": _target("GET", "/v1/players?search="),
    "query, topic": _target("GET", "/v1/stream?topic=top:"),
    "query, topic's player": _target("GET", "/v1/stream?topic=player:arcade:"),
    "query, ticket": _target("GET", "/v1/stream?topic=top:arcade&ticket="),
    # Paths
    "path, nowhere": _target("GET", "/", bytes_max=8_000),
    "path, board": _target("GET", "/v1/boards/", "/top", bytes_max=8_000),
    "path, player": _target("GET", f"{READ}/players/", bytes_max=8_000),
    "path, score": _target("GET", f"{READ}/scores/", bytes_max=8_000),
    "path, long player": _target("GET", "/v1/players/"),
    # Headers
    "header, name": Place(HEAD_BYTES, str, lambda key, text: head("GET", f"{READ}/top", key, f"{text}: x")),
    "header, Authorization": _header("Authorization"),
    "header, bearer": _header("Authorization", "Bearer "),
    "header, Idempotency-Key": _header("Idempotency-Key", target="/v1/scores"),
    "header, Content-Type": _header("Content-Type", target="/v1/scores"),
    "header, charset": _header("Content-Type", "application/json; charset=", target="/v1/scores"),
    "header, Prefer": _header("Prefer", "wait=", target="/v1/scores"),
    "header, X-Rankd-Signature": _header("X-Rankd-Signature", target="/v1/scores"),
    "header, X-Request-Id": _header("X-Request-Id"),
    "header, Accept-Encoding": _header("Accept-Encoding", "gzip;q="),
    "header, X-Forwarded-For": _header("X-Forwarded-For"),
    "header, If-None-Match": _header("If-None-Match"),
    "header, Origin": _header("Origin"),
    "header, Last-Event-ID": _header("Last-Event-ID", target="/v1/stream?topic=top:nowhere"),
    # WebSocket
    "frame, unknown field": _frame(lambda text: {"op": "subscribe", "topic": "top:arcade", text: 1}),
    "frame, op": _frame(lambda text: {"op": text, "topic": "top:arcade"}),
    "frame, topic": _frame(lambda text: {"op": "subscribe", "topic": text}),
    "frame, topic's board": _frame(lambda text: {"op": "subscribe", "topic": f"top:{text}"}),
    "frame, since": _frame(lambda text: {"op": "subscribe", "topic": "top:nowhere", "since": text}),
    "handshake, ticket": Place(
        HEAD_BYTES,
        lambda text: quote(text, safe=""),
        lambda _key, text: head("GET", f"/v1/ws?ticket={quote(text, safe='')}", *HANDSHAKE),
    ),
}
