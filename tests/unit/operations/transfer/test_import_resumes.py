"""An import that was interrupted goes on: each line counts once, whenever that is. The board adds up: doubles show."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rankd import Boards, ManualClock
from rankd.errors import Conflict, InvalidValue, LedgerUnavailable
from rankd.operations.transfer import import_scores, importing
from rankd.operations.transfer import input as input_module
from rankd.operations.transfer.resuming import ProgressFile

from .targets import Interrupted

if TYPE_CHECKING:
    from tests.unit.conftest import OpenBoards

LINES = 95
DAY_MS = 86_400_000
HERE = "this folder"


@pytest.fixture
def xp(boards: Boards) -> Boards:
    boards.define("xp", keep="sum")
    return boards


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    path.write_text("player,score\n" + "".join(f"p{n % 10},{n}\n" for n in range(LINES)))
    return path


EXPECTED = {f"p{n}": sum(range(n, LINES, 10)) for n in range(10)}


def totals(boards: Boards, board: str = "xp") -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top(board, 100).entries}


def interrupt(
    boards: Boards, scores: Path, batches: int, is_answered: bool = True, destination: str | None = HERE
) -> None:
    target = Interrupted(boards, batches, is_answered)
    with pytest.raises(LedgerUnavailable) as failed:
        import_scores(target, "xp", scores, batch_events=10, destination=destination)
    assert "the same import again goes on" in failed.value.__notes__[0]


@pytest.mark.parametrize("ending", ["csv", "ndjson"])
@pytest.mark.parametrize("destination", [HERE, None], ids=["with notes", "by keys alone"])
def test_batches_that_are_cut_by_their_size_count_once_too(
    xp: Boards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, destination: str | None
) -> None:
    monkeypatch.setattr(importing, "BATCH_BYTES_MIN", 2_000)
    monkeypatch.setattr(importing, "EVENT_BYTES", 1)
    monkeypatch.setattr(input_module, "BLOCK_BYTES", 700)
    path = tmp_path / f"scores.{ending}"
    name = "x" * 300
    if ending == "csv":
        path.write_text("player,score,name\n" + "".join(f"p{n % 10},{n},{name}\n" for n in range(LINES)))
    else:
        path.write_text("".join(f'{{"player":"p{n % 10}","score":{n},"name":"{name}"}}\n' for n in range(LINES)))
    target = Interrupted(xp, 12)  # of ten lines each, there would be ten
    with pytest.raises(LedgerUnavailable):
        import_scores(target, "xp", path, batch_events=10, destination=destination)

    report = import_scores(xp, "xp", path, batch_events=10, destination=destination)
    assert report.imported + report.repeated == LINES
    assert report.repeated > 0
    assert totals(xp) == EXPECTED


@pytest.mark.parametrize("is_answered", [True, False], ids=["refused", "counted, but the answer was lost"])
@pytest.mark.parametrize("destination", [HERE, None], ids=["with notes", "by keys alone"])
@pytest.mark.parametrize("batches", [1, 4, 9])
def test_the_same_import_again_counts_each_line_once(
    xp: Boards, scores: Path, batches: int, is_answered: bool, destination: str | None
) -> None:
    interrupt(xp, scores, batches, is_answered, destination)
    report = import_scores(xp, "xp", scores, batch_events=10, destination=destination)

    assert totals(xp) == EXPECTED
    assert (report.lines, report.imported, report.repeated) == (LINES, LINES - 10 * batches, 10 * batches)
    assert report.imported + report.repeated == LINES


def test_an_import_interrupted_again_and_again_counts_each_line_once(xp: Boards, scores: Path) -> None:
    for attempt in range(9):
        interrupt(xp, scores, 1, is_answered=attempt % 2 == 0)
    import_scores(xp, "xp", scores, batch_events=10, destination=HERE)
    assert totals(xp) == EXPECTED


def test_it_goes_on_when_its_keys_are_forgotten(xp: Boards, scores: Path, clock: ManualClock) -> None:
    interrupt(xp, scores, 4)
    clock.advance(2 * DAY_MS)
    report = import_scores(xp, "xp", scores, batch_events=10, destination=HERE)

    assert totals(xp) == EXPECTED
    assert (report.imported, report.repeated) == (55, 40)


def test_the_folder_names_itself(xp: Boards, scores: Path, clock: ManualClock) -> None:
    target = Interrupted(xp, 4)
    target.folder = scores.parent  # type: ignore[attr-defined]
    with pytest.raises(LedgerUnavailable):
        import_scores(target, "xp", scores, batch_events=10)
    clock.advance(2 * DAY_MS)
    target = Interrupted(xp, 100)
    target.folder = scores.parent  # type: ignore[attr-defined]
    assert import_scores(target, "xp", scores, batch_events=10).repeated == 40
    assert totals(xp) == EXPECTED


def test_the_batches_stay_as_they_were_cut(xp: Boards, scores: Path, clock: ManualClock) -> None:
    interrupt(xp, scores, 4)
    clock.advance(2 * DAY_MS)
    import_scores(xp, "xp", scores, batch_events=7, destination=HERE)
    assert totals(xp) == EXPECTED


def test_a_note_lies_beside_the_file_until_the_import_is_complete(xp: Boards, scores: Path) -> None:
    interrupt(xp, scores, 4)
    reached = ProgressFile(scores).find(HERE, "xp")
    assert reached is not None
    assert (reached.batches, reached.line) == (4, 41)
    assert sorted(path.name for path in scores.parent.glob("scores*")) == ["scores.csv", "scores.csv.rankd-import"]

    import_scores(xp, "xp", scores, destination=HERE)
    assert [path.name for path in scores.parent.glob("scores*")] == ["scores.csv"]


def test_what_is_complete_counts_again_only_on_purpose(xp: Boards, scores: Path) -> None:
    import_scores(xp, "xp", scores, destination=HERE)
    again = import_scores(xp, "xp", scores, destination=HERE)
    assert (again.imported, again.repeated) == (0, LINES)
    assert totals(xp) == EXPECTED

    assert import_scores(xp, "xp", scores, destination=HERE, resume=False).imported == LINES
    assert totals(xp) == {player: 2 * score for player, score in EXPECTED.items()}


def test_an_import_begun_anew_goes_on_as_itself(xp: Boards, scores: Path) -> None:
    import_scores(xp, "xp", scores, batch_events=10, destination=HERE)
    with pytest.raises(LedgerUnavailable):
        import_scores(Interrupted(xp, 3, False), "xp", scores, batch_events=10, destination=HERE, resume=False)
    import_scores(xp, "xp", scores, batch_events=10, destination=HERE)
    assert totals(xp) == {player: 2 * score for player, score in EXPECTED.items()}


def test_each_board_and_each_target_has_its_own_note(
    xp: Boards, scores: Path, open_boards: OpenBoards, clock: ManualClock
) -> None:
    other = open_boards("other")
    other.define("xp", keep="sum")
    xp.define("elsewhere", keep="sum")
    interrupt(xp, scores, 4)
    interrupt(other, scores, 2, destination="another folder")
    assert import_scores(xp, "elsewhere", scores, destination=HERE).imported == LINES
    clock.advance(2 * DAY_MS)

    assert import_scores(other, "xp", scores, destination="another folder").repeated == 20
    assert import_scores(xp, "xp", scores, destination=HERE).repeated == 40
    assert totals(xp) == totals(xp, "elsewhere") == totals(other) == EXPECTED


def test_a_folder_that_is_older_than_the_note_gets_every_line(
    xp: Boards, scores: Path, open_boards: OpenBoards, clock: ManualClock
) -> None:
    interrupt(xp, scores, 4)
    fresh = open_boards("restored")
    fresh.define("xp", keep="sum")
    assert import_scores(fresh, "xp", scores, destination=HERE).imported == LINES
    assert totals(fresh) == EXPECTED


def test_a_file_that_changed_in_between_is_not_counted_from_its_beginning(xp: Boards, scores: Path) -> None:
    interrupt(xp, scores, 4)
    scores.write_text(scores.read_text() + "p1,1\n")
    before = totals(xp)
    with pytest.raises(Conflict, match="interrupted after line 41"):
        import_scores(xp, "xp", scores, destination=HERE)
    assert totals(xp) == before


def test_the_same_content_under_another_name_is_the_same_import(xp: Boards, scores: Path) -> None:
    interrupt(xp, scores, 4)
    moved = scores.rename(scores.with_name("moved.csv"))
    report = import_scores(xp, "xp", moved, batch_events=10, destination=HERE)
    assert (report.imported, report.repeated) == (55, 40)
    assert totals(xp) == EXPECTED


@pytest.mark.parametrize("text", ["", "{", '{"version":2,"imports":[]}', "\xff"])
def test_a_note_that_cannot_be_read_is_none(xp: Boards, scores: Path, text: str) -> None:
    interrupt(xp, scores, 4)
    scores.with_name("scores.csv.rankd-import").write_text(text)
    assert import_scores(xp, "xp", scores, batch_events=10, destination=HERE).repeated == 40
    assert totals(xp) == EXPECTED


def test_where_no_note_can_be_written_the_import_goes_on_without(xp: Boards, scores: Path) -> None:
    scores.with_name("scores.csv.rankd-import").mkdir()
    assert import_scores(xp, "xp", scores, destination=HERE).imported == LINES


def test_lines_left_out_stay_left_out(xp: Boards, scores: Path) -> None:
    lines = scores.read_text().splitlines()
    lines.insert(15, "p1,many")
    lines.insert(60, "p1")
    scores.write_text("\n".join(lines))
    target = Interrupted(xp, 4)
    with pytest.raises(LedgerUnavailable):
        import_scores(target, "xp", scores, batch_events=10, destination=HERE, skip_bad_lines=True)
    report = import_scores(xp, "xp", scores, destination=HERE, skip_bad_lines=True)

    assert (report.lines, report.imported, report.repeated, report.skipped) == (97, 56, 39, 2)
    assert totals(xp) == EXPECTED


def test_every_batch_has_a_key_of_its_own(xp: Boards, scores: Path) -> None:
    target = Interrupted(xp, 1_000)
    xp.define("other")
    import_scores(target, "xp", scores, batch_events=10)
    import_scores(target, "other", scores, batch_events=10)
    import_scores(target, "xp", scores, batch_events=5, resume=False)
    assert len(set(target.keys)) == len(target.keys) == 10 + 10 + 19


def test_a_file_that_grows_while_it_is_read_is_given_up(xp: Boards, scores: Path) -> None:
    def grow(_done: int, _total: int) -> None:
        with scores.open("a") as file:
            file.write("late,1\n")
        os.utime(scores, ns=(0, 0))

    with pytest.raises(InvalidValue, match="was changed while it was read"):
        import_scores(xp, "xp", scores, on_check=grow)
    assert totals(xp) == {}
    with pytest.raises(InvalidValue, match="was changed while it was read"):
        import_scores(xp, "xp", scores, batch_events=10, on_progress=grow)
    assert sum(totals(xp).values()) == sum(range(10))
