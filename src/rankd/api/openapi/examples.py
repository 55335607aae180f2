"""An example of each call: a request, and what a real run answered to it.

The run is tests/unit/api/played.py, on two days of May 2026; a test plays it again and compares.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec


class Example(msgspec.Struct, frozen=True):
    """A request and its answer; None is too long to show."""

    path: dict[str, Any] = {}
    query: dict[str, Any] = {}
    body: Any = None
    answer: Any = None


_ARCADE = {"board": "arcade"}
_PLACE = {"board": "arcade", "player": "alice"}
_SUBMITTED = {
    "board": "arcade",
    "player": "alice",
    "score": 976,
    "attributes": {"country": "BR"},
    "metadata": {"replay": "r-17"},
}
_ALL_TIME = {
    "board": "arcade",
    "window": "all_time",
    "scope": "global",
    "total": 3,
    "position": "0-8",
    "as_of": 1777896005000,
    "stale": False,
    "exact": True,
}
_LAST_WEEK = {**_ALL_TIME, "window": "weekly:2026-W18"}
_PROFILE = {"name": "Alice", "avatar_url": "https://example.com/alice.png", "country": "BR"}
_ALICE = {
    "rank": 1,
    "player": "alice",
    "score": 976,
    "reached_at": 1777896000000,
    **_PROFILE,
    "metadata": {"replay": "r-17"},
}
_BOB = {"rank": 2, "player": "bob", "score": 965, "reached_at": 1777809600000, "name": "Bob", "country": "PT"}
_CAROL = {"rank": 3, "player": "carol", "score": 940, "reached_at": 1777809600000}
_DEFINITION = {
    "keep": "best",
    "windows": ["all_time", "weekly", "daily"],
    "scopes": ["country"],
    "history": {"every": "1d", "top": 1000, "keep": "730d"},
}
_BOARD = {
    "id": "arcade",
    "title": "arcade",
    "description": None,
    **_DEFINITION,
    "order": "desc",
    "ties": "earliest",
    "tie_resolution": "1s",
    "ranking": "ordinal",
    "periods": [],
    "time_zone": "UTC",
    "week_starts": "monday",
    "global": True,
    "score_min": -9007199254740991,
    "score_max": 9007199254740991,
    "decimals": 0,
    "late_by": "5m",
    "retention": None,
    "archive_keep": None,
    "archive_top": None,
    "feeds": [],
    "team": None,
    "decay": None,
    "writes": "server",
    "signing": None,
    "open": True,
    "shards": 1,
    "exact_top": None,
    "scope_values_max": None,
}
_EVENT = {
    "sequence": 8,
    "kind": "score",
    "board": "arcade",
    "at": 1777896000000,
    "score": 976,
    "tiebreak": 0,
    "attributes": {"country": "BR"},
    "metadata": {"replay": "r-17"},
    "sender": "game-server",
    "origin": "192.0.2.7",
}
_METRICS = """\
# HELP rankd_requests_total Requests answered
# TYPE rankd_requests_total counter
rankd_requests_total{method="GET",route="/v1/boards",status="200"} 1.0
# HELP rankd_commit_seconds Seconds a commit took, the sync included
# TYPE rankd_commit_seconds histogram
rankd_commit_seconds_count 0.0
rankd_commit_seconds_sum 0.0
"""

_STREAMED = """id: 9f86d081-41
event: snapshot
data: {"topic":"top:arcade","board":"arcade","window":"all_time","scope":"global","total":3,"position":"0-8","entries":[…]}

id: 9f86d081-42
event: change
data: {"topic":"top:arcade","set":[{"rank":1,"player":"bob","score":981,"reached_at":1777896012000}],"gone":[],"total":3,"position":"0-9"}

"""  # noqa: E501 - an event's data is one line

EXAMPLES: dict[str, Example] = {
    "submit": Example(
        body=_SUBMITTED,
        answer={
            "position": "0-8",
            "board": "arcade",
            "player": "alice",
            "window": "all_time",
            "score": 976,
            "previous_score": 951,
            "changed": True,
            "rank": 1,
            "previous_rank": 2,
            "repeated": False,
        },
    ),
    "submit_many": Example(
        body={
            "events": [
                {"board": "arcade", "player": "alice", "score": 951},
                {"board": "arcade", "player": "bob", "score": 965},
                {"board": "arcade", "player": "carol", "score": 940, "attributes": {"country": "BR"}},
            ]
        },
        answer={"position": "0-4", "count": 3, "repeated": False},
    ),
    "top": Example(
        _ARCADE,
        {"limit": 2},
        answer={**_ALL_TIME, "entries": [_ALICE, _BOB], "next": "lLZhcmNhZGVAYWxsX3RpbWVAZ2xvYmFszQPFzmn3OMCjYm9i"},
    ),
    "range": Example(
        _ARCADE,
        {"from": 1, "to": 2, "window": "weekly:previous"},
        answer={
            **_LAST_WEEK,
            "entries": [
                {**_BOB, "rank": 1},
                {"rank": 2, "player": "alice", "score": 951, "reached_at": 1777809600000, **_PROFILE},
            ],
            "next": "lL1hcmNhZGVAd2Vla2x5OjIwMjYtVzE4QGdsb2JhbM0Dt85p9zjApWFsaWNl",
        },
    ),
    "rank": Example(
        _PLACE,
        {"ranking": "competition"},
        answer={
            **_ALL_TIME,
            **_ALICE,
            "percentile": 66.66666666666667,
            "top_percent": 33.333333333333336,
            "rank_change": 1,
            "tiebreak": None,
        },
    ),
    "course": Example(
        _PLACE,
        {"from": 1777766400000},
        answer={
            "board": "arcade",
            "player": "alice",
            "window": "all_time",
            "scope": "global",
            "position": "0-8",
            "as_of": 1777896005000,
            "stale": False,
            "points": [{"at": 1777852800000, "window": "all_time", "rank": 2, "score": 951, "total": 3}],
            "finals": [],
            "best": {"at": 1777852800000, "window": "all_time", "rank": 2, "score": 951, "total": 3},
        },
    ),
    "around": Example(
        {"board": "arcade", "player": "bob"},
        {"above": 1, "below": 1},
        answer={**_ALL_TIME, "above": [_ALICE], "player": _BOB, "below": [_CAROL]},
    ),
    "ranks": Example(
        _ARCADE,
        body={"players": ["alice", "zed"]},
        answer={**_ALL_TIME, "entries": [_ALICE], "missing": ["zed"]},
    ),
    "friends": Example(
        _ARCADE,
        body={"players": ["carol", "alice", "zed"]},
        answer={
            **_ALL_TIME,
            "entries": [{**_ALICE, "global_rank": 1}, {**_CAROL, "rank": 2, "global_rank": 3}],
        },
    ),
    "friends_of": Example(
        _PLACE,
        answer={
            **_ALL_TIME,
            "entries": [{**_ALICE, "global_rank": 1}, {**_BOB, "global_rank": 2}, {**_CAROL, "global_rank": 3}],
        },
    ),
    "rank_of_score": Example({"board": "arcade", "score": 950}, answer={**_ALL_TIME, "rank": 3}),
    "distribution": Example(
        _ARCADE,
        {"buckets": 2},
        answer={
            **_ALL_TIME,
            "buckets": [{"from": 940, "to": 958, "count": 1}, {"from": 959, "to": 976, "count": 2}],
            "quantiles": {
                "0.01": 940,
                "0.1": 940,
                "0.25": 940,
                "0.5": 965,
                "0.75": 976,
                "0.9": 976,
                "0.99": 976,
            },
        },
    ),
    "list": Example(query={"search": "arc"}, answer={"boards": [_BOARD], "next": None}),
    "definition": Example(_ARCADE, answer=_BOARD),
    "define": Example(_ARCADE, body=_DEFINITION, answer={"position": "0-1", "changed": True, "repeated": False}),
    "delete": Example(_ARCADE, answer={"position": "0-11", "changed": True, "repeated": False}),
    "reset": Example(
        _ARCADE, body={"window": "daily"}, answer={"position": "0-10", "changed": True, "repeated": False}
    ),
    "remove": Example(
        {"board": "arcade", "player": "carol"}, answer={"position": "0-9", "changed": True, "repeated": False}
    ),
    "history": Example(_PLACE, {"limit": 1}, answer={"events": [_EVENT], "next": 8}),
    "audit": Example(
        query={"player": "alice", "limit": 1},
        answer={
            "events": [
                {
                    "position": "0-8",
                    "kind": "score",
                    "sender": "game-server",
                    "board": "arcade",
                    "player": "alice",
                    "at": 1777896000000,
                    "committed_at": 1777896000000,
                    "window": "all_time",
                    "score": 976,
                    "old_score": 951,
                    "new_score": 976,
                    "unknown": None,
                    "address": "192.0.2.7",
                    "user_agent": "arcade-server/2.1",
                    "request_id": "k3f9x2aq0000001z",
                }
            ],
            "next": "kwAACA",
        },
    ),
    "search": Example(query={"search": "ali"}, answer={"players": [{"player": "alice", **_PROFILE}]}),
    "player": Example({"player": "alice"}, answer={"player": "alice", **_PROFILE}),
    "set_player": Example({"player": "alice"}, body=_PROFILE, answer={"player": "alice", **_PROFILE}),
    "stored_friends": Example({"player": "alice"}, answer={"players": ["bob", "carol"]}),
    "set_friends": Example(
        {"player": "alice"}, body={"players": ["bob", "carol"]}, answer={"players": ["bob", "carol"]}
    ),
    "health": Example(answer={"status": "ok", "version": version("rankd")}),
    "ready": Example(answer={"status": "ready", "version": version("rankd"), "position": "0-8"}),
    "stream": Example(query={"topic": "top:arcade"}, answer=_STREAMED),
    "ticket": Example(answer={"ticket": "rt_0Jx…", "expires_in_s": 60}),
    "metrics": Example(answer=_METRICS),
    "openapi": Example(),
    "docs": Example(),
    "front_page": Example(),
    "board_page": Example(_ARCADE),
    "board_script": Example(),
    "page_file": Example({"file": "page.css"}),
}


def _problem(status: int, title: str, code: str, detail: str, field: str | None = None) -> dict[str, Any]:
    problem: dict[str, Any] = {
        "type": f"/docs#{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if field is not None:
        problem["errors"] = [{"field": field, "problem": detail.removeprefix(f"{field}: ")}]
    return problem


# By status, one of its codes.
PROBLEMS: dict[int, dict[str, Any]] = {
    400: _problem(
        400,
        "The request cannot be read",
        "malformed_request",
        "body: cannot be read: JSON is malformed: expected ',' or '}' (byte 27)",
    ),
    401: _problem(
        401,
        "A credential is needed",
        "unauthenticated",
        "this needs a credential: send `Authorization: Bearer` with an API key or a JSON Web Token",
    ),
    403: _problem(
        403,
        "Not allowed",
        "forbidden",
        "this needs the scope boards:admin, which the credential does not have; use one that does",
    ),
    404: _problem(404, "Not found", "board_unknown", "board: there is no board 'arkade'; define it first"),
    408: _problem(408, "The request took too long", "too_slow", "the request was not sent to its end in time"),
    409: _problem(
        409,
        "It contradicts what is there",
        "key_reused",
        "key: 'match-8731' was used with another request; give each request a key of its own",
    ),
    413: _problem(413, "Too large", "too_large", "body: has 2097152 bytes, and may have 1048576; send less at a time"),
    415: _problem(
        415,
        "The kind of body is not read here",
        "media_unsupported",
        "content-type: this call reads application/json; send the header with one of them",
    ),
    422: _problem(
        422,
        "A value is refused",
        "invalid_value",
        "score: must be an integer; got float: send a whole number, unquoted",
        "score",
    ),
    429: _problem(
        429,
        "Too many requests",
        "rate_exceeded",
        "too many requests by one player: 10 a second are allowed; "
        "send it again in 1 s, with the same key if it has one",
    ),
    503: _problem(503, "Not available now", "behind", "at_least: 0-9000 is not ranked yet; ask again in a moment"),
}
