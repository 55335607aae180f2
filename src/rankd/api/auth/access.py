"""Who may read about whom, for reads, server-sent events and WebSocket alike.

Where reads are public, everybody sees everybody. Where they are not, services and credentials with the scope `read` do;
a player's token without it sees that player and mutual friends: players who have stored each other as friends.
"""

from __future__ import annotations

from rankd.api.auth.identity import Identity, require_identity
from rankd.errors import Forbidden
from rankd.registry.credentials import Scope


def sees_everybody(identity: Identity | None, *, is_public: bool) -> bool:
    """Tell whether the sender may read about every player; `is_public` is the server's `public_read`."""
    return is_public or (identity is not None and (identity.is_service or identity.may(Scope.READ)))


def require_reader(identity: Identity | None, player: str | None, *, is_public: bool) -> None:
    """Refuse a read about one player, or about all where `player` is None, to senders who may not see them."""
    if sees_everybody(identity, is_public=is_public):
        return
    reader = require_identity(identity)
    if player is None or reader.player != player:
        raise Forbidden(
            "reads are not public here: a player's token may read its own rank and mutual friends only; "
            "for anything else use a token with the scope read"
        )


def require_own(identity: Identity | None, player: str) -> None:
    """Allow only the player and services."""
    reader = require_identity(identity)
    if not reader.is_service and reader.player != player:
        raise Forbidden("a player's token may see that player's own friends only")


def require_past_reader(identity: Identity | None) -> None:
    """Allow reads of the past to services and administrators only: each instant costs the memory of all ranks."""
    if identity is None or not identity.is_service:
        raise Forbidden("as_of: is for services and administrators; send the credential of one, or leave it out")
