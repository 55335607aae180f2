"""What the description says by example is so: requests, answers, caching, credentials; and /docs shows it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from rankd.api.calls.call import Access, Call
from rankd.api.calls.pages import PAGES
from rankd.api.calls.routes import CALLS
from rankd.api.http.codes import codes
from rankd.api.openapi.description import CACHED, describe
from rankd.api.openapi.docs import docs_page, docs_policy
from rankd.api.openapi.examples import EXAMPLES

from .serving import Serving, serving

BY_CALL = {call.name: call for call in CALLS}
DESTRUCTIVE = ("remove", "reset", "delete")
# As they are played: what writes comes before what reads it.
ORDER = ("define", "set_player", "submit_many", "submit", "set_friends")
PLAYED = [
    *ORDER,
    *(call.name for call in CALLS if call.name not in (*ORDER, *DESTRUCTIVE, "stream")),  # which never ends
    *DESTRUCTIVE,
]
NOT_SHOWN = {"metrics", "openapi", "docs", *(call.name for call in PAGES)}
GUARDED = [call for call in CALLS if call.access not in (Access.OPEN, Access.READ, Access.METRICS)]
GARBAGE = [
    b"",
    b"Bearer",
    b"Bearer  two words",
    b"Basic YWxpY2U6c2VjcmV0",
    b"Digest username=alice",
    b"Bearer rk_0000000000000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    b"Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsInNjb3BlIjoiYm9hcmRzOmFkbWluIn0.",
    b"Bearer " + b"a" * 9_000,
    b"Bearer \xff\xfe",
    b"bearer ../../admin.key",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("described") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def admin(server: Serving) -> Iterator[httpx.Client]:
    with server.client(server.admin_key) as client:
        yield client


@pytest.fixture(scope="module")
def anybody(server: Serving) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def answers(admin: httpx.Client) -> dict[str, httpx.Response]:
    """What the server answers to the examples, by call."""
    assert admin.put("/v1/players/bob", json={"name": "Bob", "country": "PT"}).status_code == 200
    played = {name: send(admin, BY_CALL[name]) for name in PLAYED if name not in DESTRUCTIVE}
    tags = {name: played[name].headers.get("etag") for name in CACHED}
    for name, tag in tags.items():
        played[f"{name} again"] = send(admin, BY_CALL[name], {"If-None-Match": tag or ""})
    for name in DESTRUCTIVE:
        played[name] = send(admin, BY_CALL[name])
    return played


def send(client: httpx.Client, call: Call, headers: dict[str, Any] | None = None) -> httpx.Response:
    example = EXAMPLES[call.name]
    path = re.sub(r"\{(\w+)\}", lambda match: quote(str(example.path[match[1]]), safe=""), call.path)
    return client.request(call.method, path, params=example.query, json=example.body, headers=headers)


def shape(value: object) -> object:
    """Return the names a value holds at every depth, whatever they are worth."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else None


@pytest.mark.parametrize("name", [name for name in PLAYED if name not in NOT_SHOWN])
def test_an_example_is_answered_as_it_says(name: str, answers: dict[str, httpx.Response]) -> None:
    answer = answers[name]

    assert answer.status_code == 200, answer.text
    if name not in ("range", "course"):  # there was no week before, and no midnight
        assert shape(answer.json()) == shape(EXAMPLES[name].answer)
    msgspec.json.decode(answer.content, type=BY_CALL[name].answer)


@pytest.mark.parametrize("name", PLAYED)
def test_exactly_the_reads_that_say_so_can_be_kept_by_a_cache(name: str, answers: dict[str, httpx.Response]) -> None:
    assert ("etag" in answers[name].headers) is (name in CACHED)
    if name in CACHED:
        assert answers[f"{name} again"].status_code == 304


def test_the_figures_are_those_of_the_example(answers: dict[str, httpx.Response]) -> None:
    described = re.findall(r"^# (.*)$", EXAMPLES["metrics"].answer, re.MULTILINE)

    assert [line for line in described if f"# {line}\n" not in answers["metrics"].text] == []


def test_the_description_is_served(answers: dict[str, httpx.Response]) -> None:
    assert answers["openapi"].headers["content-type"] == "application/json"
    assert answers["openapi"].json() == describe(CALLS, version("rankd"))


def test_the_page_is_served_under_its_policy(answers: dict[str, httpx.Response]) -> None:
    page = answers["docs"]

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == docs_policy().decode()
    assert page.content == docs_page(describe(CALLS, version("rankd")))


class Anchors(HTMLParser):
    """Notes what an address can point at."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str | None] = set()
        self.feed(page)

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(dict(attrs).get("id"))


def test_the_type_of_every_problem_is_an_anchor_of_the_page(anybody: httpx.Client) -> None:
    problem = anybody.get("/v1/boards/nobody/top").json()
    page, _, anchor = problem["type"].partition("#")
    names = Anchors(anybody.get(page).text).names

    assert anchor == problem["code"] == "board_unknown"
    assert {error_code.code for error_code in codes()} <= names


@pytest.mark.parametrize("call", GUARDED, ids=lambda call: call.name)
def test_nobody_does_without_a_credential_what_needs_one(call: Call, anybody: httpx.Client) -> None:
    answer = send(anybody, call)

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: repr(garbage[:30]))
@pytest.mark.parametrize("call", [*GUARDED, BY_CALL["top"], BY_CALL["list"]], ids=lambda call: call.name)
def test_garbage_is_no_credential_not_even_where_none_is_needed(
    call: Call, garbage: bytes, anybody: httpx.Client
) -> None:
    answer = send(anybody, call, {"Authorization": garbage})

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"] == answer.json()["request_id"]
    assert len(garbage) < 10 or garbage[-10:] not in answer.content


@pytest.fixture(scope="module")
def players_token(server: Serving) -> str:
    command = [sys.executable, "-m", "rankd", "token", "--data", str(server.folder), "--player", "alice", "--json"]
    made = subprocess.run(command, capture_output=True, timeout=60, check=True)
    token = str(json.loads(made.stdout)["token"])
    server.assert_known(token)
    return token


@pytest.mark.parametrize("call", [call for call in CALLS if call.access is Access.ADMIN], ids=lambda call: call.name)
def test_a_player_does_nothing_that_is_an_administrators(call: Call, server: Serving, players_token: str) -> None:
    with server.client(players_token) as alice:
        answer = send(alice, call)

    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
