"""The figures of the ledger on PostgreSQL cannot rot: each row runs here at a tiny size, against a real server."""

from __future__ import annotations

import os

import pytest
from benchmarks.figures import COPY, RANKD, SMOKE, Row
from benchmarks.postgres_append import postgres_rows
from tests.servers.postgres import HOW_TO_GET_POSTGRES, binaries

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is
ROWS = ["scaled_append", "scaled_append_large", "scaled_replay"]


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    if binaries() is None and os.environ.get("CI") != "true":
        pytest.skip(HOW_TO_GET_POSTGRES)
    return {row.name: row for row in postgres_rows(SMOKE)}


def test_every_row_yields_figures_with_the_rival_beside(rows: dict[str, Row]) -> None:
    assert list(rows) == ROWS
    for row in rows.values():
        assert len(row.samples[RANKD]) == len(row.samples[COPY]) == SMOKE.rounds
        assert min(row.samples[RANKD]) > 0


def test_the_ledger_holds_what_was_copied(rows: dict[str, Row]) -> None:
    for name in ROWS[:2]:
        assert rows[name].checksums_agree() is True
        assert int(rows[name].checksums[RANKD], 16) > SMOKE.scaled_events
