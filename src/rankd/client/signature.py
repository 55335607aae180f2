"""The signature of a submission to a signing board: an HMAC over the time, the key and the body."""

from __future__ import annotations

import hmac

TIMESTAMP_HEADER = b"X-Rankd-Timestamp"
SIGNATURE_HEADER = b"X-Rankd-Signature"


def sign(secret: bytes, timestamp: int, key: str, body: bytes) -> str:
    """Return the signature of a body with its idempotency key; `timestamp` is in seconds since 1970.

    >>> sign(b"rs_example", 1_777_896_000, "match-8731", b'{"board":"arcade","player":"alice","score":976}')[:11]
    'v1=c1b363fb'
    """
    return "v1=" + hmac.digest(secret, f"{timestamp}.{key}.".encode() + body, "sha256").hex()
