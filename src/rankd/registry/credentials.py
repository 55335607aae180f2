"""Credentials: API keys, and the keys that sign submissions to a board.

    token → SHA-256 → `known`, in memory → the credential and its expiry

Promises:
- A creation or revocation is durable when the call returns, and visible at once in the same object.
- Changes of another process are visible after the next `refresh`, which is cheap when nothing changed.
- `find` and `signing_key` answer from memory, from any thread, also while `refresh` runs.
- The call that makes a token or a signing secret returns it, and no other does. Only the SHA-256 of a token is stored;
  a signing secret is stored as it is, since an HMAC needs it, and is wiped when it is revoked.
- Names are unique among credentials neither revoked nor expired. An id is never reused.
- Errors, texts and listings hold no token and no secret.

Not promised: that the result of `find` has not expired (see `holds_at`); that a file replaced while in use is noticed
before the next start.

May be imported by: the API, the command line, adapters. It imports no adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Protocol

import msgspec

from rankd.domain.instant import check_at
from rankd.domain.player import check_player
from rankd.domain.text import check_text
from rankd.errors import InvalidValue

NAME_BYTES_MAX = 64
KEY_PREFIX = "rk_"
SIGNING_PREFIX = "rs_"
# Names of other senders: the library, players, and services with a JSON Web Token.
RESERVED_NAMES = ("local", "player")
RESERVED_STARTS = ("jwt:", "jwt#")


class Scope(StrEnum):
    """What a credential may do."""

    SCORES_WRITE = "scores:write"
    PLAYERS_WRITE = "players:write"
    BOARDS_ADMIN = "boards:admin"
    READ = "read"


_SCOPES = tuple(scope.value for scope in Scope)
SERVICE_SCOPES = frozenset({Scope.SCORES_WRITE, Scope.PLAYERS_WRITE, Scope.BOARDS_ADMIN})


class Credential(msgspec.Struct, frozen=True):
    """An API key without its secret part."""

    id: str
    name: str  # the sender's name in the ledger
    scopes: frozenset[Scope]
    player: str | None  # the player it acts for; None for a service
    created_at: int  # ms since 1970
    expires_at: int | None = None  # ms since 1970; None: never

    @property
    def is_service(self) -> bool:
        """Whether it acts for a service rather than a single player."""
        return not SERVICE_SCOPES.isdisjoint(self.scopes)

    def holds_at(self, now: int) -> bool:
        """Return whether it has not expired at an instant in ms since 1970."""
        return self.expires_at is None or now < self.expires_at


class SigningKey(msgspec.Struct, frozen=True):
    """A key that boards refer to in `signing`, without its secret."""

    name: str
    created_at: int  # ms since 1970


class Credentials(Protocol):
    """May be called from any thread."""

    @property
    def known(self) -> Mapping[bytes, Credential]:
        """Active credentials by the SHA-256 of their token; an immutable mapping, replaced at each change."""
        ...

    def create(
        self, name: str, scopes: Collection[str], player: str | None = None, expires_at: int | None = None
    ) -> tuple[Credential, str]:
        """Create an API key, and return it with its token, which is not stored."""
        ...

    def create_first(
        self, name: str, scopes: Collection[str], keep: Callable[[str], None], player: str | None = None
    ) -> Credential | None:
        """Create the first API key ever, else return None; it is undone if `keep`, which stores its token, fails."""
        ...

    def list(self) -> tuple[Credential, ...]:
        """Return the credentials that were not revoked, including expired ones, by name."""
        ...

    def revoke(self, credential_id: str) -> bool:
        """Revoke a credential; False when no active one has that id."""
        ...

    def find(self, token: str | bytes) -> Credential | None:
        """Return the credential of a token, expired or not."""
        ...

    def create_signing_key(self, name: str) -> str:
        """Create a signing key, and return its secret, whose bytes are the HMAC key."""
        ...

    def signing_key(self, name: str) -> bytes | None:
        """Return a signing key's secret."""
        ...

    def list_signing_keys(self) -> tuple[SigningKey, ...]:
        """Return the signing keys by name."""
        ...

    def revoke_signing_key(self, name: str) -> bool:
        """Wipe a signing key: boards that refer to it refuse submissions until another has its name."""
        ...

    def refresh(self) -> None:
        """Read the changes of other processes; a failure leaves the memory unchanged."""
        ...


class NewCredential(msgspec.Struct, frozen=True):
    """The checked arguments of `create`."""

    name: str
    scopes: frozenset[Scope]
    player: str | None
    expires_at: int | None


def check_new_credential(
    name: object, scopes: Collection[object], player: object, expires_at: object, now: int
) -> NewCredential:
    """Check the arguments of `create`."""
    named = check_text("name", name, NAME_BYTES_MAX)
    if named in RESERVED_NAMES or named.startswith(RESERVED_STARTS):
        raise InvalidValue("name", f"must not be {named!r}, which the ledger reserves; choose another")
    checked = frozenset(_scope(scope) for scope in ((scopes,) if isinstance(scopes, str) else scopes))
    service = sorted(checked & SERVICE_SCOPES)
    if service and player is not None:
        raise InvalidValue(
            "player", f"cannot be given with {service[0]}: a service acts for every player; leave one of the two out"
        )
    if not service and player is None:
        raise InvalidValue(
            "player", f"must be given, since only {', '.join(sorted(SERVICE_SCOPES))} make a token that of a service"
        )
    until = None if expires_at is None else check_at(expires_at, "expires_at")
    if until is not None and until <= now:
        raise InvalidValue("expires_at", "must lie in the future: give it in ms since 1970")
    return NewCredential(named, checked, None if player is None else check_player(player), until)


def _scope(value: object) -> Scope:
    if isinstance(value, str) and value in _SCOPES:
        return Scope(value)
    raise InvalidValue("scopes", f"must be among {', '.join(_SCOPES)}; got {value!r:.40}")


def digest_of(token: str | bytes) -> bytes:
    """Return the SHA-256 of a token."""
    return sha256(token.encode(errors="surrogatepass") if isinstance(token, str) else token).digest()
