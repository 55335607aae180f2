"""Parquet: read and written where pyarrow is there, explained where it is not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rankd import Boards
from rankd.errors import InvalidValue
from rankd.operations.transfer import BadLine, export_standings, import_scores


def test_without_its_package_parquet_is_refused_with_the_way_out(
    boards: Boards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    boards.define("arcade")
    (tmp_path / "scores.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidValue, match=r"pip install 'rankd\[parquet\]'"):
        import_scores(boards, "arcade", tmp_path / "scores.parquet")
    with pytest.raises(InvalidValue, match=r"pip install 'rankd\[parquet\]'"):
        export_standings(boards, "arcade", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def arrow() -> tuple[Any, Any]:
    why = "Parquet needs pyarrow: pip install 'rankd[parquet]'"
    return pytest.importorskip("pyarrow", reason=why), pytest.importorskip("pyarrow.parquet", reason=why)


def write(path: Path, columns: dict[str, Any]) -> Path:
    pa, parquet = arrow()
    parquet.write_table(pa.table(columns), path)
    return path


def test_columns_are_read_by_their_names(boards: Boards, tmp_path: Path) -> None:
    boards.define("arcade", scopes=["country", "level"], ties="value")
    path = write(
        tmp_path / "scores.parquet",
        {
            "name": ["ignored", None, None],
            "player": ["alice", "bob", "Zoë"],
            "score": [5, -7, 2],
            "attributes.country": ["BR", None, ""],
            "attributes.level": [None, 7, 8],
            "tiebreak": [None, 3, 4],
            "metadata": ['{"car":"red"}', "", None],
        },
    )
    report = import_scores(boards, "arcade", path, batch_events=2)

    assert report.imported == 3
    assert [(entry.player, entry.score, entry.tiebreak) for entry in boards.top("arcade").entries] == [
        ("alice", 5, 0),
        ("Zoë", 2, 4),
        ("bob", -7, 3),
    ]
    assert boards.top("arcade", scope="country:BR").entries[0].metadata == {"car": "red"}
    assert boards.top("arcade", scope="level:7").total == 1


def test_metadata_may_be_a_structure(boards: Boards, tmp_path: Path) -> None:
    boards.define("arcade")
    path = write(tmp_path / "s.parquet", {"player": ["a", "b"], "score": [1, 2], "metadata": [{"lap": 3}, None]})
    import_scores(boards, "arcade", path)
    assert [entry.metadata for entry in boards.top("arcade").entries] == [None, {"lap": 3}]


def test_bad_rows_are_named_by_their_number(boards: Boards, tmp_path: Path) -> None:
    pa, _ = arrow()
    boards.define("arcade", score_max=2**63 - 1)
    path = write(
        tmp_path / "s.parquet",
        {
            "player": ["a", None, "c\n", "d", "e"],
            "score": pa.array([1, 2, 3, None, 2**63], pa.uint64()),
        },
    )
    report = import_scores(boards, "arcade", path, skip_bad_lines=True)
    assert [line.number for line in report.bad] == [2, 3, 4, 5]
    assert report.bad[0] == BadLine(2, "player: is missing")
    assert report.imported == 1


@pytest.mark.parametrize("scores", [[1.0, 2.0], [True, False], ["1", "2"]])
def test_scores_of_another_type_are_refused(boards: Boards, tmp_path: Path, scores: list[Any]) -> None:
    boards.define("arcade")
    report = import_scores(boards, "arcade", write(tmp_path / "s.parquet", {"player": ["a", "b"], "score": scores}))
    assert (report.bad_count, report.imported) == (2, 0)
    assert "score: must be an integer" in report.bad[0].problem


def test_text_that_is_not_utf_8_is_refused(boards: Boards, tmp_path: Path) -> None:
    pa, _ = arrow()
    boards.define("arcade")
    players = pa.array([b"alice", b"bob\xff"]).view(pa.string())
    report = import_scores(
        boards, "arcade", write(tmp_path / "s.parquet", {"player": players, "score": [1, 2]}), skip_bad_lines=True
    )
    assert [line.number for line in report.bad] == [2]
    assert "player: must be valid Unicode" in report.bad[0].problem


def test_what_is_no_parquet_is_refused(boards: Boards, tmp_path: Path) -> None:
    arrow()
    boards.define("arcade")
    whole = write(tmp_path / "s.parquet", {"player": ["a"] * 1000, "score": list(range(1000))}).read_bytes()
    half = len(whole) // 2
    for text in (b"", b"player,score\n", whole[:half], b"PAR1" + b"\xff" * (half) + whole[half:]):
        (tmp_path / "s.parquet").write_bytes(text)
        with pytest.raises(InvalidValue, match="cannot be read as Parquet"):
            import_scores(boards, "arcade", tmp_path / "s.parquet")
    assert boards.top("arcade").total == 0


def test_columns_that_are_unknown_or_missing_are_refused(boards: Boards, tmp_path: Path) -> None:
    arrow()
    boards.define("arcade")
    for columns, message in (({"player": ["a"]}, "no column 'score'"), ({"player": ["a"], "scores": [1]}, "score?")):
        with pytest.raises(InvalidValue, match="header: ") as refused:
            import_scores(boards, "arcade", write(tmp_path / "s.parquet", columns))
        assert message in str(refused.value)


def test_an_empty_board_is_a_file_with_columns_and_no_rows(boards: Boards, tmp_path: Path) -> None:
    _, parquet = arrow()
    boards.define("arcade")
    export_standings(boards, "arcade", tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.num_rows == 0
    assert table.column_names == ["rank", "player", "score", "reached_at", "tiebreak", "name", "country", "metadata"]
    assert import_scores(boards, "arcade", tmp_path / "out.parquet").lines == 0
