"""The figures of ranks in Redis cannot rot: each row runs at a tiny size, and what both sides hold must agree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is
ROOT = Path(__file__).resolve().parents[3]
SMOKE_WAIT_S = 240
AGAINST_REDIS = {
    "scaled_rebuild",
    "scaled_rebuild_huge",
    "scaled_mirror",
    "scaled_mirror_sums",
    "scaled_mirror_prefixed",
    "scaled_rank_call",
    "scaled_around_call",
    "scaled_top100_call",
    "scaled_shards_rank_p99",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    if shutil.which("redis-server") is None and os.environ.get("CI") != "true":
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    kept = tmp_path_factory.mktemp("bench") / "scaled.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--smoke", "--only", "scaled,scaled_huge", "--json", str(kept)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SMOKE_WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {row["name"]: row for row in json.loads(kept.read_text())["rows"]}


def test_redis_stands_beside_every_row_it_can_answer(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) >= AGAINST_REDIS
    for name in AGAINST_REDIS:
        assert all(sample > 0 for side in ("rankd", "redis") for sample in rows[name]["samples"][side]), name


def test_both_sides_hold_the_same(rows: dict[str, dict[str, Any]]) -> None:
    for name in AGAINST_REDIS:
        assert rows[name]["checksums"]["rankd"] == rows[name]["checksums"]["redis"], name
