"""Every call × every kind of credential × own and other player: as documented, and nothing changed when refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import jwt
import pytest
from tests.timing import BUSY_MACHINE

from rankd.api.calls.call import Call
from rankd.api.calls.pages import PAGES
from rankd.api.calls.routes import CALLS
from rankd.api.openapi.examples import EXAMPLES
from rankd.clock import SystemClock
from rankd.registry.credentials import Scope
from rankd.registry.sqlite.credentials import SqliteCredentials

from .serving import Serving, serving

SECRET = "a secret of at least thirty-two bytes, for these tests"
CONFIG = f"""
[auth]
jwt_secret = "{SECRET}"
jwt_issuer = "game"
jwt_audience = "rankd"
[limits]
player_writes_per_s = 0
"""

OK, ABSENT, WHO, NO = 200, 404, 401, 403
KINDS = ("nobody", "garbage", "revoked", "own", "other", "reader", "scores", "players", "admin", "jwt own", "jwt other")

# The call → what it answers to each kind of credential, in the order of KINDS. A player in the path is alice;
# `own` is her token, `other` bob's.
PUBLIC = (OK, WHO, WHO, OK, OK, OK, OK, OK, OK, OK, OK)
ADMIN = (WHO, WHO, WHO, NO, NO, NO, NO, NO, OK, NO, NO)
OWN_READ = (WHO, WHO, WHO, OK, NO, NO, OK, OK, OK, OK, NO)
OWN_WRITE = (WHO, WHO, WHO, OK, NO, NO, NO, OK, OK, OK, NO)
EXPECTED = {
    "submit": (WHO, WHO, WHO, OK, NO, NO, OK, NO, OK, OK, NO),
    "stream": (OK, WHO, WHO, OK, OK, OK, OK, OK, OK, OK, OK),
    "ticket": (WHO, WHO, WHO, OK, OK, OK, OK, OK, OK, OK, OK),
    "submit_many": (WHO, WHO, WHO, OK, NO, NO, OK, NO, OK, OK, NO),
    **dict.fromkeys(
        ("top", "range", "rank", "around", "ranks", "friends", "rank_of_score", "distribution", "course"), PUBLIC
    ),
    **dict.fromkeys(("list", "definition", "search", "player", "metrics"), PUBLIC),
    **dict.fromkeys(("health", "ready", "openapi", "docs", *(call.name for call in PAGES)), (OK,) * len(KINDS)),
    **dict.fromkeys(("define", "delete", "reset", "remove", "history", "audit"), ADMIN),
    **dict.fromkeys(("friends_of", "stored_friends"), OWN_READ),
    **dict.fromkeys(("set_player", "set_friends"), OWN_WRITE),
}
# Where reads are not public, whoever reads has a credential. A player's own shows that player's rank and, by
# `friends_of`, mutual friends: see test_private_reads.py.
PRIVATE_READ = (WHO, WHO, WHO, NO, NO, OK, OK, OK, OK, NO, NO)
PRIVATE_OWN = (WHO, WHO, WHO, OK, NO, OK, OK, OK, OK, OK, NO)
PRIVATE = {
    **dict.fromkeys(("top", "range", "ranks", "friends", "rank_of_score", "distribution", "stream"), PRIVATE_READ),
    **dict.fromkeys(("list", "definition", "search", "player", "metrics"), PRIVATE_READ),
    "around": PRIVATE_READ,
    **dict.fromkeys(("rank", "course"), PRIVATE_OWN),
}


class Stage(NamedTuple):
    """A server with a board, and a credential of each kind."""

    server: Serving
    tokens: dict[str, str | None]


def token_of(player: str, **claims: object) -> str:
    payload = {"sub": player, "iss": "game", "aud": "rankd", "exp": int(time.time()) + 600, **claims}
    return jwt.encode(payload, SECRET, "HS256")


def stage(server: Serving) -> Stage:
    with SqliteCredentials(server.folder, SystemClock()) as credentials:
        gone, gone_token = credentials.create("gone", [Scope.BOARDS_ADMIN])
        credentials.revoke(gone.id)
        tokens: dict[str, str | None] = {
            "nobody": None,
            "garbage": "rk_garbage_garbage",
            "revoked": gone_token,
            "own": credentials.create("alice", [], player="alice")[1],
            "other": credentials.create("bob", [], player="bob")[1],
            "reader": credentials.create("reader", [Scope.READ], player="carol")[1],
            "scores": credentials.create("scores", [Scope.SCORES_WRITE])[1],
            "players": credentials.create("players", [Scope.PLAYERS_WRITE])[1],
            "admin": server.admin_key,
            "jwt own": token_of("alice"),
            "jwt other": token_of("bob"),
        }
    with server.client(server.admin_key) as admin:
        assert admin.put("/v1/boards/arcade", json={"writes": "players"}).status_code == 200
        assert admin.put("/v1/players/alice", json={"name": "Alice"}).status_code == 200
        for player in ("alice", "bob"):
            sent = {"board": "arcade", "player": player, "score": 5}
            assert admin.post("/v1/scores", json=sent).status_code == 200
        server.assert_known(str(tokens["scores"]))
    return Stage(server, tokens)


def known(client: httpx.Client) -> int:
    return client.get("/v1/boards").status_code


@pytest.fixture(scope="module", params=["public", "private"])
def staged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    config = CONFIG + ("" if request.param == "public" else "[server]\npublic_read = false\n")
    with serving(tmp_path_factory.mktemp("authorization") / "data", config=config) as running:
        yield stage(running)


def expected(call: Call, kind: str, is_public: bool) -> int:
    row = EXPECTED[call.name] if is_public else PRIVATE.get(call.name, EXPECTED[call.name])
    return row[KINDS.index(kind)]


QUERIES = {"range": "?from=1&to=2", "search": "?search=ali", "stream": "?topic=top:arcade"}


def ask(client: httpx.Client, call: Call) -> httpx.Response:
    path = call.path.replace("{board}", "arcade").replace("{player}", "alice").replace("{score}", "5")
    path = path.replace("{file}", "page.css")
    body: Any = EXAMPLES[call.name].body if call.name in EXAMPLES else None
    if call.name == "submit":
        body = {"board": "arcade", "player": "alice", "score": 1}
    elif call.name == "submit_many":
        body = {"events": [{"board": "arcade", "player": "alice", "score": 1}]}
    elif call.name == "define":
        body = {"writes": "players", "title": "Another"}
    elif call.name == "set_player":
        body = {"name": "Changed"}
    elif call.name == "reset":
        body = {}
    path += QUERIES.get(call.name, "")
    if call.name == "stream":  # which never ends
        with client.stream(call.method, path) as answer:
            if answer.status_code != OK:
                answer.read()
            return answer
    return client.request(call.method, path, json=body)


def state(staged: Stage) -> tuple[object, ...]:
    with staged.server.client(staged.server.admin_key) as admin:
        return (
            admin.get("/v1/boards/arcade/top").json()["position"],
            admin.get("/v1/boards").json(),
            admin.get("/v1/players/alice").json(),
            admin.get("/v1/players/alice/friends").json(),
        )


def test_the_table_has_every_call() -> None:
    assert set(EXPECTED) == {call.name for call in CALLS}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_call_answers_each_credential_as_documented(staged: Stage, call: Call) -> None:
    is_public = staged.server.log.with_suffix(".toml").read_text().find("public_read") < 0
    for kind in KINDS:
        want = expected(call, kind, is_public)
        before = state(staged) if want in (WHO, NO) else ()
        with staged.server.client(staged.tokens[kind]) as client:
            answer = ask(client, call)
        assert answer.status_code == want, f"{call.name} by {kind}: {answer.status_code} {answer.text[:200]}"
        if want in (WHO, NO):
            assert state(staged) == before, f"{call.name} by {kind} changed something"
            assert answer.json()["code"] in ("unauthenticated", "forbidden")
        if call.name == "delete" and want == OK:
            with staged.server.client(staged.server.admin_key) as admin:
                assert admin.put("/v1/boards/arcade", json={"writes": "players"}).status_code == 200
        if call.name in ("delete", "reset", "remove") and want == OK:
            with staged.server.client(staged.server.admin_key) as admin:
                sent = {"board": "arcade", "player": "alice", "score": 5}
                assert admin.post("/v1/scores", json=sent).status_code == 200


def test_a_player_sends_neither_instants_nor_attributes(staged: Stage) -> None:
    for more in ({"at": int(time.time() * 1_000)}, {"attributes": {"country": "BR"}}):
        with staged.server.client(staged.tokens["own"]) as alice:
            assert alice.post("/v1/scores", json={"board": "arcade", "score": 1, **more}).status_code == NO


def test_a_player_may_leave_out_who_they_are(staged: Stage) -> None:
    with staged.server.client(staged.tokens["jwt own"]) as alice:
        assert alice.post("/v1/scores", json={"board": "arcade", "score": 1}).json()["player"] == "alice"


def test_a_player_may_not_write_where_only_servers_do(staged: Stage) -> None:
    with staged.server.client(staged.server.admin_key) as admin:
        assert admin.put("/v1/boards/ranked", json={}).status_code == OK
    with staged.server.client(staged.tokens["own"]) as alice:
        assert alice.post("/v1/scores", json={"board": "ranked", "score": 1}).status_code == NO


def test_a_player_may_not_set_what_scopes_are_ranked_by(staged: Stage) -> None:
    with staged.server.client(staged.tokens["own"]) as alice:
        assert alice.put("/v1/players/alice", json={"country": "BR"}).status_code == NO
        assert alice.put("/v1/players/alice", json={"attributes": {"level": "9"}}).status_code == NO


@pytest.mark.timed
def test_a_revoked_key_is_refused_within_a_second(staged: Stage) -> None:
    with SqliteCredentials(staged.server.folder, SystemClock()) as credentials:
        credential, token = credentials.create("short", [Scope.SCORES_WRITE])
        staged.server.assert_known(token)
        credentials.revoke(credential.id)
    began = time.monotonic()
    with staged.server.client(token) as client:
        while known(client) != WHO:
            assert time.monotonic() - began < 30
    assert time.monotonic() - began < 1.5 * BUSY_MACHINE


ATTACKS: dict[str, Callable[[], str]] = {
    "none": lambda: jwt.encode({"sub": "alice", "exp": 9_999_999_999}, "", "none"),
    "another secret": lambda: jwt.encode({"sub": "alice", "exp": 9_999_999_999}, "x" * 32, "HS256"),
    "expired": lambda: token_of("alice", exp=1),
    "another audience": lambda: token_of("alice", aud="other"),
    "far too long": lambda: token_of("alice", pad="x" * 40_000),
    "no dots": lambda: "abc",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_forged_tokens_are_refused(staged: Stage, name: str) -> None:
    with staged.server.client(ATTACKS[name]()) as client:
        assert client.get("/v1/boards/arcade/top").status_code == WHO
