"""The benchmark of nodes cannot rot: each row runs here at a tiny size, and answers must agree."""

from __future__ import annotations

from typing import Any

import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.unit.benchmarks.smoke import rows_of, smoke_report

ROWS = {"nodes_open", "nodes_http_rank", "nodes_submit_p99", "nodes_visible_p99", "nodes_visible_busy_p99"}
BESIDE_EMBEDDED = {"nodes_open", "nodes_http_rank", "nodes_submit_p99"}
COMPARED = {"nodes_open", "nodes_http_rank"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    needs_postgres()
    return rows_of(smoke_report("nodes", tmp_path_factory.mktemp("bench")))


def test_every_row_yields_figures(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) == ROWS
    assert all(sample > 0 for row in rows.values() for sample in row["samples"]["rankd"])


def test_the_embedded_server_stands_beside(rows: dict[str, dict[str, Any]]) -> None:
    for name in BESIDE_EMBEDDED:
        assert len(rows[name]["samples"]["library"]) == len(rows[name]["samples"]["rankd"]), name


def test_a_node_answers_as_the_embedded_server_does(rows: dict[str, dict[str, Any]]) -> None:
    for name in COMPARED:
        assert rows[name]["checksums"]["rankd"] == rows[name]["checksums"]["library"], name
