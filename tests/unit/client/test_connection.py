"""What a client can be made with, and how a submission is signed."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Any

import pytest

from rankd.client import AsyncClient, Client
from rankd.errors import InvalidValue

from .conftest import Connect
from .scripted import ReceivedRequest, ScriptedServer, answer, drop
from .test_drivers import SUBMITTED

HERE = "http://127.0.0.1:8080"
SECRET = "a secret of the board"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("url", {"url": "127.0.0.1:8080"}),
        ("url", {"url": "ftp://127.0.0.1"}),
        ("url", {"url": "http://"}),
        ("url", {"url": "http://host:99999"}),
        ("url", {"url": "http://ali:hunter2@host"}),
        ("url", {"url": "http://host/?x=1"}),
        ("url", {"url": None}),
        ("token", {"token": ""}),
        ("token", {"token": "two words"}),
        ("token", {"token": "a\r\nb"}),
        ("token", {"token": 7}),
        ("timeout_s", {"timeout_s": 0}),
        ("timeout_s", {"timeout_s": "10"}),
        ("timeout_s", {"timeout_s": float("inf")}),
        ("retry_total_s", {"retry_total_s": -1}),
        ("retry_total_s", {"retry_total_s": float("nan")}),
        ("retries_max", {"retries_max": -1}),
        ("retries_max", {"retries_max": 1.5}),
        ("connections_max", {"connections_max": 0}),
        ("signing_secret", {"signing_secret": b""}),
    ],
)
def test_a_client_that_makes_no_sense_is_refused(kind: Any, field: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as raised:
        kind(**{"url": HERE, **given})

    assert raised.value.field == field
    assert "hunter2" not in str(raised.value)
    assert "two words" not in str(raised.value)


def signed(seen: ReceivedRequest, secret: bytes) -> str:
    message = f"{seen.headers['x-rankd-timestamp']}.{seen.key}.".encode() + seen.body
    return "v1=" + hmac.new(secret, message, hashlib.sha256).hexdigest()


def test_every_score_is_signed_with_the_clients_secret(server: ScriptedServer, connect: Connect) -> None:
    server.does(answer(SUBMITTED), answer({"position": "0-7", "count": 1}))
    client = connect(signing_secret=SECRET)
    client.submit("arcade", "alice", 976)
    client.submit_many("arcade", [("alice", 976)], signing_secret=b"another")

    single, many = server.seen
    assert single.headers["x-rankd-signature"] == signed(single, SECRET.encode())
    assert many.headers["x-rankd-signature"] == signed(many, b"another")
    assert abs(int(single.headers["x-rankd-timestamp"]) - time.time()) < 60


def test_what_is_no_score_is_not_signed(server: ScriptedServer, connect: Connect) -> None:
    server.does(answer({"position": "0-7"}))
    connect(signing_secret=SECRET).reset("arcade")

    assert "x-rankd-signature" not in server.seen[0].headers


def test_a_score_sent_again_is_signed_anew_under_the_same_key(server: ScriptedServer, connect: Connect) -> None:
    server.does(drop, answer(SUBMITTED))
    connect(signing_secret=SECRET).submit("arcade", "alice", 976)

    assert [seen.headers["x-rankd-signature"] for seen in server.seen] == [
        signed(seen, SECRET.encode()) for seen in server.seen
    ]
    assert server.seen[0].key == server.seen[1].key
