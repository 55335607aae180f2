"""No way in passes the limits: open routes, WebSocket and tickets are counted, and pages of strangers open nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import msgspec
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rankd.api.auth.tickets import TICKETS_PER_ACCOUNT_MAX
from rankd.clock import SystemClock
from rankd.registry.credentials import Scope
from rankd.registry.sqlite.credentials import SqliteCredentials

from .live_clients import Socket, event_stream, wait_for, web_socket
from .serving import Serving, serving

PER_S = 3
REFUSED_S_MAX = 20.0
LIMITED = f"""
[server]
trusted_proxies = ["127.0.0.1"]
[limits]
address_reads_per_s = {PER_S}
player_reads_per_s = {PER_S}
[boards.arcade]
"""
OPEN = """
[server]
cors_origins = ["https://game.example"]
[boards.arcade]
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("limited") / "data", config=LIMITED) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("open") / "data", config=OPEN) as running:
        yield running


def add_player(server: Serving, player: str) -> tuple[str, str]:
    """Return the id of a player's key, and the key."""
    with SqliteCredentials(server.folder, SystemClock()) as credentials:
        made, token = credentials.create(player, [], player=player)
        another = credentials.create(f"{player}'s service", [Scope.SCORES_WRITE])[1]
    server.assert_known(another)  # which counts against nobody's limit
    return made.id, token


def asked(client: httpx.Client, path: str, address: str, count: int = 4 * PER_S) -> list[httpx.Response]:
    return [client.get(path, headers={"X-Forwarded-For": address}) for _ in range(count)]


def given_ticket(client: httpx.Client) -> str:
    """Ask for a ticket until one is given."""
    given: list[httpx.Response] = []

    def is_given() -> bool:
        given.append(client.post("/v1/stream/tickets"))
        return given[-1].status_code == 200

    wait_for(is_given)
    return str(given[-1].json()["ticket"])


# Addresses are taken once each: a bucket of one test is full whatever the others did.


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/docs", "192.0.2.1"),
        ("/openapi.json", "192.0.2.2"),
        ("/", "192.0.2.3"),
        ("/boards/arcade", "192.0.2.4"),
        ("/rankd-board.js", "192.0.2.5"),
        ("/assets/page.css", "192.0.2.6"),
        ("/metrics", "192.0.2.7"),
        ("/v1/boards", "192.0.2.8"),
    ],
)
def test_every_open_route_is_counted_by_address(limited: Serving, path: str, address: str) -> None:
    with limited.client() as client:
        first, *others = asked(client, path, address)
    refused = [answer for answer in others if answer.status_code == 429]

    assert first.status_code == 200
    assert refused
    assert refused[0].headers["ratelimit-limit"] == f"{PER_S}"
    assert int(refused[0].headers["retry-after"]) >= 1


@pytest.mark.parametrize(("path", "address"), [("/healthz", "192.0.2.21"), ("/readyz", "192.0.2.22")])
def test_probes_are_never_refused(limited: Serving, path: str, address: str) -> None:
    with limited.client() as client:
        assert 429 in [answer.status_code for answer in asked(client, "/docs", address)]
        assert {answer.status_code for answer in asked(client, path, address, 50)} == {200}


def socket_from(server: Serving, address: str, query: str = "") -> Socket:
    return Socket(server.url, query=query, headers={"X-Forwarded-For": address})


def test_web_sockets_are_counted_by_address(limited: Serving) -> None:
    links = [socket_from(limited, "192.0.2.31") for _ in range(4 * PER_S)]
    try:
        wait_for(lambda: any(link.connection.close_code == 1013 for link in links))
    finally:
        for link in links:
            link.close()


def test_credentials_that_do_not_hold_are_counted_by_address(limited: Serving) -> None:
    with limited.client("rk_made_up") as guessing:
        statuses = [answer.status_code for answer in asked(guessing, "/v1/boards", "192.0.2.33")]

    assert statuses[0] == 401
    assert set(statuses) == {401, 429}


def test_what_is_refused_for_want_of_a_credential_is_counted_by_address(limited: Serving) -> None:
    with limited.client() as anybody:
        statuses = [answer.status_code for answer in asked(anybody, "/v1/players/p/friends", "192.0.2.34")]

    assert statuses[0] == 401
    assert set(statuses) == {401, 429}


def test_handshakes_at_a_wrong_path_are_counted_by_address(limited: Serving) -> None:
    address = ("X-Forwarded-For", "192.0.2.36")
    statuses = [handshake(limited, address, path="/v1/other") for _ in range(4 * PER_S)]

    assert statuses[0] == 404
    assert set(statuses) == {404, 429}


def test_a_ticket_is_kept_by_whoever_is_refused_for_asking_too_often(limited: Serving) -> None:
    _, token = add_player(limited, "gina")

    def opened(ticket: str) -> int | None:
        with event_stream(limited.url, "top:arcade", more=f"&ticket={ticket}") as stream:
            return stream.status

    with limited.client(token) as gina:

        def refused_ticket() -> str:
            """Return a ticket that was refused with 429."""
            deadline = time.monotonic() + REFUSED_S_MAX
            while time.monotonic() < deadline:
                ticket = given_ticket(gina)
                asked(gina, "/v1/boards", "192.0.2.37")
                if opened(ticket) == 429:
                    return ticket
            raise AssertionError("nothing was refused")

        ticket = refused_ticket()

    statuses: list[int | None] = []

    def is_opened() -> bool:
        statuses.append(opened(ticket))
        return statuses[-1] == 200

    wait_for(is_opened)
    assert set(statuses) <= {200, 429}
    wait_for(lambda: opened(ticket) == 401)


def test_tickets_that_were_never_given_are_counted_by_address(limited: Serving) -> None:
    addresses = (f"198.51.100.{number}" for number in range(256))

    def is_counted() -> bool:
        """Guess a bucket's worth from an address that nobody has used, and ask for something else from there."""
        address = next(addresses)
        for number in range(PER_S):
            with pytest.raises(InvalidStatus):
                socket_from(limited, address, f"?ticket=rt_{number}")
        with limited.client() as anybody:
            return asked(anybody, "/v1/boards", address, 1)[0].status_code == 429

    wait_for(is_counted)


def test_topics_subscribed_on_a_web_socket_are_counted(limited: Serving) -> None:
    link = socket_from(limited, "192.0.2.32")
    try:
        for number in range(2 * PER_S):
            link.subscribe(f"player:arcade:p{number}")
        events = [link.next() for _ in range(2 * PER_S)]
        refused = [event.data for event in events if event is not None and event.type == "error"]

        assert refused
        assert (refused[0]["status"], refused[0]["code"]) == (429, "rate_exceeded")
        assert next(event.type for event in events if event) == "snapshot"
    finally:
        link.close()


def test_a_player_who_comes_with_tickets_is_counted_as_the_player(limited: Serving) -> None:
    """Whatever addresses the tickets are used from."""
    _, token = add_player(limited, "alice")

    with limited.client(token) as alice:
        tickets = [given_ticket(alice) for _ in range(2 * PER_S)]
    links = [socket_from(limited, f"192.0.2.{40 + n}", f"?ticket={ticket}") for n, ticket in enumerate(tickets)]
    try:
        wait_for(lambda: any(link.connection.close_code == 1013 for link in links))
    finally:
        for link in links:
            link.close()


# Origins and headers


def handshake(server: Serving, *headers: tuple[str, str], path: str = "/v1/ws") -> int:
    """Return the status of the answer to a WebSocket handshake."""
    url = f"{server.url.replace('http', 'ws', 1)}{path}"
    try:
        with connect(url, additional_headers=headers, compression=None, proxy=None):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


@pytest.mark.parametrize("origin", [(), (("Origin", "https://game.example"),)], ids=["none", "listed"])
def test_programs_and_pages_of_listed_origins_open_web_sockets(
    server: Serving, origin: Sequence[tuple[str, str]]
) -> None:
    assert handshake(server, *origin) == 101


def test_own_pages_open_web_sockets(server: Serving) -> None:
    assert handshake(server, ("Origin", server.url)) == 101


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "https://game.example.evil.example"])
def test_pages_of_other_origins_open_no_web_socket(server: Serving, origin: str) -> None:
    assert handshake(server, ("Origin", origin)) == 403


def test_a_handshake_is_refused_as_any_other_request_is(server: Serving) -> None:
    url = server.url.replace("http", "ws", 1)
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{url}/v1/other", compression=None, proxy=None)
    answer = refused.value.response
    problem = msgspec.json.decode(answer.body or b"")

    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["status"], problem["code"]) == (404, 404, "route_unknown")
    assert handshake(server, ("Authorization", "Bearer rk_made_up")) == 401
    assert handshake(server, path="/v1/ws?colour=red") == 422


def test_a_header_that_means_two_things_is_refused(server: Serving) -> None:
    held = f"Bearer {server.admin_key}"

    assert handshake(server, ("Authorization", held)) == 101
    assert handshake(server, ("Authorization", "Bearer rk_made_up"), ("Authorization", held)) == 400
    assert handshake(server, ("Authorization", held), ("Authorization", held)) == 400


# Tickets


def test_one_account_loses_none_but_its_own_oldest_tickets(server: Serving) -> None:
    tokens = [add_player(server, name)[1] for name in ("carol", "dave")]
    with server.client(tokens[0]) as carol, server.client(tokens[1]) as dave:
        kept = carol.post("/v1/stream/tickets").json()["ticket"]
        given = [dave.post("/v1/stream/tickets").json()["ticket"] for _ in range(TICKETS_PER_ACCOUNT_MAX + 1)]

    for ticket, status in ((kept, 200), (given[0], 401), (given[1], 200), (given[-1], 200)):
        with event_stream(server.url, "top:arcade", more=f"&ticket={ticket}") as stream:
            assert stream.status == status


@pytest.mark.parametrize("kind", ["sse", "ws"])
def test_a_ticket_of_a_revoked_key_opens_nothing(server: Serving, kind: str) -> None:
    key, token = add_player(server, f"erin {kind}")
    with server.client(token) as erin:
        tickets = [erin.post("/v1/stream/tickets").json()["ticket"] for _ in range(2)]
        with SqliteCredentials(server.folder, SystemClock()) as credentials:
            credentials.revoke(key)
        wait_for(lambda: erin.get("/v1/boards").status_code == 401)
    if kind == "sse":
        with event_stream(server.url, "top:arcade", more=f"&ticket={tickets[0]}") as stream:
            assert stream.status == 401
    else:
        with pytest.raises(InvalidStatus):
            Socket(server.url, query=f"?ticket={tickets[0]}")


def test_a_ticket_of_a_key_that_has_expired_opens_nothing(tmp_path: Path) -> None:
    with serving(tmp_path / "data", config=OPEN) as running:
        with SqliteCredentials(running.folder, SystemClock()) as credentials:
            ends = int(time.time() * 1_000) + 3_000
            token = credentials.create("frank", [], player="frank", expires_at=ends)[1]
        running.assert_known(token)
        with running.client(token) as frank:
            ticket = frank.post("/v1/stream/tickets").json()["ticket"]
            wait_for(lambda: frank.get("/v1/boards").status_code == 401)
        with event_stream(running.url, "top:arcade", more=f"&ticket={ticket}") as stream:
            assert stream.status == 401


def test_a_socket_that_is_opened_watches(server: Serving) -> None:
    with web_socket(server.url, "top:arcade") as link:
        assert getattr(link.next(), "type", None) == "snapshot"
