"""The files open elsewhere as docs/archive.md says: in pandas and in DuckDB."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import pytest

from rankd import Boards, ManualClock

DAY_MS = 86_400_000
DOCS = Path(__file__).resolve().parents[3] / "docs" / "archive.md"


@pytest.fixture
def archive(boards: Boards, clock: ManualClock, tmp_path: Path) -> Path:
    """Two days of a board with two countries."""
    boards.define("arcade", windows=["daily"], scopes=["country"], retention="1d")
    for day in range(2):
        for number in range(20):
            country = {"country": "BR" if number % 2 else "PT"}
            boards.submit("arcade", f"p{number:02}", (number + day) // 3, attributes=country)
        clock.advance(DAY_MS)
    clock.advance(DAY_MS)
    boards.settle()
    return tmp_path / "data" / "archive"


def example(language: str, archive: Path) -> str:
    """Return an example of the page, about this archive."""
    (code,) = re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)
    return str(code).replace("rankd-data/archive", str(archive)).replace("weekly@2026-W18", "daily@2026-05-04")


def test_pandas_reads_a_window_as_documented(archive: Path, boards: Boards) -> None:
    names: dict[str, pd.DataFrame] = {}
    exec(example("python", archive), names)  # noqa: S102 - our own page
    best = names["best"]

    page = boards.top("arcade", 10, window="daily:2026-05-04", scope="country:BR")
    assert page.source == "archive"
    assert best["player"].tolist() == [entry.player for entry in page.entries]
    assert best["score"].tolist() == [entry.score for entry in page.entries]
    assert [at.value // 1_000_000 for at in best["reached_at"]] == [entry.reached_at for entry in page.entries]


def test_duckdb_counts_over_all_windows_as_documented(archive: Path, boards: Boards) -> None:
    rows = duckdb.execute(example("sql", archive)).fetchall()

    ranks: dict[str, list[int]] = {}
    for day in ("daily:2026-05-04", "daily:2026-05-05"):
        for entry in boards.top("arcade", 10, window=day).entries:
            ranks.setdefault(entry.player, []).append(entry.rank)
    expected = sorted((-len(places), min(places), player) for player, places in ranks.items())[:10]
    assert rows == [(player, -count, best) for count, best, player in expected]
