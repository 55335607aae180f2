"""Who may open a live connection, with what, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import jwt
import pytest
from tests.timing import BUSY_MACHINE
from websockets.exceptions import InvalidStatus

from rankd.clock import SystemClock
from rankd.registry.credentials import Scope
from rankd.registry.sqlite.credentials import SqliteCredentials

from .impatient import impatient_serving
from .live_clients import Socket, Watching, event_stream, web_socket
from .serving import Serving, serving

SECRET = "a secret of at least thirty-two bytes, for these tests"
CONFIG = f"""
[auth]
jwt_secret = "{SECRET}"
jwt_issuer = "game"
jwt_audience = "rankd"
jwt_leeway_s = 0
[push]
push_interval_ms = 50
[boards.arcade]
keep = "best"
"""
KINDS = pytest.mark.parametrize("kind", ["sse", "ws"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with impatient_serving(tmp_path_factory.mktemp("streams") / "data", CONFIG) as running:
        yield running


def token(player: str, expires_s: float = 600, **claims: object) -> str:
    payload = {"sub": player, "iss": "game", "aud": "rankd", "exp": int(time.time() + expires_s), **claims}
    return jwt.encode(payload, SECRET, "HS256")


@KINDS
def test_friends_are_watched_by_their_player_and_by_services(server: Serving, kind: str) -> None:
    for credential in (token("bob"), server.admin_key):
        watching = Watching(server.url, kind, "friends:arcade:bob", token=credential)
        assert watching.next().type == "snapshot"
        watching.link.close()
    if kind == "sse":
        for other, status in ((token("alice"), 403), (None, 401)):
            with event_stream(server.url, "friends:arcade:bob", token=other) as refused:
                assert refused.status == status
    else:
        for other, code in ((token("alice"), "forbidden"), (None, "unauthenticated")):
            with web_socket(server.url, "friends:arcade:bob", token=other) as link:
                error = link.next()
                assert error is not None
                assert (error.type, error.data["code"]) == ("error", code)


@pytest.mark.timed
@KINDS
def test_a_connection_ends_when_its_token_does(server: Serving, kind: str) -> None:
    began = time.monotonic()
    watching = Watching(server.url, kind, "friends:arcade:bob", token=token("bob", expires_s=2.2))
    assert watching.next().type == "snapshot"

    assert watching.end_code() == 4001
    assert time.monotonic() - began < 5 * BUSY_MACHINE
    watching.link.close()


@pytest.mark.timed
@KINDS
def test_a_connection_ends_when_its_key_is_revoked(server: Serving, kind: str) -> None:
    with SqliteCredentials(server.folder, SystemClock()) as credentials:
        credential, key = credentials.create(f"watcher {kind}", [Scope.READ], player="bob")
        server.assert_known(key)
        watching = Watching(server.url, kind, "friends:arcade:bob", token=key)
        assert watching.next().type == "snapshot"
        began = time.monotonic()
        credentials.revoke(credential.id)

    assert watching.end_code() == 4003
    assert time.monotonic() - began < 5 * BUSY_MACHINE
    watching.link.close()


def ticket(client: httpx.Client) -> str:
    given = client.post("/v1/stream/tickets").json()
    assert given["expires_in_s"] == 60
    return str(given["ticket"])


def test_a_ticket_opens_one_connection_in_place_of_a_credential(server: Serving) -> None:
    with server.client(token("bob")) as bob:
        for_stream, for_socket = ticket(bob), ticket(bob)
    with event_stream(server.url, "friends:arcade:bob", more=f"&ticket={for_stream}") as stream:
        assert stream.status == 200
    with event_stream(server.url, "friends:arcade:bob", more=f"&ticket={for_stream}") as stream:
        assert stream.status == 401
    with web_socket(server.url, "friends:arcade:bob", query=f"?ticket={for_socket}") as link:
        assert getattr(link.next(), "type", None) == "snapshot"
    with pytest.raises(InvalidStatus):
        Socket(server.url, query=f"?ticket={for_socket}")
    with server.client() as anybody:
        assert anybody.post("/v1/stream/tickets").status_code == 401
    assert for_stream not in server.log.read_text()


def test_where_reads_are_not_public_a_connection_needs_a_credential(tmp_path: Path) -> None:
    config = CONFIG + "\n[server]\npublic_read = false\n"
    with serving(tmp_path / "data", config=config) as private:
        with event_stream(private.url, "top:arcade") as refused:
            assert refused.status == 401
        with web_socket(private.url) as link:
            assert link.close_code == 1008
        for kind in ("sse", "ws"):
            watching = Watching(private.url, kind, "top:arcade", token=private.admin_key)
            assert watching.next().type == "snapshot"
            watching.link.close()
        with web_socket(private.url, "player:arcade:bob", "top:arcade", token=token("bob")) as link:
            events = [link.next(), link.next()]
            assert {event.type for event in events if event} == {"snapshot", "error"}
        with event_stream(private.url, "player:arcade:bob", token=token("bob")) as own:
            assert own.status == 200
        with event_stream(private.url, "player:arcade:alice", token=token("bob")) as others:
            assert others.status == 403
