"""Signed submissions: a board that names a signing key requires an HMAC over the whole request.

    X-Rankd-Timestamp: 1777896000
    X-Rankd-Signature: v1=HMAC-SHA256(secret, timestamp "." Idempotency-Key "." body), in hexadecimal digits

The body names the board and the player of each score, so a signature is valid for those only. The timestamp bounds
for how long an intercepted request can be replayed. The idempotency key belongs to the signing key and not to the
account that sends the request, so a replay counts once, whoever sends it. A body is a JSON object, so no other split
of the same bytes is a request.
"""

from __future__ import annotations

import hmac
import re

from rankd.clock import Clock
from rankd.config.checks import SIGNATURE_TOLERANCE_S
from rankd.errors import Forbidden
from rankd.registry.credentials import Credentials

TIMESTAMP_HEADER = "X-Rankd-Timestamp"
SIGNATURE_HEADER = "X-Rankd-Signature"
KEY_HEADER = "Idempotency-Key"
TOLERANCE_S = SIGNATURE_TOLERANCE_S
_VERSION = "v1="
_TIMESTAMP = re.compile(rb"[0-9]{1,12}")


def sign(secret: str | bytes, timestamp: int, key: str, body: bytes) -> str:
    """Return the value of X-Rankd-Signature; `timestamp` is in s since 1970, `key` the Idempotency-Key.

    >>> sign("rs_example", 1_777_896_000, "match-8731", b'{"board":"arcade","player":"alice","score":976}')[:11]
    'v1=c1b363fb'
    """
    return _VERSION + _hmac(_bytes(secret), str(timestamp).encode(), key.encode(), body)


def signing_account(name: str) -> str:
    """Return the account that owns the idempotency keys of submissions signed with this key."""
    return f"signing:{name}"


class Signatures:
    """Checks submissions against the signing key of their board; may be called from any thread."""

    def __init__(self, credentials: Credentials, clock: Clock) -> None:
        """`credentials` has the signing keys."""
        self._credentials = credentials
        self._clock = clock

    def check(
        self,
        name: str,
        *,
        timestamp: str | bytes | None,
        signature: str | bytes | None,
        key: str | bytes | None,
        body: bytes,
    ) -> None:
        """Raise Forbidden unless the named key signed the request; the others are its headers and raw body."""
        for header, value in ((TIMESTAMP_HEADER, timestamp), (SIGNATURE_HEADER, signature), (KEY_HEADER, key)):
            if not value:
                raise Forbidden(f"this board accepts signed submissions only; send the header {header}")
        sent, claimed = _bytes(timestamp or b""), _bytes(signature or b"")
        if not _TIMESTAMP.fullmatch(sent):
            raise Forbidden(f"{TIMESTAMP_HEADER} must be the seconds since 1970 in digits, such as 1777896000")
        if abs(self._clock.now() - int(sent) * 1_000) > TOLERANCE_S * 1_000:
            raise Forbidden(
                f"{TIMESTAMP_HEADER} is more than {TOLERANCE_S} s off; set the sender's clock and sign anew"
            )
        secret = self._credentials.signing_key(name)
        if secret is None:
            raise Forbidden(f"the board's signing key {name} does not exist; an administrator has to create it")
        expected = _VERSION + _hmac(secret, sent, _bytes(key or b""), body)
        if not hmac.compare_digest(expected.encode(), claimed.lower()):
            raise Forbidden(
                f"{SIGNATURE_HEADER} is wrong: it must be v1= and the HMAC-SHA256, in hexadecimal digits, of"
                f" {TIMESTAMP_HEADER}, a dot, {KEY_HEADER}, a dot and the body as it is sent"
            )


def _hmac(secret: bytes, timestamp: bytes, key: bytes, body: bytes) -> str:
    return hmac.digest(secret, b".".join((timestamp, key, body)), "sha256").hex()


def _bytes(text: str | bytes) -> bytes:
    return text.encode(errors="surrogatepass") if isinstance(text, str) else text
