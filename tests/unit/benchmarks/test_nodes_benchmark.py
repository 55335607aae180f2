"""The benchmark of nodes cannot rot: each row runs here at a tiny size, and answers must agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.servers.fixtures_postgres import needs_postgres

ROOT = Path(__file__).resolve().parents[3]
SMOKE_WAIT_S = 240
ROWS = {"nodes_open", "nodes_http_rank", "nodes_submit_p99", "nodes_visible_p99", "nodes_visible_busy_p99"}
BESIDE_EMBEDDED = {"nodes_open", "nodes_http_rank", "nodes_submit_p99"}
COMPARED = {"nodes_open", "nodes_http_rank"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    needs_postgres()
    kept = tmp_path_factory.mktemp("bench") / "nodes.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--smoke", "--only", "nodes", "--json", str(kept)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SMOKE_WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {row["name"]: row for row in json.loads(kept.read_text())["rows"]}


def test_every_row_yields_figures(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) == ROWS
    assert all(sample > 0 for row in rows.values() for sample in row["samples"]["rankd"])


def test_the_embedded_server_stands_beside(rows: dict[str, dict[str, Any]]) -> None:
    for name in BESIDE_EMBEDDED:
        assert len(rows[name]["samples"]["library"]) == len(rows[name]["samples"]["rankd"]), name


def test_a_node_answers_as_the_embedded_server_does(rows: dict[str, dict[str, Any]]) -> None:
    for name in COMPARED:
        assert rows[name]["checksums"]["rankd"] == rows[name]["checksums"]["library"], name
