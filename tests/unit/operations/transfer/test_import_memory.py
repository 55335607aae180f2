"""Files that say little and hold much: an import takes no more memory for them than for any other."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rankd.operations.transfer.columnar_worker import MEMORY_BYTES_MAX

pytestmark = pytest.mark.timeout(300)  # files of hundreds of megabytes
IMPORT_RESIDENT_BYTES_MAX = 192 * 1024 * 1024  # of the process with the boards in it, which alone takes 40 MiB
ENDS_S = 120
REPOSITORY = Path(__file__).parents[3]
MB = 1_000_000


def measured(folder: Path, path: Path) -> dict[str, Any]:
    """Import a file in a process of its own; its memory is within bounds whatever comes of it."""
    command = [sys.executable, str(Path(__file__).with_name("importing_child.py")), str(folder / "data"), str(path)]
    ended = subprocess.run(command, capture_output=True, timeout=ENDS_S, cwd=REPOSITORY, check=False)
    assert ended.returncode == 0, ended.stderr.decode()[-2_000:]
    report: dict[str, Any] = json.loads(ended.stdout)
    assert report["own_bytes"] < IMPORT_RESIDENT_BYTES_MAX, report
    assert report["worker_bytes"] < MEMORY_BYTES_MAX, report
    return report


def packed(path: Path, parts: Iterable[bytes]) -> Path:
    with gzip.open(path, "wb", 1) as file:
        for part in parts:
            file.write(part)
    return path


def test_lines_of_brackets_are_not_built(tmp_path: Path) -> None:
    line = b'{"player":"a","score":1,"%s":%s' + b"{}," * 300_000 + b"{}]%s\n"
    lines = [line % (b"name", b"[", b"}"), line % (b"metadata", b'{"x":[', b"}}"), line % (b"nonsense", b"[", b"}")]
    report = measured(tmp_path, packed(tmp_path / "s.ndjson.gz", lines * 20))

    assert (report["lines"], report["imported"]) == (60, 20)
    assert report["problems"][0].startswith("metadata: must be at most 16384 bytes as it is written")
    assert "has a field that is unknown: 'nonsense'" in report["problems"][1]


def test_a_line_without_an_end_is_not_held(tmp_path: Path) -> None:
    report = measured(tmp_path, packed(tmp_path / "s.ndjson.gz", [b'{"player":"', *([b"x" * MB] * 400)]))

    assert report["problems"] == ["line: is longer than 1048576 bytes"]


def test_records_of_a_million_fields_are_not_held(tmp_path: Path) -> None:
    report = measured(tmp_path, packed(tmp_path / "s.csv.gz", [b"player,score\n", *([b"," * MB + b"\n"] * 60)]))

    assert report["problems"][0] == "line: has 1000001 fields, and the header 2"


def test_long_fields_are_held_a_few_at_a_time(tmp_path: Path) -> None:
    row = b"a,1," + b"x" * 120_000 + b"\n"
    report = measured(tmp_path, packed(tmp_path / "s.csv.gz", [b"player,score,name\n", *([row] * 2_000)]))

    assert (report["lines"], report["imported"]) == (2_000, 2_000)


def test_quotes_that_stay_open_hold_no_more_than_a_record_may_have(tmp_path: Path) -> None:
    long = b'a,1,"' + "é".encode() * 60_000 + b"\n" + (b"x" * 900_000 + b"\n") * 62
    report = measured(
        tmp_path, packed(tmp_path / "s.csv.gz", [b"player,score,name\n", long, long, b'b,2,"\xf0\x9f\x9a\x80"\n'])
    )

    assert report["imported"] == 1
    assert report["problems"]


def test_a_header_of_many_columns_is_refused(tmp_path: Path) -> None:
    names = ",".join(f"attributes.a{number}" for number in range(60_000))
    (tmp_path / "s.csv").write_text(f"player,score,{names}\n")

    refused = measured(tmp_path, tmp_path / "s.csv")["refused"]
    assert refused == (
        f"header: of {tmp_path}/s.csv names 60002 columns, and may name 256; "
        "leave out those from 'attributes.a254' on, or split the file"
    )


def test_a_line_of_very_many_events_is_held_once(tmp_path: Path) -> None:
    def line(events: int, more: bytes) -> bytes:
        players, scores = b",".join([b'"a"'] * events), b",".join([b"1"] * events)
        return b'{"player":[%s],"score":[%s],%s}\n' % (players, scores, more)

    attributes, metadata = b'"attributes":{"country":"BR"}', b'"metadata":{"x":"' + b"y" * 900 + b'"}'
    report = measured(tmp_path, packed(tmp_path / "s.ndjson.gz", [line(150_000, attributes), line(5_000, metadata)]))

    assert (report["lines"], report["imported"]) == (155_000, 155_000)


def test_a_line_of_columns_of_brackets_is_not_built(tmp_path: Path) -> None:
    line = b'{"player":["a"],"score":[1],"%s":[%s' + b"{}," * 300_000 + b"{}]%s}\n"
    lines = [line % (b"name", b"", b""), line % (b"metadata", b"[", b"]"), line % (b"attributes", b"", b"")]
    report = measured(tmp_path, packed(tmp_path / "s.ndjson.gz", lines * 20))

    assert report["imported"] == 20
    assert {problem.partition(":")[0] for problem in report["problems"]} <= {"event 1", "metadata", "attributes"}


# Parquet and Arrow


def arrow() -> tuple[Any, Any]:
    why = "Parquet needs pyarrow: pip install 'rankd[parquet]'"
    return pytest.importorskip("pyarrow", reason=why), pytest.importorskip("pyarrow.parquet", reason=why)


def written(path: Path, columns: dict[str, Any], **how: Any) -> Path:
    pa, parquet = arrow()
    parquet.write_table(pa.table(columns), path, compression="zstd", write_statistics=False, **how)
    return path


def repeated(value: Any, count: int) -> Any:
    """Return a column of one value, which Parquet writes once."""
    pa, _ = arrow()
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value]))


def check_refused(folder: Path, path: Path, *, size_bytes_max: int = 40_000) -> str:
    assert path.stat().st_size < size_bytes_max
    refused: str = measured(folder, path)["refused"]
    assert str(path) in refused
    return refused


def test_a_few_bytes_that_say_one_long_value_again_and_again_are_refused(tmp_path: Path) -> None:
    columns = {"player": repeated("x" * MB, 20_000), "score": [1] * 20_000}
    path = written(tmp_path / "s.parquet", columns, store_schema=False)

    refused = check_refused(tmp_path, path, size_bytes_max=1_000)
    assert "column 'player': cannot be read as Parquet within 1024 MiB of memory; write it with smaller" in refused


def test_values_that_share_their_beginning_are_refused(tmp_path: Path) -> None:
    columns = {"player": ["y" * 200_000] * 300, "score": [1] * 300}
    path = written(
        tmp_path / "s.parquet", columns, use_dictionary=False, column_encoding={"player": "DELTA_BYTE_ARRAY"}
    )

    assert "column 'player'" in check_refused(tmp_path, path)


def test_a_value_that_is_too_long_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "s.parquet", {"player": ["z" * 100 * MB], "score": [1]}, use_dictionary=False)

    refused = check_refused(tmp_path, path)
    assert refused.endswith("column 'player': has values of more than 65536 bytes; leave them out")


def test_a_list_without_an_end_is_refused(tmp_path: Path) -> None:
    pa, _ = arrow()
    zeros = pa.Array.from_buffers(pa.int8(), 20 * MB, [None, pa.py_buffer(bytes(20 * MB))])
    laps = pa.ListArray.from_arrays(pa.array([0, len(zeros)], pa.int32()), zeros)
    metadata = pa.StructArray.from_arrays([laps], ["laps"])
    path = written(tmp_path / "s.parquet", {"player": ["a"], "score": [1], "metadata": metadata})

    refused = check_refused(tmp_path, path)
    # Whichever limit is met first: how much of its addresses the worker has used by then differs from run to run.
    few_rows, few_addresses = (
        "holds more than 16 MiB in 2000 rows",
        "cannot be read as Parquet within 1024 MiB of memory",
    )
    assert any(f"column 'metadata': {limit}" in refused for limit in (few_rows, few_addresses)), refused


def test_rows_that_take_no_room_are_refused(tmp_path: Path) -> None:
    count = 2 * MB
    path = written(tmp_path / "s.parquet", {"player": repeated("a", count), "score": repeated(1, count)})

    assert f"says that it has {count} rows in " in check_refused(tmp_path, path)


def test_a_table_of_many_columns_is_refused(tmp_path: Path) -> None:
    attributes = {f"attributes.a{number}": ["x"] for number in range(30_000)}
    path = written(tmp_path / "s.parquet", {"player": ["a"], "score": [1], **attributes})

    assert "names 30002 columns, and may name 256" in check_refused(tmp_path, path, size_bytes_max=20 * MB)


def test_lengths_that_are_lies_are_refused_or_do_no_harm(tmp_path: Path) -> None:
    pa, parquet = arrow()
    lie = base64.b64encode(b"\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\x10\x00\x00\x00" + b"\xff\x7f" * 200)
    schema = pa.schema([("player", pa.string()), ("score", pa.int64())], metadata={"ARROW:schema": lie})
    path = tmp_path / "s.parquet"
    parquet.write_table(pa.table({"player": ["a"], "score": [1]}, schema=schema), path, store_schema=False)
    assert "refused" in measured(tmp_path, path) or measured(tmp_path, path)["lines"] == 1

    stream = tmp_path / "stream.parquet"  # Arrow's own format has endings of its own
    with pa.ipc.new_stream(stream, schema) as writer:
        writer.write_table(pa.table({"player": ["a"], "score": [1]}, schema=schema))
    assert "cannot be read as Parquet" in check_refused(tmp_path, stream)
    footer = path.read_bytes()
    path.write_bytes(footer[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1")
    assert "cannot be read as Parquet" in check_refused(tmp_path, path)


def test_a_column_of_structures_is_refused_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path / "s.parquet", {"player": [{"id": "a"}], "score": [1]})

    assert "column 'player': must hold numbers or text; it holds struct" in check_refused(tmp_path, path)


@pytest.mark.parametrize("ending", ["arrow", "arrows"])
class TestArrow:
    """Arrow's own format, as a file and as a stream."""

    def written(self, path: Path, columns: dict[str, Any], **how: Any) -> Path:
        pa, _ = arrow()
        table = pa.table(columns)
        new = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
        with new(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table, **how)
        return path

    def test_one_long_value_said_again_and_again_is_refused(self, tmp_path: Path, ending: str) -> None:
        columns = {"player": repeated("x" * MB, 20_000), "score": [1] * 20_000}
        path = self.written(tmp_path / f"s.{ending}", columns)

        refused = check_refused(tmp_path, path)
        assert "column 'player': cannot be read as Arrow within 1024 MiB of memory" in refused

    def test_a_batch_that_expands_to_more_than_the_memory_is_refused(self, tmp_path: Path, ending: str) -> None:
        pa, _ = arrow()
        offsets = pa.py_buffer(bytes(4) + (900 * MB).to_bytes(4, "little"))
        spaces = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(bytes(900 * MB))])
        path = self.written(tmp_path / f"s.{ending}", {"player": ["a"], "score": [1], "metadata": spaces})

        assert "cannot be read as Arrow within 1024 MiB of memory" in check_refused(tmp_path, path, size_bytes_max=MB)

    def test_batches_of_ordinary_size_are_read_one_by_one(self, tmp_path: Path, ending: str) -> None:
        columns = {
            "player": [f"p{n % 50}" for n in range(60_000)],
            "score": range(60_000),
            "name": ["x" * 99] * 60_000,
        }
        report = measured(tmp_path, self.written(tmp_path / f"s.{ending}", columns, max_chunksize=20_000))

        assert (report["lines"], report["imported"]) == (60_000, 60_000)

    def test_rows_that_take_no_room_are_refused(self, tmp_path: Path, ending: str) -> None:
        pa, _ = arrow()
        path = self.written(tmp_path / f"s.{ending}", {"player": pa.nulls(2 * MB), "score": pa.nulls(2 * MB)})

        assert f"says that it has {2 * MB} rows in " in check_refused(tmp_path, path)

    def test_many_values_that_are_the_same_bytes_are_refused(self, tmp_path: Path, ending: str) -> None:
        pa, _ = arrow()
        view = MB.to_bytes(4, "little") + b"xxxx" + bytes(8)  # length, beginning, buffer and offset
        buffers = [None, pa.py_buffer(view * 3_000), pa.py_buffer(b"x" * MB)]
        views = pa.Array.from_buffers(pa.string_view(), 3_000, buffers)
        path = self.written(tmp_path / f"s.{ending}", {"player": views, "score": [1] * 3_000})

        assert str(path) in measured(tmp_path, path)["refused"]
