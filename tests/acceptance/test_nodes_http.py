"""Two nodes on one PostgreSQL ledger: the whole API on either, whichever was written to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.waiting import WAIT_S, wait_until

from rankd.api.auth.signing import sign
from rankd.clock import SystemClock
from rankd.registry.postgres.credentials import PostgresCredentials

from .live_clients import event_stream, web_socket
from .scaled_serving import Nodes, nodes_installed
from .serving import Serving

BOARDS_AT_ONCE = 25
KEYS_AT_ONCE = 40
QUICK_S = 1.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    needs_postgres()
    with nodes_installed(tmp_path_factory.mktemp("nodes")) as running:
        yield running


@pytest.fixture(scope="module")
def both(nodes: Nodes) -> tuple[Serving, Serving]:
    started = nodes.start_node("a"), nodes.start_node("b")
    for serving in started:
        serving.wait_until_ready()
    return started


@pytest.fixture
def a(nodes: Nodes, both: tuple[Serving, Serving]) -> Iterator[httpx.Client]:
    with both[0].client(nodes.admin) as client:
        yield client


@pytest.fixture
def b(nodes: Nodes, both: tuple[Serving, Serving]) -> Iterator[httpx.Client]:
    with both[1].client(nodes.admin) as client:
        yield client


@pytest.fixture
def board(a: httpx.Client, request: pytest.FixtureRequest) -> str:
    return define(a, f"b{abs(hash(request.node.name)) % 10**9}", windows=["all_time", "weekly"], scopes=["country"])


def define(client: httpx.Client, board: str, **definition: Any) -> str:
    answer = client.put(f"/v1/boards/{board}", json=definition)
    assert answer.status_code == 200, answer.text
    return board


def submit(client: httpx.Client, board: str, player: str, score: int, **more: Any) -> dict[str, Any]:
    answer = client.post("/v1/scores", json={"board": board, "player": player, "score": score, **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def page(client: httpx.Client, board: str, **where: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/boards/{board}/top", params=where)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def shown(body: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a page shows, without when."""
    return body["total"], body["entries"]


# Scores


def test_a_score_is_answered_with_its_rank_among_those_of_either_node(
    a: httpx.Client, b: httpx.Client, board: str
) -> None:
    for turn in range(20):  # none of them waits for the other to have followed
        low, high = submit(a, board, f"low-{turn}", 10 + turn), submit(b, board, f"high-{turn}", 1_000 - turn)
        assert (high["rank"], high["previous_rank"]) == (turn + 1, None)
        assert low["rank"] == turn + 1  # behind as many of the other node's

    improved = submit(b, board, "low-0", 2_000)
    assert (improved["rank"], improved["previous_rank"], improved["previous_score"]) == (1, 40, 10)


def test_who_prefers_to_wait_gets_the_rank_as_everybody_does(a: httpx.Client, board: str) -> None:
    sent = {"board": board, "player": "alice", "score": 976}
    answer = a.post("/v1/scores", json=sent, headers={"Prefer": "wait=5"})
    assert (answer.status_code, answer.json()["rank"]) == (200, 1)


def test_a_read_waits_for_what_the_other_node_has_acknowledged(a: httpx.Client, b: httpx.Client, board: str) -> None:
    for score in range(1, 30):
        position = submit(a, board, "alice", score)["position"]
        standing = b.get(f"/v1/boards/{board}/players/alice", params={"at_least": position}).json()
        assert (standing["score"], standing["stale"]) == (score, False)


def test_a_position_that_no_ledger_has_is_waited_for_in_vain(b: httpx.Client, board: str) -> None:
    answer = b.get(f"/v1/boards/{board}/top", params={"at_least": "0-999999999"})
    assert (answer.status_code, answer.json()["code"]) == (503, "behind")


def test_a_key_that_is_sent_to_both_nodes_at_once_counts_once(a: httpx.Client, b: httpx.Client) -> None:
    define(a, "keyed", keep="sum")

    def send(client: httpx.Client, number: int) -> dict[str, Any]:
        sent = {"board": "keyed", "player": f"p{number % 4}", "score": 10}
        answer = client.post("/v1/scores", json=sent, headers={"Idempotency-Key": f"match-{number}"})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    with ThreadPoolExecutor(8) as threads:
        sent = [(threads.submit(send, a, number), threads.submit(send, b, number)) for number in range(KEYS_AT_ONCE)]
        answers = [(first_call.result(WAIT_S), second_call.result(WAIT_S)) for first_call, second_call in sent]

    for first_answer, second_answer in answers:
        assert first_answer["position"] == second_answer["position"]
        assert {first_answer["repeated"], second_answer["repeated"]} == {True, False}
        assert None not in (first_answer["rank"], second_answer["rank"])
    board_page = page(b, "keyed", at_least=answers[-1][0]["position"])
    assert [entry["score"] for entry in board_page["entries"]] == [10 * KEYS_AT_ONCE // 4] * 4


def test_another_body_under_a_key_of_the_other_node_is_refused(a: httpx.Client, b: httpx.Client, board: str) -> None:
    key = {"Idempotency-Key": "one-body"}
    a.post("/v1/scores", json={"board": board, "player": "alice", "score": 1}, headers=key)
    answer = b.post("/v1/scores", json={"board": board, "player": "alice", "score": 2}, headers=key)
    assert (answer.status_code, answer.json()["code"]) == (409, "key_reused")


# Definitions


@pytest.mark.parametrize("keyed", [False, True])
def test_a_board_is_defined_on_one_node_and_written_on_the_other_at_once(
    keyed: bool, a: httpx.Client, b: httpx.Client
) -> None:
    for number in range(BOARDS_AT_ONCE):
        name = define(a, f"fresh-{keyed}-{number}".lower(), keep="sum")
        sent = {"board": name, "player": "alice", "score": 1}
        headers = {"Idempotency-Key": f"fresh-{number}"} if keyed else {}
        single = b.post("/v1/scores", json=sent, headers=headers)
        assert (single.status_code, single.json().get("rank")) == (200, 1), single.text
        name = define(a, f"many-{keyed}-{number}".lower(), keep="sum")
        many = b.post("/v1/scores/batch", json={"events": [{**sent, "board": name}]})
        assert (many.status_code, many.json().get("count")) == (200, 1), many.text


@pytest.mark.parametrize(
    "read",
    [
        lambda client, name: client.get(f"/v1/boards/{name}"),
        lambda client, name: client.get(f"/v1/boards/{name}/top"),
        lambda client, name: client.get(f"/v1/boards/{name}/distribution"),
        lambda client, name: client.get(f"/v1/boards/{name}/scores/7"),
        lambda client, name: client.post(f"/v1/boards/{name}/ranks", json={"players": ["alice"]}),
        lambda client, name: client.post(f"/v1/boards/{name}/reset", json={}),
    ],
    ids=["definition", "top", "distribution", "what-if", "ranks", "reset"],
)
def test_a_board_is_defined_on_one_node_and_known_to_every_call_of_the_other(
    read: Callable[[httpx.Client, str], httpx.Response], a: httpx.Client, b: httpx.Client, request: Any
) -> None:
    for number in range(5):
        name = define(a, f"known-{request.node.callspec.id}-{number}")
        answer = read(b, name)
        assert answer.status_code == 200, answer.text


def test_a_signed_score_reaches_a_board_that_was_defined_on_the_other_node_at_once(
    nodes: Nodes, a: httpx.Client, b: httpx.Client
) -> None:
    with PostgresCredentials(nodes.ledger_url, SystemClock()) as credentials:
        secret = credentials.create_signing_key("relay")
    define(a, "signed-first", signing="relay")

    def send(name: str) -> httpx.Response:
        body, now = json.dumps({"board": name, "player": "alice", "score": 1}).encode(), int(time.time())
        key = f"match-{name}"
        signed = {"X-Rankd-Timestamp": str(now), "X-Rankd-Signature": sign(secret, now, key, body)}
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, **signed}
        return b.post("/v1/scores", content=body, headers=headers)

    wait_until(lambda: send("signed-first").status_code == 200)  # a new key is noticed soon
    for number in range(5):
        answer = send(define(a, f"signed-{number}", signing="relay"))
        assert answer.status_code == 200, answer.text


def test_a_board_that_one_node_opened_again_takes_scores_on_the_other_at_once(a: httpx.Client, b: httpx.Client) -> None:
    for number in range(5):
        name = define(a, f"again-{number}", score_max=10)
        define(a, name, score_max=10, open=False)
        submit_refused = b.post("/v1/scores", json={"board": name, "player": "alice", "score": 1})
        assert submit_refused.json()["code"] == "board_closed"
        define(a, name, score_max=1_000)
        assert submit(b, name, "alice", 999)["rank"] == 1


def test_two_nodes_define_the_same_board_at_once(a: httpx.Client, b: httpx.Client) -> None:
    with ThreadPoolExecutor(2) as threads:
        for number in range(10):
            path = f"/v1/boards/twice-{number}"
            same = [threads.submit(client.put, path, json={"keep": "sum"}) for client in (a, b)]
            assert [request.result(WAIT_S).status_code for request in same] == [200, 200]
            assert sorted(request.result(WAIT_S).json()["changed"] for request in same) == [False, True]

            path = f"/v1/boards/either-{number}"
            either = [
                threads.submit(client.put, path, json={"keep": keep}) for client, keep in ((a, "sum"), (b, "best"))
            ]
            assert sorted(request.result(WAIT_S).status_code for request in either) == [200, 409]
            assert a.get(path).json()["keep"] == b.get(path).json()["keep"]


def test_a_board_that_nobody_defined_is_unknown_to_both(a: httpx.Client, b: httpx.Client) -> None:
    for client in (a, b):
        assert client.get("/v1/boards/nobodys/top").status_code == 404
        answer = client.post("/v1/scores", json={"board": "nobodys", "player": "alice", "score": 1})
        assert (answer.status_code, answer.json()["code"]) == (404, "board_unknown")


# What boards can be


def test_every_kind_of_board_is_the_same_on_both_nodes(a: httpx.Client, b: httpx.Client) -> None:
    define(a, "guilds", team={"attribute": "guild", "by": "sum"}, keep="sum")
    define(b, "xp", keep="sum")
    define(b, "arcade-fed", feeds=["xp", "guilds"], ties="value", scopes=["country"])
    define(a, "fading", decay={"factor": 0.9, "every": "1d"}, score_min=1, ties="player", keep="latest")
    clients, position = (a, b), ""
    for number in range(60):
        client = clients[number % 2]
        attributes = {"guild": f"g{number % 3}", "country": "BR" if number % 4 else "JP"}
        submit(client, "fading", f"p{number % 9}", 1 + number)
        sent = submit(client, "arcade-fed", f"p{number % 7}", number % 11, tiebreak=number, attributes=attributes)
        position = sent["position"]

    # The sum of a guild follows the ledger's own order, so both nodes have it alike.
    assert sum(entry["score"] for entry in page(a, "guilds", at_least=position)["entries"]) == sum(
        number % 11 for number in range(60)
    )
    for name, where in [
        ("guilds", {}),
        ("xp", {}),
        ("arcade-fed", {"ranking": "dense"}),
        ("arcade-fed", {"scope": "country:JP"}),
        ("fading", {}),
    ]:
        wait_until(lambda name=name, where=where: shown(page(a, name, **where)) == shown(page(b, name, **where)))  # type: ignore[misc]
    for path in ("arcade-fed/distribution", "arcade-fed/players/p1", "arcade-fed/players/p1?ranking=dense"):
        first_page, second_page = (client.get(f"/v1/boards/{path}").json() for client in (a, b))
        for when in ("position", "as_of"):
            del first_page[when], second_page[when]
        assert first_page == second_page


def test_percentiles_and_dense_ranks_are_answered_by_both(a: httpx.Client, b: httpx.Client, board: str) -> None:
    for number, score in enumerate([50, 40, 40, 10]):
        submit((a, b)[number % 2], board, f"p{number}", score)
    for client in (a, b):
        standing = client.get(f"/v1/boards/{board}/players/p3", params={"ranking": "dense"})
        wait_until(lambda client=client: page(client, board)["total"] == 4)  # type: ignore[misc]
        standing = client.get(f"/v1/boards/{board}/players/p3", params={"ranking": "dense"}).json()
        assert (standing["rank"], standing["percentile"], standing["top_percent"]) == (3, 0.0, 100.0)


def test_names_and_metadata_stored_on_one_node_are_shown_by_the_other(
    a: httpx.Client, b: httpx.Client, board: str
) -> None:
    assert a.put("/v1/players/zoe", json={"name": "Zoë", "country": "BR"}).status_code == 200
    submit(a, board, "zoe", 5, metadata={"replay": 17})
    wait_until(lambda: page(b, board)["entries"][:1] != [] and page(b, board)["entries"][0].get("name") == "Zoë")
    assert page(b, board)["entries"][0]["metadata"] == {"replay": 17}
    wait_until(lambda: [player["player"] for player in b.get("/v1/players?search=zo").json()["players"]] == ["zoe"])


# What clients keep, and what they watch


def test_a_tag_holds_until_something_changes_on_either_node(a: httpx.Client, b: httpx.Client, board: str) -> None:
    position = submit(a, board, "alice", 5)["position"]
    page(b, board, at_least=position)
    first = b.get(f"/v1/boards/{board}/top")
    again = b.get(f"/v1/boards/{board}/top", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304

    position = submit(a, board, "bob", 6)["position"]
    page(b, board, at_least=position)
    changed = b.get(f"/v1/boards/{board}/top", headers={"If-None-Match": first.headers["etag"]})
    assert (changed.status_code, changed.json()["total"]) == (200, 2)


@pytest.mark.parametrize("watch", [event_stream, web_socket], ids=["events", "websocket"])
def test_what_is_written_on_one_node_is_seen_live_on_the_other(
    watch: Any, nodes: Nodes, both: tuple[Serving, Serving], a: httpx.Client, board: str
) -> None:
    with watch(both[1].url, f"top:{board}", token=nodes.admin) as live:
        assert live.next().type == "snapshot"
        submit(a, board, "alice", 976)
        assert "alice" in json.dumps(live.next().data)


@pytest.mark.parametrize("watch", [event_stream, web_socket], ids=["events", "websocket"])
def test_a_live_connection_to_one_node_begins_on_a_board_that_the_other_has_just_defined(
    watch: Any, nodes: Nodes, both: tuple[Serving, Serving], a: httpx.Client
) -> None:
    for number in range(5):
        name = define(a, f"watched-{watch.__name__}-{number}".replace("_", "-"))
        with watch(both[1].url, f"top:{name}", token=nodes.admin) as live:
            assert live.next().type == "snapshot"


# While PostgreSQL hangs


def test_reads_are_answered_at_once_while_postgres_hangs_and_somebody_waits_for_a_name(
    nodes: Nodes, both: tuple[Serving, Serving], a: httpx.Client, b: httpx.Client, board: str
) -> None:
    a.put("/v1/players/named", json={"name": "Named"})
    position = submit(a, board, "unasked", 1)["position"]
    page(b, board, at_least=position)
    wait_until(lambda: b.get("/v1/players/named").status_code == 200)  # b knows that there are profiles
    nodes.postgres.pause()
    try:
        with ThreadPoolExecutor(2) as threads, both[1].client() as waiting, both[1].client() as quick:
            slow = threads.submit(waiting.get, f"/v1/boards/{board}/players/unasked")
            nobodys = threads.submit(waiting.get, "/v1/boards/not-known-here/top")
            asked = 0
            while not slow.done() or asked < 20:
                began = time.monotonic()
                assert quick.get("/healthz").status_code == 200
                assert time.monotonic() - began < QUICK_S
                asked += 1
            assert (slow.result(WAIT_S).status_code, slow.result(WAIT_S).json()["rank"]) == (200, 1)
            assert nobodys.result(WAIT_S).status_code == 503
    finally:
        nodes.postgres.resume()
