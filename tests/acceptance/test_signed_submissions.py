"""A signed submission counts once, for the player whom its body names, whoever carries it and however often."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from rankd.api.auth.signing import sign
from rankd.clock import SystemClock
from rankd.registry.credentials import Scope
from rankd.registry.sqlite.credentials import SqliteCredentials

from .serving import Serving, serving

CONFIG = """
[boards.relayed]
writes = "players"
signing = "relay"
keep = "sum"
[boards.also]
writes = "players"
signing = "relay"
keep = "sum"
[boards.other]
writes = "players"
signing = "another"
[boards.plain]
writes = "players"
keep = "sum"
[limits]
player_writes_per_s = 0
"""


class Stage(NamedTuple):
    """A server with signing boards, the secrets of their keys, and a token of each sender."""

    server: Serving
    secrets: dict[str, str]
    tokens: dict[str, str]

    def send(
        self,
        body: object,
        by: str = "alice",
        *,
        key: str = "match-1",
        secret: str | None = None,
        path: str = "/v1/scores",
        **headers: str,
    ) -> httpx.Response:
        """Send a body, signed now with the key `relay` unless other headers are given."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        now = int(time.time())
        sent = {
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            "X-Rankd-Timestamp": str(now),
            "X-Rankd-Signature": sign(secret or self.secrets["relay"], now, key, content),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        with self.server.client(self.tokens[by]) as client:
            return client.post(path, content=content, headers=sent)

    def score(self, board: str, player: str) -> int | None:
        """Return what a player has on a board."""
        with self.server.client() as anybody:
            answer = anybody.get(f"/v1/boards/{board}/players/{player}")
            return answer.json()["score"] if answer.status_code == 200 else None


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with serving(tmp_path_factory.mktemp("signed") / "data", config=CONFIG) as server:
        with SqliteCredentials(server.folder, SystemClock()) as credentials:
            secrets = {name: credentials.create_signing_key(name) for name in ("relay", "another")}
            tokens = {name: credentials.create(name, [], player=name)[1] for name in ("alice", "bob")}
            for name in ("one", "two"):
                tokens[name] = credentials.create(name, [Scope.SCORES_WRITE])[1]
        server.assert_known(tokens["two"])
        yield Stage(server, secrets, tokens)


@pytest.fixture
def player(request: pytest.FixtureRequest) -> str:
    """A player of the test's own."""
    return str(request.node.name)


def problem(answer: httpx.Response) -> tuple[int, str, list[dict[str, Any]]]:
    body = answer.json()
    return answer.status_code, body["code"], body.get("errors", [])


def test_a_board_that_wants_signatures_takes_nothing_else(stage: Stage) -> None:
    body = {"board": "relayed", "player": "alice", "score": 5}
    now = int(time.time())
    content = json.dumps(body).encode()
    old = sign(stage.secrets["relay"], now - 301, "first", content)

    assert stage.send(body, key="first").status_code == 200
    assert stage.send(body, key="first").json()["repeated"] is True
    assert stage.send(body, key="second", X_Rankd_Signature="").status_code == 403
    assert stage.send({**body, "score": 9}, key="second", secret="rs_made_up").status_code == 403
    assert stage.send(body, key="first", X_Rankd_Timestamp=str(now - 301), X_Rankd_Signature=old).status_code == 403
    assert stage.score("relayed", "alice") == 5


def test_a_body_that_leaves_the_player_out_is_refused_with_the_remedy(stage: Stage) -> None:
    status, code, errors = problem(stage.send({"board": "relayed", "score": 100}, "bob", key="nobody's"))

    assert (status, code, errors[0]["field"]) == (422, "invalid_value", "player")
    assert "write the player into the body, then sign it" in errors[0]["problem"]
    assert stage.score("relayed", "bob") is None


def test_every_event_of_a_signing_board_names_its_player(stage: Stage, player: str) -> None:
    events = [
        {"board": "plain", "player": player, "score": 1},
        {"board": "relayed", "player": player, "score": 1},
        {"board": "also", "score": 1},
    ]
    answer = stage.send({"events": events}, "one", key=player, path="/v1/scores/batch")

    status, code, errors = problem(answer)
    assert (status, code, errors[0]["field"]) == (422, "invalid_value", "events[2].player")
    assert stage.score("plain", player) is None


def test_a_repeat_counts_once_whoever_sends_it(stage: Stage, player: str) -> None:
    body = {"board": "relayed", "player": player, "score": 100}

    answers = [stage.send(body, by, key=player) for by in ("one", "two", "one")]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert [answer.json()["repeated"] for answer in answers] == [False, True, True]
    assert len({answer.json()["position"] for answer in answers}) == 1
    assert stage.send(body, "alice", key=player).status_code == 403  # which names somebody else
    assert stage.score("relayed", player) == 100


def test_a_players_own_token_and_a_service_share_the_key_of_a_signed_body(stage: Stage) -> None:
    body = {"board": "also", "player": "bob", "score": 7}

    assert stage.send(body, "bob", key="bob's match").json()["repeated"] is False
    assert stage.send(body, "one", key="bob's match").json()["repeated"] is True
    assert stage.score("also", "bob") == 7


def test_another_body_under_the_same_key_is_refused_whoever_sends_it(stage: Stage, player: str) -> None:
    body = {"board": "relayed", "player": player, "score": 1}
    assert stage.send(body, "one", key=player).status_code == 200

    for other in ({**body, "score": 2}, {**body, "player": "somebody"}, {**body, "board": "also"}):
        assert problem(stage.send(other, "two", key=player))[:2] == (409, "key_reused")
    assert stage.score("relayed", player) == 1


def test_a_signed_body_counts_once_whichever_call_it_is_sent_to(stage: Stage, player: str) -> None:
    body = {"board": "relayed", "player": player, "score": 3}
    assert stage.send(body, "one", key=player).status_code == 200

    lines = {"path": "/v1/scores/batch", "Content_Type": "application/x-ndjson"}
    assert problem(stage.send(body, "two", key=player, **lines))[:2] == (409, "key_reused")
    assert stage.score("relayed", player) == 3


def test_a_batch_is_signed_as_a_whole_and_counts_once(stage: Stage, player: str) -> None:
    events = [{"board": board, "player": player, "score": 4} for board in ("relayed", "plain", "also")]

    answers = [stage.send({"events": events}, by, key=player, path="/v1/scores/batch") for by in ("one", "two")]

    assert [answer.json()["repeated"] for answer in answers] == [False, True]
    assert [stage.score(board, player) for board in ("relayed", "plain", "also")] == [4, 4, 4]


def test_boards_with_different_signing_keys_are_sent_separately(stage: Stage, player: str) -> None:
    events = [{"board": board, "player": player, "score": 4} for board in ("relayed", "other")]

    for secret in stage.secrets.values():
        answer = stage.send({"events": events}, "one", key=player, secret=secret, path="/v1/scores/batch")
        status, code, errors = problem(answer)
        assert (status, code, errors[0]["field"]) == (422, "invalid_value", "events")
        assert "relayed names relay, other another; send them in separate requests" in errors[0]["problem"]
    assert stage.score("relayed", player) is None


def test_keys_of_unsigned_boards_stay_those_of_the_account(stage: Stage, player: str) -> None:
    body = {"board": "plain", "player": player, "score": 2}

    answers = [stage.send(body, by, key=player) for by in ("one", "two", "two")]

    assert [answer.json()["repeated"] for answer in answers] == [False, False, True]
    assert stage.score("plain", player) == 4


def test_a_board_that_is_not_signed_cannot_feed_one_that_is(stage: Stage) -> None:
    with stage.server.client(stage.server.admin_key) as admin:
        answers = [
            admin.put("/v1/boards/frame", json={"feeds": ["relayed"], **more})
            for more in ({}, {"signing": "another"}, {"signing": "relay"})
        ]
        grown = admin.put("/v1/boards/plain", json={"writes": "players", "keep": "sum", "feeds": ["relayed"]})

    assert [answer.status_code for answer in answers] == [422, 422, 200]
    assert problem(answers[0])[2][0]["field"] == "feeds"
    assert 'define frame with signing = "relay"' in answers[0].json()["detail"]
    assert grown.status_code == 422
