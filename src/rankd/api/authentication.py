"""From the header `Authorization` to who asks: by API key, or by JSON Web Token.

    Authorization: Bearer … → SHA-256 → in memory: who, until when
                                      └ a token seen for the first time → verified, remembered until it expires

An API key that memory does not know is looked up in its store before it is refused: see key_lookup.py.
Most requests cost one hash and one look into a dict. Both memories belong to what they were made from: when keys are
created, revoked or replaced, there is another object of those, and they begin anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

from rankd.api.identity import Identity, identity_of_key
from rankd.api.token_keys import Keys
from rankd.api.tokens import TOKEN_BYTES_MAX, TokenVerifier
from rankd.clock import Clock
from rankd.errors import Unauthenticated
from rankd.registry.credentials import KEY_PREFIX, Credential, Credentials

TOKENS_REMEMBERED_MAX = 10_000
_SCHEME = b"bearer "
_KEY_PREFIX = KEY_PREFIX.encode()

Held = tuple[Identity, int | None]  # and the ms since 1970 at which it holds no longer


def check_bearer(authorization: bytes | None, token: bytes) -> None:
    """Refuse whoever does not send this very token; how long that takes says nothing of it."""
    sent = b"" if authorization is None else authorization
    is_bearer = sent[: len(_SCHEME)].lower() == _SCHEME
    if not compare_digest(sent[len(_SCHEME) :].strip(b" \t"), token) or not is_bearer:
        raise Unauthenticated("the header must be `Authorization: Bearer` with the token in server.metrics_token")


class Authenticator:
    """Tells who asks; may be called from any thread."""

    def __init__(self, credentials: Credentials, tokens: TokenVerifier | None, clock: Clock) -> None:
        """`tokens` is None where only API keys are taken."""
        self._credentials = credentials
        self._tokens = tokens
        self._clock = clock
        self._holders: tuple[Mapping[bytes, Credential] | None, dict[bytes, Held]] = (None, {})
        self._keys: tuple[Mapping[bytes, Credential] | None, frozenset[str]] = (None, frozenset())
        self._verified: tuple[Keys | None, OrderedDict[bytes, Held]] = (None, OrderedDict())
        self._remembering = threading.Lock()

    def identify(self, authorization: bytes | None) -> Identity | None:
        """Return who asks, None when no credential was sent; Unauthenticated when one was sent that does not hold."""
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
        """Return the SHA-256 of the API key in a header that memory does not know; None where there is no such key."""
        if authorization is None or len(authorization) > len(_SCHEME) + TOKEN_BYTES_MAX:
            return None
        token = authorization[len(_SCHEME) :].strip(b" \t")
        if authorization[: len(_SCHEME)].lower() != _SCHEME or not token.startswith(_KEY_PREFIX):
            return None
        digest = sha256(token).digest()
        return None if self.knows(digest) else digest

    def knows(self, digest: bytes) -> bool:
        """Tell whether an API key is in memory, by the SHA-256 of its token."""
        return digest in self._credentials.known

    def refresh(self) -> None:
        """Take over the API keys that other processes made or revoked; waits for their store."""
        self._credentials.refresh()

    def check(self, identity: Identity) -> None:
        """Refuse somebody whose credential has expired, or was revoked, since they were identified."""
        if identity.expires_at is not None and self._clock.now() >= identity.expires_at * 1_000:
            raise Unauthenticated("the credential has expired; get a new one")
        if self.is_revoked(identity):
            raise Unauthenticated("the API key has been revoked; use another one")

    def is_revoked(self, identity: Identity) -> bool:
        """Tell whether the API key that somebody was identified by has been revoked since."""
        if identity.key is None:
            return False
        known = self._credentials.known
        made_from, ids = self._keys
        if made_from is not known:
            ids = frozenset(credential.id for credential in known.values())
            self._keys = (known, ids)
        return identity.key not in ids

    def _of_key(self, digest: bytes) -> Held:
        known = self._credentials.known
        made_from, holders = self._holders
        if made_from is not known:
            holders = {}
            self._holders = (known, holders)
        held = holders.get(digest)
        if held is None:
            credential = known.get(digest)
            if credential is None:
                raise Unauthenticated("the API key is not known here; it may have been revoked")
            held = holders[digest] = (identity_of_key(credential), credential.expires_at)
        return held

    def _of_token(self, token: bytes, digest: bytes) -> Held:
        if self._tokens is None:
            raise Unauthenticated("the token is no API key, and this server takes no others")
        keys = self._tokens.keys()
        made_from, verified = self._verified
        if made_from is not keys:
            verified = OrderedDict()
            self._verified = (keys, verified)
        held = verified.get(digest)
        if held is None:
            identity = self._tokens.verify(token, keys)
            held = (identity, None if identity.expires_at is None else identity.expires_at * 1_000)
            with self._remembering:
                verified[digest] = held
                if len(verified) > TOKENS_REMEMBERED_MAX:
                    verified.popitem(last=False)
        return held
