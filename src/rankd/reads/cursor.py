"""Cursors: the instance and the last entry's sort key, so that the next page skips no player who stays in place."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

import msgspec

from rankd.domain.instance import InstanceKey
from rankd.domain.order import TIE_FIELD_MAX, Kept
from rankd.errors import InvalidValue

CURSOR_CHARACTERS_MAX = 2_048


class Cursor(NamedTuple):
    """Where a page ended."""

    instance: str
    score: int
    tie: int
    player: str


def write_cursor(instance: InstanceKey, kept: Kept, player: str) -> str:
    """Return a cursor as text."""
    packed = msgspec.msgpack.encode(Cursor(instance.text, kept.score, kept.tie, player))
    return urlsafe_b64encode(packed).rstrip(b"=").decode()


def read_cursor(value: object) -> Cursor:
    """Parse a cursor; it must be the `next` of an answer."""
    if isinstance(value, str) and len(value) <= CURSOR_CHARACTERS_MAX and value.isascii():
        try:
            packed = urlsafe_b64decode(value + "=" * (-len(value) % 4))
            cursor = msgspec.msgpack.decode(packed, type=Cursor)
        except (ValueError, msgspec.DecodeError):
            cursor = None
        if cursor is not None and -(2**63) <= cursor.score < 2**63 and 0 <= cursor.tie <= TIE_FIELD_MAX:
            return cursor
    raise InvalidValue("cursor", "must be the `next` of an earlier page, unchanged")
