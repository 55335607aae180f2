"""Who may see whom: decided here for reads, server-sent events and WebSocket alike.

Where reads are public, everybody sees everybody. Where they are not, services and whoever has the scope `read` do; a
player's token without it sees that player, and of others only mutual friends: those whom the player has stored as
friends, and who have stored the player.
"""

from __future__ import annotations

from rankd.api.identity import Identity, require_identity
from rankd.errors import Forbidden
from rankd.registry.credentials import Scope


def sees_everybody(identity: Identity | None, *, is_public: bool) -> bool:
    """Tell whether somebody may read about every player; `is_public` is the server's `public_read`."""
    return is_public or (identity is not None and (identity.is_service or identity.may(Scope.READ)))


def require_reader(identity: Identity | None, player: str | None, *, is_public: bool) -> None:
    """Refuse a read about one player, or about all where `player` is None, to whoever may not see them."""
    if sees_everybody(identity, is_public=is_public):
        return
    reader = require_identity(identity)
    if player is None or reader.player != player:
        raise Forbidden(
            "reads are not public here: a player's token sees its own rank and mutual friends only; "
            "for anything else use a token with the scope read"
        )


def require_own(identity: Identity | None, player: str) -> None:
    """Let a player, and any service, see what is the player's own."""
    reader = require_identity(identity)
    if not reader.is_service and reader.player != player:
        raise Forbidden("a player's token may see that player's own friends only")
