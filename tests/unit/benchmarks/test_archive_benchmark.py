"""The figures of the archive cannot rot: they run here at a tiny size, on a real S3 server, and answers must agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.figures import RANKD
from tests.servers.fixtures_s3 import needs_s3
from tests.unit.benchmarks.smoke import rows_of, smoke_report

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is


def test_a_window_is_archived_and_read_from_both_stores(tmp_path: Path) -> None:
    needs_s3()
    rows = rows_of(smoke_report("archive", tmp_path))

    reads = {
        f"archive_{what}_{store}" for what in ("page_first", "page", "rank_first", "rank") for store in ("local", "s3")
    }
    assert set(rows) == reads | {"archive_page_cached_s3", "archive_write_local", "archive_write_s3", "archive_size"}
    for row in rows.values():
        assert row["samples"][RANKD][0] > 0
        assert row["failures"] == []
