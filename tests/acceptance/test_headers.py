"""What every answer says to browsers, and what pages and probes are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import rankd

from .serving import Serving, serving

CONFIG = '[server]\ncors_origins = ["https://game.example"]\n'
EXPECTED = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "x-frame-options": "DENY"}
PREFLIGHT = {"origin": "https://game.example", "access-control-request-method": "GET"}
ANSWERS: tuple[tuple[str, str, dict[str, str], int], ...] = (
    ("GET", "/v1/boards/arcade/top", {}, 200),
    ("GET", "/v1/boards/arcade/top?limit=x", {}, 422),
    ("HEAD", "/v1/boards/arcade/top", {}, 200),
    ("OPTIONS", "/v1/boards/arcade/top", PREFLIGHT, 204),
    ("GET", "/v1/boards/nothing/top", {}, 404),
    ("GET", "/nowhere", {}, 404),
    ("POST", "/v1/boards/arcade/top", {}, 405),
    ("POST", "/v1/scores", {}, 401),
    ("GET", "/", {}, 200),
    ("GET", "/boards/arcade", {}, 200),
    ("GET", "/boards/nothing", {"accept": "text/html"}, 404),
    ("GET", "/rankd-board.js", {}, 200),
    ("GET", "/assets/page.css", {}, 200),
    ("GET", "/docs", {}, 200),
    ("GET", "/openapi.json", {}, 200),
    ("GET", "/metrics", {}, 200),
    ("GET", "/healthz", {}, 200),
    ("GET", "/readyz", {}, 200),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("headers") / "data", config=CONFIG) as running:
        with running.client(running.admin_key) as admin:
            assert admin.put("/v1/boards/arcade", json={}).status_code == 200
        yield running


def check_headers(headers: httpx.Headers) -> None:
    for name, value in EXPECTED.items():
        assert headers.get_list(name) == [value], name


@pytest.mark.parametrize(("method", "path", "headers", "status"), ANSWERS, ids=lambda part: str(part)[:40])
def test_every_answer_says_how_browsers_must_treat_it(
    server: Serving, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = httpx.request(method, server.url + path, headers=headers)

    assert answer.status_code == status
    check_headers(answer.headers)


@pytest.mark.parametrize("path", ["/v1/boards/arcade/top", "/rankd-board.js"])
def test_an_answer_that_did_not_change_says_it_too(server: Serving, path: str) -> None:
    tag = httpx.get(server.url + path).headers["etag"]

    answer = httpx.get(server.url + path, headers={"if-none-match": tag})

    assert answer.status_code == 304
    check_headers(answer.headers)


def test_a_stream_of_events_says_it_too(server: Serving) -> None:
    with httpx.stream("GET", f"{server.url}/v1/stream?topic=top:arcade") as answer:
        assert answer.status_code == 200
        check_headers(answer.headers)


@pytest.mark.parametrize("path", ["/", "/boards/arcade", "/docs", "/rankd-board.js", "/assets/page.css"])
@pytest.mark.parametrize("query", ["utm_source=x", "a=1&a=2", "&".join(f"p{n}=" for n in range(100)), "%ff=%ff"])
def test_pages_ignore_what_links_add_to_their_address(server: Serving, path: str, query: str) -> None:
    assert httpx.get(f"{server.url}{path}?{query}").content == httpx.get(server.url + path).content


@pytest.mark.parametrize("path", ["/v1/boards", "/v1/boards/arcade/top", "/healthz", "/readyz", "/openapi.json"])
def test_calls_refuse_parameters_they_do_not_know(server: Serving, path: str) -> None:
    answer = httpx.get(f"{server.url}{path}?utm_source=x")

    assert answer.status_code == 422
    assert "utm_source" in answer.json()["detail"]


def test_a_probe_of_a_private_server_does_not_learn_how_many_events_there_are(server: Serving, tmp_path: Path) -> None:
    assert httpx.get(f"{server.url}/readyz").json()["position"]

    with serving(tmp_path / "data", config="[server]\npublic_read = false\n") as private:
        assert set(httpx.get(f"{private.url}/readyz").json()) == {"status", "version"}
        with rankd.Client(private.url) as client:
            assert client.ready() is None
