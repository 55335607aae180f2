"""The figures of what was cannot rot: they run here at a tiny size."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.figures import QUIET, RANKD
from tests.unit.benchmarks.smoke import rows_of, smoke_report

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is


def test_a_past_state_a_midnight_and_a_year_are_measured(tmp_path: Path) -> None:
    rows = rows_of(smoke_report("as_of", tmp_path))

    assert set(rows) == {
        "as_of_first",
        "as_of_again",
        "as_of_reader",
        "history_midnight",
        "history_reader",
        "history_bytes",
        "history_year",
    }
    for row in rows.values():
        assert row["samples"][RANKD][0] > 0
        assert row["failures"] == []
    for name in ("as_of_reader", "history_reader"):
        assert row_of(rows, name, QUIET) > 0
    assert rows["history_year"]["extra"]["points"] == 365


def row_of(rows: dict[str, dict[str, dict[str, list[float]]]], name: str, contender: str) -> float:
    return rows[name]["samples"][contender][0]
