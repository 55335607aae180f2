"""Bodies that do not change while the server runs: compressed once, with an entity tag."""

from __future__ import annotations

import gzip
from hashlib import sha256

from rankd.api.http.caching import matches
from rankd.api.http.request import Header, Request, Response

TAG_DIGITS = 24


class StaticBody:
    """A body, plain and compressed."""

    __slots__ = ("compressed", "plain", "tag")

    def __init__(self, plain: bytes, *, is_kept: bool = True) -> None:
        """A body that is not kept is not compressed here."""
        self.plain = plain
        self.compressed = gzip.compress(plain, mtime=0) if is_kept else None
        # Weak, since the plain and the compressed form share it.
        self.tag = f'W/"{sha256(plain).hexdigest()[:TAG_DIGITS]}"'.encode()

    def response(self, request: Request, headers: list[Header], status: int = 200) -> Response:
        """Answer with the body, or with 304."""
        tagged = [*headers, (b"etag", self.tag)]
        known = request.headers.get(b"if-none-match")
        if known is not None and status == 200 and matches(known, self.tag):
            return Response(b"", tagged, 304)
        return Response(self.plain, tagged, status, compressed=self.compressed)
