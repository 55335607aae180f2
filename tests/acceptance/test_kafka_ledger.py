"""Two nodes on a Kafka ledger: the whole way of a score over HTTP, on either, whichever was written to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.kafka import KafkaBroker
from tests.servers.topics import Topics
from tests.servers.waiting import wait_until

from rankd.kafka.clients import KafkaAdmin

from .live_clients import event_stream
from .scaled_serving import Nodes, nodes_installed
from .serving import Serving

WAIT = {"Prefer": "wait=10"}
DEAD_LETTERS = "score-events-dlq"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaBroker) -> Iterator[Nodes]:
    needs_postgres()
    waiting = {"RANKD_RANKS_AT_LEAST_WAIT_MS": "20000"}
    with nodes_installed(tmp_path_factory.mktemp("log"), waiting, kafka.url) as running:
        yield running


@pytest.fixture(scope="module")
def both(nodes: Nodes) -> tuple[Serving, Serving]:
    started = nodes.start_node("a"), nodes.start_node("b")
    for serving in started:
        serving.wait_until_ready()
    return started


@pytest.fixture
def a(nodes: Nodes, both: tuple[Serving, Serving]) -> Iterator[httpx.Client]:
    with both[0].client(nodes.admin, timeout_s=30.0) as client:
        yield client


@pytest.fixture
def b(nodes: Nodes, both: tuple[Serving, Serving]) -> Iterator[httpx.Client]:
    with both[1].client(nodes.admin, timeout_s=30.0) as client:
        yield client


def define(client: httpx.Client, board: str, **definition: Any) -> str:
    answer = client.put(f"/v1/boards/{board}", json=definition)
    assert answer.status_code == 200, answer.text
    return board


def submit(
    client: httpx.Client, board: str, player: str, score: int, headers: dict[str, str] | None = None, **more: Any
) -> httpx.Response:
    sent = {"board": board, "player": player, "score": score, **more}
    return client.post("/v1/scores", json=sent, headers=headers)


def page(client: httpx.Client, board: str, at_least: str) -> list[tuple[str, int]]:
    answer = client.get(f"/v1/boards/{board}/top", params={"at_least": at_least})
    assert answer.status_code == 200, answer.text
    return [(entry["player"], entry["score"]) for entry in answer.json()["entries"]]


def test_a_score_is_accepted_and_ranked_by_both(a: httpx.Client, b: httpx.Client) -> None:
    define(a, "arcade", windows=["all_time", "weekly"])
    accepted = submit(b, "arcade", "alice", 976)  # which had not heard of the board

    assert accepted.status_code == 202, accepted.text
    assert accepted.json()["status"] == "accepted"
    for client in (a, b):
        assert page(client, "arcade", accepted.json()["position"]) == [("alice", 976)]


def test_who_prefers_to_wait_gets_the_rank(a: httpx.Client, b: httpx.Client) -> None:
    define(a, "waited", windows=["all_time"])
    first = submit(a, "waited", "alice", 10, WAIT)
    second = submit(b, "waited", "bob", 20, WAIT)
    third = submit(a, "waited", "alice", 30, WAIT)

    assert [answer.status_code for answer in (first, second, third)] == [200, 200, 200]
    assert (second.json()["rank"], second.json()["previous_rank"]) == (1, None)
    answer = third.json()
    assert (answer["rank"], answer["score"], answer["changed"]) == (1, 30, True)


def test_a_team_is_ranked_soon_though_most_partitions_are_idle(a: httpx.Client, b: httpx.Client) -> None:
    define(a, "clans", team={"attribute": "clan", "by": "sum"}, keep="sum")
    first = submit(a, "clans", "alice", 10, WAIT, attributes={"clan": "red"})
    second = submit(b, "clans", "bob", 5, WAIT, attributes={"clan": "red"})

    assert (first.status_code, second.status_code) == (200, 200)
    for client in (a, b):
        assert page(client, "clans", second.json()["position"]) == [("red", 15)]


def test_a_key_counts_once_whichever_node_gets_it(a: httpx.Client, b: httpx.Client) -> None:
    define(a, "keyed", keep="sum")
    answers = [submit(client, "keyed", "alice", 10, {"Idempotency-Key": "match-1"}) for client in (a, b, a)]
    last = submit(b, "keyed", "alice", 1)

    assert [answer.status_code for answer in answers] == [202, 202, 202]
    assert page(a, "keyed", last.json()["position"]) == [("alice", 11)]


def test_a_change_of_a_board_that_comes_again_is_made_once(a: httpx.Client, b: httpx.Client) -> None:
    define(a, "changed", keep="sum")
    submit(a, "changed", "alice", 10, WAIT)
    reset = {"Idempotency-Key": "reset-1"}
    first = a.post("/v1/boards/changed/reset", json={}, headers=reset)
    submit(a, "changed", "alice", 5, WAIT)
    again = b.post("/v1/boards/changed/reset", json={}, headers=reset)
    other = b.post("/v1/boards/changed/reset", json={"window": "all_time"}, headers=reset)
    last = submit(b, "changed", "alice", 1)

    assert (first.json()["repeated"], again.json()["repeated"]) == (False, True)
    assert again.json()["position"] == first.json()["position"]
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")
    assert page(a, "changed", last.json()["position"]) == [("alice", 6)]


def test_a_removal_that_comes_again_is_made_once(a: httpx.Client, b: httpx.Client) -> None:
    define(a, "removed", keep="sum")
    submit(a, "removed", "alice", 10, WAIT)
    removal = {"Idempotency-Key": "removal-1"}
    assert a.delete("/v1/boards/removed/players/alice", headers=removal).status_code == 200
    submit(a, "removed", "alice", 5, WAIT)
    assert b.delete("/v1/boards/removed/players/alice", headers=removal).status_code == 200
    last = submit(b, "removed", "alice", 1)

    assert page(a, "removed", last.json()["position"]) == [("alice", 6)]


def test_a_definition_that_changed_nothing_and_comes_again_changes_nothing_later(
    a: httpx.Client, b: httpx.Client
) -> None:
    define(a, "defined", keep="sum", title="one")
    same = {"Idempotency-Key": "definition-1"}
    unchanged = b.put("/v1/boards/defined", json={"keep": "sum", "title": "one"}, headers=same)
    define(a, "defined", keep="sum", title="two")
    again = a.put("/v1/boards/defined", json={"keep": "sum", "title": "one"}, headers=same)

    assert (unchanged.status_code, again.status_code) == (200, 200)
    assert b.get("/v1/boards/defined").json()["title"] == "two"


def test_a_batch_that_comes_again_counts_once(a: httpx.Client, b: httpx.Client) -> None:
    define(a, "batched", keep="sum")
    events = [{"board": "batched", "player": f"p{number}", "score": number + 1} for number in range(50)]
    for client in (a, b):
        answer = client.post("/v1/scores/batch", json={"events": events}, headers={"Idempotency-Key": "batch-1"})
        assert (answer.status_code, answer.json()["count"]) == (200, 50)
    ranked = dict(page(a, "batched", answer.json()["position"]))
    assert ranked == {f"p{number}": number + 1 for number in range(40, 50)}


def test_what_does_not_fit_a_newer_definition_is_a_dead_letter(
    a: httpx.Client, b: httpx.Client, nodes: Nodes, kafka: KafkaBroker
) -> None:
    define(a, "reused", keep="sum")
    submit(a, "reused", "alice", 10, {"Idempotency-Key": "reused-1"})
    other = submit(b, "reused", "alice", 99, {"Idempotency-Key": "reused-1"})
    topics = Topics(kafka.address)

    assert other.status_code == 202
    assert page(a, "reused", other.json()["position"]) == [("alice", 10)]

    def letter_of_it() -> bool:
        letters = topics.read(DEAD_LETTERS, topics.end(DEAD_LETTERS))
        letter_headers = [topics.headers(letter) for letter in letters if b'"reused"' in (letter.value() or b"")]
        return any(headers["rankd-reason-code"] == "key_reused" for headers in letter_headers)

    admin = KafkaAdmin({"bootstrap.servers": kafka.address})
    wait_until(lambda: admin.partitions(DEAD_LETTERS) > 0 and letter_of_it())
    listed = nodes.run("dlq", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "key_reused" in [letter["code"] for letter in json.loads(listed.stdout)]
    assert "is a log" in nodes.run("dlq", "replay").stderr


def test_a_players_history_is_not_found(a: httpx.Client) -> None:
    define(a, "past")
    for path in ("/v1/boards/past/players/alice/events", "/v1/audit"):
        answer = a.get(path)
        assert (answer.status_code, answer.json()["code"]) == (422, "refused")
        assert "is a log" in answer.json()["detail"]


def test_a_watcher_sees_what_was_sent_to_the_other_node(
    a: httpx.Client, nodes: Nodes, both: tuple[Serving, Serving]
) -> None:
    define(a, "watched")
    with event_stream(both[1].url, "top:watched", token=nodes.admin) as stream:
        first = stream.next()
        submit(a, "watched", "alice", 1)
        change = stream.next()
    assert first is not None
    assert change is not None
    assert (first.type, change.type) == ("snapshot", "change")
    assert change.data["set"][0]["player"] == "alice"


def test_a_removal_and_a_reset_take_effect_everywhere(a: httpx.Client, b: httpx.Client) -> None:
    define(a, "shrinking")
    for player in ("alice", "bob"):
        submit(a, "shrinking", player, 5)
    removed = b.delete("/v1/boards/shrinking/players/alice")
    assert removed.status_code == 200, removed.text
    assert page(a, "shrinking", removed.json()["position"]) == [("bob", 5)]
    reset = b.post("/v1/boards/shrinking/reset")
    assert reset.status_code == 200, reset.text
    assert page(a, "shrinking", reset.json()["position"]) == []


def test_commands_prove_and_rebuild_what_a_node_has(nodes: Nodes, a: httpx.Client) -> None:
    define(a, "proved", keep="sum")
    upto = submit(a, "proved", "alice", 3).json()["position"]
    assert page(a, "proved", upto) == [("alice", 3)]
    for command in ("verify", "rebuild"):
        done = nodes.command("commands", command, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["entries"] > 0


def test_topics_are_not_consumed_into_a_log(nodes: Nodes) -> None:
    done = nodes.run("consume", RANKD_CONSUME_URL=nodes.stores.ledger_url, RANKD_CONSUME_TOPICS="a")
    assert done.returncode != 0
    assert "must be none where the ledger is Kafka" in " ".join(done.stderr.split())
