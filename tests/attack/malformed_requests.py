"""Requests that are not HTTP/1.1, or only almost; each with the statuses it may be refused with.

The connection is closed behind each: what follows on it cannot be understood any more. RFC 9112 is the measure; where
it lets a server choose between repairing and refusing, refusing is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from .target import head

BAD = frozenset({400})
READ = "/v1/boards/arcade/ranks"
BODY = b'{"players":[]}'
SMUGGLED = head("GET", "/v1/boards/arcade/top?limit=1")


class Malformed(NamedTuple):
    """What is sent, and how it may be refused."""

    sent: bytes
    statuses: frozenset[int] = BAD


def get(*headers: str) -> bytes:
    """Return a read with other headers."""
    return head("GET", "/healthz", *headers)


def post(body: bytes, *headers: str) -> bytes:
    """Return a request with a body, framed by the headers that are given."""
    return head("POST", READ, "Content-Type: application/json", *headers) + body


def line(first: bytes) -> bytes:
    """Return a request with this first line."""
    return first + b"\r\nHost: rankd\r\n\r\n"


def raw(header: bytes) -> bytes:
    """Return a read with a header as it is."""
    return b"GET /healthz HTTP/1.1\r\nHost: rankd\r\n" + header + b"\r\n\r\n"


def chunks(body: bytes) -> bytes:
    """Return a request with a body in chunks, as it is."""
    return post(body, "Transfer-Encoding: chunked")


def either(*statuses: int) -> frozenset[int]:
    """Return that these are right as well."""
    return BAD | frozenset(statuses)


LENGTHS = {
    f"Content-Length {value!r}": Malformed(post(BODY, f"Content-Length: {value}"), either(413))
    for value in ("-1", "+14", "0x0e", "14.0", "1e1", "14 14", "14,14", "14;", "", "¹⁴", "9" * 30, "1_4")
}
CHUNKS = {
    f"chunk size {size[:20]!r}": Malformed(chunks(size + b"\r\n" + BODY + b"\r\n0\r\n\r\n"), either(408, 413))
    for size in (
        b"zz",
        b"-e",
        b"+e",
        b"0xe",
        b"",
        b" ",
        b"e e",
        b"\xe2\x82\xac",
        b"F" * 17,
        b"7" + b"F" * 15,
        b"0" * 400,
    )
}
MALFORMED: dict[str, Malformed] = {
    **LENGTHS,
    **CHUNKS,
    # Where a body ends
    "two lengths": Malformed(post(BODY, "Content-Length: 14", "Content-Length: 2")),
    "the same length twice": Malformed(post(BODY, "Content-Length: 14", "Content-Length: 14")),
    "a length and chunks": Malformed(
        post(b"e\r\n" + BODY + b"\r\n0\r\n\r\n" + SMUGGLED, "Content-Length: 14", "Transfer-Encoding: chunked")
    ),
    "chunks and a length": Malformed(
        post(b"0\r\n\r\n" + SMUGGLED, "Transfer-Encoding: chunked", f"Content-Length: {5 + len(SMUGGLED)}")
    ),
    "chunked twice": Malformed(post(b"0\r\n\r\n", "Transfer-Encoding: chunked, chunked"), either(501)),
    "chunked in two headers": Malformed(
        post(b"0\r\n\r\n", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), either(501)
    ),
    "an unknown coding": Malformed(post(b"0\r\n\r\n", "Transfer-Encoding: xchunked"), either(501)),
    "gzip before chunked": Malformed(post(b"0\r\n\r\n", "Transfer-Encoding: gzip, chunked"), either(501)),
    "chunked before identity": Malformed(post(b"0\r\n\r\n", "Transfer-Encoding: chunked, identity"), either(501)),
    "chunked behind a vertical tab": Malformed(post(b"0\r\n\r\n" + SMUGGLED, "Transfer-Encoding: \x0bchunked")),
    "chunks in HTTP/1.0": Malformed(chunks(b"0\r\n\r\n" + SMUGGLED).replace(b"HTTP/1.1", b"HTTP/1.0", 1)),
    "a chunk longer than it says": Malformed(chunks(b"2\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a chunk without its end": Malformed(chunks(b"e\r\n" + BODY + b"xx0\r\n\r\n")),
    "a chunk with bare line feeds": Malformed(chunks(b"e\n" + BODY + b"\n0\n\n"), either(408)),
    "a long chunk extension": Malformed(chunks(b"e;" + b"a" * 1_000_000 + b"\r\n"), either(413, 431)),
    "a line feed in an extension": Malformed(chunks(b"e;a\nb\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a long trailer": Malformed(chunks(b"0\r\nX: " + b"a" * 1_000_000), either(413, 431)),
    "a trailer without a name": Malformed(chunks(b"0\r\n: a\r\n\r\n")),
    # Headers
    "a space before the colon": Malformed(raw(b"X-A : b")),
    "a length with a space before the colon": Malformed(post(BODY, "Content-Length : 14")),
    "a folded header": Malformed(raw(b"X-A: b\r\n c")),
    "a folded first header": Malformed(b"GET /healthz HTTP/1.1\r\n Host: rankd\r\n\r\n"),
    "a header without a colon": Malformed(raw(b"X-A")),
    "a header without a name": Malformed(raw(b": b")),
    "a name that is no token": Malformed(raw(b"X(A): b")),
    "a name of other letters": Malformed(raw("X-Ä: b".encode())),
    "NUL in a value": Malformed(raw(b"X-A: b\0c")),
    "NUL in a name": Malformed(raw(b"X\0A: b")),
    "a bell in a value": Malformed(raw(b"X-A: b\x07c")),
    "a bare CR in a value": Malformed(raw(b"X-A: b\rX-B: c")),
    "a bare CR as a line end": Malformed(b"GET /healthz HTTP/1.1\rHost: rankd\r\r", either(408)),
    "a bare LF as a line end": Malformed(b"GET /healthz HTTP/1.1\nHost: rankd\n\n", either(408)),
    "a bare LF behind a value": Malformed(raw(b"X-A: b\nX-B: c")),
    "no host": Malformed(b"GET /healthz HTTP/1.1\r\n\r\n"),
    "two hosts": Malformed(get("Host: rankd")),
    "two different hosts": Malformed(get("Host: other")),
    "a host that is none": Malformed(b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n"),
    "a huge header": Malformed(raw(b"X-A: " + b"a" * 2_000_000), either(431)),
    "a header name without end": Malformed(raw(b"X" * 2_000_000), either(431)),
    "ten thousand headers": Malformed(raw(b"\r\n".join(b"X-%d: a" % number for number in range(10_000))), either(431)),
    "ten thousand short headers": Malformed(raw(b"\r\n".join([b"a:"] * 10_000)), either(431)),
    # First lines
    "HTTP/0.9": Malformed(b"GET /healthz\r\n", either(408, 505)),
    "HTTP/0.9 with headers": Malformed(line(b"GET /healthz"), either(505)),
    "HTTP/2.0": Malformed(line(b"GET /healthz HTTP/2.0"), either(505)),
    "the preface of HTTP/2": Malformed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", either(505)),
    "HTTP/3.7": Malformed(line(b"GET /healthz HTTP/3.7"), either(505)),
    "HTTP/1.10": Malformed(line(b"GET /healthz HTTP/1.10"), either(505)),
    "http/1.1": Malformed(line(b"GET /healthz http/1.1"), either(505)),
    "no version": Malformed(line(b"GET /healthz HTTP/"), either(505)),
    "a space too many": Malformed(line(b"GET /health z HTTP/1.1"), either(505)),
    "a tab": Malformed(line(b"GET\t/healthz\tHTTP/1.1")),
    "no target": Malformed(line(b"GET HTTP/1.1"), either(505)),
    "a target that is no path": Malformed(line(b"GET healthz HTTP/1.1")),
    "a control character in the target": Malformed(line(b"GET /health\x01z HTTP/1.1")),
    "DEL in the target": Malformed(line(b"GET /health\x7fz HTTP/1.1")),
    "NUL in the target": Malformed(line(b"GET /health\0z HTTP/1.1")),
    "a huge target": Malformed(line(b"GET /" + b"a" * 2_000_000 + b" HTTP/1.1"), either(414, 431)),
    "a method that is no token": Malformed(line(b"G(T /healthz HTTP/1.1")),
    "a long method": Malformed(line(b"G" * 100_000 + b" /healthz HTTP/1.1"), either(414, 431, 501)),
    "a method with NUL": Malformed(line(b"G\0T /healthz HTTP/1.1")),
    "no method": Malformed(line(b" /healthz HTTP/1.1")),
    "TLS": Malformed(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2, either(408)),
    "RTSP": Malformed(line(b"GET /healthz RTSP/1.0")),
    "nonsense": Malformed(b"\xff\xfe\xfd" * 1_000 + b"\r\n\r\n"),
    "nothing but NUL": Malformed(bytes(100_000), either(408, 431)),
}
