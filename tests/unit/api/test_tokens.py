"""JSON Web Tokens that hold: whom they speak of, with what scopes, until when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from rankd import ManualClock
from rankd.api.auth.identity import Identity
from rankd.api.auth.tokens import TokenVerifier, open_tokens
from rankd.errors import InvalidValue, Unauthenticated
from rankd.registry.credentials import Scope

from .issuer import CLAIMS, NOW_S, SECRET, SERVICE, auth, ec_key, made, private_pem, public_pem, put, rsa_key


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_S * 1_000)


@pytest.fixture
def tokens(clock: ManualClock) -> TokenVerifier:
    return opened(clock, jwt_secret=SECRET)


def opened(clock: ManualClock, **sources: Any) -> TokenVerifier:
    verifier = open_tokens(auth(**sources), clock)
    assert verifier is not None
    return verifier


def verify(tokens: TokenVerifier, token: bytes) -> Identity:
    return tokens.verify(token, tokens.keys())


def test_a_token_speaks_for_its_player(tokens: TokenVerifier) -> None:
    identity = verify(tokens, made(CLAIMS))

    assert (identity.name, identity.account, identity.player) == ("player", "player:alice", "alice")
    assert (identity.scopes, identity.is_service, identity.expires_at) == (frozenset(), False, NOW_S + 3_605)


def test_a_token_with_a_service_scope_speaks_for_a_service(tokens: TokenVerifier) -> None:
    identity = verify(tokens, made(SERVICE))

    assert (identity.name, identity.account, identity.player) == ("jwt:match server", "jwt:match server", None)
    assert identity.is_service
    assert identity.scopes == {Scope.SCORES_WRITE, Scope.READ}


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({}, set()),
        ({"scope": ""}, set()),
        ({"scope": None}, set()),
        ({"scope": "read"}, {"read"}),
        ({"scope": "read  scores:write openid"}, {"read", "scores:write"}),
        ({"scopes": ["boards:admin", "email"]}, {"boards:admin"}),
        ({"scopes": []}, set()),
        ({"scope": "read", "scopes": ["players:write"]}, {"read", "players:write"}),
        ({"scope": "scores:write,read"}, set()),
        ({"scope": "SCORES:WRITE"}, set()),
        ({"scopes": ["scores:write read"]}, set()),
        ({"scp": "scores:write"}, set()),
    ],
)
def test_scopes_are_read_and_unknown_ones_are_nothing(
    tokens: TokenVerifier, claims: dict[str, object], scopes: set[str]
) -> None:
    identity = verify(tokens, made({**CLAIMS, **claims}))

    assert identity.scopes == scopes
    assert identity.is_service == bool(scopes - {"read"})


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret_verifies_each_hmac(clock: ManualClock, algorithm: str) -> None:
    tokens = opened(clock, jwt_secret=SECRET)

    assert verify(tokens, made(CLAIMS, algorithm=algorithm, kid="whatever")).player == "alice"


def test_thirty_two_bytes_are_enough_for_each_hmac(clock: ManualClock) -> None:
    secret = "0123456789abcdef" * 2
    tokens = opened(clock, jwt_secret=secret)
    with pytest.warns(UserWarning, match="HMAC key is 32 bytes"):
        token = made(CLAIMS, secret, "HS512")

    assert verify(tokens, token).player == "alice"


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512"])
def test_an_rsa_key_verifies_each_hash(tmp_path: Path, clock: ManualClock, algorithm: str) -> None:
    tokens = opened(clock, jwt_public_key=str(put(tmp_path / "key.pem", public_pem(rsa_key()))))

    assert verify(tokens, made(CLAIMS, rsa_key(), algorithm)).player == "alice"
    assert verify(tokens, made(CLAIMS, rsa_key(), algorithm, kid="any")).player == "alice"


@pytest.mark.parametrize(
    ("curve", "algorithm"), [(ec.SECP256R1, "ES256"), (ec.SECP384R1, "ES384"), (ec.SECP521R1, "ES512")]
)
def test_a_curve_has_one_algorithm(
    tmp_path: Path, clock: ManualClock, curve: type[ec.EllipticCurve], algorithm: str
) -> None:
    tokens = opened(clock, jwt_public_key=str(put(tmp_path / "key.pem", public_pem(ec_key(curve)))))

    assert verify(tokens, made(CLAIMS, ec_key(curve), algorithm)).player == "alice"


@pytest.mark.parametrize("aud", ["rankd", ["other", "rankd"]])
def test_a_token_may_name_several_audiences(tokens: TokenVerifier, aud: object) -> None:
    assert verify(tokens, made({**CLAIMS, "aud": aud})).player == "alice"


def test_a_token_holds_to_its_end_and_the_leeway(tokens: TokenVerifier, clock: ManualClock) -> None:
    token = made({**CLAIMS, "exp": NOW_S + 10, "nbf": NOW_S + 5})
    assert verify(tokens, token).expires_at == NOW_S + 15
    clock.set((NOW_S + 15) * 1_000 - 1)
    assert verify(tokens, token).player == "alice"
    clock.set((NOW_S + 15) * 1_000)
    with pytest.raises(Unauthenticated, match="has expired; get a new one"):
        verify(tokens, token)


def test_a_token_does_not_hold_before_its_time(tokens: TokenVerifier, clock: ManualClock) -> None:
    token = made({**CLAIMS, "nbf": NOW_S + 6})
    with pytest.raises(Unauthenticated, match="is not valid yet"):
        verify(tokens, token)
    clock.advance(1_000)
    assert verify(tokens, token).player == "alice"


def test_times_may_have_fractions(tokens: TokenVerifier) -> None:
    identity = verify(tokens, made({**CLAIMS, "exp": NOW_S + 1.9, "nbf": NOW_S - 0.5}))

    assert identity.expires_at == NOW_S + 6


@pytest.mark.parametrize("exp", [10**12, 10**40, 1e300])
def test_never_is_a_long_time(tokens: TokenVerifier, exp: float) -> None:
    assert verify(tokens, made({**CLAIMS, "exp": exp})).expires_at == 253_402_300_804


@pytest.mark.parametrize("player", ["a", "Zoë", "x" * 128, "jwt:admin", "key/with?marks"])
def test_any_player_can_have_a_token(tokens: TokenVerifier, player: str) -> None:
    assert verify(tokens, made({**CLAIMS, "sub": player})).player == player


def test_a_long_name_of_a_service_is_shortened_and_stays_its_own(tokens: TokenVerifier) -> None:
    long = ["é" * 100 + "1", "é" * 100 + "2", "a" * 5_000, "a" * 125]
    identities = [verify(tokens, made({**SERVICE, "sub": sub})) for sub in long]

    assert all(len(identity.name.encode()) <= 128 for identity in identities)
    assert (
        len({identity.name for identity in identities})
        == len({identity.account for identity in identities})
        == len(long)
    )
    assert all(identity.name.startswith("jwt#") for identity in identities)
    assert verify(tokens, made({**SERVICE, "sub": "a" * 124})).name == "jwt:" + "a" * 124


def test_no_key_means_no_tokens(clock: ManualClock) -> None:
    assert open_tokens(auth(), clock) is None


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ({"jwt_secret": "x" * 31}, "auth.jwt_secret: must be at least 32 bytes"),
        ({"jwt_secret": SECRET, "jwt_jwks": "keys.json"}, "auth.jwt_jwks: must not be set beside auth.jwt_secret"),
        ({"jwt_secret": SECRET, "jwt_issuer": ""}, "auth.jwt_issuer: must be set with auth.jwt_secret"),
        ({"jwt_secret": SECRET, "jwt_audience": ""}, "auth.jwt_audience: must be set with auth.jwt_secret"),
        ({"jwt_public_key": "not-there.pem"}, "auth.jwt_public_key: not-there.pem cannot be read"),
        ({"jwt_jwks": "not-there.json"}, "auth.jwt_jwks: not-there.json cannot be read"),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(
    clock: ManualClock, sources: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        open_tokens(auth(**sources), clock)

    assert str(refused.value).startswith(problem)


def test_a_key_of_another_kind_is_no_secret(clock: ManualClock) -> None:
    for pem in (public_pem(rsa_key()), private_pem(rsa_key())):
        with pytest.raises(InvalidValue, match="a key of another kind") as refused:
            open_tokens(auth(jwt_secret=pem.decode()), clock)
        assert pem.decode()[40:60] not in str(refused.value)


def test_nothing_shows_the_secret(clock: ManualClock) -> None:
    tokens = opened(clock, jwt_secret=SECRET)
    keys = tokens.keys()
    with pytest.raises(InvalidValue) as refused:
        open_tokens(auth(jwt_secret=SECRET[:20]), clock)

    for value in (tokens, keys, keys.choose(None), refused.value):
        for text in (repr(value), str(value)):
            assert SECRET[:20] not in text
