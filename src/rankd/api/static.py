"""Bodies that stay the same while the server runs: compressed once, and known by a tag."""

from __future__ import annotations

import gzip
from hashlib import sha256

from rankd.api.caching import matches
from rankd.api.request import Header, Request, Response

TAG_DIGITS = 24


class StaticBody:
    """A body as it is sent: plain, and where it is kept, compressed as well as it goes."""

    __slots__ = ("compressed", "plain", "tag")

    def __init__(self, plain: bytes, *, is_kept: bool = True) -> None:
        """What is sent once and not kept is not worth its best compression."""
        self.plain = plain
        self.compressed = gzip.compress(plain, mtime=0) if is_kept else None
        # Weak, since both forms have it.
        self.tag = f'W/"{sha256(plain).hexdigest()[:TAG_DIGITS]}"'.encode()

    def response(self, request: Request, headers: list[Header], status: int = 200) -> Response:
        """Answer with it, or that the client has it already."""
        tagged = [*headers, (b"etag", self.tag)]
        known = request.headers.get(b"if-none-match")
        if known is not None and status == 200 and matches(known, self.tag):
            return Response(b"", tagged, 304)
        return Response(self.plain, tagged, status, compressed=self.compressed)
