"""A projector says over HTTP that it lives, whether it is of use, and how it does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rankd.errors import AddressTaken
from rankd.node import projector_figures as module
from rankd.node.probe_server import ProbeServer
from rankd.node.projector_figures import ACTIVE, STANDBY, ProjectorFigures
from rankd.node.projector_observer import ProjectorObserver


@pytest.fixture
def figures() -> ProjectorFigures:
    return ProjectorFigures()


@pytest.fixture
def ask(figures: ProjectorFigures) -> Iterator[httpx.Client]:
    listening = ProbeServer("projector.listen", "127.0.0.1", 0, figures)
    with httpx.Client(base_url=f"http://127.0.0.1:{listening.port}") as client:
        yield client
    listening.close()


def values(client: httpx.Client) -> dict[tuple[str, ...], float]:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_it_lives_before_it_is_ready(ask: httpx.Client, figures: ProjectorFigures) -> None:
    assert ask.get("/healthz").status_code == 200
    assert ask.head("/healthz").status_code == 200
    answer = ask.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "role": "starting", "detail": "it waits for the ledger"}


def test_it_is_ready_while_it_is_level(
    ask: httpx.Client, figures: ProjectorFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures.set_role(STANDBY, 0)
    figures.set_level(None)
    assert ask.get("/readyz").json() == {"status": "ready", "role": "standby"}

    figures.set_role(ACTIVE, 7)
    assert ask.get("/readyz").status_code == 503  # Redis has not been seen to be level yet
    figures.set_level(1_000)
    assert ask.get("/readyz").json() == {"status": "ready", "role": "active"}

    figures.set_waiting("Redis")
    assert ask.get("/readyz").status_code == 200  # for a moment
    monkeypatch.setattr(module, "READY_WITHIN_S", -1.0)
    assert ask.get("/readyz").json()["detail"] == "it waits for Redis"
    figures.set_level(2_000)
    assert ask.get("/readyz").json()["detail"] == "it is behind the ledger"


def test_figures_are_in_the_format_of_prometheus(ask: httpx.Client, figures: ProjectorFigures) -> None:
    figures.set_role(ACTIVE, 7)
    figures.set_behind([3, 0])
    figures.observe_step(0.02, 40)
    figures.observe_step(5.0, 0)
    figures.set_level(1_700_000_000_000)
    figures.count_sent(80, 1, 2)
    figures.set_kept(1.5, 3, 4, 5)

    samples = values(ask)
    assert samples["rankd_projector_role", "active"] == 1
    assert samples["rankd_projector_role", "standby"] == 0
    assert samples["rankd_projector_epoch",] == 7
    assert samples["rankd_projector_events_behind", "0"] == 3
    assert samples["rankd_projector_events_total",] == 40
    assert samples["rankd_projector_batch_seconds_count",] == 1
    assert samples["rankd_projector_mirrored_timestamp_seconds",] == 1_700_000_000
    assert samples["rankd_projector_redis_entries_total",] == 80
    assert samples["rankd_projector_redis_catch_ups_total",] == 1
    assert samples["rankd_projector_redis_loads_total",] == 2
    assert samples["rankd_projector_standings_behind_seconds",] == 1.5
    assert samples["rankd_projector_archives_waiting",] == 4


def test_what_a_log_has_refused_is_counted_where_there_is_one(ask: httpx.Client, figures: ProjectorFigures) -> None:
    assert ("rankd_ledger_refused_events_total",) not in values(ask)
    figures.count_judged(0, 2)
    figures.count_judged(3, 1)
    samples = values(ask)
    assert samples["rankd_ledger_refused_events_total",] == 3
    assert samples["rankd_ledger_repeated_events_total",] == 3


def test_each_step_counts_what_a_log_has_refused_since_the_last(ask: httpx.Client, figures: ProjectorFigures) -> None:
    observer = ProjectorObserver(figures)
    for refusals, repeats in ((0, 0), (2, 1), (5, 1)):
        admission = SimpleNamespace(refusals=refusals, repeats=repeats)
        follower: Any = SimpleNamespace(events=refusals, admission=admission)
        observer.step(0.0, follower, None)
    samples = values(ask)
    assert samples["rankd_ledger_refused_events_total",] == 5
    assert samples["rankd_ledger_repeated_events_total",] == 1


def test_other_paths_are_not_there(ask: httpx.Client) -> None:
    assert ask.get("/").status_code == 404
    assert ask.post("/metrics").status_code == 501


def test_a_taken_address_says_which_setting_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(AddressTaken, match=r"projector\.listen"):
        ProbeServer("projector.listen", "127.0.0.1", taken.getsockname()[1], ProjectorFigures())
