"""What each verb asks for, without a server: method, path, query and body; and what is refused before it is sent."""

from __future__ import annotations

import inspect
import json
from array import array
from typing import Any

import pytest

from rankd import Boards
from rankd.client import AsyncClient, Client, calls
from rankd.client.call import ClientCall
from rankd.errors import InvalidValue, RankdError

VERBS = {
    *("define", "definition", "definitions", "list", "delete", "submit", "submit_many", "remove", "reset"),
    *("top", "range", "rank", "around", "ranks", "friends", "friends_of", "rank_of_score", "distribution"),
    *("player", "set_player", "stored_friends", "set_friends", "search", "history"),
}
OF_THE_LIBRARY = {"sender", "imported", "only_given", "only_mutual"}  # parameters that the server decides on
WRITES: list[ClientCall[Any]] = [
    calls.define("arcade"),
    calls.delete("arcade"),
    calls.submit("arcade", "alice", 1),
    calls.submit_many("arcade", [("alice", 1)]),
    calls.submit_events([{"board": "arcade", "player": "alice", "score": 1}]),
    calls.remove("arcade", "alice"),
    calls.reset("arcade"),
    calls.set_player("alice"),
    calls.set_friends("alice", []),
]
READS: list[tuple[ClientCall[Any], str, str]] = [
    (calls.definition("arcade"), "GET", "/v1/boards/arcade"),
    (calls.boards_page(), "GET", "/v1/boards"),
    (calls.boards_page("Ar c", "arcade:ar c"), "GET", "/v1/boards?search=Ar%20c&cursor=arcade%3Aar%20c"),
    (calls.top("arcade"), "GET", "/v1/boards/arcade/top?limit=10"),
    (calls.top("arcade", 5, offset=3), "GET", "/v1/boards/arcade/top?limit=5&offset=3"),
    (calls.top("arcade", 5, cursor="c+/="), "GET", "/v1/boards/arcade/top?limit=5&cursor=c%2B%2F%3D"),
    (calls.range_of("arcade", 1, 9, scope="level:7"), "GET", "/v1/boards/arcade/range?from=1&to=9&scope=level%3A7"),
    (calls.rank("arcade", "a/b", at_least="0-7"), "GET", "/v1/boards/arcade/players/a%2Fb?at_least=0-7"),
    (calls.around("arcade", "a", below=0), "GET", "/v1/boards/arcade/players/a/around?above=5&below=0"),
    (calls.ranks("arcade", ["a", "b"], ranking="dense"), "POST", "/v1/boards/arcade/ranks?ranking=dense"),
    (calls.friends("arcade", ("a", "b")), "POST", "/v1/boards/arcade/friends"),
    (calls.friends_of("arcade", "a"), "GET", "/v1/boards/arcade/players/a/friends"),
    (calls.rank_of_score("arcade", -5), "GET", "/v1/boards/arcade/scores/-5"),
    (calls.rank_of_score("arcade", 5, tiebreak=3), "GET", "/v1/boards/arcade/scores/5?tiebreak=3"),
    (calls.distribution("arcade", window="daily"), "GET", "/v1/boards/arcade/distribution?buckets=50&window=daily"),
    (calls.player("zoë"), "GET", "/v1/players/zo%C3%AB"),
    (calls.stored_friends("a"), "GET", "/v1/players/a/friends"),
    (calls.search("al i", 5), "GET", "/v1/players?search=al%20i&limit=5"),
    (calls.history("arcade", "a", before=9), "GET", "/v1/boards/arcade/players/a/events?limit=100&before=9"),
    (calls.ready(), "GET", "/readyz"),
]


def body(call: ClientCall[Any]) -> Any:
    assert call.body is not None
    return json.loads(call.body)


@pytest.mark.parametrize(("call", "method", "target"), READS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_read_asks_for_what_its_caller_named(call: ClientCall[Any], method: str, target: str) -> None:
    assert (call.method, call.target, call.key) == (method, target, None)
    assert (call.body is None) == (method == "GET")


@pytest.mark.parametrize("call", WRITES, ids=lambda call: f"{call.method} {call.target}")
def test_every_write_has_a_key_that_nobody_has_used(call: ClientCall[Any]) -> None:
    assert call.key is not None
    assert len(call.key) == 32
    assert len({write.key for write in WRITES}) == len(WRITES)


def test_a_key_that_is_given_is_used() -> None:
    assert calls.submit("arcade", "alice", 1, key="match-8731").key == "match-8731"
    assert calls.reset("arcade", "daily", key="monday").key == "monday"


def test_a_definition_is_sent_as_it_is_written() -> None:
    by_keywords = calls.define("arcade", keep={"daily": "first"}, global_=False)
    by_mapping = calls.define("arcade", {"keep": {"daily": "first"}, "global": False})

    assert body(by_keywords) == body(by_mapping) == {"keep": {"daily": "first"}, "global": False}


def test_rows_and_columns_are_the_same_batch() -> None:
    rows = calls.submit_many(
        "arcade",
        [
            {"player": "a", "score": 1, "tiebreak": 3, "at": 5, "attributes": {"level": 7}, "metadata": {"car": "red"}},
            {"player": "b", "score": 2, "tiebreak": 4, "at": 5, "attributes": {"level": "7"}},
        ],
    )
    columns = calls.submit_many(
        "arcade",
        players=["a", "b"],
        scores=array("q", [1, 2]),
        tiebreaks=[3, 4],
        at=5,
        attributes={"level": 7},
        metadata=[{"car": "red"}, None],
    )

    assert rows.body == columns.body
    assert rows.target == columns.target == "/v1/scores/batch"
    assert body(rows)["events"][0] == {
        "board": "arcade",
        "player": "a",
        "score": 1,
        "tiebreak": 3,
        "at": 5,
        "attributes": {"level": "7"},
        "metadata": {"car": "red"},
    }


def test_a_row_may_be_a_pair_or_have_a_tiebreak() -> None:
    assert body(calls.submit_many("arcade", [("a", 1), ["b", 2, 3]]))["events"] == [
        {"board": "arcade", "player": "a", "score": 1},
        {"board": "arcade", "player": "b", "score": 2, "tiebreak": 3},
    ]


def test_events_of_several_boards_name_their_own() -> None:
    call = calls.submit_events(
        [{"board": "frame", "player": "a", "score": 1}, {"board": "words", "player": "a", "score": 2}], imported=True
    )

    assert [event["board"] for event in body(call)["events"]] == ["frame", "words"]
    assert call.target == "/v1/scores/batch?imported=true"


def test_a_players_own_token_need_not_say_who_it_is() -> None:
    assert body(calls.submit("arcade", None, 7)) == {"board": "arcade", "score": 7}


def test_a_profile_is_sent_without_what_it_does_not_have() -> None:
    call = calls.set_player("zoë", name="Zoë", attributes={"level": 7})

    assert (call.target, body(call)) == ("/v1/players/zo%C3%AB", {"name": "Zoë", "attributes": {"level": "7"}})


REFUSED: list[tuple[str, Any]] = [
    ("player", lambda: calls.remove("arcade", "..")),  # a path would lose it and name the board
    ("player", lambda: calls.rank("arcade", ".")),
    ("player", lambda: calls.rank("arcade", "")),
    ("board", lambda: calls.top("../players")),
    ("board", lambda: calls.delete("")),
    ("score", lambda: calls.submit("arcade", "a", 976.0)),  # type: ignore[arg-type]
    ("score", lambda: calls.submit("arcade", "a", True)),
    ("score", lambda: calls.rank_of_score("arcade", "5")),  # type: ignore[arg-type]
    ("tiebreak", lambda: calls.submit("arcade", "a", 1, tiebreak=-1)),
    ("metadata", lambda: calls.submit("arcade", "a", 1, metadata={"x": float("nan")})),
    ("rows", lambda: calls.submit_many("arcade", "ab")),
    ("rows", lambda: calls.submit_many("arcade", [("a", 1)], players=["a"])),
    ("rows[1]", lambda: calls.submit_many("arcade", [("a", 1), ("b",)])),
    ("rows[1].score", lambda: calls.submit_many("arcade", [("a", 1), ("b", "2")])),
    ("rows[0].player", lambda: calls.submit_many("arcade", [{"score": 1}])),
    ("rows[0].points", lambda: calls.submit_many("arcade", [{"player": "a", "score": 1, "points": 2}])),
    ("scores[1]", lambda: calls.submit_many("arcade", players=["a", "b"], scores=[1, 2.5])),  # type: ignore[list-item]
    ("players", lambda: calls.submit_many("arcade", players=["a"], scores=[1, 2])),
    ("metadata", lambda: calls.submit_many("arcade", players=["a"], scores=[1], metadata=[])),
    ("events", lambda: calls.submit_events({"board": "arcade"})),  # type: ignore[dict-item]
    ("events[0]", lambda: calls.submit_events([("a", 1)])),  # type: ignore[list-item]
    ("events[0].board", lambda: calls.submit_events([{"player": "a", "score": 1}])),
    ("events[0].player", lambda: calls.submit_events([{"board": "arcade", "score": 1}])),
    ("players", lambda: calls.ranks("arcade", "alice")),
    ("players", lambda: calls.ranks("arcade", ["\ud800"])),
    ("friends", lambda: calls.set_friends("a", "bob")),
    ("search", lambda: calls.search("\ud800")),
    ("limit", lambda: calls.top("arcade", 2.5)),  # type: ignore[arg-type]
    ("window", lambda: calls.top("arcade", window=["daily"])),  # type: ignore[arg-type]
    ("definition", lambda: calls.define("arcade", {"keep": "best"}, order="asc")),
    ("definition", lambda: calls.define("arcade", {"keep": object()})),
    ("definition", lambda: calls.define("arcade", ["keep"])),  # type: ignore[arg-type]
    ("key", lambda: calls.submit("arcade", "a", 1, key="schlüssel")),
    ("key", lambda: calls.submit("arcade", "a", 1, key=" match")),
    ("key", lambda: calls.submit("arcade", "a", 1, key="a\r\nX-Other: b")),
    ("key", lambda: calls.submit("arcade", "a", 1, key="")),
    ("signing_secret", lambda: calls.submit("arcade", "a", 1, signing_secret="")),
]


@pytest.mark.parametrize(("field", "call"), REFUSED)
def test_what_makes_no_sense_is_refused_before_it_is_sent(field: str, call: Any) -> None:
    with pytest.raises(InvalidValue) as raised:
        call()

    assert raised.value.field == field


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_has_the_verbs_of_the_library(kind: type) -> None:
    for name in VERBS - {"history"}:  # which is about one board here
        of_library = inspect.signature(getattr(Boards, name)).parameters
        of_client = inspect.signature(getattr(kind, name)).parameters
        assert set(of_library) - OF_THE_LIBRARY <= set(of_client), name
        in_order = [
            parameter for parameter, about in of_library.items() if about.kind is not inspect.Parameter.KEYWORD_ONLY
        ]
        assert [
            parameter for parameter, about in of_client.items() if about.kind is not inspect.Parameter.KEYWORD_ONLY
        ] == in_order


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_verb_says_what_it_does(kind: type) -> None:
    verbs = [value for name, value in vars(kind).items() if not name.startswith("_") and callable(value)]

    assert [verb for verb in verbs if not verb.__doc__] == []
    assert str(inspect.signature(kind.ready)) in ("(self, /) -> 'str | None'", "(self, /) -> str | None")  # type: ignore[attr-defined]


def test_errors_are_those_of_the_library(boards: Boards) -> None:
    for given in ({"player": "..", "score": 1}, {"player": "a", "score": "1"}, {"player": "a", "score": 1, "x": 2}):
        errors = []
        boards.define("arcade")
        for submit in (boards.submit_many, calls.submit_many):
            with pytest.raises(RankdError) as raised:
                submit("arcade", [given])
            errors.append((type(raised.value), raised.value.__dict__.get("field")))
        assert errors[0] == errors[1]
