"""Who may do what: services by scope, players for themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rankd.api.auth.identity import (
    Identity,
    identity_of_key,
    identity_of_subject,
    require_identity,
    require_player_or_service,
    require_service,
)
from rankd.errors import Forbidden, Unauthenticated
from rankd.registry.credentials import Credential, Scope

SERVER = identity_of_key(Credential("1f", "server", frozenset({Scope.SCORES_WRITE}), None, 7))
ALICE = identity_of_key(Credential("2f", "phone", frozenset({Scope.READ}), "alice", 7))

Requirement = Callable[[Identity | None], Identity]


@pytest.mark.parametrize(
    "require",
    [
        require_identity,
        lambda identity: require_service(identity, Scope.SCORES_WRITE),
        lambda identity: require_player_or_service(identity, "alice", Scope.SCORES_WRITE),
    ],
)
def test_an_anonymous_sender_learns_to_send_a_credential(require: Requirement) -> None:
    with pytest.raises(Unauthenticated, match="this needs a credential: send `Authorization: Bearer`"):
        require(None)


def test_a_service_may_do_what_its_scopes_say() -> None:
    assert require_service(SERVER, "scores:write") is SERVER
    assert require_player_or_service(SERVER, "anybody", "scores:write") is SERVER
    missing = "needs the scope boards:admin, which the credential does not have"
    with pytest.raises(Forbidden, match=missing):
        require_service(SERVER, "boards:admin")
    with pytest.raises(Forbidden, match=missing):
        require_player_or_service(SERVER, "anybody", "boards:admin")


def test_one_scope_is_not_another() -> None:
    admin = identity_of_subject("admin", frozenset({Scope.BOARDS_ADMIN}), 7)
    for scope in Scope:
        assert admin.may(scope) == (scope == "boards:admin")


def test_a_player_acts_for_itself_only() -> None:
    assert require_player_or_service(ALICE, "alice", "players:write") is ALICE
    for other in ("bob", "Alice", "alice ", ""):
        with pytest.raises(Forbidden, match=r"acts for that player only; .* with the scope players:write"):
            require_player_or_service(ALICE, other, "players:write")


def test_a_player_who_may_read_is_no_service() -> None:
    """The scope is the same word; what it opens to a service is closed to players."""
    assert ALICE.may("read")
    with pytest.raises(Forbidden, match=r"a player's token may not do this; .* with the scope read"):
        require_service(ALICE, "read")


def test_a_refusal_names_neither_credential_nor_player() -> None:
    with pytest.raises(Forbidden) as refused:
        require_player_or_service(ALICE, "bob", "players:write")

    for name in ("alice", "bob", "phone"):
        assert name not in str(refused.value)
