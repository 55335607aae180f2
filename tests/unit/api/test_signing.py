"""Signed submissions: all of the request is signed, for a short time, by a key that is never shown again."""

from __future__ import annotations

import hashlib
import hmac
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankd import ManualClock
from rankd.api.auth.signing import TOLERANCE_S, Signatures, sign
from rankd.errors import Forbidden
from rankd.registry.sqlite.credentials import SqliteCredentials

NOW_S = 1_777_896_000
BODY = '{"board":"arcade","player":"Zoë","score":976}'.encode()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_S * 1_000)


@pytest.fixture
def credentials(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteCredentials]:
    with SqliteCredentials(tmp_path, clock) as opened:
        yield opened


@pytest.fixture
def secret(credentials: SqliteCredentials) -> str:
    return credentials.create_signing_key("arcade")


@pytest.fixture
def signatures(credentials: SqliteCredentials, clock: ManualClock) -> Signatures:
    return Signatures(credentials, clock)


def assert_refused(
    signatures: Signatures,
    secret: str,
    problem: str,
    *,
    name: str = "arcade",
    timestamp: str | bytes | None = str(NOW_S),
    signature: str | bytes | None = None,
    key: str | bytes | None = "match-8731",
    body: bytes = BODY,
) -> None:
    with pytest.raises(Forbidden, match=problem) as refused:
        signatures.check(name, timestamp=timestamp, signature=signature, key=key, body=body)
    shown = "".join(traceback.format_exception(refused.value))
    assert secret not in shown
    assert sign(secret, NOW_S, "match-8731", BODY).removeprefix("v1=") not in str(refused.value)


def test_a_signature_is_what_any_language_makes_of_the_secret(secret: str) -> None:
    signed = f"{NOW_S}.match-8731.".encode() + BODY
    expected = "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()

    assert sign(secret, NOW_S, "match-8731", BODY) == sign(secret.encode(), NOW_S, "match-8731", BODY) == expected


@pytest.mark.parametrize("key", ["match-8731", "Zoë", "a.b.c", "x" * 255])
def test_a_signed_request_is_taken(signatures: Signatures, secret: str, key: str) -> None:
    signature = sign(secret, NOW_S, key, BODY)

    signatures.check("arcade", timestamp=str(NOW_S), signature=signature, key=key, body=BODY)
    signatures.check(
        "arcade",
        timestamp=str(NOW_S).encode(),
        signature=signature.upper().replace("V1", "v1").encode(),
        key=key.encode(),
        body=BODY,
    )


def test_a_request_is_taken_as_often_as_it_is_sent(signatures: Signatures, secret: str) -> None:
    """That it counts once is for the idempotency key to see to, so that a retry gets its answer."""
    signature = sign(secret, NOW_S, "match-8731", BODY)
    for _ in range(2):
        signatures.check("arcade", timestamp=str(NOW_S), signature=signature, key="match-8731", body=BODY)


@pytest.mark.parametrize("off_s", [-TOLERANCE_S, -1, 1, TOLERANCE_S])
def test_clocks_may_differ_a_little(signatures: Signatures, secret: str, off_s: int) -> None:
    timestamp = NOW_S + off_s
    signature = sign(secret, timestamp, "match-8731", BODY)

    signatures.check("arcade", timestamp=str(timestamp), signature=signature, key="match-8731", body=BODY)


@pytest.mark.parametrize("off_s", [-TOLERANCE_S - 1, TOLERANCE_S + 1, -NOW_S, 10**11])
def test_an_old_request_is_refused_and_one_of_the_future(signatures: Signatures, secret: str, off_s: int) -> None:
    timestamp = NOW_S + off_s
    signature = sign(secret, timestamp, "match-8731", BODY)

    assert_refused(signatures, secret, "more than 300 s off; set the", timestamp=str(timestamp), signature=signature)


def test_a_millisecond_too_late_is_too_late(signatures: Signatures, secret: str, clock: ManualClock) -> None:
    clock.set((NOW_S + TOLERANCE_S) * 1_000 + 1)

    assert_refused(signatures, secret, "300 s off", signature=sign(secret, NOW_S, "match-8731", BODY))


@pytest.mark.parametrize("empty", [None, "", b""])
def test_what_is_missing_is_named(signatures: Signatures, secret: str, empty: str | bytes | None) -> None:
    signature = sign(secret, NOW_S, "match-8731", BODY)

    missing = "accepts signed submissions only; send the header {}"
    assert_refused(signatures, secret, missing.format("X-Rankd-Timestamp"), timestamp=empty, signature=signature)
    assert_refused(signatures, secret, missing.format("X-Rankd-Signature"), signature=empty)
    assert_refused(signatures, secret, missing.format("Idempotency-Key"), key=empty, signature=signature)


@pytest.mark.parametrize(
    "timestamp",
    ["now", "-1", "+1777896000", "1777896000.0", " 1777896000", "1_777_896_000", "١٧٧٧٨٩٦٠٠٠", "9" * 5_000, b"\xff"],
)
def test_a_timestamp_is_seconds_in_digits(signatures: Signatures, secret: str, timestamp: str | bytes) -> None:
    signature = sign(secret, NOW_S, "match-8731", BODY)

    assert_refused(signatures, secret, "must be the seconds since 1970", timestamp=timestamp, signature=signature)


def test_whatever_else_is_sent_than_was_signed_is_refused(signatures: Signatures, secret: str) -> None:
    signature = sign(secret, NOW_S, "match-8731", BODY)
    other = "X-Rankd-Signature is wrong"

    assert_refused(signatures, secret, other, signature=signature, body=BODY.replace(b"976", b"977"))
    assert_refused(signatures, secret, other, signature=signature, body=BODY + b" ")
    assert_refused(signatures, secret, other, signature=signature, body=b"")
    assert_refused(signatures, secret, other, signature=signature, key="match-8732")
    assert_refused(signatures, secret, other, signature=signature, timestamp=str(NOW_S + 1))
    assert_refused(signatures, secret, other, signature=signature, timestamp=f"0{NOW_S}")


def test_a_signature_that_is_none_is_refused(signatures: Signatures, secret: str) -> None:
    right = sign(secret, NOW_S, "match-8731", BODY)
    for wrong in (
        *(
            right.removeprefix("v1="),
            right.replace("v1", "v2"),
            right[:-1],
            right + "0",
            f" {right}",
            f"{right},{right}",
        ),
        *("v1=", "v1=" + "0" * 64, "é", b"\xff\xfe", "\ud800", "x" * 1_000_000, sign("", NOW_S, "match-8731", BODY)),
    ):
        assert_refused(signatures, secret, "X-Rankd-Signature is wrong", signature=wrong)


def test_each_board_has_its_own_key(signatures: Signatures, secret: str, credentials: SqliteCredentials) -> None:
    credentials.create_signing_key("words")
    signature = sign(secret, NOW_S, "match-8731", BODY)

    assert_refused(signatures, secret, "is wrong", name="words", signature=signature)


def test_a_signing_key_that_does_not_exist_is_said_so(
    signatures: Signatures, secret: str, credentials: SqliteCredentials
) -> None:
    signature = sign(secret, NOW_S, "match-8731", BODY)

    assert_refused(signatures, secret, "signing key words does not exist", name="words", signature=signature)
    credentials.revoke_signing_key("arcade")
    assert_refused(signatures, secret, "signing key arcade does not exist", signature=signature)
