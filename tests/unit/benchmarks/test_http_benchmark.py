"""The service's figures cannot rot: each row runs here at a tiny size, over real sockets, and answers must agree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks.figures import BARE, RANKD, Row, Target
from benchmarks.http_bare import bare_app
from benchmarks.http_wrk import QUESTIONS, Wrk, WrkResult, wrk_is_installed
from benchmarks.report import summary
from tests.unit.benchmarks.smoke import rows_of, smoke_report

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is
AGAINST_BARE = {"http_rank", "http_rank_with_key", "http_around", "http_top", "http_submit", "http_submit_keyed"}
BATCHES = {"http_batch", "http_batch_ndjson", "http_batch_msgpack", "http_batch_scopes"}
OURS_ALONE = {"http_memory", "http_sustained_p95", "http_sustained_p99"}
COMPARED_WITH_LIBRARY = {"http_rank", "http_around", "http_top", "http_submit", "http_submit_keyed", *BATCHES}
FINE = WrkResult(100, 1_000_000, 0, 0, 0, 0, 0, 5.0, 9.0, 10.0)

needs_wrk = pytest.mark.skipif(
    not wrk_is_installed() and os.environ.get("CI") != "true", reason="wrk is not installed: apt-get install wrk"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return smoke_report("http", tmp_path_factory.mktemp("bench"))


@needs_wrk
def test_every_row_yields_figures(report: dict[str, Any]) -> None:
    rows = rows_of(report)

    assert set(rows) == AGAINST_BARE | BATCHES | OURS_ALONE
    assert [name for name, row in rows.items() if not row["samples"][RANKD]] == []
    assert [name for name, row in rows.items() if row["failures"]] == []


@needs_wrk
def test_the_bare_handler_stands_beside_every_call(report: dict[str, Any]) -> None:
    rows = rows_of(report)

    assert [name for name in AGAINST_BARE if not rows[name]["samples"].get(BARE)] == []
    assert rows["http_submit"]["samples"]["bare_post"]
    assert rows["http_batch_scopes"]["samples"]["plain"]


@needs_wrk
def test_answers_are_those_of_the_library(report: dict[str, Any]) -> None:
    for name in COMPARED_WITH_LIBRARY:
        checksums = rows_of(report)[name]["checksums"]
        assert checksums["rankd"] == checksums["library"], name
        assert int(checksums["rankd"], 16) > 0, name


@needs_wrk
def test_a_fixed_rate_is_kept_and_answered_without_an_error(report: dict[str, Any]) -> None:
    extra = rows_of(report)["http_sustained_p95"]["extra"]
    settings = report["settings"]

    # On a busy machine the last requests are sent late, and do not count as sent within the duration.
    assert 0 < extra["rate"] * settings["http_sustained_s"] <= extra["answered"]
    assert {"submit_p95_ms", "rank_p95_ms"} <= set(extra)


@pytest.fixture
def wrk(tmp_path: Path) -> Wrk:
    return Wrk(tmp_path, players=10, token="secret", batch_events=3)


def test_reads_carry_a_key_only_when_they_are_asked_to(wrk: Wrk) -> None:
    assert "secret" not in wrk.script("rank", 1)
    assert "secret" in wrk.script("rank", 1, with_key=True)
    assert [
        question for question in QUESTIONS if "submit" in question and "secret" not in wrk.script(question, 1)
    ] == []


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("status", "1 answered with an error"),
        ("timeout", "1 timed out"),
        ("read", "1 not read"),
        ("connect", "1 not connected"),
    ],
)
def test_what_wrk_finds_fault_with_is_said(field: str, message: str) -> None:
    assert FINE.problem() is None
    assert msgspec.structs.replace(FINE, **{field: 1}).problem() == message


def test_a_turn_without_an_answer_is_a_fault() -> None:
    assert msgspec.structs.replace(FINE, requests=0).problem() == "nothing was answered"


def test_a_row_that_failed_reaches_no_target_and_is_named() -> None:
    row = Row(
        name="http_rank",
        entries=1_000_000,
        unit="ns_per_request",
        samples={RANKD: [10.0], BARE: [10.0]},
        target=Target(ratio_min=0.5, rival=BARE),
    )
    assert row.verdict() == "pass"

    row.failures = ["rankd: 3 timed out"]
    assert row.verdict() == "miss"
    assert "FAILED: http_rank at 1 M: rankd: 3 timed out" in summary([row])

    row.samples = {}
    assert "0 of 1 targets reached" in summary([row])


async def _exchange(method: str, received: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> Mapping[str, Any]:
        return received.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await bare_app(7)({"type": "http", "method": method}, receive, send)
    return sent


@pytest.mark.parametrize(("method", "left"), [("GET", 2), ("POST", 0)])
def test_the_bare_handler_answers_with_so_many_bytes_and_reads_what_is_posted(method: str, left: int) -> None:
    received = [{"body": b"a", "more_body": True}, {"body": b"b", "more_body": False}]
    exchange = _exchange(method, received)
    with pytest.raises(StopIteration) as ended:
        exchange.send(None)
    start, body = ended.value.value

    assert start["status"] == 200
    assert (b"content-length", b"7") in start["headers"]
    assert len(body["body"]) == 7
    assert len(received) == left
