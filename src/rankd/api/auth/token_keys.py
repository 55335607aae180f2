"""The keys that verify JSON Web Tokens: a secret, a PEM file or a JWKS file.

Each key is bound to the algorithms of its own kind when it is loaded, so a token's `alg` can only agree or be refused:
an RSA key is never used as an HMAC secret.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from rankd.errors import InvalidValue

RSA_BITS_MIN = 2_048
FILE_BYTES_MAX = 1024 * 1024
CHECK_EVERY_S = 1.0
HMAC = ("HS256", "HS384", "HS512")
RSA = ("RS256", "RS384", "RS512")
CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_KINDS = {("RSA", None), ("EC", "P-256"), ("EC", "P-384"), ("EC", "P-521")}  # of keys in a JWKS file

_log = logging.getLogger("rankd")


class VerificationKey:
    """One key with its algorithms. Not a dataclass: a repr could show the secret."""

    __slots__ = ("algorithms", "id", "material")

    def __init__(
        self, material: bytes | RSAPublicKey | EllipticCurvePublicKey, algorithms: tuple[str, ...], key_id: str | None
    ) -> None:
        """`key_id` is the tokens' `kid`; None when they need none."""
        self.material = material
        self.algorithms = algorithms
        self.id = key_id


class VerificationKeys:
    """All keys in force; immutable, and replaced as a whole."""

    def __init__(self, keys: list[VerificationKey]) -> None:
        """Take one key, or several with an id each."""
        self._only = keys[0] if len(keys) == 1 else None
        self._by_id = {key.id: key for key in keys}

    def choose(self, key_id: str | None) -> VerificationKey | None:
        """Return a token's key by its `kid`, which may be missing when there is only one key."""
        if self._only is not None:
            return self._only if self._only.id is None or key_id in (None, self._only.id) else None
        return None if key_id is None else self._by_id.get(key_id)


def read_secret(field: str, secret: str) -> VerificationKeys:
    """Return the keys of a shared secret, whose length the configuration checked; no error repeats it."""
    material = secret.encode(errors="surrogatepass")
    try:
        jwt.get_algorithm_by_name("HS256").prepare_key(material)
    except jwt.InvalidKeyError:
        raise InvalidValue(field, "looks like a key of another kind; set its file as jwt_public_key") from None
    return VerificationKeys([VerificationKey(material, HMAC, None)])


def read_pem(field: str, text: bytes) -> VerificationKeys:
    """Return the key of a PEM file."""
    if b"PRIVATE KEY" in text:
        raise InvalidValue(field, "contains a private key; use the public one: `openssl pkey -pubout`")
    try:
        material = load_pem_public_key(text)
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidValue(field, "must be a file that begins with -----BEGIN PUBLIC KEY-----") from None
    if not isinstance(material, RSAPublicKey | EllipticCurvePublicKey):
        raise InvalidValue(field, "must contain an RSA key, or one of the curves P-256, P-384 and P-521")
    return VerificationKeys([VerificationKey(material, _algorithms(field, material), None)])


class _JsonWebKey(msgspec.Struct):
    kty: str
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    crv: str | None = None


class _JsonWebKeySet(msgspec.Struct):
    keys: list[msgspec.Raw]


def read_jwks(field: str, text: bytes) -> VerificationKeys:
    """Return the keys of a JWKS file that verify signatures; others are ignored."""
    keys = []
    try:
        for raw in msgspec.json.decode(text, type=_JsonWebKeySet).keys:
            key = _read_jwk(field, raw)
            if key is not None:
                keys.append(key)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise InvalidValue(field, 'must be a JWKS file: {"keys": [{"kty": "RSA", "kid": …, …}]}') from None
    if not keys:
        raise InvalidValue(field, "has no key to verify signatures with: RSA, or the curves P-256, P-384 and P-521")
    ids = [key.id for key in keys]
    if len(keys) > 1 and (None in ids or len(set(ids)) < len(ids)):
        raise InvalidValue(field, "has several keys, so each must have its own kid")
    return VerificationKeys(keys)


def _read_jwk(field: str, raw: msgspec.Raw) -> VerificationKey | None:
    description = msgspec.json.decode(raw, type=_JsonWebKey)
    if (description.kty, description.crv) not in _KINDS or description.use not in (None, "sig"):
        return None
    try:
        # The library's errors repeat the key.
        material = jwt.PyJWK(msgspec.json.decode(raw), "RS256" if description.kty == "RSA" else "ES256").key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise InvalidValue(field, "has a key that cannot be read") from None
    if not isinstance(material, RSAPublicKey | EllipticCurvePublicKey):
        raise InvalidValue(field, "contains a private key; use the public ones only")
    algorithms = _algorithms(field, material)
    if description.alg is not None:
        if description.alg not in algorithms:
            return None
        algorithms = (description.alg,)
    return VerificationKey(material, algorithms, description.kid)


def _algorithms(field: str, material: RSAPublicKey | EllipticCurvePublicKey) -> tuple[str, ...]:
    if isinstance(material, RSAPublicKey):
        if material.key_size < RSA_BITS_MIN:
            raise InvalidValue(field, f"has an RSA key of {material.key_size} bits; use one of {RSA_BITS_MIN} or more")
        return RSA
    if material.curve.name not in CURVES:
        raise InvalidValue(field, f"has a key of the curve {material.curve.name}; use P-256, P-384 or P-521")
    return (CURVES[material.curve.name],)


class KeyFile:
    """Keys in a file that a rotation may replace while the server runs; an invalid file leaves the keys unchanged."""

    def __init__(
        self,
        field: str,
        path: Path,
        read: Callable[[str, bytes], VerificationKeys],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the file; at the start an invalid one is refused."""
        self._field = field
        self._path = path
        self._read = read
        self._monotonic = monotonic
        self._checking = threading.Lock()
        self._checked_at = monotonic()
        self._stamp = self._read_stamp()
        self._keys = read(field, self._text())

    def current(self) -> VerificationKeys:
        """Return the keys; checks the file when the last check was a second ago."""
        now = self._monotonic()
        if now - self._checked_at >= CHECK_EVERY_S and self._checking.acquire(blocking=False):
            try:
                self._checked_at = now
                self._reload()
            finally:
                self._checking.release()
        return self._keys

    def _reload(self) -> None:
        # The stamp is read before the file: the next check finds a change in between.
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = self._read(self._field, self._text())
        except InvalidValue as problem:
            _log.warning("the keys for tokens are unchanged: %s", problem)
        else:
            _log.info("%s: keys were reloaded", self._field)

    def _read_stamp(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _text(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                text = file.read(FILE_BYTES_MAX + 1)
        except OSError as problem:
            raise InvalidValue(self._field, f"{self._path} cannot be read: {problem.strerror}") from None
        if len(text) > FILE_BYTES_MAX:
            raise InvalidValue(self._field, f"{self._path} has more than {FILE_BYTES_MAX} bytes; name a file of keys")
        return text
