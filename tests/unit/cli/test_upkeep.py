"""`rankd verify`, `rebuild`, `migrate` and `project`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rankd.cli import upkeep
from rankd.errors import VerificationFailed
from rankd.ledger.sqlite.database import migrations
from rankd.node.embedded import Embedded

from .conftest import Run, words

pytestmark = pytest.mark.usefixtures("arcade")
Output = Callable[..., str]
FOLDER = Path("rankd-data")


def test_a_folder_is_verified(done: Output) -> None:
    report = json.loads(done("verify", "--json"))

    assert report == {"events": 5, "instances": 4, "entries": 10}
    assert done("verify") == "5\t4\t10\n"
    assert "5 events make the 10 entries of 4 instances" in words(done("verify", terminal=True))


def test_a_difference_has_an_exit_code_of_its_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(_running: Embedded, _progress: object) -> None:
        raise VerificationFailed("arcade in all_time, 'global': scores or their order differ")

    monkeypatch.setattr(Embedded, "verify", differ)
    result = run("verify")

    assert result.exit_code == 5
    assert result.stderr == "error: arcade in all_time, 'global': scores or their order differ\n"


def test_everything_is_ranked_anew_without_snapshots(done: Output) -> None:
    before = done("top", "arcade")
    rebuilt = json.loads(done("rebuild", "--json"))

    assert rebuilt == {"events": 5, "instances": 4, "entries": 10, "differed": []}
    assert done("top", "arcade") == before
    assert [path.name for path in (FOLDER / "snapshots").iterdir()] == [f"{5:020}"]
    assert sorted(path.name for path in FOLDER.iterdir() if "rebuild" in path.name) == []
    assert "all of them as before" in words(done("rebuild", terminal=True))


def test_what_differed_is_named(done: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    report_progress = [{"arcade@all_time@global": (1, 4)}, {"arcade@all_time@global": (2, 4)}]
    monkeypatch.setattr(upkeep, "digests", lambda _store: report_progress.pop(0))

    assert json.loads(done("rebuild", "--json"))["differed"] == ["arcade@all_time@global"]


def test_when_a_rebuild_fails_the_snapshots_are_back(run: Run, done: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = sorted(path.name for path in (FOLDER / "snapshots").iterdir())
    calls = [0]

    def fail_the_second_time(_store: object) -> dict[str, tuple[int, int]]:
        calls[0] += 1
        if calls[0] == 2:
            raise OSError("the disk is gone")
        return {}

    monkeypatch.setattr(upkeep, "digests", fail_the_second_time)
    failed = run("rebuild")

    assert failed.exit_code == 3
    assert failed.stderr == "error: the disk is gone\n"
    assert set(kept) <= {path.name for path in (FOLDER / "snapshots").iterdir()}
    assert not (FOLDER / "snapshots-before-rebuild").exists()
    assert done("top", "arcade", "-n", "1").startswith("1\talice")


def test_snapshots_of_a_rebuild_that_was_cut_off_are_used_again(done: Output) -> None:
    (FOLDER / "snapshots").rename(FOLDER / "snapshots-before-rebuild")

    assert json.loads(done("rebuild", "--json"))["events"] == 5
    assert not (FOLDER / "snapshots-before-rebuild").exists()


def test_a_folder_is_brought_up_to_date_and_it_says_so(done: Output) -> None:
    newest = len(migrations())

    assert json.loads(done("migrate", "--json")) == {
        "folder": "rankd-data", "version_before": newest, "version": newest, "events": 5,
    }  # fmt: skip
    assert f"is at version {newest}, the newest there is" in words(done("migrate", terminal=True))


def test_there_is_nothing_to_project_on_one_machine(run: Run) -> None:
    refused = run("project")

    assert refused.exit_code == 1
    assert "this installation is embedded (sqlite:rankd-data)" in refused.stderr


@pytest.mark.parametrize("command", ["verify", "rebuild", "migrate"])
def test_a_folder_that_is_not_there_is_not_made(command: str, run: Run) -> None:
    assert run(command, "--data", "elsewhere").exit_code == 1
    assert not Path("elsewhere").exists()
