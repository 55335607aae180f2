"""The reads that are measured take as many round trips as they say, and answer what Redis' own commands answer."""

from __future__ import annotations

import pytest
from benchmarks.figures import RANKD, SMOKE
from benchmarks.redis_reads import redis_read_rows
from tests.servers.fixtures_redis import needs_redis

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is
ROUND_TRIPS_MAX = {
    "scaled_rank_call": 1,
    "scaled_around_call": 1,
    "scaled_top100_call": 1,
    "scaled_shards_rank_p99": 2,
    "scaled_shards_page": 2,
}


@pytest.mark.usefixtures("with_redis")
def test_no_read_takes_more_round_trips_than_it_says() -> None:
    rows = {row.name: row for row in redis_read_rows(SMOKE)}

    assert rows.keys() == ROUND_TRIPS_MAX.keys()
    for name, most in ROUND_TRIPS_MAX.items():
        assert rows[name].samples[RANKD]
        assert rows[name].checksums_agree() in (True, None)
        assert 1 <= rows[name].extra["round_trips_per_call"] <= most


@pytest.fixture
def with_redis() -> None:
    needs_redis()
