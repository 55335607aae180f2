"""Scores from files: what each format says is what the board counts."""

from __future__ import annotations

import gzip
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.servers.waiting import join_all

from rankd import Boards, RankdError
from rankd.client import Client
from rankd.errors import InvalidValue
from rankd.operations.transfer import BadLine, ImportTarget, import_scores
from rankd.operations.transfer import importing as module

from .targets import WithoutHistory

NOON = 1_777_896_000_000  # when the clock of these tests stands
HOUR_MS = 3_600_000


def both_can_be_imported_into(boards: Boards, client: Client) -> tuple[ImportTarget, ImportTarget]:
    """Nothing runs here: the type checker does."""
    return boards, client


@pytest.fixture
def arcade(boards: Boards) -> Boards:
    boards.define("arcade", keep="sum", windows=["all_time", "daily"], scopes=["country"])
    return boards


def standing(boards: Boards, board: str = "arcade", **where: Any) -> list[tuple[str, int]]:
    return [(entry.player, entry.score) for entry in boards.top(board, 1000, **where).entries]


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_csv_counts_line_by_line(arcade: Boards, tmp_path: Path) -> None:
    path = write(tmp_path, "scores.csv", "player,score\nalice,5\nbob,7\nalice,4\n")
    report = import_scores(arcade, "arcade", path)

    assert standing(arcade) == [("alice", 9), ("bob", 7)]
    assert (report.lines, report.imported, report.repeated, report.skipped) == (3, 3, 0, 0)
    assert (report.bad, report.bad_count, report.refused) == ([], 0, False)


def test_ndjson_counts_line_by_line(arcade: Boards, tmp_path: Path) -> None:
    path = write(tmp_path, "scores.ndjson", '{"player":"alice","score":5}\n{"board":"arcade","player":"bob","score":7}')
    assert import_scores(arcade, "arcade", path).imported == 2
    assert standing(arcade) == [("bob", 7), ("alice", 5)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "scores.csv",
            "score,attributes.country,at,player,attributes.level,metadata,tiebreak\n"
            f'5,BR,{NOON - 30 * HOUR_MS},alice,,"{{""car"": ""red""}}",3\n'
            "6,,,bob,7,,\n",
        ),
        (
            "scores.jsonl",
            f'{{"player":"alice","score":5,"attributes":{{"country":"BR"}},"at":{NOON - 30 * HOUR_MS},'
            '"metadata":{"car":"red"},"tiebreak":3}\n'
            '{"player":"bob","score":6,"attributes":{"level":7},"at":null,"metadata":null}\n',
        ),
    ],
)
def test_every_column_arrives(boards: Boards, tmp_path: Path, name: str, text: str) -> None:
    boards.define("arcade", windows=["all_time", "daily"], scopes=["country", "level"], ties="value")
    assert import_scores(boards, "arcade", write(tmp_path, name, text)).imported == 2

    alice = boards.rank("arcade", "alice", scope="country:BR")
    assert alice is not None
    assert (alice.score, alice.tiebreak, alice.metadata) == (5, 3, {"car": "red"})
    assert standing(boards, scope="level:7") == [("bob", 6)]
    assert standing(boards, window="daily:2026-05-03") == [("alice", 5)]
    assert standing(boards, window="daily") == [("bob", 6)]


def test_what_an_export_calls_reached_at_is_taken_where_at_is_missing(arcade: Boards, tmp_path: Path) -> None:
    yesterday, before = NOON - 24 * HOUR_MS, NOON - 48 * HOUR_MS
    path = write(
        tmp_path,
        "scores.csv",
        f"rank,player,score,reached_at,at,name,country\n1,a,1,{yesterday},,Ann,BR\n2,b,2,{yesterday},{before},,\n",
    )
    import_scores(arcade, "arcade", path)

    assert standing(arcade, window="daily:2026-05-03") == [("a", 1)]
    assert standing(arcade, window="daily:2026-05-02") == [("b", 2)]
    assert standing(arcade, scope="country:BR") == []  # the profile's country is no attribute of the score


@pytest.mark.parametrize("name", ["scores.csv.gz", "packed.csv"])
def test_a_packed_file_is_unpacked_whatever_it_is_called(arcade: Boards, tmp_path: Path, name: str) -> None:
    import_scores(arcade, "arcade", write(tmp_path, name, gzip.compress(b"player,score\nalice,5\n")))
    assert standing(arcade) == [("alice", 5)]


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_read_to_its_end(arcade: Boards, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    text = b'{"player":"alice","score":5}\n{"player":"bob","score":6}\n'

    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as end:
        end.write(gzip.compress(text) if packed else text)
    with os.fdopen(reading, "rb") as stdin:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stdin))
        report = import_scores(arcade, "arcade", "-", format="ndjson")
    assert report.imported == 2
    assert standing(arcade) == [("bob", 6), ("alice", 5)]


def test_a_pipe_with_a_name_is_read_as_a_stream(arcade: Boards, tmp_path: Path) -> None:
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    writing = threading.Thread(target=lambda: path.write_text("player,score\nalice,5\n"))
    writing.start()
    report = import_scores(arcade, "arcade", path, destination="here")
    join_all([writing])

    assert report.imported == 1
    assert [file.name for file in tmp_path.glob("pipe*")] == ["pipe.csv"]


def test_batches_are_of_the_size_asked_for_and_progress_is_reported(arcade: Boards, tmp_path: Path) -> None:
    path = write(tmp_path, "scores.csv", "player,score\n" + "".join(f"p{n},{n}\n" for n in range(25)))
    checked: list[tuple[int, int]] = []
    sent: list[tuple[int, int]] = []
    import_scores(
        arcade,
        "arcade",
        path,
        batch_events=10,
        on_check=lambda done, total: checked.append((done, total)),
        on_progress=lambda done, total: sent.append((done, total)),
    )

    assert sent == [(10, 25), (20, 25), (25, 25)]
    assert checked[-1] == (path.stat().st_size, path.stat().st_size)


def test_one_bad_line_keeps_all_of_them_out(arcade: Boards, tmp_path: Path) -> None:
    path = write(tmp_path, "scores.csv", "player,score\nalice,5\nbob,1e3\n\ncarol,6\n,7\n")
    before = arcade.position
    report = import_scores(arcade, "arcade", path, batch_events=1)

    assert arcade.position == before
    assert (report.lines, report.imported, report.skipped, report.refused) == (4, 0, 0, True)
    assert [line.number for line in report.bad] == [3, 6]
    assert report.bad[0] == BadLine(3, "score: must be a whole number such as 976; got '1e3'")


def test_bad_lines_are_left_out_on_request(arcade: Boards, tmp_path: Path) -> None:
    path = write(tmp_path, "scores.csv", "player,score\nalice,5\nbob,1e3\ncarol,6\n")
    report = import_scores(arcade, "arcade", path, skip_bad_lines=True, batch_events=2)

    assert (report.lines, report.imported, report.skipped, report.bad_count, report.refused) == (3, 2, 1, 1, False)
    assert standing(arcade) == [("carol", 6), ("alice", 5)]


def test_only_the_first_bad_lines_are_named_and_all_are_counted(arcade: Boards, tmp_path: Path) -> None:
    path = write(tmp_path, "scores.csv", "player,score\n" + "a,b\n" * 250)
    report = import_scores(arcade, "arcade", path, batch_events=30, skip_bad_lines=True)

    assert [line.number for line in report.bad] == list(range(2, 102))
    assert (report.bad_count, report.skipped, report.imported) == (250, 250, 0)


def test_the_rules_of_the_board_are_checked_before_anything_counts(boards: Boards, tmp_path: Path) -> None:
    boards.define("arcade", score_min=0, score_max=10, team={"attribute": "guild", "by": "sum"})
    text = "player,score,at,attributes.guild\na,10,,x\na,11,,x\na,-1,,x\n"
    text += f"a,1,{NOON + 6_000},x\na,1,{NOON + 4_000},x\na,1,7258118400000,x\na,1,,..\n"
    report = import_scores(boards, "arcade", write(tmp_path, "scores.csv", text))

    assert [line.number for line in report.bad] == [3, 4, 5, 7, 8]
    assert "6000 ms ahead" in report.bad[2].problem


def test_a_line_for_another_board_is_bad(arcade: Boards, tmp_path: Path) -> None:
    path = write(tmp_path, "scores.ndjson", '{"player":"a","score":1,"board":"chess"}\n')
    report = import_scores(arcade, "arcade", path)
    assert report.bad == [BadLine(1, "board: is 'chess', and this import is for arcade")]


def test_boards_without_a_global_scope_take_imports(boards: Boards, tmp_path: Path) -> None:
    boards.define("arcade", scopes=["country"], global_=False)
    path = write(tmp_path, "scores.csv", "player,score,attributes.country\na,1,BR\n")
    assert import_scores(boards, "arcade", path).imported == 1
    assert standing(boards, scope="country:BR") == [("a", 1)]


def test_scores_too_old_for_a_service_are_taken_from_an_import(arcade: Boards, tmp_path: Path) -> None:
    path = write(tmp_path, "scores.csv", f"player,score,at\na,1,{NOON - 9 * HOUR_MS}\n")
    assert import_scores(arcade, "arcade", path).imported == 1
    with pytest.raises(InvalidValue, match="import older ones"):
        import_scores(WithoutHistory(arcade), "arcade", path, resume=False)


def test_a_target_without_a_keyword_for_imports_is_sent_plain_batches(arcade: Boards, tmp_path: Path) -> None:
    path = write(tmp_path, "scores.csv", f"player,score,at\na,1,{NOON}\nb,2,\n")
    target = WithoutHistory(arcade)
    assert import_scores(target, "arcade", path).imported == 2
    assert target.sent == [{"rows": [{"player": "a", "score": 1, "at": NOON}, {"player": "b", "score": 2}]}]


def test_a_batch_too_large_for_one_request_goes_in_several(
    arcade: Boards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REQUEST_BYTES_MAX", 2_000)
    lines = [f'{{"player":"p{n}","score":{n},"metadata":{{"x":"{"y" * 900}"}}}}\n' for n in range(10)]
    target = WithoutHistory(arcade)
    report = import_scores(target, "arcade", write(tmp_path, "scores.ndjson", "".join(lines)))

    assert [len(sent["players"]) for sent in target.sent] == [1] * 10
    assert report.imported == 10
    assert len(standing(arcade)) == 10


@pytest.mark.parametrize(
    ("board", "name", "options", "message"),
    [
        ("chess", "scores.csv", {}, "chess"),
        ("closed", "scores.csv", {}, "open = true"),
        ("arcade", "scores.dat", {}, "csv, ndjson, parquet"),
        ("arcade", "-", {}, "a stream"),
        ("arcade", "scores.csv", {"format": "xml"}, "format: must be one of"),
        ("arcade", "scores.csv", {"batch_events": 0}, "batch_events"),
        ("arcade", "scores.parquet.gz", {}, "name it without .gz"),
    ],
)
def test_what_cannot_be_begun_is_said_at_once(
    arcade: Boards, tmp_path: Path, *, board: str, name: str, options: dict[str, Any], message: str
) -> None:
    arcade.define("closed", open=False)
    path = name if name == "-" else write(tmp_path, name, "player,score\nalice,5\n")
    with pytest.raises(RankdError, match=message):
        import_scores(arcade, board, path, **options)
