"""Verify JSON Web Tokens with the configured kind of key, and check their claims by our own clock.

    header → key, by `kid` → signature → exp, nbf, iss, aud → sub and scopes → identity

The header only chooses among our own keys: `alg` must be one of the key's algorithms, and keys or URLs of keys in a
token are ignored. No refusal repeats any part of a token.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable
from pathlib import Path

import jwt
import msgspec
from jwt.algorithms import HMACAlgorithm

from rankd.api.auth.identity import Identity, identity_of_subject
from rankd.api.auth.token_keys import CURVES, HMAC, RSA, KeyFile, VerificationKeys, read_jwks, read_pem, read_secret
from rankd.clock import Clock
from rankd.config.checks import TOKEN_KEYS, check_auth
from rankd.config.model import AuthConfig
from rankd.domain.player import check_player
from rankd.domain.text import check_text
from rankd.errors import InvalidValue, Unauthenticated
from rankd.registry.credentials import SERVICE_SCOPES, Scope

TOKEN_BYTES_MAX = 8_192
END_S_MAX = 253_402_300_799  # the end of 9999
_SCOPES = {scope.value: scope for scope in Scope}
_UNVERIFIED = "the token cannot be verified; get another from where this one came from"


class _Hmac(HMACAlgorithm):
    """HMAC without PyJWT's check of the key's length, which was checked at the start."""

    def check_key_length(self, key: bytes) -> str | None:
        """Accept any length."""
        return None


def _signatures() -> jwt.PyJWS:
    signatures = jwt.PyJWS(algorithms=[*RSA, *CURVES.values()])
    for name, algorithm in zip(HMAC, (_Hmac.SHA256, _Hmac.SHA384, _Hmac.SHA512), strict=True):
        signatures.register_algorithm(name, _Hmac(algorithm))
    return signatures


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None


class _Claims(msgspec.Struct):
    sub: str
    iss: str
    aud: str | list[str]
    exp: int | float
    nbf: int | float | None = None
    scope: str | None = None
    scopes: list[str] | None = None


_read_header = msgspec.json.Decoder(_Header).decode
_read_claims = msgspec.json.Decoder(_Claims).decode


class TokenVerifier:
    """Verifies tokens; may be called from any thread."""

    def __init__(
        self, keys: Callable[[], VerificationKeys], issuer: str, audience: str, leeway_s: int, clock: Clock
    ) -> None:
        """`keys` returns the keys in force, the same object as long as they do not change."""
        self.keys = keys
        self._issuer = issuer
        self._audience = audience
        self._leeway_s = leeway_s
        self._clock = clock
        self._signatures = _signatures()

    def verify(self, token: bytes, keys: VerificationKeys) -> Identity:
        """Return a token's identity, or raise Unauthenticated."""
        try:
            claims = _read_claims(self._payload(token, keys))
        except (jwt.PyJWTError, msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            # The cause is left out: it may contain parts of the token or of a key.
            raise Unauthenticated(_UNVERIFIED) from None
        return self._identity(claims)

    def _payload(self, token: bytes, keys: VerificationKeys) -> bytes:
        start = token.split(b".", 1)[0]
        header = _read_header(urlsafe_b64decode(start + b"=" * (-len(start) % 4)))
        key = keys.choose(header.kid)
        if key is None or header.alg not in key.algorithms:
            raise ValueError
        payload: bytes = self._signatures.decode_complete(token, key.material, key.algorithms)["payload"]
        return payload

    def _identity(self, claims: _Claims) -> Identity:
        now_s = self._clock.now() / 1_000
        ends_s = int(min(claims.exp, END_S_MAX)) + self._leeway_s
        if now_s >= ends_s:
            raise Unauthenticated("the token has expired; get a new one")
        if claims.nbf is not None and now_s + self._leeway_s < claims.nbf:
            raise Unauthenticated("the token is not valid yet: its `nbf` is in the future")
        if claims.iss != self._issuer:
            raise Unauthenticated("the token has another issuer: its `iss` is not the one expected here")
        if self._audience not in ([claims.aud] if isinstance(claims.aud, str) else claims.aud):
            raise Unauthenticated("the token is for another audience: its `aud` is not the one expected here")
        names = [*(claims.scope or "").split(" "), *(claims.scopes or [])]
        scopes = frozenset(_SCOPES[name] for name in names if name in _SCOPES)
        try:
            if scopes.isdisjoint(SERVICE_SCOPES):
                check_player(claims.sub, "sub")
            else:
                check_text("sub", claims.sub, TOKEN_BYTES_MAX)
        except InvalidValue:
            raise Unauthenticated("the token's `sub` is neither a player's id nor a name of a service") from None
        return identity_of_subject(claims.sub, scopes, ends_s)


def open_tokens(auth: AuthConfig, clock: Clock) -> TokenVerifier | None:
    """Return the verifier of a configuration, None without a key; refuse an invalid configuration."""
    check_auth(auth, str)
    if not any(getattr(auth, name) for name in TOKEN_KEYS):
        return None
    return TokenVerifier(_keys(auth), auth.jwt_issuer, auth.jwt_audience, auth.jwt_leeway_s, clock)


def _keys(auth: AuthConfig) -> Callable[[], VerificationKeys]:
    if auth.jwt_secret:
        keys = read_secret("auth.jwt_secret", auth.jwt_secret)
        return lambda: keys
    if auth.jwt_public_key:
        return KeyFile("auth.jwt_public_key", Path(auth.jwt_public_key), read_pem).current
    return KeyFile("auth.jwt_jwks", Path(auth.jwt_jwks), read_jwks).current
