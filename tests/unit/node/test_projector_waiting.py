"""A projector says by name which server it waits for."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rankd.clock import ManualClock
from rankd.errors import LedgerUnavailable, RanksUnavailable
from rankd.ledger.kafka.failures import unavailable
from rankd.node.open_projector import prepare_projector_folder
from rankd.node.projector import Projector, ProjectorSettings
from rankd.node.projector_figures import ProjectorFigures


class FailingProjector(Projector):
    """A projector whose first step fails, and which stops then."""

    def __init__(self, folder: Path, problem: Exception, figures: ProjectorFigures) -> None:
        ledger: Any = SimpleNamespace(
            capabilities=SimpleNamespace(appends_conditionally=True), close=lambda: None, wait=lambda _s: None
        )
        lease: Any = SimpleNamespace(release=lambda: None)
        prepare_projector_folder(folder)
        super().__init__(
            ledger,
            lambda: pytest.fail("it never comes to Redis"),
            lease,
            clock=ManualClock(1),
            folder=folder,
            settings=ProjectorSettings(),
            figures=figures,
        )
        self.stop = threading.Event()
        self._problem = problem

    def step(self) -> int:
        self.stop.set()
        raise self._problem


@pytest.mark.parametrize(
    ("problem", "name"),
    [
        (LedgerUnavailable("the lease cannot be claimed"), "PostgreSQL"),
        (unavailable("no leader"), "Kafka"),
        (RanksUnavailable("no answer", away="127.0.0.1:6379"), "Redis"),
    ],
)
def test_a_projector_names_the_server_that_it_waits_for(problem: Exception, name: str, tmp_path: Path) -> None:
    figures = ProjectorFigures()
    projector = FailingProjector(tmp_path, problem, figures)
    projector.run(projector.stop)
    assert figures.readiness().why == f"it waits for {name}"
