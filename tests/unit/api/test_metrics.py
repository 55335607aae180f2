"""The metrics that Prometheus reads."""

from __future__ import annotations

import logging
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from rankd.api.metrics import (
    BOARDS_SHOWN_MAX,
    EVENTS,
    SECONDS,
    UNMATCHED,
    Commits,
    Metrics,
    Routes,
    Sources,
    resident_bytes,
)
from rankd.backend import Figures
from rankd.backup.archiver import ArchiveStatus

OPERATING = Path(__file__).parents[3] / "docs" / "operating.md"
ROUTES = [("GET", "/v1/boards/{board}"), ("PUT", "/v1/boards/{board}"), ("POST", "/v1/scores")]
FIGURES = Figures(
    position=41,
    snapshot=40,
    entries=30,
    engine_bytes=4_096,
    followed_at=1_500,
    holds_lease=True,
    lag_ms=2_500.0,
    refused=3,
    repeats=4,
)
SOURCES = Sources(
    requests_open=lambda: 3,
    figures=lambda: FIGURES,
    queue_depth=lambda: 2,
    work_waiting=lambda: {"cheap": 1, "dear": 4},
    streams=lambda: 0,
    topics=lambda: 0,
    boards=lambda: 2,
    board_entries=lambda _most: {"arcade": 20, "words": 10},
    replay_events=lambda: 7,
    replay_seconds=lambda: 0.25,
    rate_refusals=lambda: {"player_writes_per_s": 5, "address_reads_per_s": 0},
    consumed=lambda: {"appended": 12, "refused": 1},
    consume_lag=lambda: 4,
    relayed=lambda: 90,
    relay_lag=lambda: 6,
    archive=lambda: ArchiveStatus(7, 1_500, "the archive does not answer"),
)

UNKNOWN_AT_FIRST = {"rankd_snapshot_position", "rankd_followed_timestamp_seconds", "rankd_lease", "rankd_lag_seconds"}


@pytest.fixture
def routes() -> Routes:
    """Three routes that nobody asked yet."""
    return Routes(ROUTES)


@pytest.fixture
def commits() -> Commits:
    """No commit yet."""
    return Commits()


def families(routes: Routes, commits: Commits, sources: Sources = SOURCES) -> dict[str, Metric]:
    text = Metrics("1.2.3", routes, commits, sources).text().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples(family: Metric) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(sample.name, tuple(sample.labels.values())): sample.value for sample in family.samples}


def value(metrics: dict[str, Metric], name: str) -> float:
    (sample,) = metrics[name].samples
    return float(sample.value)


def test_requests_are_counted_by_route_method_and_status(routes: Routes, commits: Commits) -> None:
    for index, status in ((0, 200), (0, 200), (0, 404), (1, 200), (UNMATCHED, 404), (len(ROUTES), 405)):
        routes.observe(index, status, 0.002)

    assert samples(families(routes, commits)["rankd_requests"]) == {
        ("rankd_requests_total", ("GET", "/v1/boards/{board}", "200")): 2,
        ("rankd_requests_total", ("GET", "/v1/boards/{board}", "404")): 1,
        ("rankd_requests_total", ("PUT", "/v1/boards/{board}", "200")): 1,
        ("rankd_requests_total", ("any", "unmatched", "404")): 1,
        ("rankd_requests_total", ("any", "unmatched", "405")): 1,
    }


def test_how_long_requests_took_is_cumulated(routes: Routes, commits: Commits) -> None:
    for seconds in (0.0, 0.0005, 0.0006, 0.3, 10.0, 11.0):
        routes.observe(2, 200, seconds)

    family = families(routes, commits)["rankd_request_seconds"]
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels}
    assert [buckets[bound] for bound in ("0.0005", "0.001", "0.25", "0.5", "10.0", "+Inf")] == [2, 3, 3, 4, 5, 6]
    assert samples(family)["rankd_request_seconds_count", ("POST", "/v1/scores")] == 6
    assert samples(family)["rankd_request_seconds_sum", ("POST", "/v1/scores")] == pytest.approx(21.3011)


@given(st.lists(st.floats(0, 100)))
def test_every_observation_is_in_the_bucket_prometheus_means(seconds: list[float]) -> None:
    routes = Routes(ROUTES)
    for duration in seconds:
        routes.observe(0, 200, duration)

    family = families(routes, Commits())["rankd_request_seconds"]
    for sample in family.samples:
        if "le" in sample.labels:
            assert sample.value == sum(duration <= float(sample.labels["le"]) for duration in seconds)


def test_commits_are_counted_with_their_events_and_seconds(routes: Routes, commits: Commits) -> None:
    for events, seconds in ((1, 0.0002), (33, 0.004), (1_000_000, 30.0)):
        commits.observe(events, seconds)

    metrics = families(routes, commits)
    assert samples(metrics["rankd_commit_events"])["rankd_commit_events_sum", ()] == 1_000_034
    assert samples(metrics["rankd_commit_events"])["rankd_commit_events_bucket", ("50.0",)] == 2
    assert samples(metrics["rankd_commit_seconds"])["rankd_commit_seconds_count", ()] == 3
    assert value(metrics, "rankd_commits") == 3


def test_the_other_figures_come_from_those_who_keep_them(routes: Routes, commits: Commits) -> None:
    routes.refused_credentials = 9
    metrics = families(routes, commits)

    assert value(metrics, "rankd_requests_open") == 3
    assert value(metrics, "rankd_position") == 41
    assert value(metrics, "rankd_snapshot_position") == 40
    assert value(metrics, "rankd_queue_depth") == 2
    assert value(metrics, "rankd_boards") == 2
    assert value(metrics, "rankd_entries") == 30
    assert value(metrics, "rankd_engine_bytes") == 4_096
    assert value(metrics, "rankd_replay_events") == 7
    assert value(metrics, "rankd_replay_seconds") == 0.25
    assert value(metrics, "rankd_auth_refusals") == 9
    assert list(samples(metrics["rankd_board_entries"]).values()) == [20, 10]
    assert samples(metrics["rankd_work_waiting"]) == {
        ("rankd_work_waiting", ("cheap",)): 1,
        ("rankd_work_waiting", ("dear",)): 4,
    }
    assert samples(metrics["rankd_rate_refusals"]) == {
        ("rankd_rate_refusals_total", ("player_writes_per_s",)): 5,
        ("rankd_rate_refusals_total", ("address_reads_per_s",)): 0,
    }
    assert metrics["rankd_info"].samples[0].labels["version"] == "1.2.3"


def test_what_is_not_there_has_no_figure(routes: Routes, commits: Commits) -> None:
    new = Figures(position=1, snapshot=None, entries=0, engine_bytes=0)
    metrics = families(routes, commits, replace(SOURCES, figures=lambda: new))
    assert not UNKNOWN_AT_FIRST & metrics.keys()


def test_a_node_shows_how_far_it_has_followed_and_whether_it_has_the_lease(routes: Routes, commits: Commits) -> None:
    metrics = families(routes, commits, SOURCES)
    assert list(samples(metrics["rankd_followed_timestamp_seconds"]).values()) == [1.5]
    assert list(samples(metrics["rankd_lease"]).values()) == [1]
    assert list(samples(metrics["rankd_lag_seconds"]).values()) == [2.5]


def test_a_source_that_fails_takes_no_other_figure_with_it(
    routes: Routes, commits: Commits, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("the engine is gone")

    with caplog.at_level(logging.WARNING, "rankd"):
        metrics = families(routes, commits, Sources(**dict.fromkeys((field.name for field in fields(Sources)), fail)))

    assert {"rankd_requests", "rankd_commits", "rankd_process_resident_bytes"} <= metrics.keys()
    assert "rankd_engine_bytes" not in metrics
    assert "the engine is gone" in caplog.text


def test_boards_are_shown_up_to_a_limit(routes: Routes, commits: Commits) -> None:
    asked = []

    def board_entries(most: int) -> dict[str, int]:
        asked.append(most)
        return {f"board-{number}": number for number in range(5_000)}

    metrics = families(routes, commits, replace(SOURCES, board_entries=board_entries))

    assert asked == [BOARDS_SHOWN_MAX]
    assert len(metrics["rankd_board_entries"].samples) == BOARDS_SHOWN_MAX


def test_a_strange_name_cannot_break_the_format(routes: Routes, commits: Commits) -> None:
    name = 'a"b\\c\nrankd_evil 1'
    metrics = families(routes, commits, replace(SOURCES, board_entries=lambda _most: {name: 1}))

    assert metrics["rankd_board_entries"].samples[0].labels == {"board": name}
    assert "rankd_evil" not in metrics


def test_routes_that_nobody_asked_take_no_room(routes: Routes, commits: Commits) -> None:
    routes.observe(0, 200, 0.001)

    metrics = families(routes, commits)
    assert {sample.labels["route"] for sample in metrics["rankd_request_seconds"].samples} == {"/v1/boards/{board}"}
    assert len(metrics["rankd_requests"].samples) == 1


def test_what_passes_through_kafka_is_counted_where_it_is_used(routes: Routes, commits: Commits) -> None:
    used = families(routes, commits)
    unused = replace(SOURCES, consumed=dict, consume_lag=none, relayed=none, relay_lag=none)

    assert samples(used["rankd_consumed_records"])["rankd_consumed_records_total", ("appended",)] == 12
    assert samples(used["rankd_relayed_events"])["rankd_relayed_events_total", ()] == 90
    assert value(used, "rankd_relay_lag_events") == 6
    assert not [name for name in families(routes, commits, unused) if "relay" in name or "consume" in name]


def none() -> None:
    """Nothing of it in this process."""


def test_bounds_ascend() -> None:
    assert list(SECONDS) == sorted(set(SECONDS))
    assert list(EVENTS) == sorted(set(EVENTS))


def test_the_process_knows_its_memory() -> None:
    resident = resident_bytes()
    assert resident is None or resident > 1_000_000


def test_every_figure_is_explained_to_operators(routes: Routes, commits: Commits) -> None:
    routes.observe(0, 200, 0.001)
    text = Metrics("1.2.3", routes, commits, SOURCES).text().decode()
    exposed = set(re.findall(r"^# TYPE (rankd_\w+)", text, re.MULTILINE))
    explained = set(re.findall(r"^\| `(rankd_\w+)", OPERATING.read_text(), re.MULTILINE))

    assert exposed | {"rankd_worker_up"} == explained  # which `merged` adds, where there are several workers
