"""The figures of priority cannot rot: they run here at a tiny size, over real sockets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks.figures import RANKD
from benchmarks.http_wrk import wrk_is_installed
from tests.servers.postgres import binaries
from tests.unit.benchmarks.smoke import rows_of, smoke_report

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is


@pytest.mark.skipif(
    not wrk_is_installed() and os.environ.get("CI") != "true", reason="wrk is not installed: apt-get install wrk"
)
def test_small_clients_are_measured_while_large_ones_send(tmp_path: Path) -> None:
    rows = rows_of(smoke_report("priority", tmp_path))

    of_nodes = set() if binaries() is None else {"priority_node_submit_p99", "priority_node_rank_p99"}
    assert set(rows) == {"priority_submit_p99", "priority_rank_p99"} | of_nodes
    for row in rows.values():
        assert row["samples"][RANKD][0] > 0
        assert row["failures"] == []
        assert all(row["extra"][f"{sender}_per_s"] > 0 for sender in ("batches", "imports", "exports"))
