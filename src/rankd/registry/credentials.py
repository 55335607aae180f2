"""Credentials: API keys, and the keys that submissions to a board are signed with.

    token → SHA-256 → `known`, in memory → who it is, until when

Promises:
- What was created or revoked is so durably when the call returns, and at once for whoever asks the same object.
- What another process changed holds here after the next `refresh`, which costs next to nothing when nothing changed.
- `find` and `signing_key` answer from memory, from any thread, also while `refresh` runs.
- A token and a signing secret are told once, by the call that makes them. Of a token only the SHA-256 is stored, so
  nobody can read it back; a signing secret is stored as it is, since an HMAC needs it, and is wiped when it is revoked.
- Names are unique among the living: those neither revoked nor expired. An id is never used again.
- Errors, texts and listings hold no token and no secret.

Not promised: that what `find` returns has not expired (who asks knows the time: see `holds_at`); that a file put in
place of the one in use is noticed before the next start.

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
# Senders of another kind: the library itself, players, and services with a JSON Web Token.
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
    name: str  # who it is in the ledger
    scopes: frozenset[Scope]
    player: str | None  # whom it acts for; None for a service
    created_at: int  # ms since 1970
    expires_at: int | None = None  # ms since 1970; None: never

    @property
    def is_service(self) -> bool:
        """Whether it acts for a service, and not for a single player."""
        return not SERVICE_SCOPES.isdisjoint(self.scopes)

    def holds_at(self, now: int) -> bool:
        """Tell whether it has not expired at an instant in ms since 1970."""
        return self.expires_at is None or now < self.expires_at


class SigningKey(msgspec.Struct, frozen=True):
    """A key that boards name in `signing`, without its secret."""

    name: str
    created_at: int  # ms since 1970


class Credentials(Protocol):
    """May be called from any thread."""

    @property
    def known(self) -> Mapping[bytes, Credential]:
        """The living by the SHA-256 of their token: never changed, but replaced by another when anything changes."""
        ...

    def create(
        self, name: str, scopes: Collection[str], player: str | None = None, expires_at: int | None = None
    ) -> tuple[Credential, str]:
        """Make an API key, and return it with its token, which nobody can learn later."""
        ...

    def create_first(
        self, name: str, scopes: Collection[str], keep: Callable[[str], None], player: str | None = None
    ) -> Credential | None:
        """Make an API key where there never was one, else None; it holds only if `keep` took its token safely."""
        ...

    def list(self) -> tuple[Credential, ...]:
        """Return the credentials that were not revoked, the expired among them, by name."""
        ...

    def revoke(self, credential_id: str) -> bool:
        """Let a credential hold no longer; False when none of that id did."""
        ...

    def find(self, token: str | bytes) -> Credential | None:
        """Return whose token this is, expired or not."""
        ...

    def create_signing_key(self, name: str) -> str:
        """Make a key to sign submissions with, and return its secret; its bytes are what the HMAC is keyed with."""
        ...

    def signing_key(self, name: str) -> bytes | None:
        """Return a signing key's secret."""
        ...

    def list_signing_keys(self) -> tuple[SigningKey, ...]:
        """Return the signing keys by name."""
        ...

    def revoke_signing_key(self, name: str) -> bool:
        """Wipe a signing key: boards that name it take no submissions until there is another of its name."""
        ...

    def refresh(self) -> None:
        """Take over what other processes changed; what is in memory stays as it is when that fails."""
        ...


class NewCredential(msgspec.Struct, frozen=True):
    """What `create` was asked for, found to make sense."""

    name: str
    scopes: frozenset[Scope]
    player: str | None
    expires_at: int | None


def check_new_credential(
    name: object, scopes: Collection[object], player: object, expires_at: object, now: int
) -> NewCredential:
    """Return what is to be created, or say why it cannot be."""
    named = check_text("name", name, NAME_BYTES_MAX)
    if named in RESERVED_NAMES or named.startswith(RESERVED_STARTS):
        raise InvalidValue("name", f"must not be {named!r}, which the ledger calls others by; choose another")
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
    """Return what a token is known by."""
    return sha256(token.encode(errors="surrogatepass") if isinstance(token, str) else token).digest()
