"""`rankd backup` and `rankd restore`, as a terminal and a pipe see them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run, words

import rankd
from rankd.cli import upkeep

RunWell = Callable[..., str]


@pytest.fixture
def filled(done: RunWell) -> RunWell:
    done("boards", "put", "arcade", "--set", "keep=best")
    done("submit", "arcade", "alice", "976", "--key", "k1")
    return done


def test_a_folder_goes_to_an_archive_and_comes_back(filled: RunWell, run: Run) -> None:
    sent = json.loads(filled("backup", "copy", "--json"))
    assert (sent["position"], sent["segments"], sent["sent"]) == ("0-2", 1, 1)
    assert words(run("backup", "copy", terminal=True).stdout).startswith("✓ copy has everything up to position 0-2 of")
    assert filled("backup", "copy", "--verify").split("\t")[2:] == ["2", "2", "1", "1\n"]
    position, *_, is_whole = filled("restore", "copy", "restored").strip().split("\t")

    assert (position, is_whole) == ("0-2", "true")
    assert filled("top", "arcade", "--data", "restored").split("\t")[:3] == ["1", "alice", "976"]
    filled("verify", "--data", "restored")


def test_what_may_be_missing_is_said(filled: RunWell, run: Run) -> None:
    filled("backup", "copy")
    shown = words(run("restore", "copy", "restored", terminal=True).stdout)

    assert "up to position 0-2 of" in shown
    assert "of what it acknowledged later, everything is missing" in shown
    filled("submit", "arcade", "bob", "1")
    filled("backup", "copy")
    assert "The archive has more than that." in words(
        run("restore", "copy", "part", "--upto", "2", terminal=True).stdout
    )


def test_a_folder_in_use_is_sent_too(filled: RunWell, tmp_path: Path) -> None:
    with rankd.open(tmp_path / "rankd-data") as boards:
        boards.submit("arcade", "bob", 1)
        assert json.loads(filled("backup", "copy", "--json"))["position"] == boards.position


def test_refusals_name_the_remedy(filled: RunWell, run: Run) -> None:
    without = run("backup")
    assert (without.exit_code, "set archive.url" in without.stderr) == (2, True)
    nothing = run("restore", "nowhere", "restored")
    assert (nothing.exit_code, "no segments in nowhere" in words(nothing.stderr)) == (1, True)
    filled("backup", "copy")
    taken = run("restore", "copy", "rankd-data")
    assert (taken.exit_code, "name a new folder" in words(taken.stderr)) == (1, True)
    Path("copy/ledger/segments/000000000001").write_bytes(b"x" * 100)
    damaged = run("restore", "copy", "restored")
    assert (damaged.exit_code, "000000000001 is no segment" in words(damaged.stderr)) == (5, True)


def test_a_postgres_ledger_is_copied_by_its_own_means(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[object] = []
    monkeypatch.setattr(upkeep, "verify", lambda **options: verified.append(options["as_json"]))
    result = run("backup", "--json", RANKD_LEDGER_URL="postgresql://localhost/scores")

    assert result.exit_code == 0
    assert "pg_dump" in result.stderr
    assert "point-in-time recovery" in words(result.stderr)
    assert verified == [True]
