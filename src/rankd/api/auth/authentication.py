"""Authenticate the header `Authorization`: an API key or a JSON Web Token.

    Authorization: Bearer … → SHA-256 → cache: identity, expiry
                                      └ a new token → verified, cached until it expires

An API key that is not in memory is looked up in its store before it is refused: see key_lookup.py.
Most requests cost one hash and one lookup in a dict. Both caches belong to the keys they were made from: when keys are
created, revoked or replaced, there is a new keys object, and the caches start empty.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

from rankd.api.auth.identity import Identity, identity_of_key
from rankd.api.auth.token_keys import VerificationKeys
from rankd.api.auth.tokens import TOKEN_BYTES_MAX, TokenVerifier
from rankd.clock import Clock
from rankd.errors import Unauthenticated
from rankd.registry.credentials import KEY_PREFIX, Credential, Credentials

TOKENS_REMEMBERED_MAX = 10_000
_SCHEME = b"bearer "
_KEY_PREFIX = KEY_PREFIX.encode()

CachedIdentity = tuple[Identity, int | None]  # and its expiry in ms since 1970


def check_bearer(authorization: bytes | None, token: bytes) -> None:
    """Refuse a header without this token, in constant time."""
    sent = b"" if authorization is None else authorization
    is_bearer = sent[: len(_SCHEME)].lower() == _SCHEME
    if not compare_digest(sent[len(_SCHEME) :].strip(b" \t"), token) or not is_bearer:
        raise Unauthenticated("the header must be `Authorization: Bearer` with the token in server.metrics_token")


class Authenticator:
    """Identifies senders; may be called from any thread."""

    def __init__(self, credentials: Credentials, tokens: TokenVerifier | None, clock: Clock) -> None:
        """`tokens` is None where only API keys are accepted."""
        self._credentials = credentials
        self._tokens = tokens
        self._clock = clock
        # Each cache with the keys it was made from.
        self._identities: tuple[Mapping[bytes, Credential] | None, dict[bytes, CachedIdentity]] = (None, {})
        self._key_ids: tuple[Mapping[bytes, Credential] | None, frozenset[str]] = (None, frozenset())
        self._verified: tuple[VerificationKeys | None, OrderedDict[bytes, CachedIdentity]] = (None, OrderedDict())
        self._verified_lock = threading.Lock()

    def identify(self, authorization: bytes | None) -> Identity | None:
        """Return the sender, None without a credential; raises Unauthenticated for an invalid one."""
        if authorization is None:
            return None
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            raise Unauthenticated("the header must be `Authorization: Bearer` with an API key or a JSON Web Token")
        if len(authorization) > len(_SCHEME) + TOKEN_BYTES_MAX:
            raise Unauthenticated(f"the token is too long; it may have {TOKEN_BYTES_MAX} bytes")
        token = authorization[len(_SCHEME) :].strip(b" \t")
        digest = sha256(token).digest()
        identity, ends = self._of_key(digest) if token.startswith(_KEY_PREFIX) else self._of_token(token, digest)
        if ends is not None and self._clock.now() >= ends:
            raise Unauthenticated("the credential has expired; get a new one")
        return identity

    def unknown_key(self, authorization: bytes | None) -> bytes | None:
        """Return the SHA-256 of the header's API key if it is not in memory; None otherwise."""
        if authorization is None or len(authorization) > len(_SCHEME) + TOKEN_BYTES_MAX:
            return None
        token = authorization[len(_SCHEME) :].strip(b" \t")
        if authorization[: len(_SCHEME)].lower() != _SCHEME or not token.startswith(_KEY_PREFIX):
            return None
        digest = sha256(token).digest()
        return None if self.knows(digest) else digest

    def knows(self, digest: bytes) -> bool:
        """Tell whether an API key is in memory, by its SHA-256."""
        return digest in self._credentials.known

    def refresh(self) -> None:
        """Read the API keys that other processes created or revoked; waits for their store."""
        self._credentials.refresh()

    def check(self, identity: Identity) -> None:
        """Raise Unauthenticated if the credential has expired or was revoked since it was identified."""
        if identity.expires_at is not None and self._clock.now() >= identity.expires_at * 1_000:
            raise Unauthenticated("the credential has expired; get a new one")
        if self.is_revoked(identity):
            raise Unauthenticated("the API key has been revoked; use another one")

    def is_revoked(self, identity: Identity) -> bool:
        """Tell whether the sender's API key has been revoked since it was identified."""
        if identity.key is None:
            return False
        known = self._credentials.known
        made_from, ids = self._key_ids
        if made_from is not known:
            ids = frozenset(credential.id for credential in known.values())
            self._key_ids = (known, ids)
        return identity.key not in ids

    def _of_key(self, digest: bytes) -> CachedIdentity:
        known = self._credentials.known
        made_from, identities = self._identities
        if made_from is not known:
            identities = {}
            self._identities = (known, identities)
        cached = identities.get(digest)
        if cached is None:
            credential = known.get(digest)
            if credential is None:
                raise Unauthenticated("the API key is not known here; it may have been revoked")
            cached = identities[digest] = (identity_of_key(credential), credential.expires_at)
        return cached

    def _of_token(self, token: bytes, digest: bytes) -> CachedIdentity:
        if self._tokens is None:
            raise Unauthenticated("the token is not an API key, and this server accepts no other tokens")
        keys = self._tokens.keys()
        made_from, verified = self._verified
        if made_from is not keys:
            verified = OrderedDict()
            self._verified = (keys, verified)
        cached = verified.get(digest)
        if cached is None:
            identity = self._tokens.verify(token, keys)
            cached = (identity, None if identity.expires_at is None else identity.expires_at * 1_000)
            with self._verified_lock:
                verified[digest] = cached
                if len(verified) > TOKENS_REMEMBERED_MAX:
                    verified.popitem(last=False)
        return cached
