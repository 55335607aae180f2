"""The benchmarks cannot rot: each row runs here at a tiny size, against a real Redis, and answers must agree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import kinds_bench, kinds_memory
from benchmarks.__main__ import GROUPS

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is
ROOT = Path(__file__).resolve().parents[3]
SMOKE_WAIT_S = 240
COMPARED = {"build", "updates", "ranks", "rank_call", "around_call", "around_script_call", "top100_call", "load"}
EMBEDDED_AGAINST_REDIS = {"embedded_submit_many_redis_py", "embedded_submit_many_redis_raw"}
# Who stands beside the embedded library where nobody does the same work.
EMBEDDED_BESIDE = {
    "embedded_submit_many": "sqlite",
    "embedded_submit": "append",
    "embedded_growth": "smaller",
    "lone_plain": "append",
    "lone_scope": "append",
    "lone_keyed": "append",
}
JOIN = "embedded_join"  # one round: nobody joins twice
KINDS = {f"kind_{name}" for name in kinds_bench.KINDS}
KINDS_MEMORY = {f"kind_{name}_memory" for name in kinds_memory.MEASURED}
MANY_BOARDS = {"many_boards_define", "many_boards_first_score", "many_boards_top", "many_boards_midnight"}
FAMILIES = {
    "family_memory",
    "family_open",
    "family_top",
    "family_top_any",
    "family_midnight_submit",
    "family_midnight_read",
}
AGAINST_REDIS = (
    COMPARED
    | EMBEDDED_AGAINST_REDIS
    | {
        "memory_first_board",
        "memory_first_board_resident",
        "memory_further_board",
        "memory_further_board_resident",
        "reader_p99",
        "small_boards",
        "small_boards_resident",
    }
)
OURS_ALONE = {
    "memory_churned",
    "reader_p99_default_switch",
    "reader_p99_large_batches",
    "updates_batch_100",
    "updates_with_ranks",
    "updates_resident_ids",
    "ranks_resident_ids",
    "updates_timed_ties",
    "huge_peak",
    "huge_build",
    "huge_rank_p99",
    *EMBEDDED_BESIDE,
    JOIN,
    *MANY_BOARDS,
    *FAMILIES,
    *KINDS,
    *KINDS_MEMORY,
    *(f"{name}_replay" for name in KINDS),
    "embedded_submit_threads",
    "embedded_reader_p99",
    "embedded_reader_p99_tuples",
    "embedded_reader_p99_short_switch",
    "embedded_replay",
    "embedded_open",
    "embedded_ledger_bytes",
    "embedded_snapshot_bytes",
}
# At this size, into the region that the first board took.
FITS_INTO_WHAT_IS_THERE = {"memory_further_board", "small_boards", *KINDS_MEMORY}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=SMOKE_WAIT_S, check=False
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("redis-server") is None and os.environ.get("CI") != "true":
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    path = tmp_path_factory.mktemp("bench") / "smoke.json"
    others = {
        "as_of",
        "archive",
        "archive_segments",
        "http",
        "kafka",
        "kafka_ledger",
        "kafka_relay",
        "kinds_following",
        "live",
        "nodes",
        "priority",
        "scaled",
        "scaled_huge",
        "workers",
    }  # which have a test file each
    done = run(
        "benchmarks",
        "--smoke",
        "--only",
        ",".join(group for group in GROUPS if group not in others),
        "--json",
        str(path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return path


@pytest.fixture(scope="module")
def report(kept: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(kept.read_text())
    return loaded


def compared_rows(report: dict[str, Any], names: set[str]) -> dict[str, dict[str, Any]]:
    """The rows at the smoke run's one size; the huge board repeats some names at its own size, without rivals."""
    huge = report["settings"]["huge_players"]
    return {row["name"]: row for row in report["rows"] if row["name"] in names and row["entries"] != huge}


def test_every_row_yields_figures(report: dict[str, Any]) -> None:
    assert {row["name"] for row in report["rows"]} == AGAINST_REDIS | OURS_ALONE
    for row in report["rows"]:
        assert row["samples"]["rankd"], row["name"]
        may_be_nothing = row["name"] in FITS_INTO_WHAT_IS_THERE or "resident" in row["name"]
        assert may_be_nothing or all(sample > 0 for sample in row["samples"]["rankd"]), row["name"]


def test_redis_stands_beside_every_row_it_can_answer(report: dict[str, Any]) -> None:
    rows = compared_rows(report, AGAINST_REDIS)
    assert set(rows) == AGAINST_REDIS
    assert [name for name, row in rows.items() if not row["samples"].get("redis")] == []


def test_answers_are_those_of_redis(report: dict[str, Any]) -> None:
    for name, row in compared_rows(report, COMPARED | EMBEDDED_AGAINST_REDIS).items():
        assert row["checksums"]["rankd"] == row["checksums"]["redis"], name
        assert int(row["checksums"]["rankd"], 16) > 0, name


def test_answers_are_those_of_sortedcontainers(report: dict[str, Any]) -> None:
    for name, row in compared_rows(report, COMPARED - {"build", "load", "around_script_call"}).items():
        assert row["checksums"]["rankd"] == row["checksums"]["sortedcontainers"], name


def test_every_update_changes_a_score(report: dict[str, Any]) -> None:
    updates = compared_rows(report, {"updates"})["updates"]
    rows = report["settings"]["update_rows"] * report["settings"]["rounds"]
    assert int(updates["checksums"]["rankd"], 16) == rows


def test_what_the_embedded_library_is_held_against_stands_beside_it(report: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in report["rows"]}
    for name, beside in EMBEDDED_BESIDE.items():
        assert len(rows[name]["samples"][beside]) == report["settings"]["rounds"], name


def test_a_folder_with_many_boards_answers_as_one_with_few(report: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in report["rows"]}
    for name in MANY_BOARDS:
        checksums = rows[name]["checksums"]
        assert checksums["rankd"] == checksums["smaller"], name
        assert int(checksums["rankd"], 16) > 0, name


def test_every_kind_of_board_is_replayed_to_what_it_was(report: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in report["rows"]}
    for name in KINDS:
        live, replayed = rows[name], rows[f"{name}_replay"]
        assert live["checksums"]["rankd"] == live["checksums"]["plain"], name
        assert replayed["checksums"]["rankd"] == replayed["checksums"]["live"], name


def test_the_ledger_holds_what_sqlite_alone_was_given(report: dict[str, Any]) -> None:
    row = compared_rows(report, {"embedded_submit_many"})["embedded_submit_many"]

    assert row["checksums"]["rankd"] == row["checksums"]["sqlite"]


def test_everybody_who_joins_is_there_on_both_sides(report: dict[str, Any]) -> None:
    row = {row["name"]: row for row in report["rows"]}[JOIN]

    assert row["checksums"]["rankd"] == row["checksums"]["sqlite"] == format(report["settings"]["join_players"], "x")


def test_single_submits_share_commits(report: dict[str, Any]) -> None:
    row = compared_rows(report, {"embedded_submit_threads"})["embedded_submit_threads"]

    assert 0 < row["extra"]["commits_per_event"] < 1


@pytest.mark.parametrize(
    "name", ["embedded_submit_many", "embedded_submit_threads", "embedded_submit", "embedded_replay"]
)
def test_it_is_said_where_the_time_goes(report: dict[str, Any], name: str) -> None:
    extra = compared_rows(report, {name})[name]["extra"]
    shares = {part: share for part, share in extra.items() if part.startswith("share_") and "alone" not in part}
    over = shares.pop("share_overlapping", 0)

    assert "share_engine" in shares
    assert any(part.startswith("share_sqlite") for part in shares)
    assert sum(shares.values()) == pytest.approx(1 + over)


def test_nothing_names_the_machine(kept: Path) -> None:
    text = kept.read_text()
    assert os.uname().nodename not in text
    assert str(ROOT) not in text
    assert str(kept.parent) not in text


def test_the_plot_is_the_same_to_the_byte_each_time(kept: Path, tmp_path: Path) -> None:
    pictures = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for picture in pictures:
        done = run("benchmarks.plot", str(kept), "--out", str(picture))
        assert done.returncode == 0, done.stderr
    first_picture, second_picture = (picture.read_bytes() for picture in pictures)
    assert first_picture == second_picture
    assert b"<svg" in first_picture


def test_help_shows_an_example() -> None:
    assert "python -m benchmarks --sizes" in run("benchmarks", "--help").stdout
