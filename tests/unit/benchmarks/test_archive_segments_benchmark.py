"""The figures of the archive cannot rot: they run here at a tiny size."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.figures import RANKD, UNARCHIVED
from tests.unit.benchmarks.smoke import rows_of, smoke_report

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is


def test_a_ledger_is_measured_with_its_archive_and_restored(tmp_path: Path) -> None:
    rows = rows_of(smoke_report("archive_segments", tmp_path))

    assert set(rows) == {"archive_batches", "archive_segment_bytes", "archive_restore"}
    batches = rows["archive_batches"]
    assert batches["checksums"][RANKD] == batches["checksums"][UNARCHIVED]
    assert rows["archive_segment_bytes"]["samples"][RANKD][0] > 1
    assert rows["archive_restore"]["extra"]["events"] > rows["archive_restore"]["entries"]
