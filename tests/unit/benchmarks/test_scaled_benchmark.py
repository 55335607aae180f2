"""The figures of ranks in Redis cannot rot: each row runs at a tiny size, and what both sides hold must agree."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest
from tests.unit.benchmarks.smoke import rows_of, smoke_report

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is
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
    return rows_of(smoke_report("scaled,scaled_huge", tmp_path_factory.mktemp("bench")))


def test_redis_stands_beside_every_row_it_can_answer(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) >= AGAINST_REDIS
    for name in AGAINST_REDIS:
        assert all(sample > 0 for side in ("rankd", "redis") for sample in rows[name]["samples"][side]), name


def test_both_sides_hold_the_same(rows: dict[str, dict[str, Any]]) -> None:
    for name in AGAINST_REDIS:
        assert rows[name]["checksums"]["rankd"] == rows[name]["checksums"]["redis"], name
