"""A megabyte of text, wherever a request can put one: the event loop is not held up, and errors stay short.

Processor time is measured and not the clock's, so that a busy machine fails nothing. On an idle one the loop's thread
takes a few milliseconds for any of these.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote_from_bytes

import msgspec
import pytest
from tests.timing import BUSY_MACHINE

from rankd.api.calls import bodies
from rankd.api.calls.routes import CALLS
from rankd.api.calls.scores import LIGHT_BYTES_MAX, read_events
from rankd.api.http.request import QUERY_BYTES_MAX
from rankd.errors import InvalidValue, TooLarge
from rankd.shortening import MESSAGE_CHARACTERS_MAX, NAME_CHARACTERS_MAX

from .timed_app import Answer, InProcess, in_process

pytestmark = pytest.mark.timed
LOOP_S_MAX = 0.4 * BUSY_MACHINE  # what grows with the square takes seconds
PROCESS_S_MAX = 1.0 * BUSY_MACHINE  # all threads together: what is done beside the loop is bounded too
BYTES = 1_000_000
MASKED_GROWTH = 2  # what is masked may become longer: `sig=a`
BATCH_BYTES = 15_000_000

# As JSON writes them: some can be written in no other way.
PATTERNS = {
    "addresses": "http://",
    "colons": "a:",
    "users": "://user:",
    "credentials": "bearer ",
    "names of secrets": "token=",
    "keys": "rk_",
    "quotes": "'\\\"",
    "control characters": "\\u0000\\u001b\\n",
    "characters that combine and turn": "e\u0301\u202e",
    "surrogates": "\\ud83d\\ude00",
    "lone surrogates": "\\ud800",
    "underlines": "_",
    "backslashes": "\\\\",
    "digits": "9",
    "slashes": "a/",
    "marks of a cut": "://a:b\u2026",
}


def in_json(pattern: str, size: int = BYTES) -> bytes:
    piece = PATTERNS[pattern].encode()
    return b'"' + piece * (size // len(piece)) + b'"'


def in_bytes(pattern: str, size: int) -> bytes:
    text: str = msgspec.json.decode(b'"' + PATTERNS[pattern].replace("\\ud800", "\\ud83d\\ude00").encode() + b'"')
    return text.encode() * (size // len(text.encode()))


def in_header(pattern: str) -> bytes:
    return in_bytes(pattern, BYTES).replace(b"\n", b"\t").replace(b"\x00", b"\x01")


def in_query(pattern: str, size: int) -> bytes:
    return whole_escapes(quote_from_bytes(in_bytes(pattern, size), safe="").encode()[:size])


def whole_escapes(text: bytes) -> bytes:
    """A text without the half of an escape, or of a character, at its end."""
    return text if b"%" not in text[-12:] else text[: text.index(b"%", len(text) - 12)]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("hostile") / "data") as running:
        seasons = [{"name": f"season-{n}", "start": n * 1_000, "end": n * 1_000 + 1_000} for n in range(1_000)]
        running.boards.define("arcade", writes="players", periods=seasons, scopes=["country"])
        running.boards.submit("arcade", "alice", 5)
        yield running


def check(answer: Answer, pattern: str) -> None:
    assert answer.status < 500, (pattern, answer.body[:500])
    assert answer.loop_s < LOOP_S_MAX, (pattern, answer.status, answer.loop_s)
    assert answer.process_s < PROCESS_S_MAX, (pattern, answer.status, answer.process_s)
    if answer.status >= 400:
        problem = answer.problem
        assert len(problem["detail"]) < MASKED_GROWTH * MESSAGE_CHARACTERS_MAX, pattern
        for error in problem.get("errors", []):
            assert len(error["field"]) <= NAME_CHARACTERS_MAX, (pattern, error)


# Bodies

SCORE = b'{"board":"arcade","player":"mallory","score":5'
BODIES: dict[str, tuple[str, str, str | None, bytes]] = {
    # what: method, path, who, a body in which @ is the text
    "ranks: a name": ("POST", "/v1/boards/arcade/ranks", None, b"{@:1}"),
    "ranks: a player": ("POST", "/v1/boards/arcade/ranks", None, b'{"players":["alice",@]}'),
    "ranks: no list": ("POST", "/v1/boards/arcade/ranks", None, b'{"players":@}'),
    "ranks: no object": ("POST", "/v1/boards/arcade/ranks", None, b"@"),
    "ranks: no JSON": ("POST", "/v1/boards/arcade/ranks", None, b'{"players":[@'),
    "friends: a name": ("POST", "/v1/boards/arcade/friends", None, b'{"players":[],@:1}'),
    "friends: a player": ("POST", "/v1/boards/arcade/friends", None, b'{"players":[@]}'),
    "score: a name": ("POST", "/v1/scores", "mallory", SCORE + b",@:1}"),
    "score: a board": ("POST", "/v1/scores", "mallory", b'{"board":@,"score":5}'),
    "score: a player": ("POST", "/v1/scores", "admin", b'{"board":"arcade","score":5,"player":@}'),
    "score: a number": ("POST", "/v1/scores", "mallory", b'{"board":"arcade","score":@}'),
    "score: an instant": ("POST", "/v1/scores", "admin", SCORE + b',"at":@}'),
    "score: an attribute's name": ("POST", "/v1/scores", "admin", SCORE + b',"attributes":{@:"BR"}}'),
    "score: an attribute": ("POST", "/v1/scores", "admin", SCORE + b',"attributes":{"country":@}}'),
    "score: metadata's name": ("POST", "/v1/scores", "mallory", SCORE + b',"metadata":{@:1}}'),
    "score: metadata": ("POST", "/v1/scores", "mallory", SCORE + b',"metadata":{"a":@}}'),
    "batch: a name": ("POST", "/v1/scores/batch", "mallory", b"{@:[]}"),
    "batch: an event's name": ("POST", "/v1/scores/batch", "mallory", b'{"events":[' + SCORE + b",@:1}]}"),
    "batch: a board": ("POST", "/v1/scores/batch", "mallory", b'{"events":[{"board":@,"score":5}]}'),
    "batch: an event": ("POST", "/v1/scores/batch", "mallory", b'{"events":[@]}'),
    "batch: metadata": ("POST", "/v1/scores/batch", "mallory", b'{"events":[' + SCORE + b',"metadata":{"a":@}}]}'),
    "profile: a name of a field": ("PUT", "/v1/players/mallory", "mallory", b"{@:1}"),
    "profile: a name": ("PUT", "/v1/players/mallory", "mallory", b'{"name":@}'),
    "profile: an avatar": ("PUT", "/v1/players/mallory", "mallory", b'{"avatar_url":@}'),
    "profile: an attribute's name": ("PUT", "/v1/players/bob", "admin", b'{"attributes":{@:"BR"}}'),
    "profile: an attribute": ("PUT", "/v1/players/bob", "admin", b'{"attributes":{"country":@}}'),
    "stored friends: a name": ("PUT", "/v1/players/mallory/friends", "mallory", b"{@:1}"),
    "stored friends: a player": ("PUT", "/v1/players/mallory/friends", "mallory", b'{"players":[@]}'),
    "reset: a name": ("POST", "/v1/boards/arcade/reset", "admin", b"{@:1}"),
    "reset: a window": ("POST", "/v1/boards/arcade/reset", "admin", b'{"window":@}'),
}
DEFINITIONS = {
    "a name": b"{@:1}",
    "an id": b'{"id":@}',
    "a title": b'{"title":@}',
    "a description": b'{"description":@}',
    "a choice": b'{"order":@}',
    "a flag": b'{"open":@}',
    "a number": b'{"shards":@}',
    "a duration": b'{"late_by":@}',
    "a window": b'{"windows":["all_time",@]}',
    "a window's field": b'{"windows":[{"name":"raid","reset":"0 18 * * 5",@:1}]}',
    "a window's name": b'{"windows":[{"name":@,"reset":"0 18 * * 5"}]}',
    "a window's reset": b'{"windows":[{"name":"raid","reset":@}]}',
    "a period's field": b'{"periods":[{"name":"a",@:1}]}',
    "a period's name": b'{"periods":[{"name":@,"start":1,"end":2}]}',
    "a period's start": b'{"periods":[{"name":"a","start":@,"end":2}]}',
    "a time zone": b'{"time_zone":@}',
    "a scope": b'{"scopes":["country",@]}',
    "a feed": b'{"feeds":[@]}',
    "a rule": b'{"keep":@}',
    "a rule's window": b'{"keep":{@:"best"}}',
    "a window's rule": b'{"keep":{"all_time":@}}',
    "a retention's window": b'{"retention":{@:"1d"}}',
    "a team's field": b'{"team":{"attribute":"guild","by":"sum",@:1}}',
    "a team's attribute": b'{"team":{"attribute":@,"by":"sum"}}',
    "decay's field": b'{"decay":{"factor":0.5,"every":"1d",@:1}}',
    "a signing key": b'{"signing":@}',
}
BODIES |= {f"definition: {what}": ("PUT", "/v1/boards/fresh", "admin", body) for what, body in DEFINITIONS.items()}


@pytest.mark.parametrize("place", BODIES)
def test_no_text_in_a_body_holds_the_loop_up(app: InProcess, place: str) -> None:
    method, path, who, body = BODIES[place]
    for pattern in PATTERNS:
        check(app.ask(method, path, who=who, body=body.replace(b"@", in_json(pattern))), pattern)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_text_in_a_line_of_a_batch_holds_the_loop_up(app: InProcess, pattern: str) -> None:
    media = {"content-type": b"application/x-ndjson"}
    line = SCORE + b"," + in_json(pattern) + b":1}"
    answer = app.ask("POST", "/v1/scores/batch", who="mallory", headers=media, body=SCORE + b"}\n" + line)

    check(answer, pattern)
    assert answer.status in (400, 422)
    assert "events[1]" in answer.problem["detail"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_text_in_a_packed_batch_holds_the_loop_up(app: InProcess, pattern: str) -> None:
    text = in_bytes(pattern, BYTES).decode()
    event = {"board": "arcade", "player": "mallory", "score": 5}
    for batch in (
        {text: 1},
        {"events": [event | {text: 1}]},
        {"events": [event, text]},
        {"events": [event | {"board": text}]},
    ):
        media = {"content-type": b"application/msgpack"}
        body = msgspec.msgpack.encode(batch)
        answer = app.ask("POST", "/v1/scores/batch", who="mallory", headers=media, body=body)
        check(answer, pattern)
        assert answer.status == 422


@pytest.mark.parametrize("pattern", PATTERNS)
def test_fifteen_megabytes_of_a_name_in_a_batch_do_not_hold_the_loop_up(app: InProcess, pattern: str) -> None:
    for body in (
        b'{"events":[' + SCORE + b"," + in_json(pattern, BATCH_BYTES) + b":1}]}",
        b"{" + in_json(pattern, BATCH_BYTES) + b":1}",
    ):
        check(app.ask("POST", "/v1/scores/batch", who="admin", body=body), pattern)


CALLS_WITH_BODIES = (
    ("POST", "/v1/scores"),
    ("POST", "/v1/scores/batch"),
    ("POST", "/v1/boards/arcade/ranks"),
    ("POST", "/v1/boards/arcade/friends"),
    ("POST", "/v1/boards/arcade/reset"),
    ("PUT", "/v1/players/bob"),
    ("PUT", "/v1/players/bob/friends"),
    ("PUT", "/v1/boards/fresh"),
)


@pytest.mark.parametrize(("method", "path"), CALLS_WITH_BODIES)
def test_what_is_large_is_decoded_beside_the_loop(
    app: InProcess, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    decoded_in: list[int] = []

    def decode(decoder: Any, body: Any) -> Any:
        decoded_in.append(threading.get_ident())
        return decoder.decode(body)

    monkeypatch.setattr(bodies, "decode", decode)
    answer = app.ask(method, path, who="admin", body=b'{"players":["' + b"a" * LIGHT_BYTES_MAX + b'"]}')

    assert answer.status >= 400
    assert decoded_in
    assert threading.get_ident() not in decoded_in


def test_every_call_with_a_body_is_among_these() -> None:
    assert len([call for call in CALLS if call.body is not None]) == len(CALLS_WITH_BODIES)


def test_a_score_that_no_score_could_be_is_not_decoded_at_all() -> None:
    lists = b"[" + b"[]," * (bodies.OBJECT_BYTES_MAX // 3) + b"1]"
    event = SCORE + b',"metadata":{"a":' + lists + b"}}"
    batch = b'{"events":[' + SCORE + b"}," + event + b"]}"

    with pytest.raises(InvalidValue, match="at most") as refused:
        list(read_events("application/json", batch, 10))
    assert refused.value.field == "events[1]"


def test_a_batch_of_empty_lines_is_refused_before_they_are_read() -> None:
    line = SCORE + b"}"
    assert len(list(read_events("application/x-ndjson", b"\n\n".join([line] * 10), 10))) == 10
    for body in (b"\n" * BATCH_BYTES, line + b"\n" * 21, b"\n".join([line] * 11)):
        with pytest.raises(TooLarge, match="at most 10"):
            list(read_events("application/x-ndjson", body, 10))


# Paths, queries, headers

READS = (
    "/v1/boards/{}/top",
    "/v1/boards/arcade/players/{}",
    "/v1/boards/arcade/scores/{}",
    "/{}",
    "/boards/{}",
    "/v1/{}",
)


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("size", [4_000, BYTES])
def test_no_text_in_a_path_holds_the_loop_up(app: InProcess, path: str, size: int) -> None:
    for pattern in PATTERNS:
        before, after = path.encode().split(b"{}")
        answer = app.ask("GET", before + in_query(pattern, size) + after)
        check(answer, pattern)
        assert answer.status >= 400


QUERIES = {
    "window": "/v1/boards/arcade/top",
    "scope": "/v1/boards/arcade/top",
    "ranking": "/v1/boards/arcade/top",
    "limit": "/v1/boards/arcade/top",
    "cursor": "/v1/boards/arcade/top",
    "at_least": "/v1/boards/arcade/top",
    "search": "/v1/players",
    "topic": "/v1/stream",
    "interval_ms": "/v1/stream",
    "ticket": "/v1/stream",
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("size", [QUERY_BYTES_MAX - 100, BYTES])
def test_no_value_in_a_query_holds_the_loop_up(app: InProcess, name: str, size: int) -> None:
    for pattern in PATTERNS:
        answer = app.ask("GET", QUERIES[name], query=name.encode() + b"=" + in_query(pattern, size))
        check(answer, pattern)
        assert answer.status >= 400


@pytest.mark.parametrize("size", [QUERY_BYTES_MAX - 100, BYTES])
def test_no_name_in_a_query_holds_the_loop_up(app: InProcess, size: int) -> None:
    for pattern in PATTERNS:
        text = in_query(pattern, size)
        half = whole_escapes(text[: size // 2])
        for query in (text, text + b"=1", b"limit=1&" + text, half + b"&" + half, b"&" * size, b"a&" * (size // 2)):
            answer = app.ask("GET", "/v1/boards/arcade/top", query=query)
            check(answer, pattern)


HEADERS = (
    "accept",
    "accept-encoding",
    "authorization",
    "content-encoding",
    "content-length",
    "content-type",
    "idempotency-key",
    "if-none-match",
    "last-event-id",
    "origin",
    "prefer",
    "x-forwarded-for",
    "x-rankd-signature",
    "x-rankd-timestamp",
    "x-request-id",
)


@pytest.mark.parametrize("name", HEADERS)
def test_no_text_in_a_header_holds_the_loop_up(app: InProcess, name: str) -> None:
    begin = b"Bearer " if name == "authorization" else b""
    who = None if name == "authorization" else "mallory"
    requests = [("POST", "/v1/scores", SCORE + b"}"), ("GET", "/v1/boards/arcade/top", b""), ("GET", "/boards/no", b"")]
    for pattern in PATTERNS:
        for separator in (b"", b",", b";", b"="):
            text = separator.join([in_header(pattern)[:50]] * (BYTES // 50)) if separator else in_header(pattern)
            for method, path, body in requests:
                headers = {name: begin + text}
                check(app.ask(method, path, who=who, headers=headers, body=body), f"{name} {pattern}")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_text_in_what_a_stream_was_sent_last_holds_the_loop_up(app: InProcess, pattern: str) -> None:
    for end in (b"", b"-9", b"-" + b"9" * BYTES):
        headers = {"last-event-id": in_header(pattern) + end}
        answer = app.ask("GET", "/v1/stream", query=b"topic=top:arcade", headers=headers)
        assert (answer.status, answer.loop_s < LOOP_S_MAX) == (200, True), answer.loop_s


def test_a_header_of_a_million_commas_does_not_hold_the_loop_up(app: InProcess) -> None:
    for name in HEADERS:
        for text in (b"," * BYTES, b"a," * (BYTES // 2), b'W/"a", ' * (BYTES // 8), b"wait=1;" * (BYTES // 7)):
            check(app.ask("GET", "/v1/boards/arcade/top", headers={name: text}), name)


# WebSocket

FRAMES: dict[str, Callable[[str], str]] = {
    "a name": lambda text: f'{{"op":"subscribe","topic":"top:arcade",{text}:1}}',
    "an operation": lambda text: f'{{"op":{text},"topic":"top:arcade"}}',
    "a topic": lambda text: f'{{"op":"subscribe","topic":{text}}}',
    "a board": lambda text: f'{{"op":"subscribe","topic":"top:{text[1:]}}}',
    "an offset": lambda text: f'{{"op":"subscribe","topic":"top:arcade","since":{text}}}',
    "no JSON": lambda text: text,
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("size", [3_900, BYTES])
def test_no_text_in_a_frame_holds_the_loop_up(app: InProcess, frame: str, size: int) -> None:
    for pattern in PATTERNS:
        sent, loop_s = app.converse([FRAMES[frame](in_json(pattern, size).decode())])

        assert loop_s < LOOP_S_MAX, (pattern, loop_s)
        assert all(len(message.get("reason", "").encode()) <= 123 for message in sent)
        problems = [
            msgspec.json.decode(message["text"])
            for message in sent
            if "text" in message and '"error"' in message["text"]
        ]
        assert all(len(error["problem"]["detail"]) < MESSAGE_CHARACTERS_MAX for error in problems)


def test_no_name_in_the_query_of_a_websocket_holds_the_loop_up_nor_is_a_secret_shown(app: InProcess) -> None:
    for pattern in PATTERNS:
        for size in (QUERY_BYTES_MAX - 100, BYTES):
            sent, loop_s = app.converse([], in_query(pattern, size))
            (closed,) = sent
            assert (closed["type"], loop_s < LOOP_S_MAX) == ("websocket.close", True), (pattern, loop_s)
            assert len(closed["reason"].encode()) <= 123

    (closed,), _ = app.converse([], b"rk_0123456789abcdef_secret=1")
    assert "secret" not in closed["reason"]
