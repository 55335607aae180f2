"""HTTP caching: entity tags that change whenever an answer would, and how long an answer may be cached.

A tag covers the request, the instance's digest, which the engine maintains, and whatever else an answer shows:
profiles, removals, the midnight that rank_change counts from. It is weak: `position` and `as_of` move on while no
rank changes. A tag never outlives the process.
"""

from __future__ import annotations

import secrets

from rankd.api.http.request import JSON, Header, Request
from rankd.boards import Boards
from rankd.reads.instance_ref import InstanceRef

NO_STORE = [JSON, (b"cache-control", b"no-store")]
_CURRENT = (b"cache-control", b"public, max-age=1")
_FINAL = (b"cache-control", b"public, max-age=3600, stale-while-revalidate=86400")
TAGS_BYTES_MAX = 4_096  # of If-None-Match; a longer one is ignored
_DECAY_STEP_MS = 1_000
_HASH_BITS = 0xFFFFFFFFFFFFFFFF


class Caching:
    """Makes the caching headers of reads."""

    def __init__(self, boards: Boards, *, is_public: bool) -> None:
        """Where reads are not public, they are not cached."""
        self._boards = boards
        self._is_public = is_public
        self._epoch = secrets.token_hex(4).encode()

    def tag(self, request: Request, ref: InstanceRef) -> bytes:
        """Return the tag of a read's answer."""
        step = 0 if ref.board.decay is None else ref.now // _DECAY_STEP_MS
        content = hash((request.target, self._boards.fingerprint_in(ref), step))
        return b'W/"%b-%x"' % (self._epoch, content & _HASH_BITS)

    def headers(self, request: Request, ref: InstanceRef, tag: bytes) -> list[Header]:
        """Return the headers of a read; `weekly:previous` is final today and means another week on Monday."""
        if not self._is_public:
            return NO_STORE
        query = request.query
        is_named = bool(query) and (query.get("window") == ref.key.window or "cursor" in query)
        return [JSON, (b"etag", tag), _FINAL if is_named and self._boards.is_final(ref) else _CURRENT]


def matches(if_none_match: bytes, tag: bytes) -> bool:
    """Tell whether one of a client's tags is this one, compared weakly."""
    if len(if_none_match) > TAGS_BYTES_MAX:
        return False
    opaque = tag.removeprefix(b"W/")
    return any(tag.strip().removeprefix(b"W/") == opaque for tag in if_none_match.split(b","))
