"""The figures of workers cannot rot: they run here at a tiny size, over real sockets, and answers must agree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks.figures import ONE_WORKER, RANKD
from benchmarks.http_wrk import wrk_is_installed
from tests.unit.benchmarks.smoke import rows_of, smoke_report

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is


@pytest.mark.skipif(
    not wrk_is_installed() and os.environ.get("CI") != "true", reason="wrk is not installed: apt-get install wrk"
)
def test_two_workers_are_measured_beside_one(tmp_path: Path) -> None:
    rows = rows_of(smoke_report("workers", tmp_path))

    beside = {"workers_page", "workers_rank", "workers_submit"}
    assert set(rows) == beside | {"workers_visible_p99", "workers_memory"}
    for name, row in rows.items():
        assert row["samples"][RANKD][0] > 0
        assert row["failures"] == []
        if name in beside:
            assert row["samples"][ONE_WORKER][0] > 0
    for name in ("workers_page", "workers_rank"):
        assert rows[name]["checksums"][RANKD] == rows[name]["checksums"][ONE_WORKER]
