"""What the generator says of servers that are quick, slow, stuck, rude or gone."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.servers.waiting import join_all

from rankd.bench import Load, generate, generator
from rankd.bench import report as summing_up
from rankd.bench.load import RequestKind, Spacing, read_address
from rankd.errors import Unavailable

from .answering import FINE, Answering, answering

STALL_S = 0.4


def load(server: Answering, **values: Any) -> Load:
    asked: dict[str, Any] = {"rate": 400.0, "duration_s": 0.5, "connections": 8, "token": "t", "seed": 7}
    return Load(address=read_address(server.url), board="arcade", **{**asked, **values})


def test_what_is_due_is_asked_and_counted_by_kind() -> None:
    with answering() as server:
        report = generate(load(server, spacing=Spacing.EVEN, writes=0.5, mix={RequestKind.TOP: 1.0}))

    assert report.sent == report.answered == len(server.requests) == 200
    assert report.errors == {}
    writes = [request for request in server.requests if request.startswith(b"POST /v1/scores ")]
    assert report.kinds["submit"].answered == len(writes)
    assert report.kinds["top"].answered == 200 - len(writes)
    assert server.connections == 8
    assert 0 < report.rate <= 400
    assert report.rate_asked == 400


def test_a_stalled_server_shows_in_everything_that_was_due_meanwhile() -> None:
    """A client that waits would have sent one request less and measured the stall once."""
    seen = threading.Event()

    def stall_once(_request: bytes) -> bytes:
        if len(server.requests) == 20 and not seen.is_set():
            seen.set()
            threading.Event().wait(STALL_S)  # the whole server stands still
        return FINE

    with answering(stall_once) as server:
        report = generate(load(server, spacing=Spacing.EVEN, duration_s=1.0, connections=4))

    latencies = report.latencies
    assert seen.is_set()
    assert latencies.max_ms is not None
    assert latencies.p95_ms is not None
    assert latencies.max_ms >= STALL_S * 900
    assert latencies.p95_ms >= STALL_S * 500  # 160 of 400 were due in it
    assert report.waited_for_connection > 100
    assert report.answered == report.sent == 400


def test_refusals_are_counted_by_status_with_what_was_said() -> None:
    def refuse(request: bytes) -> bytes:
        return b"HTTP/1.1 404 No\r\ncontent-length: 5\r\n\r\nnobod" if b"/players/" in request else FINE

    with answering(refuse) as server:
        report = generate(load(server, writes=0.5, mix={RequestKind.RANK: 1.0}))

    refused = report.kinds["rank"].sent
    assert report.errors == {"404": refused}
    assert report.first_errors == {"404": "nobod"}
    assert report.kinds["rank"].errors == refused > 0
    assert report.kinds["rank"].latencies.p50_ms is None
    assert report.kinds["submit"].errors == 0


def test_a_server_that_closes_connections_gets_new_ones() -> None:
    with answering(lambda _: b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n") as server:
        report = generate(load(server, rate=100.0))

    assert report.errors == {}
    assert report.answered == report.sent > 20
    assert report.reconnected > 20


def test_what_is_never_answered_counts_with_as_long_as_it_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "ANSWER_S", 0.3)
    with answering(lambda _: None) as server:
        report = generate(load(server, spacing=Spacing.EVEN, duration_s=0.3, connections=2))

    assert report.answered == 0
    assert sum(report.errors.values()) == 120
    assert report.errors["unsent"] > 100
    assert set(report.errors) <= {"timeout", "unanswered", "unsent"}
    assert report.latencies.p50_ms is not None
    assert report.latencies.p50_ms >= 200
    assert len(report.warnings) == 1


def test_a_rate_the_server_cannot_take_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summing_up, "LATE_MS_MAX", 1e9)  # a busy machine is not what this is about

    def slow(_request: bytes) -> bytes:
        threading.Event().wait(0.01)
        return FINE

    with answering(slow) as server:
        report = generate(load(server, rate=1_000.0, connections=2))

    (warning,) = report.warnings
    assert "the rate was not kept" in warning
    assert report.rate < 300
    assert report.answered == report.sent


def test_a_rate_that_the_generator_cannot_send_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def blocking(self: Any) -> bytes:
        threading.Event().wait(0.02)
        return b"GET / HTTP/1.1\r\n\r\n"

    monkeypatch.setattr("rankd.bench.requests.Requests.rank", blocking)
    with answering() as server:
        report = generate(load(server, writes=0.0, mix={RequestKind.RANK: 1.0}))

    (warning,) = report.warnings
    assert "generator is late" in warning


def test_without_a_rate_each_connection_asks_again_when_it_is_answered() -> None:
    with answering() as server:
        report = generate(load(server, rate=0.0, duration_s=0.3, connections=3))

    assert report.rate_asked is None
    assert report.answered == report.sent == len(server.requests) > 30
    assert report.rate == pytest.approx(report.sent / 0.3)
    assert report.waited_for_connection == 0


def test_nobody_at_the_address_is_said_at_once() -> None:
    with answering() as server:
        gone = load(server)

    with pytest.raises(Unavailable, match="is the server running"):
        generate(gone)


def test_a_server_that_goes_away_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "RECONNECT_S", 0.01)
    with answering() as server:
        stopping = threading.Timer(0.2, server.stop)
        stopping.start()
        report = generate(load(server, duration_s=0.6))
        join_all([stopping])

    assert report.answered > 0
    assert report.errors["unsent"] > 0
    assert report.warnings


def test_it_reports_how_far_a_run_is() -> None:
    reports: list[tuple[int, int]] = []
    with answering() as server:
        generate(load(server, duration_s=0.6), lambda done, total: reports.append((done, total)))

    assert reports
    assert all(0 <= done <= total for done, total in reports)
