"""Who did what over HTTP: who may ask, what is asked, and what is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import rankd
from rankd.client import calls
from rankd.config.model import Config, ServerConfig
from rankd.errors import InvalidValue

from .in_process import InProcess, Reply, in_process

NOON = 1_777_896_000_000


def played(folder: Path) -> None:
    """Let two players play, and an administrator remove one of them."""
    clock = rankd.ManualClock(NOON)
    with rankd.open(folder, clock=clock) as boards:
        boards.define("arcade")
        boards.submit("arcade", "alice", 5, sender="server-1")
        clock.advance(1_000)
        boards.submit("arcade", "al ice/ö", 7, sender="server-2")
        boards.remove("arcade", "alice", sender="admin")


def reader(app: InProcess) -> Callable[[str], Awaitable[Reply]]:
    """Return how an administrator reads."""
    token = app.credentials.create("admin", ["boards:admin"])[1]
    return lambda target: app.get(target, authorization=f"Bearer {token}")


def test_who_did_what_is_narrowed_down_and_paged(tmp_path: Path) -> None:
    played(tmp_path)

    async def test(app: InProcess) -> None:
        get = reader(app)
        first = (await get("/v1/audit?limit=2")).json()
        assert [(event["kind"], event["sender"]) for event in first["events"]] == [
            ("remove", "admin"),
            ("score", "server-2"),
        ]
        assert (first["events"][0]["old_score"], first["events"][0]["new_score"]) == (5, None)
        rest = (await get(f"/v1/audit?cursor={first['next']}")).json()
        assert [event["kind"] for event in rest["events"]] == ["score", "define"]
        assert rest["next"] is None
        for narrowed, positions in {
            f"player={quote('al ice/ö', safe='')}": ["0-3"],
            "kind=define": ["0-1"],
            "sender=server-1": ["0-2"],
            f"from={NOON + 1}": ["0-4", "0-3"],
            f"to={NOON}&board=arcade": ["0-2", "0-1"],
            f"from={NOON}&to={NOON}&kind=score": ["0-2"],
            "player=nobody": [],
        }.items():
            reply = await get(f"/v1/audit?{narrowed}")
            assert [event["position"] for event in reply.json()["events"]] == positions, narrowed
        assert reply.headers[b"cache-control"] == b"no-store"

    in_process(tmp_path, test)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("from=-1", "from"),
        ("to=x", "to"),
        ("from=5&to=4", "to"),
        ("kind=scores", "kind"),
        ("cursor=x", "cursor"),
        ("player=%00", "player"),
        ("board=A%20B", "board"),
        ("sender=", "sender"),
        ("since=5", "since"),
    ],
)
def test_a_wrong_question_is_refused_by_its_name(tmp_path: Path, asked: str, field: str) -> None:
    async def test(app: InProcess) -> None:
        reply = await reader(app)(f"/v1/audit?{asked}")
        assert reply.status == 422, reply.json()
        assert [error["field"] for error in reply.json()["errors"]] == [field]

    in_process(tmp_path, test)


def test_only_administrators_may_ask(tmp_path: Path) -> None:
    played(tmp_path)

    async def test(app: InProcess) -> None:
        own = app.credentials.create("alice's phone", [], player="alice")[1]
        service = app.credentials.create("game", ["scores:write", "players:write"])[1]
        assert (await app.get("/v1/audit?player=alice")).status == 401
        for token in (own, service):
            assert (await app.get("/v1/audit?player=alice", authorization=f"Bearer {token}")).status == 403
        assert (await reader(app)("/v1/audit?player=alice")).status == 200

    in_process(tmp_path, test)


def test_where_requests_came_from_is_kept_when_that_is_asked_for(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"{}"}

        sent = {
            "authorization": f"Bearer {app.credentials.create('console', ['boards:admin'])[1]}",
            "content_type": "application/json",
            "content_length": "2",
            "user_agent": "game/1\x1b\u202eö" + "x" * 1_000,
            "x_request_id": "from-the-console",
        }
        assert (await app.ask("PUT", "/v1/boards/arcade", receive, **sent)).status == 200
        (event,) = (await reader(app)("/v1/audit")).json()["events"]
        assert (event["kind"], event["sender"], event["request_id"]) == ("define", "console", "from-the-console")
        assert event["user_agent"] == ("game/1\ufffd\ufffdö" + "x" * 1_000)[:256]
        assert event["address"] == "127.0.0.1"

    in_process(tmp_path, test, Config(server=ServerConfig(record_origin=True)))


def test_a_client_refuses_what_a_server_would() -> None:
    for asked in ({"kind": "scores"}, {"player": ""}, {"board": "A B"}, {"sender": ""}, {"cursor": "x"}):
        with pytest.raises(InvalidValue):
            calls.audit(**asked)  # type: ignore[arg-type]
    call = calls.audit(player="a/b", since=5, limit=3)
    assert call.target == "/v1/audit?player=a%2Fb&from=5&limit=3"
