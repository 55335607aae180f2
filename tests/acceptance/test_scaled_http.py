"""Two API processes, a projector, PostgreSQL and Redis: the same API, by way of real HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.fixtures_redis import needs_redis
from tests.servers.postgres import running_postgres
from tests.servers.waiting import wait_until
from tests.timing import BUSY_MACHINE

import rankd
from rankd.api.auth.signing import sign
from rankd.clock import SystemClock
from rankd.errors import RanksUnfit
from rankd.node.open_projector import make_projector
from rankd.node.open_thin import open_thin
from rankd.node.shared_stores import SharedStores
from rankd.registry.credentials import Scope
from rankd.registry.postgres.credentials import PostgresCredentials

from .scaled_serving import Installation, installed
from .serving import Serving

pytestmark = pytest.mark.usefixtures("_servers")
PER_S = 5
REQUESTS = 100
HANGING_WAIT_S = 5.0 * BUSY_MACHINE
NONE: Mapping[str, str] = MappingProxyType({})
LIMITED = {"RANKD_LIMITS_SERVICE_WRITES_PER_S": str(PER_S)}


@pytest.fixture(scope="module")
def _servers() -> None:
    needs_postgres()
    needs_redis()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, _servers: None) -> Iterator[Installation]:
    with installed(tmp_path_factory.mktemp("scaled")) as running:
        running.project()
        yield running


@pytest.fixture(scope="module")
def first_server(installation: Installation) -> Serving:
    return installation.serve()


@pytest.fixture(scope="module")
def second_server(installation: Installation) -> Serving:
    return installation.serve()


@pytest.fixture
def board(installation: Installation, first_server: Serving, request: pytest.FixtureRequest) -> str:
    name = f"b{abs(hash(request.node.name)) % 10**9}"
    with first_server.client(installation.admin) as client:
        answer = client.put(f"/v1/boards/{name}", json={"windows": ["all_time", "weekly"], "scopes": ["country"]})
        assert answer.status_code == 200, answer.text
    return name


def submit(
    serving: Serving, installation: Installation, headers: Mapping[str, str] = NONE, **score: Any
) -> httpx.Response:
    with serving.client(installation.admin) as client:
        return client.post("/v1/scores", json=score, headers=dict(headers))


def submit_ranked(serving: Serving, installation: Installation, **score: Any) -> httpx.Response:
    """Submit a score until it is answered with a rank: a busy machine may take longer than anybody waits."""
    answers: list[httpx.Response] = []

    def is_ranked() -> bool:
        answers.append(submit(serving, installation, {"Prefer": "wait=5"}, **score))
        return answers[-1].status_code == 200

    wait_until(is_ranked)
    return answers[-1]


def test_a_score_is_accepted_by_one_process_and_read_from_another(
    installation: Installation, first_server: Serving, second_server: Serving, board: str
) -> None:
    accepted = submit(second_server, installation, board=board, player="alice", score=976)
    assert accepted.status_code == 202
    assert accepted.json()["status"] == "accepted"

    with first_server.client() as client:
        answer = client.get(f"/v1/boards/{board}/players/alice", params={"at_least": accepted.json()["position"]})
    assert answer.status_code == 200
    assert (answer.json()["rank"], answer.json()["score"], answer.json()["stale"]) == (1, 976, False)


def test_who_prefers_to_wait_gets_the_rank(installation: Installation, first_server: Serving, board: str) -> None:
    submit_ranked(first_server, installation, board=board, player="alice", score=976)
    answer = submit(
        first_server, installation, {"Prefer": "respond-async, wait=10"}, board=board, player="bob", score=990
    )

    assert answer.status_code == 200
    assert (answer.json()["rank"], answer.json()["previous_rank"], answer.json()["changed"]) == (1, None, True)


def test_a_signed_submission_counts_once_whoever_sends_it_to_whichever_process(
    installation: Installation, first_server: Serving, second_server: Serving
) -> None:
    with PostgresCredentials(installation.ledger_url, SystemClock()) as credentials:
        secret = credentials.create_signing_key("relay")
        _, second = credentials.create("second", [Scope.SCORES_WRITE])
    for serving in (first_server, second_server):
        serving.assert_known(second)
    with first_server.client(installation.admin) as client:
        assert client.put("/v1/boards/relayed", json={"signing": "relay", "keep": "sum"}).status_code == 200

    def send(serving: Serving, token: str, score: int) -> httpx.Response:
        body, now = json.dumps({"board": "relayed", "player": "alice", "score": score}).encode(), int(time.time())
        signed = {"X-Rankd-Timestamp": str(now), "X-Rankd-Signature": sign(secret, now, "match-1", body)}
        headers = {"Content-Type": "application/json", "Idempotency-Key": "match-1", **signed}
        with serving.client(token) as client:
            return client.post("/v1/scores", content=body, headers=headers)

    first, again, another = (
        send(first_server, installation.admin, 100),
        send(second_server, second, 100),
        send(second_server, second, 200),
    )
    with second_server.client() as client:
        read = client.get("/v1/boards/relayed/players/alice", params={"at_least": first.json()["position"]})

    assert (first.json()["repeated"], again.json()["repeated"]) == (False, True)
    assert first.json()["position"] == again.json()["position"]
    assert another.json()["code"] == "key_reused"
    assert read.json()["score"] == 100


def test_a_player_sees_mutual_friends_only_where_reads_are_not_public(
    installation: Installation, first_server: Serving, board: str
) -> None:
    with PostgresCredentials(installation.ledger_url, SystemClock()) as credentials:
        _, token = credentials.create("mia", [], player="mia")
    private = installation.serve(RANKD_SERVER_PUBLIC_READ="false")
    with private.client(installation.admin) as admin, private.client(token) as mia:
        for player, friends in (("mia", ["noa", "zoe"]), ("noa", ["mia"])):
            assert admin.put(f"/v1/players/{player}/friends", json={"players": friends}).status_code == 200
        for player in ("mia", "noa", "zoe"):
            submit_ranked(first_server, installation, board=board, player=player, score=5)
        path = f"/v1/boards/{board}/players/mia/friends"
        for client, shown in ((mia, ["mia", "noa"]), (admin, ["mia", "noa", "zoe"])):
            assert [entry["player"] for entry in client.get(path).json()["entries"]] == shown
        assert mia.get(f"/v1/boards/{board}/players/mia/around").status_code == 403


def test_a_repeat_counts_once_whichever_process_it_comes_to(
    installation: Installation, first_server: Serving, second_server: Serving, board: str
) -> None:
    with first_server.client(installation.admin) as client:
        client.put(f"/v1/boards/{board}", json={"windows": ["all_time", "weekly"], "scopes": ["country"]})
    key = {"Idempotency-Key": f"only-once-{board}"}
    first = submit(first_server, installation, key, board=board, player="alice", score=7)
    second = submit(second_server, installation, key, board=board, player="alice", score=7)
    another = submit(second_server, installation, key, board=board, player="alice", score=8)

    assert (first.json()["position"], False) == (second.json()["position"], first.json()["repeated"])
    assert second.json()["repeated"] is True
    assert another.json()["code"] == "key_reused"


def test_a_board_defined_by_one_process_takes_scores_from_another_at_once(
    installation: Installation, first_server: Serving, second_server: Serving, board: str
) -> None:
    for number in range(5):
        name = f"{board}x{number}"
        with first_server.client(installation.admin) as client:
            assert client.put(f"/v1/boards/{name}", json={}).status_code == 200
        assert submit(second_server, installation, board=name, player="alice", score=1).status_code == 202


def test_pages_batches_and_scopes_are_those_of_one_process(
    installation: Installation, first_server: Serving, second_server: Serving, board: str
) -> None:
    events = [
        {"board": board, "player": f"p{number:03}", "score": number, "attributes": {"country": "BR"}}
        for number in range(200)
    ]
    with second_server.client(installation.admin) as client:
        batch = client.post("/v1/scores/batch", json={"events": events})
    assert (batch.status_code, batch.json()["count"]) == (200, 200)

    where = {"at_least": batch.json()["position"], "scope": "country:BR", "limit": 3}
    with first_server.client() as client:
        page = client.get(f"/v1/boards/{board}/top", params=where).json()
        more = client.get(f"/v1/boards/{board}/top", params={"cursor": page["next"], "limit": 2}).json()
        around = client.get(f"/v1/boards/{board}/players/p100/around", params={"above": 1, "below": 1}).json()
        spread = client.get(f"/v1/boards/{board}/distribution", params={"buckets": 4}).json()
        group = client.post(f"/v1/boards/{board}/ranks", json={"players": ["p199", "nobody"]}).json()
    assert [entry["player"] for entry in page["entries"]] == ["p199", "p198", "p197"]
    assert [entry["player"] for entry in more["entries"]] == ["p196", "p195"]
    assert (around["above"][0]["player"], around["below"][0]["player"]) == ("p101", "p099")
    assert [bucket["count"] for bucket in spread["buckets"]] == [50, 50, 50, 50]
    assert (group["entries"][0]["rank"], group["missing"]) == (1, ["nobody"])


def test_a_client_that_has_the_answer_already_gets_a_304(
    installation: Installation, first_server: Serving, board: str
) -> None:
    submit_ranked(first_server, installation, board=board, player="alice", score=976)
    with first_server.client() as client:
        first = client.get(f"/v1/boards/{board}/top")
        again = client.get(f"/v1/boards/{board}/top", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code) == (200, 304)


def test_who_wrote_is_not_given_what_was_read_before(
    installation: Installation, first_server: Serving, board: str
) -> None:
    with first_server.client() as client:
        for score in range(1, 20):
            submit_ranked(first_server, installation, board=board, player="alice", score=score)
            assert client.get(f"/v1/boards/{board}/top").json()["entries"][0]["score"] == score


def test_watchers_of_one_process_see_what_came_to_another(
    installation: Installation, first_server: Serving, second_server: Serving, board: str
) -> None:
    submit_ranked(first_server, installation, board=board, player="alice", score=1)
    with (
        second_server.client() as client,
        client.stream("GET", "/v1/stream", params={"topic": f"top:{board}"}, timeout=10) as stream,
    ):
        lines = stream.iter_lines()
        snapshot = next(json.loads(line[6:]) for line in lines if line.startswith("data: "))
        submit(first_server, installation, board=board, player="bob", score=2)
        change = next(json.loads(line[6:]) for line in lines if line.startswith("data: "))
    assert [entry["player"] for entry in snapshot["entries"]] == ["alice"]
    assert change["set"][0]["player"] == "bob"


def test_every_process_says_who_did_what(
    installation: Installation, first_server: Serving, second_server: Serving, board: str
) -> None:
    for score in (5, 6, 7):
        submit_ranked(first_server, installation, board=board, player="alice", score=score)
    with second_server.client(installation.admin) as client:
        client.delete(f"/v1/boards/{board}/players/alice")
        answered = client.get("/v1/audit", params={"board": board, "player": "alice"}).json()
        defined = client.get("/v1/audit", params={"board": board, "kind": "define"}).json()["events"]
    scores = [(event["kind"], event["score"], event["new_score"]) for event in answered["events"]]
    assert [kind for kind, _, _ in scores] == ["remove", "score", "score", "score"]
    assert [event["old_score"] for event in answered["events"][:3]] == [after for _, _, after in scores[1:]]
    assert (scores[0], scores[3], answered["next"]) == (("remove", None, None), ("score", 5, 5), None)
    assert [event["player"] for event in defined] == [None]


def test_removals_and_resets_reach_every_process(
    installation: Installation, first_server: Serving, second_server: Serving, board: str
) -> None:
    submit_ranked(first_server, installation, board=board, player="alice", score=1)
    submit_ranked(first_server, installation, board=board, player="bob", score=2)
    with second_server.client(installation.admin) as client:
        removed = client.delete(f"/v1/boards/{board}/players/bob")
        after = client.get(f"/v1/boards/{board}/top", params={"at_least": removed.json()["position"]}).json()
        reset = client.post(f"/v1/boards/{board}/reset", json={})
        empty = client.get(f"/v1/boards/{board}/top", params={"at_least": reset.json()["position"]}).json()
    assert (removed.json()["changed"], [entry["player"] for entry in after["entries"]]) == (True, ["alice"])
    assert empty["entries"] == []


def test_profiles_are_shared(
    installation: Installation, first_server: Serving, second_server: Serving, board: str
) -> None:
    with first_server.client(installation.admin) as client:
        assert client.put(f"/v1/players/{board}", json={"name": "Alice"}).status_code == 200
    submit_ranked(first_server, installation, board=board, player=board, score=1)

    def is_named() -> bool:
        with second_server.client() as client:
            return bool(client.get(f"/v1/boards/{board}/players/{board}").json().get("name") == "Alice")

    wait_until(is_named)


def test_verify_and_rebuild_run_beside_the_servers(
    installation: Installation, first_server: Serving, board: str
) -> None:
    submit_ranked(first_server, installation, board=board, player="alice", score=1)
    verified = installation.run("verify", "--json")
    rebuilt = installation.run("rebuild", "--json")
    again = installation.run("verify", "--json")
    assert (verified.returncode, rebuilt.returncode, again.returncode) == (0, 0, 0), (
        verified.stderr + rebuilt.stderr + again.stderr
    )
    assert json.loads(rebuilt.stdout)["entries"] == json.loads(again.stdout)["entries"]
    answer = submit_ranked(first_server, installation, board=board, player="bob", score=2)
    assert answer.json()["rank"] == 1


def test_verify_finds_a_rank_that_somebody_changed_in_redis(
    installation: Installation, first_server: Serving, board: str
) -> None:
    submit_ranked(first_server, installation, board=board, player="alice", score=1)
    client = installation.redis.client()
    (ranks,) = client.keys(f"rankd:{{{board}#0}}:*:z:all_time@global")
    (member,) = client.zrange(ranks, 0, -1)
    client.zadd(ranks, {member: 12_345})

    result = installation.run("verify")
    assert result.returncode == 5
    assert board in result.stderr
    assert installation.run("rebuild").returncode == 0
    assert installation.run("verify").returncode == 0


def test_limits_hold_over_all_processes(tmp_path: Path) -> None:
    with installed(tmp_path, LIMITED) as installation:
        installation.project()
        servers = [installation.serve(), installation.serve()]
        with servers[0].client(installation.admin) as client:
            assert client.put("/v1/boards/arcade", json={}).status_code == 200
        granted, began = 0, time.monotonic()
        for number in range(REQUESTS):
            answer = submit(servers[number % 2], installation, board="arcade", player=f"p{number}", score=1)
            assert answer.status_code in (202, 429)
            granted += answer.status_code == 202
        seconds = time.monotonic() - began
        # A bucket holds a second's worth, and each process may grant as much before it has heard of the other.
        assert granted <= PER_S * (seconds + 1) + PER_S, f"{granted} in {seconds:.1f} s"
        assert granted < REQUESTS


def test_the_client_library_gets_ranks_from_a_scaled_out_server(
    installation: Installation, first_server: Serving, board: str
) -> None:
    with rankd.Client(first_server.url, installation.admin) as client:
        answer = client.submit(board, "alice", 976)
        assert (answer.rank, answer.changed) == (1, True)
        assert client.rank(board, "alice", at_least=answer.position) is not None


def test_a_redis_of_another_ledger_is_refused(installation: Installation, tmp_path: Path) -> None:
    with running_postgres() as postgres:
        url = postgres.url(postgres.make_database())
        SharedStores(url).migrate()
        projector = make_projector(SharedStores(url), installation.redis.url, tmp_path)

        with pytest.raises(RanksUnfit, match="another ledger"):
            wait_until(lambda: projector.step() < 0)
        projector.close()
        with pytest.raises(RanksUnfit, match="another ledger"):
            open_thin(SharedStores(url), installation.redis.url)


def test_ranks_ahead_of_a_restored_ledger_are_made_anew(
    installation: Installation, first_server: Serving, board: str
) -> None:
    submit_ranked(first_server, installation, board=board, player="alice", score=1)
    redis = installation.redis.client()
    meta = f"rankd:{{{board}#0}}:meta"
    redis.hset(meta, "p0", redis.hget(meta, "p0").decode().partition(":")[0] + ":99999")

    def is_ranked_again() -> bool:
        answer = submit(first_server, installation, {"Prefer": "wait=1"}, board=board, player="bob", score=2)
        return answer.status_code == 200 and redis.hget(meta, "p0").split(b":")[1] != b"99999"

    wait_until(is_ranked_again)


def test_ranks_below_an_exact_top_are_estimates_that_say_so(
    installation: Installation, first_server: Serving, board: str
) -> None:
    name = f"{board}top"
    events = [{"board": name, "player": f"p{number:03}", "score": number} for number in range(300)]
    with first_server.client(installation.admin) as client:
        assert client.put(f"/v1/boards/{name}", json={"exact_top": 20, "score_min": 0}).status_code == 200
        batch = client.post("/v1/scores/batch", json={"events": events}).json()
        fresh = {"at_least": batch["position"]}
        top = client.get(f"/v1/boards/{name}/players/p290", params=fresh).json()
        below = client.get(f"/v1/boards/{name}/players/p100", params=fresh).json()
        nobody = client.get(f"/v1/boards/{name}/players/nobody", params=fresh)
        around = client.get(f"/v1/boards/{name}/players/p100/around").json()
        page = client.get(f"/v1/boards/{name}/top", params={"limit": 30}).json()
        place = client.get(f"/v1/boards/{name}/scores/100").json()
        friends = client.post(f"/v1/boards/{name}/friends", json={"players": ["p100", "p299"]}).json()
    assert (top["rank"], top["exact"], "rank_min" in top) == (10, True, False)
    assert (below["score"], below["exact"], below["total"]) == (100, False, 300)
    assert below["rank_min"] <= 200 <= below["rank_max"]
    assert nobody.status_code == 404
    assert (around["above"], around["below"], around["exact"]) == ([], [], False)
    assert around["player"]["rank_min"] <= 200 <= around["player"]["rank_max"]
    assert (len(page["entries"]), page["exact"], page["total"], page["next"]) == (20, False, 300, None)
    assert place["rank_min"] <= 201 <= place["rank_max"]
    assert [("global_rank_min" in entry, entry["rank"]) for entry in friends["entries"]] == [(False, 1), (True, 2)]


@pytest.mark.parametrize(
    "preference", ["wait=" + "9" * 5_000, "wait=-1", "wait=", 'wait="1"', "wait=1.5, wait=x", ";=,=;"]
)
def test_whatever_is_preferred_a_score_is_taken(
    installation: Installation, first_server: Serving, board: str, preference: str
) -> None:
    answer = submit(first_server, installation, {"Prefer": preference}, board=board, player="alice", score=1)
    assert answer.status_code in (200, 202), answer.text


@pytest.mark.timed
def test_a_ledger_that_hangs_holds_no_reads_up(tmp_path: Path) -> None:
    with installed(tmp_path) as installation:
        installation.project()
        serving = installation.serve()
        with serving.client(installation.admin, timeout_s=HANGING_WAIT_S) as client:
            assert client.put("/v1/boards/arcade", json={}).status_code == 200
            submit_ranked(serving, installation, board="arcade", player="alice", score=1)
            installation.postgres.pause()
            try:
                began = time.monotonic()
                for number in range(20):
                    assert client.get(f"/v1/boards/nowhere{number}/top").status_code == 503
                    assert client.get("/v1/boards/arcade/players/alice").json()["rank"] == 1
                assert time.monotonic() - began < HANGING_WAIT_S
            finally:
                installation.postgres.resume()
