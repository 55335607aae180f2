"""Where reads are not public, a player's token sees that player and mutual friends, however it asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from rankd.clock import SystemClock
from rankd.registry.credentials import Scope
from rankd.registry.sqlite.credentials import SqliteCredentials

from .live_clients import Watching, event_stream, web_socket
from .serving import Serving, serving

CONFIG = """
[server]
public_read = false
[limits]
player_writes_per_s = 0
player_lists_per_minute = 0
[push]
push_interval_ms = 50
[boards.arcade]
[boards.sse]
[boards.ws]
"""
PLAYERS = ("alice", "bob", "carol", "dave")
STRANGERS = ("carol", "dave")
# Alice has stored everybody, and bob alone has stored her.
FRIENDS = {"alice": ["bob", "carol", "dave", "nobody"], "bob": ["alice"], "carol": ["bob"]}


class Stage(NamedTuple):
    """A private server with four players."""

    server: Serving
    tokens: dict[str, str]

    def get(self, path: str, by: str) -> Any:
        with self.server.client(self.tokens[by]) as client:
            return client.get(path)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with serving(tmp_path_factory.mktemp("private") / "data", config=CONFIG) as server:
        with SqliteCredentials(server.folder, SystemClock()) as credentials:
            tokens = {name: credentials.create(name, [], player=name)[1] for name in PLAYERS}
            tokens["reader"] = credentials.create("reader", [Scope.READ], player="alice")[1]
            tokens["service"] = credentials.create("service", [Scope.SCORES_WRITE])[1]
        server.assert_known(tokens["service"])
        with server.client(server.admin_key) as admin:
            scores = [
                {"board": board, "player": player, "score": 100 - rank}
                for board in ("arcade", "sse", "ws")
                for rank, player in enumerate(PLAYERS)
            ]
            assert admin.post("/v1/scores/batch", json={"events": scores}).status_code == 200
        for player, friends in FRIENDS.items():
            with server.client(tokens[player]) as client:
                assert client.put(f"/v1/players/{player}/friends", json={"players": friends}).status_code == 200
        yield Stage(server, tokens)


def shown(stage: Stage, by: str, player: str = "alice") -> list[str]:
    answer = stage.get(f"/v1/boards/arcade/players/{player}/friends", by)
    assert answer.status_code == 200, answer.text
    return [entry["player"] for entry in answer.json()["entries"]]


def test_a_player_sees_mutual_friends_only(stage: Stage) -> None:
    assert shown(stage, "alice") == ["alice", "bob"]
    assert shown(stage, "bob", "bob") == ["alice", "bob"]
    assert shown(stage, "carol", "carol") == ["carol"]
    assert shown(stage, "dave", "dave") == ["dave"]


def test_services_and_who_may_read_see_all_stored_friends(stage: Stage) -> None:
    for by in ("reader", "service"):
        assert shown(stage, by) == ["alice", "bob", "carol", "dave"]


def test_strangers_leave_no_trace_in_what_a_player_sees(stage: Stage) -> None:
    answer = stage.get("/v1/boards/arcade/players/alice/friends", "alice")

    assert not [name for name in STRANGERS if name in answer.text]
    assert [entry["rank"] for entry in answer.json()["entries"]] == [1, 2]


def test_whoever_is_nowhere_looks_like_a_friend_who_is_not_mutual(stage: Stage) -> None:
    """Otherwise the answer would tell who plays."""
    with stage.server.client(stage.tokens["dave"]) as dave:
        answers = []
        for friends in (["carol"], ["nobody at all"]):
            assert dave.put("/v1/players/dave/friends", json={"players": friends}).status_code == 200
            answers.append(dave.get("/v1/boards/arcade/players/dave/friends").json()["entries"])
        assert dave.put("/v1/players/dave/friends", json={"players": []}).status_code == 200

    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/boards/arcade/top",
        "/v1/boards/arcade/range?from=1&to=3",
        "/v1/boards/arcade/players/alice/around",
        "/v1/boards/arcade/players/alice/around?above=0&below=0",
        "/v1/boards/arcade/players/bob",
        "/v1/boards/arcade/players/carol",
        "/v1/boards/arcade/players/bob/around",
    ],
)
def test_everything_else_needs_the_scope_read(stage: Stage, path: str) -> None:
    refused = stage.get(path, "alice")

    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "use a token with the scope read" in refused.json()["detail"]
    assert [stage.get(path, by).status_code for by in ("reader", "service")] == [200, 200]


@pytest.mark.parametrize("call", ["ranks", "friends"])
def test_groups_of_ones_own_choice_need_the_scope_read(stage: Stage, call: str) -> None:
    statuses = []
    for by in ("alice", "reader", "service"):
        with stage.server.client(stage.tokens[by]) as client:
            statuses.append(client.post(f"/v1/boards/arcade/{call}", json={"players": ["alice", "bob"]}).status_code)

    assert statuses == [403, 200, 200]


def test_a_player_sees_their_own_rank(stage: Stage) -> None:
    assert stage.get("/v1/boards/arcade/players/alice", "alice").json()["rank"] == 1


@pytest.mark.parametrize("kind", ["sse", "ws"])
def test_live_topics_name_mutual_friends_only(stage: Stage, kind: str) -> None:
    """The board of each kind begins with alice, bob, carol and dave in this order."""
    own, by_service = (
        Watching(stage.server.url, kind, f"player:{kind}:bob", token=stage.tokens[by]) for by in ("bob", "service")
    )
    friends = Watching(stage.server.url, kind, f"friends:{kind}:alice", token=stage.tokens["alice"])
    for watching in (own, friends, by_service):
        assert watching.next().type == "snapshot"
    assert sorted(friends.table.entries) == ["alice", "bob"]

    with stage.server.client(stage.server.admin_key) as admin:
        scores = [{"board": kind, "player": player, "score": 200} for player in STRANGERS]
        assert admin.post("/v1/scores/batch", json={"events": scores}).status_code == 200
        overtaken = [own.next().data, by_service.next().data]
        assert admin.post("/v1/scores", json={"board": kind, "player": "bob", "score": 300}).status_code == 200
        passed = [own.next().data, by_service.next().data]
        friends.until(lambda: friends.table.entries["bob"]["rank"] == 1)

    assert overtaken[0]["set"][0]["rank"] == 4
    assert "overtaken_by" not in overtaken[0]
    assert overtaken[1]["overtaken_by"] == ["carol", "dave"]
    assert passed[0]["passed"] == ["alice"]
    assert passed[1]["passed"] == ["alice", "carol", "dave"]
    assert sorted(friends.table.entries) == ["alice", "bob"]
    for watching in (own, friends, by_service):
        watching.link.close()


def test_a_player_watches_no_top_and_nobody_else(stage: Stage) -> None:
    for topic in ("top:arcade", "player:arcade:bob", "friends:arcade:bob"):
        with event_stream(stage.server.url, topic, token=stage.tokens["alice"]) as refused:
            assert refused.status == 403
        with web_socket(stage.server.url, topic, token=stage.tokens["alice"]) as link:
            error = link.next()
            assert error is not None
            assert (error.type, error.data["code"]) == ("error", "forbidden")
