"""Somebody who issues JSON Web Tokens, right ones and wrong ones."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from rankd.config.model import AuthConfig

NOW_S = 1_777_896_000
SECRET = " ".join(["long enough for every hash"] * 3)
ISSUER = "https://login.example"
AUDIENCE = "rankd"
CLAIMS: dict[str, Any] = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": NOW_S + 3_600}
SERVICE = {**CLAIMS, "sub": "match server", "scope": "scores:write read"}


@cache
def rsa_key(number: int = 0, bits: int = 2_048) -> rsa.RSAPrivateKey:
    """Return one of several keys, always the same by number."""
    return rsa.generate_private_key(65_537, bits)


@cache
def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1, number: int = 0) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def public_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_jwk(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, kid: str | None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any]
    if isinstance(key, rsa.RSAPrivateKey):
        made = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        made = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    made.pop("key_ops", None)
    return {**made, **({} if kid is None else {"kid": kid}), **more}


def put(path: Path, text: bytes | str) -> Path:
    """Replace a file as a whole, as a rotation does."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(text.encode() if isinstance(text, str) else text)
    draft.replace(path)
    return path


def jwks(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": list(keys)})


def auth(**sources: Any) -> AuthConfig:
    return AuthConfig(**{"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_leeway_s": 5, **sources})


def made(claims: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> bytes:
    """Return a token as a proper issuer makes it."""
    return jwt.encode(claims, key, algorithm, headers=headers or None).encode()


def part(value: object) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=")


def forged(header: object, claims: object, secret: bytes = SECRET.encode(), hashed: str = "sha256") -> bytes:
    """Return what no library would make: any header, any payload, with the HMAC of any bytes."""
    signed = part(header) + b"." + part(claims)
    return signed + b"." + part(hmac.new(secret, signed, getattr(hashlib, hashed)).digest())
