"""One request to a server, not sent yet: its target, its body, and how to decode the answer."""

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
class ClientCall(Generic[T]):
    """One request; every attempt has the same key and body."""

    method: str
    target: str  # path and query, percent-encoded
    decode: Callable[[bytes], T]
    body: bytes | None = None
    key: str | None = None  # of a write: how the server recognises a repeat; None: a read
    is_signable: bool = False
    signing_secret: bytes | None = None  # in place of the client's own
    rename_field: Callable[[str], str] | None = None  # the caller's name of a field that the server refuses
    when_absent: Callable[[], T] | None = None  # the result where `player_absent` is no error


def target(*segments: str, query: Mapping[str, object] | None = None) -> str:
    """Return a path of version 1 of the API; each segment is percent-encoded, so it may be any player id.

    >>> target("boards", "arcade", "players", "a/b?", query={"limit": 3, "scope": "country:BR", "window": None})
    '/v1/boards/arcade/players/a%2Fb%3F?limit=3&scope=country%3ABR'
    """
    path = "/v1" + "".join(f"/{quote(segment, safe='')}" for segment in segments)
    parameters = [f"{name}={_quoted(name, value)}" for name, value in (query or {}).items() if value is not None]
    return f"{path}?{'&'.join(parameters)}" if parameters else path


def _quoted(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidValue(name, f"must be text or an integer; got {type(value).__name__}")
    try:
        return quote(str(value), safe="")
    except UnicodeEncodeError:
        raise InvalidValue(name, "must be valid Unicode; it contains a lone surrogate") from None


def encode(field: str, value: object) -> bytes:
    """Return a value as JSON; `field` names it in an error."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise InvalidValue(field, f"must be plain JSON; {problem}") from None


def key_for(key: str | None) -> str:
    """Return the key of a write, a random one by default."""
    if key is None:
        return secrets.token_hex(KEY_RANDOM_BYTES)
    check_text("key", key, KEY_BYTES_MAX)
    if not key.isascii() or key != key.strip(" "):
        raise InvalidValue("key", "must be ASCII without a space at either end, since it is sent in a header")
    return key


def secret_bytes(secret: str | bytes | None) -> bytes | None:
    """Return a signing secret as bytes; text is encoded as UTF-8."""
    if secret is None:
        return None
    if not isinstance(secret, str | bytes):
        raise InvalidValue("signing_secret", f"must be text or bytes; got {type(secret).__name__}")
    if not secret:
        raise InvalidValue("signing_secret", "must not be empty; leave it out to send without a signature")
    return secret if isinstance(secret, bytes) else secret.encode()


def listed(field: str, ids: Sequence[str]) -> list[str]:
    """Return ids as a list; a single text is refused."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence):
        raise InvalidValue(field, f"must be a list of ids; got {type(ids).__name__}")
    return list(ids)
