"""Whatever an address asks for counts against its limit, also what is refused before anybody is identified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankd.config.model import Config, LimitsConfig

from .in_process import InProcess, in_process

PER_S = 2
CONFIG = Config(limits=LimitsConfig(address_reads_per_s=PER_S))


async def nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b""}


@pytest.mark.parametrize(
    ("method", "target", "headers", "status"),
    [
        ("GET", "/no/such/path", {}, 404),
        ("POST", "/healthz", {}, 405),
        ("GET", "/v1/boards/arcade/top?windwo=day", {}, 422),
        ("OPTIONS", "/v1/boards", {"origin": "https://a.example", "access_control_request_method": "GET"}, 204),
    ],
)
def test_what_comes_to_no_call_is_limited_by_address(
    tmp_path: Path, method: str, target: str, headers: dict[str, str], status: int
) -> None:
    async def test(app: InProcess) -> None:
        answers = [(await app.ask(method, target, nothing, **headers)).status for _ in range(PER_S + 1)]
        assert answers == [status] * PER_S + [429]

    in_process(tmp_path, test, CONFIG)


def test_probes_are_never_limited(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        for target, status in (("/healthz", 200), ("/healthz?windwo=day", 422)):
            assert {(await app.get(target)).status for _ in range(2 * PER_S)} == {status}

    in_process(tmp_path, test, CONFIG)


def test_a_web_socket_with_bad_credentials_is_closed_with_1013_beyond_the_limit(tmp_path: Path) -> None:
    async def codes(app: InProcess) -> list[int]:
        close_codes = []
        for _ in range(PER_S + 1):
            sent: list[dict[str, Any]] = []

            async def receive() -> dict[str, Any]:
                return {"type": "websocket.connect"}

            async def send(message: dict[str, Any], sent: list[dict[str, Any]] = sent) -> None:
                sent.append(message)

            scope = {
                "type": "websocket",
                "path": "/v1/ws",
                "query_string": b"ticket=made-up",
                "headers": [],
                "client": ("127.0.0.1", 1),
            }
            await app.app(scope, receive, send)
            assert [message["type"] for message in sent] == ["websocket.close"]
            close_codes.append(sent[0]["code"])
        return close_codes

    async def test(app: InProcess) -> None:
        live = app.service.go_live()
        try:
            assert await codes(app) == [1008] * PER_S + [1013]
        finally:
            live.stop()

    in_process(tmp_path, test, CONFIG)
