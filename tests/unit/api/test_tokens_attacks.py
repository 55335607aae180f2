"""JSON Web Tokens that do not hold: each is Unauthenticated, in a plain sentence that repeats nothing of it."""

from __future__ import annotations

import base64
import itertools
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankd import ManualClock
from rankd.api.auth.authentication import Authenticator
from rankd.api.auth.tokens import open_tokens
from rankd.errors import Unauthenticated
from rankd.registry.sqlite.credentials import SqliteCredentials

from .issuer import (
    CLAIMS,
    NOW_S,
    SECRET,
    SERVICE,
    auth,
    ec_key,
    forged,
    jwks,
    made,
    part,
    public_jwk,
    public_pem,
    put,
    rsa_key,
)

HS = {"alg": "HS256", "typ": "JWT"}

OpenAuthenticator = Callable[..., Authenticator]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_S * 1_000)


@pytest.fixture
def open_authenticator(tmp_path: Path, clock: ManualClock) -> OpenAuthenticator:
    credentials = SqliteCredentials(tmp_path, clock)
    credentials.close()

    def make(**sources: Any) -> Authenticator:
        return Authenticator(credentials, open_tokens(auth(**sources), clock), clock)

    return make


@pytest.fixture
def by_secret(open_authenticator: OpenAuthenticator) -> Authenticator:
    return open_authenticator(jwt_secret=SECRET)


@pytest.fixture
def by_rsa(open_authenticator: OpenAuthenticator, tmp_path: Path) -> Authenticator:
    return open_authenticator(jwt_public_key=str(put(tmp_path / "rsa.pem", public_pem(rsa_key()))))


@pytest.fixture
def by_several(open_authenticator: OpenAuthenticator, tmp_path: Path) -> Authenticator:
    keys = jwks(public_jwk(rsa_key(0), "first"), public_jwk(rsa_key(1), "second"), public_jwk(ec_key(), "curve"))
    return open_authenticator(jwt_jwks=str(put(tmp_path / "keys.json", keys)))


def assert_refused(authenticator: Authenticator, token: bytes) -> None:
    with pytest.raises(Unauthenticated) as refused:
        authenticator.identify(b"Bearer " + token)
    shown = "".join(traceback.format_exception(refused.value))
    for piece in token.split(b"."):
        if len(piece) > 8:
            assert piece.decode("latin-1") not in shown
    assert SECRET not in shown


def spellings(word: str) -> list[str]:
    return ["".join(letters) for letters in itertools.product(*({letter.lower(), letter.upper()} for letter in word))]


def test_the_issuer_makes_tokens_that_hold(
    by_secret: Authenticator, by_rsa: Authenticator, by_several: Authenticator
) -> None:
    """Without this the refusals below would prove nothing."""
    for authenticator, token in (
        (by_secret, made(CLAIMS)),
        (by_secret, forged(HS, CLAIMS)),
        (by_rsa, made(CLAIMS, rsa_key(), "RS256")),
        (by_several, made(CLAIMS, rsa_key(1), "RS256", kid="second")),
        (by_several, made(CLAIMS, ec_key(), "ES256", kid="curve")),
    ):
        identity = authenticator.identify(b"Bearer " + token)
        assert identity is not None
        assert identity.player == "alice"


@pytest.mark.parametrize("none", [*spellings("none"), "", " none", "none\x00", "null"])
def test_no_signature_is_no_signature(by_secret: Authenticator, by_rsa: Authenticator, none: str) -> None:
    unsigned = part({"alg": none, "typ": "JWT"}) + b"." + part(SERVICE) + b"."
    for authenticator in (by_secret, by_rsa):
        assert_refused(authenticator, unsigned)
        assert_refused(authenticator, unsigned + part(b"anything"))
        assert_refused(authenticator, forged({"alg": none}, SERVICE))
        assert_refused(authenticator, forged({"alg": none}, SERVICE, b""))


def test_a_public_key_is_no_secret(by_rsa: Authenticator, by_several: Authenticator) -> None:
    """Anybody knows it, so an HMAC keyed with it proves nothing."""
    pem = public_pem(rsa_key())
    for secret in (pem, pem.strip(), pem + b"\n", pem.replace(b"\n", b"\r\n"), b"".join(pem.splitlines()[1:-1])):
        for hashed, algorithm in (("sha256", "HS256"), ("sha384", "HS384"), ("sha512", "HS512")):
            assert_refused(by_rsa, forged({"alg": algorithm}, SERVICE, secret, hashed))
            assert_refused(by_several, forged({"alg": algorithm, "kid": "first"}, SERVICE, secret, hashed))
    assert_refused(by_several, forged({"alg": "HS256", "kid": "first"}, SERVICE, jwks().encode()))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "PS256", "HS128", "hs256", "HS256 ", "EdDSA", "dir", "A128KW"])
def test_another_algorithm_is_refused(by_secret: Authenticator, algorithm: str) -> None:
    assert_refused(by_secret, forged({"alg": algorithm}, SERVICE))


@pytest.mark.parametrize("algorithm", [None, 7, True, ["HS256"], {"HS256": 1}, {}])
def test_an_algorithm_is_a_word(by_secret: Authenticator, algorithm: object) -> None:
    assert_refused(by_secret, forged({"alg": algorithm}, SERVICE))
    assert_refused(by_secret, forged({"typ": "JWT"}, SERVICE))


def test_each_key_verifies_its_own_kind_only(by_rsa: Authenticator, by_several: Authenticator) -> None:
    assert_refused(by_rsa, made(SERVICE, rsa_key(), "PS256"))
    assert_refused(by_rsa, made(SERVICE, ec_key(), "ES256"))
    assert_refused(by_several, made(SERVICE, ec_key(), "ES256", kid="first"))
    assert_refused(by_several, made(SERVICE, rsa_key(0), "RS256", kid="curve"))
    assert_refused(by_several, made(SERVICE, ec_key(ec.SECP384R1), "ES384", kid="curve"))


def test_a_signature_with_no_key_or_another_is_refused(by_secret: Authenticator, by_rsa: Authenticator) -> None:
    for secret in (b"", b"\x00", SECRET.encode()[:-1], SECRET.upper().encode()):
        assert_refused(by_secret, forged(HS, SERVICE, secret))
    assert_refused(by_rsa, made(SERVICE, rsa_key(1), "RS256"))


@pytest.mark.parametrize(
    "kid",
    [
        *(None, "", "third", "FIRST", "first ", 7, ["first"], {"first": 1}, True),
        *("../../../../dev/null", "/dev/null", "file:///dev/null", "http://example.com/key", "keys.json"),
        *("first' OR '1'='1", "x' UNION SELECT 'secret' --", "first\x00", "x" * 4_000),
    ],
)
def test_a_kid_names_one_of_our_keys_or_nothing(by_several: Authenticator, kid: object) -> None:
    header = {"alg": "RS256"} if kid is None else {"alg": "RS256", "kid": kid}
    signed = part(header) + b"." + part(SERVICE)
    for key in (rsa_key(0), rsa_key(1)):
        signature = made(SERVICE, key, "RS256").rsplit(b".", 1)[1]
        assert_refused(by_several, signed + b"." + signature)
    assert_refused(by_several, forged({**header, "alg": "HS256"}, SERVICE, b""))


def test_a_token_of_one_key_is_not_that_of_another(by_several: Authenticator) -> None:
    assert_refused(by_several, made(SERVICE, rsa_key(0), "RS256"))
    assert_refused(by_several, made(SERVICE, rsa_key(0), "RS256", kid="second"))
    assert_refused(by_several, made(SERVICE, rsa_key(2), "RS256", kid="first"))


@pytest.mark.parametrize("where", ["jku", "x5u", "jwk", "x5c"])
def test_a_token_does_not_bring_its_own_key(by_rsa: Authenticator, by_several: Authenticator, where: str) -> None:
    own = public_jwk(rsa_key(2), "own")
    brought = {"jwk": own, "x5c": [base64.b64encode(public_pem(rsa_key(2))).decode()]}
    value = brought.get(where, "https://mallory.example/keys.json")
    for authenticator in (by_rsa, by_several):
        assert_refused(authenticator, made(SERVICE, rsa_key(2), "RS256", **{where: value}))
        assert_refused(authenticator, made(SERVICE, rsa_key(2), "RS256", **{where: value, "kid": "own"}))
        assert_refused(authenticator, made(SERVICE, rsa_key(2), "RS256", **{where: value, "kid": "first"}))


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": False}, {"b64": False}])
def test_what_must_be_understood_is_not_passed_over(by_secret: Authenticator, header: dict[str, object]) -> None:
    assert_refused(by_secret, forged({**HS, **header}, SERVICE))


@pytest.mark.parametrize(
    "wrong",
    [
        {"exp": NOW_S - 6},
        {"exp": 0},
        {"exp": -1},
        {"exp": "tomorrow"},
        {"exp": str(NOW_S + 3_600)},
        {"exp": True},
        {"exp": [NOW_S + 3_600]},
        {"nbf": NOW_S + 60},
        {"nbf": "now"},
        {"aud": "somebody-else"},
        {"aud": ["somebody-else"]},
        {"aud": []},
        {"aud": ""},
        {"aud": "rankd "},
        {"aud": {"rankd": True}},
        {"aud": ["rankd", 7]},
        {"iss": "https://mallory.example"},
        {"iss": ""},
        {"iss": ["https://login.example"]},
        {"sub": 7},
        {"sub": 7.5},
        {"sub": True},
        {"sub": ["alice"]},
        {"sub": {"id": "alice"}},
        {"sub": ""},
        {"sub": "line\nfeed"},
        {"sub": "nul\x00"},
        {"sub": "\x7f"},
        {"sub": "\ud800"},
        {"scope": {"scores:write": True}},
        {"scope": ["scores:write"]},
        {"scope": 7},
        {"scopes": "scores:write"},
        {"scopes": {"scores:write": True}},
        {"scopes": [7]},
        {"scopes": [["scores:write"]]},
    ],
    ids=repr,
)
def test_a_wrong_claim_is_refused(by_secret: Authenticator, wrong: dict[str, object]) -> None:
    for claims in (CLAIMS, SERVICE):
        assert_refused(by_secret, forged(HS, {**claims, **wrong}))


@pytest.mark.parametrize("missing", ["exp", "aud", "iss", "sub"])
def test_a_missing_claim_is_refused(by_secret: Authenticator, missing: str) -> None:
    for claims in (CLAIMS, SERVICE):
        assert_refused(by_secret, forged(HS, {name: value for name, value in claims.items() if name != missing}))
        assert_refused(by_secret, forged(HS, {**claims, missing: None}))


@pytest.mark.parametrize("sub", [".", "..", "x" * 129, "é" * 65])
def test_a_player_has_a_players_id(by_secret: Authenticator, sub: str) -> None:
    assert_refused(by_secret, forged(HS, {**CLAIMS, "sub": sub}))


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"null", b"[]", b'"alice"', b"7", b"{", b"{}", b"\xff\xfe", b"{'sub': 'alice'}", b"[" * 2_000),
        *(b'{"sub": ' + b"[" * 4_000, b'{"x": ' + b"[" * 2_500 + b"]" * 2_500 + b"}"),
        *(
            b'{"sub":"a","exp":1e999}',
            b'{"sub":"a","exp":NaN}',
            b'{"sub":"a","exp":Infinity}',
            b'\xef\xbb\xbf{"sub":"a"}',
        ),
    ],
)
def test_a_payload_is_an_object_of_claims(by_secret: Authenticator, payload: bytes) -> None:
    assert_refused(by_secret, forged(HS, payload))
    assert_refused(by_secret, forged(payload, CLAIMS))


@pytest.mark.parametrize("exp", [b"1e999", b"NaN", b"Infinity", b"-1e999", b"1" + b"0" * 5_000])
def test_a_time_without_end_is_no_time(by_secret: Authenticator, exp: bytes) -> None:
    claims = b'{"sub":"alice","iss":"https://login.example","aud":"rankd","exp":' + exp + b"}"
    assert_refused(by_secret, forged(HS, claims))


def test_bits_and_pieces_are_refused(by_secret: Authenticator) -> None:
    token = made(SERVICE)
    header, payload, signature = token.split(b".")
    for piece in (
        *(b"", b".", b"..", b"...", b"a.b.c", b"e30.e30.e30", b"\x00", b"\xff" * 40, "ключ".encode(), b"Bearer"),
        *(header, header + b"." + payload, header + b"." + payload + b".", b"." + payload + b"." + signature),
        *(token + b".", b"." + token, token.replace(b".", b".."), token + b"." + signature, token[:-2], token + b"A"),
        *(token.replace(b".", b". "), header + b"\xff." + payload + b"." + signature, header + b"=." + payload),
        *(header + b"." + payload + b"!." + signature, header + b"." + payload + b"." + signature + b"\xc3\xa9"),
        *(
            header + b"." + part(CLAIMS) + b"." + signature,
            part({**HS, "kid": "x"}) + b"." + payload + b"." + signature,
        ),
        *(b"%s" % token[::-1], b"null", b"undefined", b"[object Object]", b"{}", b'{"alg":"none"}'),
    ):
        assert_refused(by_secret, piece)


def test_a_token_is_of_limited_length(by_secret: Authenticator) -> None:
    long = made({**SERVICE, "sub": "x" * 1_000_000})
    with pytest.raises(Unauthenticated, match="too long; it may have 8192 bytes"):
        by_secret.identify(b"Bearer " + long)
    assert by_secret.identify(b"Bearer " + made({**SERVICE, "sub": "x" * 5_000})) is not None


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(token=st.binary(max_size=60) | st.lists(st.binary(max_size=20), max_size=5).map(b".".join))
def test_any_bytes_are_refused(by_secret: Authenticator, token: bytes) -> None:
    with pytest.raises(Unauthenticated):
        by_secret.identify(b"Bearer " + token)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=st.fixed_dictionaries({}, optional={"alg": JSON, "kid": JSON, "crit": JSON, "b64": JSON, "typ": JSON}),
    claims=st.fixed_dictionaries(
        {}, optional={"sub": JSON, "iss": JSON, "aud": JSON, "exp": JSON, "nbf": JSON, "scope": JSON}
    ),
)
def test_any_header_and_any_claims_are_refused(
    by_secret: Authenticator, by_several: Authenticator, header: dict[str, object], claims: dict[str, object]
) -> None:
    for authenticator in (by_secret, by_several):
        for token in (
            forged({**HS, **header}, claims),
            forged(header, CLAIMS),
            forged({**HS, **header}, {**CLAIMS, "iss": 1}),
        ):
            try:
                identity = authenticator.identify(b"Bearer " + token)
            except Unauthenticated:
                continue
            assert header.get("alg") == "HS256", identity
