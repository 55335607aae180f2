"""Who may make a call, where that depends on whom it is about."""

from __future__ import annotations

from rankd.api.identity import Identity, require_identity
from rankd.errors import Forbidden
from rankd.registry.credentials import Scope


def require_reader(identity: Identity | None, player: str | None) -> None:
    """Let those read who may where reads are not public: services, whoever has `read`, and players about themselves."""
    reader = require_identity(identity)
    if not (reader.is_service or reader.may(Scope.READ) or (player is not None and reader.player == player)):
        raise Forbidden("reads are not public here: a player's token without the scope read may read its own rank only")


def require_own(identity: Identity | None, player: str) -> None:
    """Let a player, and any service, see what is the player's own."""
    reader = require_identity(identity)
    if not reader.is_service and reader.player != player:
        raise Forbidden("a player's token may see that player's own friends only")
