"""One request to a server, described but not sent: where it goes, what it carries, how its answer is read."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec

from rankd.domain.text import check_text
from rankd.errors import InvalidValue
from rankd.intake.sender import KEY_BYTES_MAX

T = TypeVar("T")
KEY_RANDOM_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """What a verb asks of the server; it is sent as often as it takes, each time with the same key and body."""

    method: str
    target: str  # path and query, percent-encoded
    decode: Callable[[bytes], T]
    body: bytes | None = None
    key: str | None = None  # of a write: what the server recognises a repeat by; None: a read
    is_signable: bool = False
    signing_secret: bytes | None = None  # in place of the client's own
    field_as_given: Callable[[str], str] | None = None  # what the caller calls a field that the server refuses
    when_absent: Callable[[], T] | None = None  # what `player_absent` means where it is an answer and no error


def target(*segments: str, query: Mapping[str, object] | None = None) -> str:
    """Return a path of version 1 of the API; each segment is encoded whole, so that any player id can stand in one.

    >>> target("boards", "arcade", "players", "a/b?", query={"limit": 3, "scope": "country:BR", "window": None})
    '/v1/boards/arcade/players/a%2Fb%3F?limit=3&scope=country%3ABR'
    """
    path = "/v1" + "".join(f"/{quote(segment, safe='')}" for segment in segments)
    asked = [f"{name}={_quoted(name, value)}" for name, value in (query or {}).items() if value is not None]
    return f"{path}?{'&'.join(asked)}" if asked else path


def _quoted(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidValue(name, f"must be text or an integer; got {type(value).__name__}")
    try:
        return quote(str(value), safe="")
    except UnicodeEncodeError:
        raise InvalidValue(name, "must be valid Unicode; it holds a lone surrogate") from None


def encode(field: str, value: object) -> bytes:
    """Return a value as JSON; `field` is what to name when it cannot be."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise InvalidValue(field, f"must be plain JSON; {problem}") from None


def key_for(given: str | None) -> str:
    """Return the key of a write: the one given, or one that nobody has used."""
    if given is None:
        return secrets.token_hex(KEY_RANDOM_BYTES)
    key = check_text("key", given, KEY_BYTES_MAX)
    if not key.isascii() or key != key.strip(" "):
        raise InvalidValue("key", "must be ASCII without a space at either end, since it travels in a header")
    return key


def secret_bytes(secret: str | bytes | None) -> bytes | None:
    """Return a signing secret as the bytes that sign; text counts as its UTF-8."""
    if secret is None or isinstance(secret, bytes):
        found = secret
    elif isinstance(secret, str):
        found = secret.encode()
    else:
        raise InvalidValue("signing_secret", f"must be text or bytes; got {type(secret).__name__}")
    if found == b"":
        raise InvalidValue("signing_secret", "must not be empty; leave it out to send without a signature")
    return found


def listed(field: str, ids: Sequence[str]) -> list[str]:
    """Return ids as a list; a single text is not taken for many."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence):
        raise InvalidValue(field, f"must be a list of ids; got {type(ids).__name__}")
    return list(ids)
