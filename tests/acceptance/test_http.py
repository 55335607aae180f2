"""What a game does over HTTP, against the real server."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from .serving import Serving, serving

BOARD = {"keep": "best", "windows": ["all_time", "weekly", "daily"], "scopes": ["country"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("http") / "data") as running:
        with running.client(running.admin_key) as admin:
            assert admin.put("/v1/boards/arcade", json=BOARD).status_code == 200
            for player, score in (("alice", 976), ("bob", 965), ("carol", 940)):
                sent = {"board": "arcade", "player": player, "score": score, "attributes": {"country": "BR"}}
                assert admin.post("/v1/scores", json=sent).status_code == 200
        yield running


@pytest.fixture
def admin(server: Serving) -> Iterator[httpx.Client]:
    with server.client(server.admin_key) as client:
        yield client


@pytest.fixture
def anybody(server: Serving) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def test_anybody_reads_where_a_player_stands(anybody: httpx.Client) -> None:
    answer = anybody.get("/v1/boards/arcade/players/bob").json()

    assert (answer["rank"], answer["score"], answer["total"]) == (2, 965, 3)
    assert answer["window"] == "all_time"
    assert answer["exact"] is True


def test_pages_follow_each_other_by_cursor(anybody: httpx.Client) -> None:
    seen, path = [], "/v1/boards/arcade/top?limit=1"
    while path:
        page = anybody.get(path).json()
        seen += [entry["player"] for entry in page["entries"]]
        path = f"/v1/boards/arcade/top?limit=1&cursor={page['next']}" if page["next"] else ""

    assert seen == ["alice", "bob", "carol"]


def test_a_client_that_has_the_answer_gets_a_304(anybody: httpx.Client) -> None:
    first = anybody.get("/v1/boards/arcade/top")
    again = anybody.get("/v1/boards/arcade/top", headers={"If-None-Match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")
    assert "max-age=1" in first.headers["cache-control"]


def test_a_tag_changes_with_the_instance_and_with_nothing_else(admin: httpx.Client, anybody: httpx.Client) -> None:
    admin.put("/v1/boards/tagged", json={"windows": ["all_time", "daily"]})
    admin.put("/v1/boards/other", json={})
    admin.post("/v1/scores", json={"board": "tagged", "player": "alice", "score": 5})
    tag = anybody.get("/v1/boards/tagged/top").headers["etag"]
    admin.post("/v1/scores", json={"board": "other", "player": "alice", "score": 5})
    kept = anybody.get("/v1/boards/tagged/top", headers={"If-None-Match": tag}).status_code
    admin.post("/v1/scores", json={"board": "tagged", "player": "bob", "score": 6})
    changed = anybody.get("/v1/boards/tagged/top", headers={"If-None-Match": tag}).status_code
    tag = anybody.get("/v1/boards/tagged/top").headers["etag"]
    admin.put("/v1/players/bob", json={"name": "Bob"})
    renamed = anybody.get("/v1/boards/tagged/top", headers={"If-None-Match": tag}).status_code

    assert (kept, changed, renamed) == (304, 200, 200)


def test_what_waits_for_a_position_is_not_kept(admin: httpx.Client, anybody: httpx.Client) -> None:
    sent = admin.post("/v1/scores", json={"board": "arcade", "player": "dave", "score": 1}).json()
    answer = anybody.get("/v1/boards/arcade/players/dave", params={"at_least": sent["position"]})
    admin.delete("/v1/boards/arcade/players/dave")

    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers


def test_large_pages_are_compressed_for_those_who_ask(admin: httpx.Client, anybody: httpx.Client) -> None:
    admin.put("/v1/boards/large", json={})
    events = [{"board": "large", "player": f"player-{number:04d}", "score": number} for number in range(500)]
    assert admin.post("/v1/scores/batch", json={"events": events}).json()["count"] == 500
    packed = anybody.get("/v1/boards/large/top?limit=500", headers={"Accept-Encoding": "gzip"})
    plain = anybody.get("/v1/boards/large/top?limit=500", headers={"Accept-Encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) // 3
    assert [entry["player"] for entry in packed.json()["entries"]] == [f"player-{n:04d}" for n in range(499, -1, -1)]


def test_a_key_makes_a_write_count_once_whatever_it_is(admin: httpx.Client) -> None:
    admin.put("/v1/boards/once", json={"keep": "sum"})
    key = {"Idempotency-Key": "match-8731"}
    sent = {"board": "once", "player": "alice", "score": 5}
    first = admin.post("/v1/scores", json=sent, headers=key).json()
    again = admin.post("/v1/scores", json=sent, headers=key).json()
    other = admin.post("/v1/scores", json={**sent, "score": 6}, headers=key)

    assert again == {**first, "repeated": True}
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")
    assert admin.post("/v1/boards/once/reset", headers={"Idempotency-Key": "monday"}).json()["changed"]
    admin.post("/v1/scores", json=sent)
    assert admin.post("/v1/boards/once/reset", headers={"Idempotency-Key": "monday"}).json()["repeated"]
    assert admin.get("/v1/boards/once/top").json()["total"] == 1


def test_an_administrator_sees_who_sent_what(admin: httpx.Client) -> None:
    admin.put("/v1/boards/traced", json={})
    admin.post("/v1/scores", json={"board": "traced", "player": "alice", "score": 5})
    admin.post("/v1/scores", json={"board": "traced", "player": "alice", "score": 9})
    answer = admin.get("/v1/boards/traced/players/alice/events").json()

    assert [event["score"] for event in answer["events"]] == [9, 5]
    assert {event["sender"] for event in answer["events"]} == {"admin"}
    assert {event["origin"] for event in answer["events"]} == {None}


def test_profiles_friends_and_search(admin: httpx.Client, anybody: httpx.Client) -> None:
    admin.put("/v1/players/alice", json={"name": "Alice", "country": "BR"})
    admin.put("/v1/players/alice/friends", json={"players": ["carol", "nobody"]})
    group = admin.get("/v1/boards/arcade/players/alice/friends").json()["entries"]

    assert anybody.get("/v1/players/alice").json()["name"] == "Alice"
    assert [player["player"] for player in anybody.get("/v1/players?search=ali").json()["players"]] == ["alice"]
    assert [(entry["player"], entry["rank"], entry["global_rank"]) for entry in group] == [
        ("alice", 1, 1),
        ("carol", 2, 3),
    ]
    assert anybody.get("/v1/boards/arcade/top").json()["entries"][0]["name"] == "Alice"


def test_a_head_has_the_headers_and_no_body(anybody: httpx.Client) -> None:
    answer = anybody.head("/v1/boards/arcade/top")

    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) > 100
    assert answer.content == b""
