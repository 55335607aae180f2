"""The keys of tokens in files: what is taken for a key, how tokens choose among them, how they are replaced."""

from __future__ import annotations

import logging
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rankd import ManualClock
from rankd.api.auth.authentication import Authenticator
from rankd.api.auth.identity import Identity
from rankd.api.auth.token_keys import FILE_BYTES_MAX, KeyFile, VerificationKeys, read_jwks, read_pem
from rankd.api.auth.tokens import TokenVerifier, open_tokens
from rankd.errors import InvalidValue, Unauthenticated
from rankd.registry.sqlite.credentials import SqliteCredentials

from .issuer import (
    AUDIENCE,
    CLAIMS,
    ISSUER,
    NOW_S,
    auth,
    ec_key,
    jwks,
    made,
    private_pem,
    public_jwk,
    public_pem,
    put,
    rsa_key,
)


class Ticking:
    """A clock that only goes on when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def ticking() -> Ticking:
    return Ticking()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_S * 1_000)


def verifier(keys: VerificationKeys, clock: ManualClock) -> TokenVerifier:
    return TokenVerifier(lambda: keys, ISSUER, AUDIENCE, 5, clock)


def holds(tokens: TokenVerifier, token: bytes) -> bool:
    try:
        return isinstance(tokens.verify(token, tokens.keys()), Identity)
    except Unauthenticated:
        return False


def test_one_key_needs_no_kid_but_a_wrong_one_is_wrong(clock: ManualClock) -> None:
    tokens = verifier(read_jwks("keys", jwks(public_jwk(rsa_key(), "first")).encode()), clock)

    assert holds(tokens, made(CLAIMS, rsa_key(), "RS256"))
    assert holds(tokens, made(CLAIMS, rsa_key(), "RS256", kid="first"))
    assert not holds(tokens, made(CLAIMS, rsa_key(), "RS256", kid="second"))


def test_one_key_without_a_name_goes_by_any(clock: ManualClock) -> None:
    tokens = verifier(read_jwks("keys", jwks(public_jwk(ec_key(), None)).encode()), clock)

    assert holds(tokens, made(CLAIMS, ec_key(), "ES256"))
    assert holds(tokens, made(CLAIMS, ec_key(), "ES256", kid="any"))


def test_of_several_keys_the_kid_chooses(clock: ManualClock) -> None:
    keys = jwks(public_jwk(rsa_key(0), "first"), public_jwk(rsa_key(1), "second"), public_jwk(ec_key(), "curve"))
    tokens = verifier(read_jwks("keys", keys.encode()), clock)

    assert holds(tokens, made(CLAIMS, rsa_key(0), "RS256", kid="first"))
    assert holds(tokens, made(CLAIMS, rsa_key(1), "RS512", kid="second"))
    assert holds(tokens, made(CLAIMS, ec_key(), "ES256", kid="curve"))
    assert not holds(tokens, made(CLAIMS, rsa_key(0), "RS256"))
    assert not holds(tokens, made(CLAIMS, rsa_key(0), "RS256", kid="second"))


def test_a_key_that_names_its_algorithm_takes_no_other(clock: ManualClock) -> None:
    tokens = verifier(read_jwks("keys", jwks(public_jwk(rsa_key(), "first", alg="RS512")).encode()), clock)

    assert holds(tokens, made(CLAIMS, rsa_key(), "RS512"))
    assert not holds(tokens, made(CLAIMS, rsa_key(), "RS256"))


def test_keys_for_something_else_are_passed_over(clock: ManualClock) -> None:
    keys = jwks(
        public_jwk(rsa_key(0), "first", use="sig"),
        public_jwk(rsa_key(1), "second", use="enc"),
        public_jwk(rsa_key(1), "third", alg="PS256"),
        public_jwk(ec_key(ec.SECP256K1), "coins"),
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
        {"kty": "new"},
    )
    tokens = verifier(read_jwks("keys", keys.encode()), clock)

    assert holds(tokens, made(CLAIMS, rsa_key(0), "RS256"))
    assert not holds(tokens, made(CLAIMS, rsa_key(1), "RS256", kid="second"))
    assert not holds(tokens, made(CLAIMS, "secret-secret-secret-secret-secret", "HS256", kid="shared"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must be a JWKS file"),
        ("[]", "must be a JWKS file"),
        ("{}", "must be a JWKS file"),
        ('{"keys": {}}', "must be a JWKS file"),
        ('{"keys": [7]}', "must be a JWKS file"),
        ('{"keys": [{"kty": 7}]}', "must be a JWKS file"),
        ('{"keys": [{"kty": "RSA", "kid": 7}]}', "must be a JWKS file"),
        ("\ud800", "must be a JWKS file"),
        ('{"keys": ' + "[" * 100_000, "must be a JWKS file"),
        ('{"keys": []}', "has no key to verify signatures with"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "has no key to verify signatures with"),
        ('{"keys": [{"kty": "RSA", "n": "AQAB", "e": 7}]}', "has a key that cannot be read"),
        ('{"keys": [{"kty": "RSA", "n": "AQAB"}]}', "has a key that cannot be read"),
        ('{"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]}', "has a key that cannot be read"),
        ('{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"}]}', "has a key that cannot be read"),
    ],
)
def test_what_is_no_jwks_file_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidValue, match=f"keys: {problem}"):
        read_jwks("keys", text.encode(errors="surrogatepass"))


def test_several_keys_have_a_name_each() -> None:
    for kids in ((None, "b"), ("a", "a")):
        keys = jwks(*(public_jwk(rsa_key(number), kid) for number, kid in enumerate(kids)))
        with pytest.raises(InvalidValue, match="each must have its own kid"):
            read_jwks("keys", keys.encode())


def test_a_private_key_has_no_business_here() -> None:
    private = jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(), as_dict=True)
    with pytest.raises(InvalidValue, match="contains a private key") as refused:
        read_jwks("keys", jwks(private).encode())
    assert private["d"] not in str(refused.value)
    for key in (rsa_key(), ec_key()):
        with pytest.raises(InvalidValue, match="contains a private key"):
            read_pem("key", private_pem(key))


def test_short_rsa_keys_are_refused() -> None:
    with pytest.raises(InvalidValue, match="an RSA key of 1024 bits; use one of 2048 or more"):
        read_pem("key", public_pem(rsa_key(9, 1_024)))
    with pytest.raises(InvalidValue, match="an RSA key of 1024 bits; use one of 2048 or more"):
        read_jwks("keys", jwks(public_jwk(rsa_key(9, 1_024), "short")).encode())


def test_other_keys_and_other_files_are_refused() -> None:
    edwards = ed25519.Ed25519PrivateKey.generate().public_key()
    for text, problem in (
        (b"", "must be a file that begins with"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "must be a file that begins with"),
        (edwards.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "must contain an RSA key, or one of"),
        (public_pem(ec_key(ec.SECP256K1)), "the curve secp256k1; use P-256, P-384 or P-521"),
    ):
        with pytest.raises(InvalidValue, match=problem):
            read_pem("key", text)


def test_a_file_of_keys_is_small(tmp_path: Path) -> None:
    path = put(tmp_path / "keys.json", b" " * (FILE_BYTES_MAX + 1))
    with pytest.raises(InvalidValue, match="has more than 1048576 bytes"):
        KeyFile("keys", path, read_jwks)


def test_a_replaced_file_is_read_again_within_a_second(tmp_path: Path, ticking: Ticking) -> None:
    path = put(tmp_path / "keys.json", jwks(public_jwk(rsa_key(0), "first")))
    file = KeyFile("keys", path, read_jwks, ticking)
    first = file.current()
    put(path, jwks(public_jwk(rsa_key(1), "second")))

    ticking.now_s += 0.9
    assert file.current() is first
    ticking.now_s += 0.1
    second = file.current()
    assert second.choose("second") is not None
    assert second.choose("first") is None
    ticking.now_s += 5
    assert file.current() is second


def test_a_broken_file_leaves_the_keys_and_is_said_once(
    tmp_path: Path, ticking: Ticking, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(tmp_path / "keys.json", jwks(public_jwk(rsa_key(0), "first")))
    file = KeyFile("auth.jwt_jwks", path, read_jwks, ticking)
    first = file.current()

    with caplog.at_level(logging.WARNING, "rankd"):
        put(path, '{"keys": [{"kty": "RSA", "n": "half a k')
        for _ in range(3):
            ticking.now_s += 1
            assert file.current() is first
        assert len(caplog.messages) == 1
        assert caplog.messages[0].startswith("the keys for tokens are unchanged: auth.jwt_jwks: must be a JWKS file")
        assert "half a k" not in caplog.text
        path.unlink()
        for _ in range(3):
            ticking.now_s += 1
            assert file.current() is first
        assert len(caplog.messages) == 2
        assert "cannot be read: No such file" in caplog.messages[1]

    put(path, jwks(public_jwk(rsa_key(1), "second")))
    ticking.now_s += 1
    assert file.current().choose("second") is not None


def test_a_token_that_was_verified_goes_with_its_key(tmp_path: Path, clock: ManualClock) -> None:
    """A key that is taken out of the file takes along the tokens that were remembered."""
    path = put(tmp_path / "keys.json", jwks(public_jwk(rsa_key(0), "first"), public_jwk(rsa_key(1), "second")))
    tokens = open_tokens(auth(jwt_jwks=str(path)), clock)
    assert tokens is not None
    ticking = Ticking()
    file = KeyFile("auth.jwt_jwks", path, read_jwks, ticking)
    tokens.keys = file.current
    with SqliteCredentials(tmp_path, clock) as credentials:
        authenticator = Authenticator(credentials, tokens, clock)
        header = b"Bearer " + made(CLAIMS, rsa_key(0), "RS256", kid="first")
        assert authenticator.identify(header) is authenticator.identify(header) is not None

        put(path, jwks(public_jwk(rsa_key(1), "second")))
        ticking.now_s += 1

        with pytest.raises(Unauthenticated):
            authenticator.identify(header)
