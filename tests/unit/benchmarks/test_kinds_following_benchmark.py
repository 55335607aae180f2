"""The benchmark of kinds on PostgreSQL cannot rot: each row runs here at a tiny size, and digests must agree."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.kinds_following import FOLLOWED
from benchmarks.redis_server import redis_is_installed
from tests.servers.fixtures_postgres import needs_postgres
from tests.unit.benchmarks.smoke import rows_of, smoke_report

HOW = ("node", "projector", "rebuild")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    needs_postgres()
    if not redis_is_installed():
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    return rows_of(smoke_report("kinds_following", tmp_path_factory.mktemp("bench")))


def test_every_row_yields_figures_beside_the_live_ones(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) == {f"kind_{name}_{how}" for name in FOLLOWED for how in HOW}
    for row in rows.values():
        assert all(sample > 0 for side in ("rankd", "live") for sample in row["samples"][side])


def test_a_node_that_follows_ranks_as_the_one_that_took_the_events(rows: dict[str, dict[str, Any]]) -> None:
    for name in FOLLOWED:
        checksums = rows[f"kind_{name}_node"]["checksums"]
        assert checksums["rankd"] == checksums["live"], name
        assert int(checksums["rankd"], 16) > 0, name
