"""The figures of reads from Redis cannot rot: each row runs here at a tiny size, against a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.figures import RANKD, REDIS
from benchmarks.redis_server import redis_is_installed

ROOT = Path(__file__).resolve().parents[3]
SMOKE_WAIT_S = 180
BESIDE_REDIS = {"scaled_rank_call", "scaled_around_call", "scaled_top100_call", "scaled_shards_rank_p99"}
ROUND_TRIPS_MAX = {
    "scaled_rank_call": 1,
    "scaled_around_call": 1,
    "scaled_top100_call": 1,
    "scaled_shards_rank_p99": 2,
    "scaled_shards_page": 2,
}

pytestmark = pytest.mark.skipif(
    not redis_is_installed() and os.environ.get("CI") != "true",
    reason="redis-server is not installed: apt-get install redis-server",
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("bench") / "smoke.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--smoke", "--only", "scaled", "--json", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SMOKE_WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {row["name"]: row for row in json.loads(path.read_text())["rows"]}


def test_every_row_yields_figures(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) >= set(ROUND_TRIPS_MAX)
    for name in ROUND_TRIPS_MAX:
        assert rows[name]["samples"][RANKD]
        assert not rows[name]["failures"]


def test_redis_answers_the_same(rows: dict[str, dict[str, Any]]) -> None:
    for name in BESIDE_REDIS:
        checksums = rows[name]["checksums"]
        assert checksums[RANKD] == checksums[REDIS]


def test_no_read_takes_more_round_trips_than_it_says(rows: dict[str, dict[str, Any]]) -> None:
    for name, most in ROUND_TRIPS_MAX.items():
        assert 1 <= rows[name]["extra"]["round_trips_per_call"] <= most
