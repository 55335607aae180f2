"""Files that are not what they say: named line by line where that is possible, refused as a whole where it is not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rankd import Boards
from rankd.errors import InvalidValue
from rankd.operations.transfer import ImportReport, import_scores
from rankd.operations.transfer import input as input_module

MIB = 1024 * 1024


@pytest.fixture
def arcade(boards: Boards) -> Boards:
    boards.define("arcade", keep="latest", score_min=-(2**63), score_max=2**63 - 1)
    return boards


def read(boards: Boards, folder: Path, text: str | bytes, name: str = "scores.csv", skip: bool = True) -> ImportReport:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return import_scores(boards, "arcade", path, skip_bad_lines=skip)


def standing(boards: Boards) -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top("arcade", 1000).entries}


def problems(report: ImportReport) -> dict[int, str]:
    return {line.number: line.problem for line in report.bad}


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbfplayer,score\nalice,5\n",
        b"player,score\r\nalice,5\r\n",
        b"\n\nplayer,score\n\nalice,5\n\n\n",
        b"player,score\nalice,5",
        b'"player","score"\n"alice","5"\n',
    ],
    ids=["a byte order mark", "CRLF", "empty lines", "no last line end", "everything quoted"],
)
def test_the_usual_variants_of_csv_are_read(arcade: Boards, tmp_path: Path, text: bytes) -> None:
    assert read(arcade, tmp_path, text, skip=False).imported == 1
    assert standing(arcade) == {"alice": 5}


@pytest.mark.parametrize(
    "text",
    [
        b'\xef\xbb\xbf{"player":"alice","score":5}\n',
        b'{"player":"alice","score":5}\r\n\r\n  \n',
        b'\n\n {"score" : 5, "player":"alice"} \n',
        b'{"player":"alice","score":5}',
    ],
    ids=["a byte order mark", "CRLF", "empty lines", "no last line end"],
)
def test_the_usual_variants_of_ndjson_are_read(arcade: Boards, tmp_path: Path, text: bytes) -> None:
    assert read(arcade, tmp_path, text, "scores.ndjson", skip=False).imported == 1
    assert standing(arcade) == {"alice": 5}


@pytest.mark.parametrize(
    "cell", ["1e3", "976.0", "NaN", "true", "", " 5", "5 ", "+5", "007", "1_000", "٣", "0x10", "null", "--5", "5-", "-"]
)
def test_what_only_looks_like_a_number_is_no_score(arcade: Boards, tmp_path: Path, cell: str) -> None:
    report = read(arcade, tmp_path, f"player,score\nalice,1\nbob,{cell}\ncarol,2\n")
    assert list(problems(report)) == [3]
    assert standing(arcade) == {"alice": 1, "carol": 2}


@pytest.mark.parametrize("value", ["1e3", "976.0", "NaN", "true", '"5"', "null", "[5]", "007", "-"])
def test_what_is_no_integer_of_json_is_no_score(arcade: Boards, tmp_path: Path, value: str) -> None:
    lines = [f'{{"player":"{player}","score":{score}}}\n' for player, score in (("a", "1"), ("b", value), ("c", "2"))]
    report = read(arcade, tmp_path, "".join(lines), "scores.ndjson")
    assert list(problems(report)) == [2]
    assert standing(arcade) == {"a": 1, "c": 2}


@pytest.mark.parametrize("digits", [f"{2**63}", f"{-(2**63) - 1}", "1" + "0" * 30, "-1" + "0" * 5000])
def test_integers_beyond_64_bits_are_refused(arcade: Boards, tmp_path: Path, digits: str) -> None:
    edges = f"top,{2**63 - 1}\nbottom,{-(2**63)}\n"
    report = read(arcade, tmp_path, f"player,score\n{edges}bob,{digits}\n")

    assert list(problems(report)) == [4]
    assert standing(arcade) == {"top": 2**63 - 1, "bottom": -(2**63)}
    lines = f'{{"player":"bob","score":{digits}}}\n'
    assert list(problems(read(arcade, tmp_path, lines, "scores.ndjson"))) == [1]


@pytest.mark.parametrize("player", ["a\x00b", "a\tb", "\x7f", "\x85", ".", "..", "x" * 129, "é" * 65])
def test_ids_that_nobody_may_have_are_refused(arcade: Boards, tmp_path: Path, player: str) -> None:
    report = read(arcade, tmp_path, f"player,score\nalice,1\n{player},2\ncarol,3\n")
    assert list(problems(report)) == [3]
    assert problems(report)[3].startswith("player: ")
    assert standing(arcade) == {"alice": 1, "carol": 3}


@pytest.mark.parametrize("player", ["Zoë", "x" * 128, "é" * 64, " ", "a.b", "...", 'al""ice', "=1+1", "\u2028"])
def test_unusual_ids_are_kept_to_the_byte(arcade: Boards, tmp_path: Path, player: str) -> None:
    read(arcade, tmp_path, f'player,score\n"{player}",2\n')
    assert standing(arcade) == {player.replace('""', '"'): 2}


def test_a_line_that_is_not_utf_8_is_named_with_its_byte(arcade: Boards, tmp_path: Path) -> None:
    report = read(arcade, tmp_path, b"player,score,name\nalice,1,x\nbob\xff,2,x\ncarol,3,\xe9\ndan,4,\xc3\xa9\n")
    assert problems(report) == {
        3: "line: is not UTF-8: it holds the byte 0xFF",
        4: "line: is not UTF-8: it holds the byte 0xE9",
    }
    assert standing(arcade) == {"alice": 1, "dan": 4}


def test_a_line_of_json_that_is_not_utf_8_is_named_with_its_byte(arcade: Boards, tmp_path: Path) -> None:
    text = b'{"player":"a","score":1}\n{"player":"b\xff","score":2}\n{"player":"c","score":3,"name":"\xe9"}\n'
    report = read(arcade, tmp_path, text, "scores.ndjson")
    assert problems(report) == {
        2: "line: is not UTF-8: it holds the byte 0xFF",
        3: "line: is not UTF-8: it holds the byte 0xE9",
    }
    assert standing(arcade) == {"a": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bob", "1 fields, and the header 2"),
        ("bob,2,3", "3 fields, and the header 2"),
        ('"bob"x,2', "is not CSV"),
        ("b\rob,2", "carriage return"),
    ],
)
def test_lines_of_another_shape_are_named(arcade: Boards, tmp_path: Path, line: str, message: str) -> None:
    report = read(arcade, tmp_path, f"player,score\nalice,1\n{line}\ncarol,3\n")
    assert list(problems(report)) == [3]
    assert message in problems(report)[3]
    assert standing(arcade) == {"alice": 1, "carol": 3}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", "must be an object"),
        ("{", "is not JSON"),
        ('{"player":"b","score":2}{"player":"b","score":2}', "is not JSON"),
        ('{"score":2}', "player: is missing"),
        ('{"player":"b"}', "score: is missing"),
        ('{"player":"b","scores":2}', "did you mean score?"),
        ('{"player":5,"score":2}', "player: must be text"),
        ('{"player":"b","score":2,"metadata":[1]}', "metadata: must be a JSON object"),
        ('{"player":"b","score":2,"metadata":{"x":"' + "y" * 1024 + '"}}', "at most 1024 bytes"),
        ('{"player":"b","score":2,"attributes":{"level":1.5}}', "attributes.level: must be text"),
        ('{"player":"b","score":2,"attributes":{"Level":1}}', "attributes: must be"),
        ('{"player":"b","score":2,"tiebreak":1099511627776}', "tiebreak: must be from 0"),
        ('{"player":"b","score":2,"at":"today"}', "at: must be integer milliseconds"),
        ('{"player":"b\\ud800","score":2}', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_objects_of_another_shape_are_named(arcade: Boards, tmp_path: Path, line: str, message: str) -> None:
    text = f'{{"player":"a","score":1}}\n{line}\n{{"player":"c","score":3}}\n'
    report = read(arcade, tmp_path, text, "scores.ndjson")
    assert list(problems(report)) == [2]
    assert message in problems(report)[2]
    assert standing(arcade) == {"a": 1, "c": 3}


@pytest.mark.parametrize("cell", ["x", "[1]", '{""a"":NaN}', "{" * 50, '{""x"":""' + "y" * 1100 + '""}'])
def test_metadata_of_a_table_must_be_an_object_of_json(arcade: Boards, tmp_path: Path, cell: str) -> None:
    report = read(arcade, tmp_path, f'player,score,metadata\na,1,\nb,2,"{cell}"\nc,3,{{}}\n')
    assert list(problems(report)) == [3]
    assert "metadata: " in problems(report)[3]


def test_a_quote_may_hold_line_ends_and_lines_are_still_counted(arcade: Boards, tmp_path: Path) -> None:
    text = 'player,score,metadata\na,1,"{\n""x"": 1\r\n}"\nb,nothing,\nc,3,\n'
    report = read(arcade, tmp_path, text)
    assert list(problems(report)) == [5]
    assert arcade.top("arcade").entries[-1].metadata == {"x": 1}
    assert standing(arcade) == {"a": 1, "c": 3}


def test_a_quote_that_stays_open_costs_its_own_line_only(arcade: Boards, tmp_path: Path) -> None:
    lines = ["player,score", "alice,1", '"bob,2', *(f"p{n},{n}" for n in range(500)), '"zed,3']
    report = read(arcade, tmp_path, "\n".join(lines))
    assert list(problems(report)) == [3, 504]
    assert "opens a quote" in problems(report)[3]
    assert len(standing(arcade)) == 501


@pytest.mark.parametrize("block_bytes", [17, 32, 64, 1000])
def test_where_a_block_ends_makes_no_difference(
    arcade: Boards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(input_module, "BLOCK_BYTES", block_bytes)
    text = '"player","score"\na,1\nZoë,2\n\n"b,\n'
    text += "".join(f"p{n},{n}\n" for n in range(100)) + '"x ""y""",7\nlast,x\n'
    report = read(arcade, tmp_path, text)

    assert list(problems(report)) == [5, 107]
    assert len(standing(arcade)) == 103
    assert standing(arcade)['x "y"'] == 7


@pytest.mark.parametrize("name", ["scores.csv", "scores.ndjson"])
def test_a_line_longer_than_a_block_is_left_out_without_being_held(arcade: Boards, tmp_path: Path, name: str) -> None:
    good = b"alice,1\n" if name.endswith("csv") else b'{"player":"alice","score":1}\n'
    head = b"player,score\n" if name.endswith("csv") else b""
    report = read(arcade, tmp_path, head + b'x",' * MIB + b"\n" + good, name)

    line = 2 if head else 1
    assert problems(report) == {line: "line: is longer than 1048576 bytes"}
    assert standing(arcade) == {"alice": 1}


def test_a_field_of_many_characters_is_refused(arcade: Boards, tmp_path: Path) -> None:
    report = read(arcade, tmp_path, f"player,score\n{'x' * 200_000},1\nalice,2\n")
    assert list(problems(report)) == [2]
    assert max(map(len, problems(report).values())) <= 500
    assert standing(arcade) == {"alice": 2}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("player,player,score", "names the column 'player' twice"),
        ("player,scores", "did you mean score?"),
        ("player", "has no column 'score'"),
        ("alice,5", "is not known here"),
        ("player,score,", "is not known here"),
        ("player,score,attributes.Country", "attributes.Country"),
        ("player,score,attributes.global", "global"),
        ("player;score", "is not known here"),
        ('"player,score', "opens a quote"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(arcade: Boards, tmp_path: Path, header: str, message: str) -> None:
    with pytest.raises(InvalidValue, match="header") as refused:
        read(arcade, tmp_path, f"{header}\nalice,5\n")
    assert message in str(refused.value)


@pytest.mark.parametrize("text", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_table_is_refused_and_empty_lines_are_no_lines(arcade: Boards, tmp_path: Path, text: bytes) -> None:
    with pytest.raises(InvalidValue, match="is empty; its first line must name the columns"):
        read(arcade, tmp_path, text)
    assert read(arcade, tmp_path, text, "scores.ndjson").lines == 0
    assert read(arcade, tmp_path, b"player,score\n").lines == 0


def test_files_that_cannot_be_read_are_refused_with_a_reason(arcade: Boards, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name, reason in (("missing.csv", "No such file"), ("folder.csv", "Is a directory"), ("a\x00.csv", "null byte")):
        with pytest.raises(InvalidValue, match=f"cannot be read: .*{reason}"):
            import_scores(arcade, "arcade", tmp_path / name)
    with pytest.raises(InvalidValue, match="save it as UTF-8"):
        read(arcade, tmp_path, "player,score\nalice,5\n".encode("utf-16"))


@pytest.mark.parametrize("damage", ["cut", "bits", "not packed", "trailing"])
def test_a_broken_gzip_counts_nothing(arcade: Boards, tmp_path: Path, damage: str) -> None:
    packed = gzip.compress(b"player,score\n" + b"".join(b"p%d,%d\n" % (n, n * n) for n in range(10_000)))
    broken = {
        "cut": packed[: len(packed) // 2],
        "bits": packed[:500] + bytes(byte ^ 255 for byte in packed[500:520]) + packed[520:],
        "not packed": b"player,score\nalice,5\n",
        "trailing": packed + b"something else",
    }[damage]
    with pytest.raises(InvalidValue, match="is a broken gzip"):
        read(arcade, tmp_path, broken, "scores.csv.gz")
    assert standing(arcade) == {}
