"""Both clients on a real socket: what is sent, what is sent again, what is raised."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from rankd.client import Client
from rankd.errors import BoardUnknown, Closed, InvalidValue, KeyReused, Overloaded, RateExceeded, Unavailable
from rankd.intake.results import Submitted

from .conftest import Connect
from .scripted import WAIT_S, ScriptedServer, Step, answer, drop, not_http, problem, truncated, wait_until

TOKEN = "rk_anything"
SUBMITTED = {
    "position": "0-7",
    "board": "arcade",
    "player": "alice",
    "window": "all_time",
    "score": 976,
    "previous_score": None,
    "changed": True,
    "rank": 1,
    "previous_rank": None,
    "repeated": False,
}
ABOUT = {"board": "arcade", "window": "all_time", "scope": "global", "total": 3, "position": "0-7", "as_of": 5}


def page(*players: str, following: str | None = None) -> dict[str, Any]:
    entries = [{"rank": 1, "player": player, "score": 9, "reached_at": None} for player in players]
    return {**ABOUT, "entries": entries, "next": following}


def test_a_score_is_sent_with_the_token_and_a_key_of_its_own(server: ScriptedServer, connect: Connect) -> None:
    server.does(answer(SUBMITTED), answer(SUBMITTED))
    client = connect(token=TOKEN)
    sent = client.submit("arcade", "alice", 976, attributes={"level": 7}, metadata={"car": "red"})
    client.submit("arcade", "alice", 976)

    assert sent == Submitted("0-7", "arcade", "alice", "all_time", 976, None, True, 1, None)
    first, second = server.seen
    assert (first.method, first.target, first.headers["authorization"]) == ("POST", "/v1/scores", f"Bearer {TOKEN}")
    assert first.headers["content-type"] == "application/json"
    assert first.sent == {
        "board": "arcade",
        "player": "alice",
        "score": 976,
        "attributes": {"level": "7"},
        "metadata": {"car": "red"},
    }
    assert first.key
    assert first.key != second.key


@pytest.mark.parametrize(
    "trouble",
    [
        drop,
        truncated,
        not_http,
        problem(503, "overloaded", headers={"Retry-After": "0"}),
        problem(503, "ledger_unavailable"),
        problem(429, "rate_exceeded", headers={"Retry-After": "0"}),
        answer(b"<html>Bad Gateway</html>", 502, {"Content-Type": "text/html"}),
        answer(b"", 504),
    ],
    ids=["dropped", "truncated", "no HTTP", "overloaded", "no Retry-After", "rate", "bad gateway", "gateway time-out"],
)
def test_a_write_is_sent_again_with_the_same_key_and_body(server: ScriptedServer, client: Any, trouble: Step) -> None:
    server.does(trouble, trouble, answer(SUBMITTED))

    assert client.submit("arcade", "alice", 976).rank == 1
    assert len({(seen.key, seen.body) for seen in server.seen}) == 1
    assert len(server.seen) == 3


def test_an_answer_that_does_not_come_is_asked_for_again(server: ScriptedServer, connect: Connect) -> None:
    server.does(server.silent, server.dribble, answer(SUBMITTED))

    assert connect(timeout_s=0.3).submit("arcade", "alice", 976, key="match-1").rank == 1
    assert [seen.key for seen in server.seen] == ["match-1"] * 3


def test_reads_are_asked_again_as_well(server: ScriptedServer, client: Any) -> None:
    server.does(drop, problem(503, "behind", headers={"Retry-After": "0"}), answer(page("alice")))

    assert client.top("arcade").entries[0].player == "alice"
    assert [seen.key for seen in server.seen] == [None] * 3


def test_nobody_comes_back_before_the_server_wants_it(server: ScriptedServer, client: Any) -> None:
    server.does(problem(429, "rate_exceeded", headers={"Retry-After": "1"}), answer(SUBMITTED))
    began = time.monotonic()
    client.submit("arcade", "alice", 976)

    assert time.monotonic() - began >= 1


def test_a_wait_that_is_too_long_is_left_to_the_caller(server: ScriptedServer, client: Any) -> None:
    server.does(problem(429, "rate_exceeded", headers={"Retry-After": "3600", "RateLimit-Limit": "10"}))
    with pytest.raises(RateExceeded) as raised:
        client.submit("arcade", "alice", 976)

    assert (raised.value.retry_after_s, raised.value.limit) == (3600, 10)


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (problem(409, "key_reused"), KeyReused),
        (problem(404, "board_unknown"), BoardUnknown),
        (problem(422, "invalid_value", errors=[{"field": "score", "problem": "must be less"}]), InvalidValue),
        (problem(500, "fault"), Unavailable),
        (answer(b"}{"), Unavailable),
        (answer({"position": 7}), Unavailable),
        (answer(b"", 301, {"Location": "/elsewhere"}), Unavailable),
    ],
)
def test_what_another_attempt_would_not_help_is_raised_at_once(
    server: ScriptedServer, client: Any, refusal: Step, error: type[Exception]
) -> None:
    server.does(refusal)
    with pytest.raises(error):
        client.submit("arcade", "alice", 976)

    assert len(server.seen) == 1


def test_attempts_end_and_the_last_error_is_raised(server: ScriptedServer, connect: Connect) -> None:
    server.does(*[problem(503, "overloaded", "a queue is full", headers={"Retry-After": "0"})] * 3)
    with pytest.raises(Overloaded, match="a queue is full"):
        connect(retries_max=2).top("arcade")

    assert len(server.seen) == 3


def test_a_client_without_retries_tries_once(server: ScriptedServer, connect: Connect) -> None:
    server.does(drop)
    with pytest.raises(Unavailable):
        connect(retries_max=0).top("arcade")

    assert len(server.seen) == 1


def test_no_attempt_begins_when_the_time_is_over(server: ScriptedServer, connect: Connect) -> None:
    server.does(server.silent, server.silent)
    with pytest.raises(Unavailable, match=r"did not answer within 0\.2 s, tried 2 times"):
        connect(timeout_s=0.2, retry_total_s=0.3, retries_max=100).top("arcade")


def test_trouble_is_described_in_words_with_the_key_to_go_on_with(server: ScriptedServer, connect: Connect) -> None:
    server.does(drop)
    with pytest.raises(Unavailable) as raised:
        connect(token=TOKEN, retries_max=0).submit("arcade", "alice", 976, key="match-1")

    assert server.url in str(raised.value)
    assert "key='match-1'" in str(raised.value)
    assert TOKEN not in str(raised.value)


def test_a_server_that_is_not_there_is_unavailable(connect: Connect) -> None:
    with pytest.raises(Unavailable, match="cannot be reached") as raised:
        connect("http://127.0.0.1:1", retries_max=1).submit("arcade", "alice", 976)

    assert "key=" not in str(raised.value), "nothing was sent, so nothing can have counted"


def test_an_answer_beyond_all_measure_is_not_read_to_its_end(
    server: ScriptedServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for driver in ("sync", "asynchronous"):
        monkeypatch.setattr(f"rankd.client.{driver}.ANSWER_BYTES_MAX", 100)
    server.does(answer(page(*["alice"] * 100)))
    with pytest.raises(Unavailable, match="more than 100 bytes"):
        client.top("arcade")


def test_somebody_who_does_not_stand_there_is_none(server: ScriptedServer, client: Any) -> None:
    server.does(*[problem(404, "player_absent")] * 3, *[problem(404, "board_unknown")])

    assert client.rank("arcade", "zed") is None
    assert client.around("arcade", "zed") is None
    assert client.player("zed") is None
    with pytest.raises(BoardUnknown):
        client.rank("arcade", "zed")


def test_pages_follow_each_other_by_their_cursor(server: ScriptedServer, client: Any) -> None:
    server.does(answer(page("a", "b", following="c1")), answer(page("c", "d", following="c2")), answer(page("e")))

    assert [entry.player for entry in client.entries("arcade", 2, window="daily", ranking="dense")] == list("abcde")
    assert [seen.target for seen in server.seen] == [
        "/v1/boards/arcade/top?limit=2&window=daily&ranking=dense",
        # The cursor names the instance: by now `daily` may mean another one.
        "/v1/boards/arcade/top?limit=2&cursor=c1&ranking=dense",
        "/v1/boards/arcade/top?limit=2&cursor=c2&ranking=dense",
    ]


def test_boards_are_gone_through_page_by_page_to_the_end(server: ScriptedServer, client: Any) -> None:
    server.does(
        answer({"boards": [{"id": "a", "title": "A"}, {"id": "b"}], "next": "b"}),
        answer({"boards": [], "next": "b:x y"}),
        answer({"boards": [{"id": "c"}], "next": None}),
        answer({"boards": [{"id": "d"}]}),
    )

    assert client.list("A b") == ["a", "b", "c"]
    assert list(client.definitions()) == [{"id": "d"}]
    assert [seen.target for seen in server.seen] == [
        "/v1/boards?search=A%20b",
        "/v1/boards?search=A%20b&cursor=b",
        "/v1/boards?search=A%20b&cursor=b%3Ax%20y",
        "/v1/boards",
    ]


def test_any_player_stands_in_a_path_as_they_are(server: ScriptedServer, client: Any) -> None:
    server.does(*[answer({"players": []})] * 4)
    for player in ("a/b", "100%41", "zoë +?#&", "..."):
        client.stored_friends(player)

    assert [seen.target for seen in server.seen] == [
        "/v1/players/a%2Fb/friends",
        "/v1/players/100%2541/friends",
        "/v1/players/zo%C3%AB%20%2B%3F%23%26/friends",
        "/v1/players/.../friends",
    ]


def test_a_server_may_answer_below_a_path(server: ScriptedServer, connect: Connect) -> None:
    server.does(answer({"status": "ready", "position": "0-7"}))

    assert connect(f"{server.url}/ranks/").ready() == "0-7"
    assert server.seen[0].target == "/ranks/readyz"


def test_a_connection_is_used_again(server: ScriptedServer, client: Any) -> None:
    server.does(*[answer(page("alice"))] * 3)
    for _ in range(3):
        client.top("arcade")

    assert len(server._connections) == 1


def test_a_closed_client_says_so(client: Any) -> None:
    client.close()
    with pytest.raises(Closed, match="make another"):
        client.top("arcade")


def test_closing_ends_the_wait_for_another_attempt(server: ScriptedServer) -> None:
    server.does(problem(503, "overloaded", headers={"Retry-After": "20"}))
    client, raised = Client(server.url), []

    def read() -> None:
        try:
            client.top("arcade")
        except Closed as problem:
            raised.append(problem)

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: len(server.seen) == 1)
    client.close()
    reader.join(WAIT_S / 2)

    assert raised


def test_one_client_serves_many_threads(server: ScriptedServer) -> None:
    server.does(*[answer(page("alice"))] * 40)
    with Client(server.url) as client:
        threads = [threading.Thread(target=lambda: [client.top("arcade") for _ in range(10)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)

    assert len(server.seen) == 40
