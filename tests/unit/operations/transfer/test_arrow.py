"""Arrow's own format: the columns of a table, as a file or as a stream, by the rules of every import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rankd import Boards
from rankd.errors import InvalidValue, LedgerUnavailable
from rankd.operations.transfer import BadLine, export_standings, import_scores

from .targets import Interrupted, WithoutHistory

pytestmark = pytest.mark.parametrize("ending", ["arrow", "arrows"])


def arrow() -> Any:
    return pytest.importorskip("pyarrow", reason="Arrow needs pyarrow: pip install 'rankd[parquet]'")


def write(path: Path, columns: dict[str, Any], rows: int = 1_000) -> Path:
    pa = arrow()
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    new = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with new(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def test_without_its_package_it_is_refused_with_the_way_out(
    boards: Boards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    boards.define("arcade")
    (tmp_path / f"scores.{ending}").write_bytes(b"ARROW1")
    with pytest.raises(InvalidValue, match=r"pip install 'rankd\[parquet\]'"):
        import_scores(boards, "arcade", tmp_path / f"scores.{ending}")
    with pytest.raises(InvalidValue, match=r"pip install 'rankd\[parquet\]'"):
        export_standings(boards, "arcade", tmp_path / f"out.{ending}")
    assert not (tmp_path / f"out.{ending}").exists()


@pytest.mark.parametrize("text", ["string", "large_string", "string_view", "dictionary"])
def test_columns_are_read_by_their_names_and_sent_as_columns(
    boards: Boards, tmp_path: Path, ending: str, text: str
) -> None:
    pa = arrow()
    kind = pa.dictionary(pa.int8(), pa.string()) if text == "dictionary" else getattr(pa, text)()
    boards.define("arcade", scopes=["country", "level"], ties="value")
    path = write(
        tmp_path / f"scores.{ending}",
        {
            "name": ["ignored", None, None],
            "player": pa.array(["alice", "bob", "Zoë"], kind),
            "score": pa.array([5, -7, 2], pa.int16()),
            "attributes.country": pa.array(["BR", None, ""], kind),
            "attributes.level": [None, 7, 8],
            "tiebreak": [None, 3, 4],
            "metadata": ['{"car":"red"}', "", None],
        },
        rows=2,
    )
    target = WithoutHistory(boards)
    report = import_scores(target, "arcade", path)

    assert report.imported == 3
    assert target.sent[0]["attributes"] == {"country": ["BR", None, None], "level": [None, 7, 8]}
    assert [(entry.player, entry.score, entry.tiebreak) for entry in boards.top("arcade").entries] == [
        ("alice", 5, 0),
        ("Zoë", 2, 4),
        ("bob", -7, 3),
    ]
    assert boards.top("arcade", scope="country:BR").entries[0].metadata == {"car": "red"}
    assert boards.top("arcade", scope="level:7").total == 1


def test_metadata_may_be_a_structure(boards: Boards, tmp_path: Path, ending: str) -> None:
    boards.define("arcade")
    path = write(tmp_path / f"s.{ending}", {"player": ["a", "b"], "score": [1, 2], "metadata": [{"lap": 3}, None]})
    import_scores(boards, "arcade", path)
    assert [entry.metadata for entry in boards.top("arcade").entries] == [None, {"lap": 3}]


def test_bad_rows_are_named_by_their_number(boards: Boards, tmp_path: Path, ending: str) -> None:
    pa = arrow()
    boards.define("arcade", score_max=2**63 - 1)
    columns = {"player": ["a", None, "c\n", "d", "e"], "score": pa.array([1, 2, 3, None, 2**63], pa.uint64())}
    report = import_scores(boards, "arcade", write(tmp_path / f"s.{ending}", columns, rows=2), skip_bad_lines=True)

    assert [line.number for line in report.bad] == [2, 3, 4, 5]
    assert report.bad[0] == BadLine(2, "player: is missing")
    assert report.imported == 1


def test_text_that_is_not_utf_8_is_refused(boards: Boards, tmp_path: Path, ending: str) -> None:
    pa = arrow()
    boards.define("arcade")
    players = pa.array([b"alice", b"bob\xff"]).view(pa.string())
    path = write(tmp_path / f"s.{ending}", {"player": players, "score": [1, 2]})
    report = import_scores(boards, "arcade", path, skip_bad_lines=True)

    assert [line.number for line in report.bad] == [2]
    assert "player: must be valid Unicode" in report.bad[0].problem


def test_what_is_no_arrow_is_refused(boards: Boards, tmp_path: Path, ending: str) -> None:
    boards.define("arcade")
    path = tmp_path / f"s.{ending}"
    whole = write(path, {"player": ["a"] * 3_000, "score": list(range(3_000))}).read_bytes()
    half = len(whole) // 2
    for content in (b"", b"player,score\n", b"FEA1" + bytes(100), whole[:half], whole[: half // 2], whole[:-9]):
        path.write_bytes(content)
        with pytest.raises(InvalidValue, match=r"cannot be read as Arrow|it was cut"):
            import_scores(boards, "arcade", path)
    assert boards.top("arcade").total == 0


def test_what_was_cut_behind_its_last_row_is_refused_and_so_are_several_streams(
    boards: Boards, tmp_path: Path, ending: str
) -> None:
    boards.define("arcade")
    path = tmp_path / f"s.{ending}"
    whole = write(path, {"player": ["a", "b"], "score": [1, 2]}).read_bytes()
    several = (whole + whole, whole + whole[:-8]) if ending == "arrows" else ()
    message = "it was cut, or holds several" if ending == "arrows" else "cannot be read as Arrow"
    for content in (whole[:-8], *several):
        path.write_bytes(content)
        with pytest.raises(InvalidValue, match=message):
            import_scores(boards, "arcade", path)
    assert boards.top("arcade").total == 0


def test_damage_anywhere_is_refused_or_read_and_never_ends_the_import(
    boards: Boards, tmp_path: Path, ending: str
) -> None:
    boards.define("arcade")
    path = tmp_path / f"s.{ending}"
    whole = write(path, {"player": ["alice", "bob"], "score": [1, 2], "attributes.a": ["x", "y"]}).read_bytes()
    for place in range(0, len(whole), len(whole) // 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            import_scores(boards, "arcade", path, skip_bad_lines=True, resume=False)
        except InvalidValue:
            continue


def test_offsets_that_point_outside_are_refused(boards: Boards, tmp_path: Path, ending: str) -> None:
    pa = arrow()
    boards.define("arcade")
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 300, 5)))
    players = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"alice")])
    path = write(tmp_path / f"s.{ending}", {"player": players, "score": [1, 2]})
    with pytest.raises(InvalidValue, match=r"column 'player': cannot be read as Arrow \("):
        import_scores(boards, "arcade", path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"player": ["a"]}, "no column 'score'"),
        ({"player": ["a"], "scores": [1]}, "score?"),
        ({"player": [{"id": "a"}], "score": [1]}, "column 'player': must hold numbers or text; it holds struct"),
    ],
)
def test_columns_that_are_unknown_missing_or_nested_are_refused(
    boards: Boards, tmp_path: Path, ending: str, columns: dict[str, Any], message: str
) -> None:
    boards.define("arcade")
    with pytest.raises(InvalidValue) as refused:
        import_scores(boards, "arcade", write(tmp_path / f"s.{ending}", columns))
    assert message in str(refused.value)


def test_an_interrupted_import_counts_each_row_once(boards: Boards, tmp_path: Path, ending: str) -> None:
    boards.define("xp", keep="sum")
    rows = {"player": [f"p{n % 10}" for n in range(95)], "score": list(range(95))}
    path = write(tmp_path / f"s.{ending}", rows, rows=7)
    with pytest.raises(LedgerUnavailable):
        import_scores(Interrupted(boards, 4, is_answered=False), "xp", path, batch_events=10, destination="here")
    report = import_scores(boards, "xp", path, batch_events=10, destination="here")

    assert (report.lines, report.imported, report.repeated) == (95, 55, 40)
    totals = {entry.player: entry.score for entry in boards.top("xp", 10).entries}
    assert totals == {f"p{n}": sum(range(n, 95, 10)) for n in range(10)}


def test_an_export_is_read_by_pyarrow(boards: Boards, tmp_path: Path, ending: str) -> None:
    pa = arrow()
    boards.define("arcade")
    out = tmp_path / f"out.{ending}"
    names = ["rank", "player", "score", "reached_at", "tiebreak", "name", "country", "metadata"]
    opened = pa.ipc.open_stream if ending == "arrows" else pa.ipc.open_file

    export_standings(boards, "arcade", out)
    with opened(str(out)) as reader:
        assert (reader.schema.names, reader.read_all().num_rows) == (names, 0)
    assert import_scores(boards, "arcade", out).lines == 0

    boards.submit_many("arcade", [("alice", 5), ("bob", 7)])
    export_standings(boards, "arcade", out)
    with opened(str(out)) as reader:
        assert reader.read_all().column("player").to_pylist() == ["bob", "alice"]
