"""The sender of a request: a service or a single player, and what they may do."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from rankd.errors import Forbidden, Unauthenticated
from rankd.registry.credentials import SERVICE_SCOPES, Credential, Scope

NAME_BYTES_MAX = 128
PLAYER = "player"
_HASH_DIGITS = 32


class Identity(msgspec.Struct, frozen=True):
    """The holder of a credential; it contains nothing of the credential itself."""

    name: str  # the sender in the ledger
    account: str  # the owner of idempotency keys
    scopes: frozenset[Scope]
    player: str | None  # it acts for this player; None for a service
    expires_at: int | None  # s since 1970, rounded down; None: never
    key: str | None = None  # the id of its API key, which may be revoked; None for a JSON Web Token

    @property
    def is_service(self) -> bool:
        """Whether it is a service, not a single player."""
        return self.player is None

    def may(self, scope: str) -> bool:
        """Tell whether it has a scope."""
        return scope in self.scopes


def identity_of_key(credential: Credential) -> Identity:
    """Return the holder of an API key."""
    expires_at = None if credential.expires_at is None else credential.expires_at // 1_000
    if credential.player is not None:
        return _player(credential.player, credential.scopes, expires_at, credential.id)
    return Identity(credential.name, f"key:{credential.id}", credential.scopes, None, expires_at, credential.id)


def identity_of_subject(subject: str, scopes: frozenset[Scope], expires_at: int) -> Identity:
    """Return the subject of a JSON Web Token: a service by name, or the player."""
    if SERVICE_SCOPES.isdisjoint(scopes):
        return _player(subject, scopes, expires_at)
    name = f"jwt:{subject}"
    if len(name.encode()) > NAME_BYTES_MAX:
        # A readable beginning, and a hash that makes it unique.
        digest = sha256(subject.encode()).hexdigest()[:_HASH_DIGITS]
        start = subject.encode()[: NAME_BYTES_MAX - _HASH_DIGITS - len("jwt#~")].decode(errors="ignore")
        name = f"jwt#{start}~{digest}"
    return Identity(name, name, scopes, None, expires_at)


def _player(player: str, scopes: frozenset[Scope], expires_at: int | None, key: str | None = None) -> Identity:
    return Identity(PLAYER, f"player:{player}", scopes, player, expires_at, key)


def require_identity(identity: Identity | None) -> Identity:
    """Return the sender, or raise Unauthenticated."""
    if identity is None:
        raise Unauthenticated(
            "this needs a credential: send `Authorization: Bearer` with an API key or a JSON Web Token"
        )
    return identity


def require_service(identity: Identity | None, scope: str) -> Identity:
    """Return the sender if it is a service with a scope, or raise Forbidden."""
    holder = require_identity(identity)
    if not holder.is_service:
        raise Forbidden(f"a player's token may not do this; use one of a service, with the scope {scope}")
    if not holder.may(scope):
        raise Forbidden(f"this needs the scope {scope}, which the credential does not have; use one that does")
    return holder


def require_player_or_service(identity: Identity | None, player: str, scope: str) -> Identity:
    """Return the sender if it is this player or a service with a scope, or raise Forbidden."""
    holder = require_identity(identity)
    if holder.is_service:
        return require_service(holder, scope)
    if holder.player != player:
        raise Forbidden(
            f"a player's token acts for that player only; for others use one of a service, with the scope {scope}"
        )
    return holder
