"""The figures of live connections cannot rot: each row runs here at a tiny size, over real sockets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import pytest
from benchmarks.figures import BARE, RANKD, UNWATCHED
from benchmarks.http_wrk import wrk_is_installed
from benchmarks.live_bare import Streams
from benchmarks.live_client import Asked, Client, Crowd, Sender
from benchmarks.live_delays import delays
from tests.unit.benchmarks.smoke import rows_of, smoke_report

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is
ROWS = {"live_memory", "live_message", "live_delay_p99", "live_processor", "live_submit"}

needs_wrk = pytest.mark.skipif(
    not wrk_is_installed() and os.environ.get("CI") != "true", reason="wrk is not installed: apt-get install wrk"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return smoke_report("live", tmp_path_factory.mktemp("bench"))


@needs_wrk
def test_every_row_yields_figures(report: dict[str, Any]) -> None:
    rows = rows_of(report)

    assert set(rows) == ROWS
    assert [name for name, row in rows.items() if not row["samples"][RANKD]] == []
    assert [name for name, row in rows.items() if row["failures"]] == []


@needs_wrk
def test_those_who_do_less_stand_beside(report: dict[str, Any]) -> None:
    rows = rows_of(report)

    assert rows["live_memory"]["samples"][BARE]
    assert rows["live_message"]["samples"][BARE]
    assert rows["live_submit"]["samples"][UNWATCHED]


@needs_wrk
def test_every_client_heard_of_every_score(report: dict[str, Any]) -> None:
    extra = rows_of(report)["live_delay_p99"]["extra"]

    assert 0 < extra["scores_per_s"] < 1.1 * report["settings"]["live_scores_per_s"]
    assert extra["messages_per_client"] >= 2
    assert 0 < extra["p50_ms"] <= extra["p99_ms"] <= extra["max_ms"]
    assert extra["client_cores"] > 0


def test_a_score_arrives_with_the_first_message_that_holds_it() -> None:
    acknowledged = [(3, 10.0), (1, 10.1), (2, 10.2)]
    fast: tuple[list[int], list[float]] = ([0, 2, 3], [9.0, 10.3, 10.4])
    slow: tuple[list[int], list[float]] = ([0, 9], [9.0, 11.0])
    figures = delays(acknowledged, [fast, slow])

    assert figures.max == pytest.approx(1_000)
    assert figures.worst_client_p99 == pytest.approx(998, abs=3)
    assert delays(acknowledged, [fast]).max == pytest.approx(400)


def test_a_message_that_is_there_before_the_answer_took_no_time() -> None:
    assert delays([(1, 10.0)], [([1], [9.9])]).max == 0


def crowd(**more: Any) -> Crowd:
    return Crowd(Asked(task="idle", port=1, server_process=1, clients=1, topics=["top:bench"], **more))


def test_a_client_notes_positions_of_whole_messages_only() -> None:
    async def play() -> list[int]:
        client = Client(crowd())
        for piece in (
            b'10\r\nid: a-1\ndata: {"position":"0-7",',
            b'"total":1}\n\n\r\n',
            b": still here\n\n",
            b'data: {"position":"0-8"}\n\n data: {"position":"0-9"}\n\ndata: {"pos',
            b'ition":"0-10"}\n\n',
        ):
            client.data_received(piece)
        return client.positions

    assert asyncio.run(play()) == [7, 9, 10]


def test_a_sender_reads_the_position_of_its_answer() -> None:
    class Transport:
        def write(self, data: bytes) -> None:
            pass

    async def play() -> int:
        sender = Sender()
        sender.connection_made(Transport())  # type: ignore[arg-type]
        answered = sender.send(b"")
        body = b'{"position":"0-42","board":"b"}'
        sender.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        sender.data_received(body)
        return await answered

    assert asyncio.run(play()) == 42


def test_the_bare_handler_sends_the_same_to_everybody() -> None:
    async def play() -> list[list[bytes]]:
        app = Streams(first_bytes=20)
        got: list[list[bytes]] = [[], []]
        is_over = asyncio.Event()

        async def receive() -> Mapping[str, Any]:
            await is_over.wait()
            return {"type": "http.disconnect"}

        async def posted() -> Mapping[str, Any]:
            return {"type": "http.request", "body": b"data: y\n\n"}

        def sending(number: int) -> Any:
            async def send(message: dict[str, Any]) -> None:
                if message["type"] == "http.response.body":
                    got[number].append(message["body"])

            return send

        streams = [
            asyncio.create_task(app({"method": "GET", "path": "/stream"}, receive, sending(number)))
            for number in range(2)
        ]
        while not all(got):
            await asyncio.to_thread(lambda: None)
        await app({"method": "POST", "path": "/tell"}, posted, sending(0))
        while any(len(bodies) < 2 for bodies in got):
            await asyncio.to_thread(lambda: None)
        for stream in streams:
            stream.cancel()
        is_over.set()
        return got

    first, second = asyncio.run(play())
    assert first[0] == second[0]
    assert len(first[0]) == 20
    assert b"data: y\n\n" in first
    assert b"data: y\n\n" in second
