"""What caches may keep: tags that change when an answer would, and how long it may be kept without asking.

A tag covers what was asked, the instance's digest, which the engine keeps up to date, and whatever else an answer
shows: profiles, removals, the midnight that rank_change counts from. It is weak: `position` and `as_of` move on while
nothing that is ranked changes. The same tag never outlives the process.
"""

from __future__ import annotations

import secrets

from rankd.api.request import JSON, Header, Request
from rankd.boards import Boards
from rankd.reads.meaning import Meant

NO_STORE = [JSON, (b"cache-control", b"no-store")]
_CURRENT = (b"cache-control", b"public, max-age=1")
_FINAL = (b"cache-control", b"public, max-age=3600, stale-while-revalidate=86400")
TAGS_BYTES_MAX = 4_096  # of If-None-Match; a longer one is not looked at
_DECAY_STEP_MS = 1_000
_HASH_BITS = 0xFFFFFFFF


class Caching:
    """Makes the headers of reads that may be kept."""

    def __init__(self, boards: Boards, *, is_public: bool) -> None:
        """Where reads are not public, nobody may keep them."""
        self._boards = boards
        self._is_public = is_public
        self._epoch = secrets.token_hex(4)

    def tag(self, request: Request, meant: Meant) -> bytes:
        """Return the tag of what a read would answer now."""
        step = meant.now // _DECAY_STEP_MS if meant.board.decay is not None else 0
        fingerprint = self._boards.fingerprint_in(meant)
        return f'W/"{self._epoch}-{request.target & _HASH_BITS:x}-{fingerprint}-{step:x}"'.encode()

    def headers(self, request: Request, meant: Meant, tag: bytes) -> list[Header]:
        """Return the headers of a read; `weekly:previous` is final today and another week on Monday."""
        if not self._is_public:
            return NO_STORE
        query = request.query
        is_named = query.get("window") == meant.key.window or "cursor" in query
        return [JSON, (b"etag", tag), _FINAL if is_named and self._boards.is_final(meant) else _CURRENT]


def matches(if_none_match: bytes, tag: bytes) -> bool:
    """Tell whether a client has what it would get: any of its tags is this one, compared weakly."""
    if len(if_none_match) > TAGS_BYTES_MAX:
        return False
    opaque = tag.removeprefix(b"W/")
    return any(one.strip().removeprefix(b"W/") == opaque for one in if_none_match.split(b","))
