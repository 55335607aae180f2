"""Content negotiation: CORS, compression, and the type of a body."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from rankd.api.http.request import Header, Request, Response
from rankd.errors import Forbidden, InvalidValue, MediaUnsupported
from rankd.shortening import quote

# A smaller body travels in one packet, compressed or not.
COMPRESS_BYTES_MIN = 1_024
# The fastest level, and 8 KiB of window: an entry repeats the names of the one before it. A page of a hundred entries
# takes 26 µs this way and 76 µs with zlib's default window, most of it clearing memory; level 6 makes it 5 % smaller in
# four times the time.
GZIP_LEVEL = 1
GZIP_WINDOW_BITS = 16 + 13  # 16 asks for gzip's header
GZIP_MEMORY_LEVEL = 6
PREFLIGHT_KEPT_S = 7_200  # the maximum of browsers
HEADER_BYTES_MAX = 512  # of the headers parsed here; browsers send a tenth of it

_VARY_ORIGIN: Header = (b"vary", b"origin")
_EXPOSED: Header = (
    b"access-control-expose-headers",
    b"etag, retry-after, ratelimit-limit, ratelimit-remaining, ratelimit-reset, x-request-id",
)

_ANY_METHODS, _LISTED_METHODS = b"GET, HEAD, POST", b"GET, HEAD, POST, PUT, DELETE"
_ANY_HEADERS = b"content-type, if-none-match, last-event-id, x-request-id"
_LISTED_HEADERS = b"authorization, idempotency-key, prefer, " + _ANY_HEADERS
_UTF_8 = ("utf-8", "utf8", '"utf-8"', '"utf8"')
_Coding = Literal["identity", "gzip", "gzip only"]


class Cors:
    """Which origins may read answers.

    rankd uses no cookies, so no answer allows credentials. A page of any origin ("*") may make reads without a token; a
    page of a listed origin may also send a player's token, and write.
    """

    def __init__(self, origins: Sequence[str]) -> None:
        """`origins` are such as `https://game.example`, or "*" alone; empty allows none."""
        for origin in origins:
            if origin == "*" and len(origins) > 1:
                raise InvalidValue("server.cors_origins", 'must be "*" alone or a list of origins, not both')
            if origin != "*" and not re.fullmatch(r"https?://[a-z0-9.:\[\]_-]+", origin):
                raise InvalidValue(
                    "server.cors_origins",
                    f'must be origins in small letters such as "https://game.example"; got {quote(origin)}',
                )
        self._any = "*" in origins
        self._headers: dict[bytes, tuple[Header, ...]] = {
            origin.encode(): (
                (b"access-control-allow-origin", origin.encode()),
                _EXPOSED,
                *(() if self._any else (_VARY_ORIGIN,)),
            )
            for origin in origins
        }
        self._others: tuple[Header, ...] = (_VARY_ORIGIN,) if origins else ()

    def headers(self, origin: bytes | None) -> tuple[Header, ...]:
        """Return the CORS headers of an answer; without an origin, for caches."""
        if self._any:
            return self._headers[b"*"]
        return self._others if origin is None else self._headers.get(origin, self._others)

    def check_page(self, origin: bytes | None, host: bytes | None) -> None:
        """Refuse a WebSocket connection from a page of another origin; programs send no origin.

        Browsers make no preflight for one. Behind a proxy that ends TLS the scheme is not known here, so a page is this
        server's own when its host and port are.
        """
        if origin is None or self._any or origin in self._headers:
            return
        scheme, _, place = origin.lower().partition(b"://")
        port = {b"http": b":80", b"https": b":443"}.get(scheme)
        if port is None or host is None or place.removesuffix(port) != host.lower().removesuffix(port):
            raise Forbidden(
                "Origin: pages of this origin may not open a WebSocket here; name the origin in server.cors_origins"
            )

    def preflight(self, headers: Mapping[bytes, bytes]) -> Response:
        """Answer OPTIONS with what a page of this origin may send."""
        answer: list[Header] = [(b"vary", b"origin, access-control-request-method, access-control-request-headers")]
        origin = b"*" if self._any else headers.get(b"origin", b"")
        if origin in self._headers:
            answer += [
                (b"access-control-allow-origin", origin),
                (b"access-control-allow-methods", _ANY_METHODS if self._any else _LISTED_METHODS),
                (b"access-control-allow-headers", _ANY_HEADERS if self._any else _LISTED_HEADERS),
                (b"access-control-max-age", b"%d" % PREFLIGHT_KEPT_S),
            ]
        return Response(b"", answer, 204)


# Compression


class Compression:
    """Compresses answers by Accept-Encoding."""

    bytes_min = COMPRESS_BYTES_MIN

    def is_wanted(self, accepted: bytes, size: int) -> bool:
        """Tell whether a body of this size is compressed for an Accept-Encoding."""
        wanted = "identity" if len(accepted) > HEADER_BYTES_MAX else _coding(accepted)
        return wanted == "gzip only" or (wanted == "gzip" and size >= COMPRESS_BYTES_MIN)

    def compress(self, accepted: bytes, body: bytes, compressed: bytes | None = None) -> tuple[bytes, bytes | None]:
        """Return a body in an accepted coding, and the coding, None for the plain body.

        A short one is compressed only for clients that accept nothing else. `compressed` is the body by gzip, where it
        is available.
        """
        if not self.is_wanted(accepted, len(body)):
            return body, None
        if compressed is not None:
            return compressed, b"gzip"
        compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS, GZIP_MEMORY_LEVEL)
        return compressor.compress(body) + compressor.flush(), b"gzip"


_QUALITY = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")


@lru_cache(256)
def _coding(accepted: bytes) -> _Coding:
    """Choose a coding; where none is acceptable, the body is sent plain."""
    qualities = _qualities(accepted.decode("latin-1").lower())
    others = qualities.get("*")
    gzip = max((qualities[name] for name in ("gzip", "x-gzip") if name in qualities), default=others or 0)
    identity = qualities.get("identity", 0 if others == 0 else None)
    if gzip == 0 or (identity is not None and identity > gzip):
        return "identity"
    return "gzip only" if identity == 0 else "gzip"


def _qualities(accepted: str) -> dict[str, float]:
    """Return the weight of each coding; malformed ones are left out."""
    qualities: dict[str, float] = {}
    for element in accepted.split(","):
        name, *parameters = (part.strip(" \t") for part in element.split(";"))
        weights = [value for key, _, value in (part.partition("=") for part in parameters) if key == "q"]
        weight = weights[0] if weights else "1"
        if len(weights) <= 1 and _QUALITY.fullmatch(weight):
            qualities[name] = float(weight)
    return qualities


# Types of bodies

JSON, NDJSON, MSGPACK = "application/json", "application/x-ndjson", "application/msgpack"
_SAME = {"application/x-msgpack": MSGPACK, "application/vnd.msgpack": MSGPACK}
_AS_USUALLY_SENT = {
    name.encode() + charset: name for name in (JSON, NDJSON, MSGPACK) for charset in (b"", b"; charset=utf-8")
}


def media_type(content_type: bytes) -> str:
    """Return a Content-Type in lower case and by one name; refuse charsets other than UTF-8.

    >>> media_type(b'Application/JSON; charset="UTF-8"')
    'application/json'
    >>> media_type(b"application/x-msgpack")
    'application/msgpack'
    """
    return _AS_USUALLY_SENT.get(content_type) or _read_media_type(content_type)


def _read_media_type(content_type: bytes) -> str:
    if len(content_type) > HEADER_BYTES_MAX:
        raise MediaUnsupported(f"content-type: must be at most {HEADER_BYTES_MAX} bytes")
    name, *parameters = (part.strip(" \t") for part in content_type.decode("latin-1").lower().split(";"))
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key == "charset" and value not in _UTF_8:
            raise MediaUnsupported(f"content-type: the charset must be utf-8; got {quote(value)}")
    return _SAME.get(name, name)


def check_media(request: Request, known: tuple[str, ...]) -> str:
    """Return the type of a request's body, JSON by default; refuse what a call does not read."""
    if request.headers.get(b"content-encoding", b"identity") != b"identity":
        raise MediaUnsupported("content-encoding: must be identity; send the body uncompressed")
    sent = request.headers.get(b"content-type")
    if sent is None:
        return JSON
    media = media_type(sent)
    if media not in known:
        raise MediaUnsupported(f"content-type: this call reads {', '.join(known)}; send the header with one of them")
    return media
