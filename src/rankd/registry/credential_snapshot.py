"""The common part of the credential stores: the snapshot in memory, and the making of tokens and secrets."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from types import MappingProxyType

from rankd.errors import InvalidValue, LedgerNewer
from rankd.registry.credentials import KEY_PREFIX, SIGNING_PREFIX, Credential, Scope, SigningKey

SECRET_BYTES = 32
_ID_BYTES = 8


class CredentialSnapshot:
    """All active credentials as of one moment; immutable. It has no repr, since it holds secrets."""

    __slots__ = ("known", "secrets", "signing_keys")

    def __init__(
        self,
        known: Mapping[bytes, Credential],
        secrets: Mapping[str, bytes],
        signing_keys: Mapping[str, SigningKey],
    ) -> None:
        """`known` is by the SHA-256 of the token, the others by name."""
        self.known = known if isinstance(known, MappingProxyType) else MappingProxyType(known)
        self.secrets = secrets
        self.signing_keys = signing_keys

    def by_name(self) -> tuple[Credential, ...]:
        """Return the credentials by name."""
        return tuple(sorted(self.known.values(), key=lambda credential: credential.name))

    def signing_keys_by_name(self) -> tuple[SigningKey, ...]:
        """Return the signing keys by name."""
        return tuple(sorted(self.signing_keys.values(), key=lambda key: key.name))


def new_token() -> tuple[str, str]:
    """Make the id of an API key and its token."""
    credential_id = secrets.token_hex(_ID_BYTES)
    return credential_id, f"{KEY_PREFIX}{credential_id}_{_secret_text()}"


def new_signing_secret() -> str:
    """Make the secret of a signing key."""
    return SIGNING_PREFIX + _secret_text()


def _secret_text() -> str:
    return urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).rstrip(b"=").decode()


def scopes_text(scopes: Collection[Scope]) -> str:
    """Return scopes in their stored form."""
    return " ".join(sorted(scopes))


def read_scopes(stored: str, where: str) -> frozenset[Scope]:
    """Parse stored scopes; `where` is the store's name for errors."""
    try:
        return frozenset(map(Scope, stored.split()))
    except ValueError:
        raise LedgerNewer(f"{where} has scopes that this rankd does not know: upgrade rankd") from None


def name_taken(name: str) -> InvalidValue:
    """Return the error for a name that another API key has."""
    return InvalidValue("name", f"{name!r} is the name of another API key; revoke that one first, or choose another")


def signing_name_taken(name: str) -> InvalidValue:
    """Return the error for a name that another signing key has."""
    return InvalidValue("name", f"{name!r} is a signing key already; revoke that first, or choose another")
