"""Final standings in a Parquet file: all scopes of a window instance, scope by scope in standing order.

    walk of the ranks → a spool of row groups → their rows found by player → Parquet (zstd), read back and compared

Columns: `scope`; `rank`, `competition` and `dense`, the rank counted in each way; `player`; `score` as it was kept (of
a decaying board, its key); `reached_at` or `tiebreak`, where they decide between equal scores; `total`, the number in
the scope, and `digest`, its digest (domain/digest.py), the same in all rows of a scope. The last two columns are an
index and say nothing about their row: `lookup_hash`, the sorted hashes of all (scope, player), and `lookup_row`, the
row of each. So one standing is found by reading two row groups.

pyarrow is imported by the first file.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Rules
from rankd.errors import ArchiveDamaged
from rankd.projection.engine import EngineStore
from rankd.projection.placement import is_team_scope
from rankd.projection.port import Op, RankStore, UpdateBatch, WindowSum
from rankd.projection.state import BoardState

ROWS_PER_GROUP = 32_768  # a row group is what a page reads: some milliseconds, some hundred kilobytes
LOOKUP_BYTES = 6
ROW_COLUMNS = (
    "scope",
    "rank",
    "competition",
    "dense",
    "player",
    "score",
    "reached_at",
    "tiebreak",
    "total",
    "digest",
)
LOOKUP_COLUMNS = ("lookup_hash", "lookup_row")
_CHUNK = 500  # entries of one part: a millisecond's work
_COMPRESSION_LEVEL = 3
_DELTAS = ("rank", "competition", "dense", "score", "reached_at", "tiebreak", *LOOKUP_COLUMNS)


class FinalWindow(NamedTuple):
    """A final window instance in the ranks."""

    store: RankStore
    board: Board
    live: BoardState
    instance: str

    def sum(self) -> WindowSum:
        """Return the sum of its instances."""
        return self.store.window_sum(self.board.id, self.instance)

    def instances(self) -> list[InstanceKey]:
        """Return its instances by scope, without what players contributed to teams."""
        scopes = sorted(scope for scope in self.store.scopes(self.board.id, self.instance) if not is_team_scope(scope))
        return [InstanceKey(self.board.id, self.instance, scope) for scope in scopes]


class WrittenFile(NamedTuple):
    """A file on disk."""

    rows: int
    rows_per_group: int
    footer_bytes: int
    size: int
    digest: str


def lookup_hash(scope: str, player: str) -> int:
    """Return the hash by which a player's row is found."""
    return int.from_bytes(blake2b(f"{scope}\0{player}".encode(), digest_size=LOOKUP_BYTES).digest(), "little")


def write_standings(window: FinalWindow, file: Path, between: Callable[[], None]) -> WrittenFile:
    """Write the standings of a window instance; `between` is called after each part.

    The ranks may change meanwhile: the caller compares their sum before and after.
    """
    spool = file.with_suffix(".spool")
    try:
        rows, lookup = _spool(window, spool, between)
        _write(spool, file, rows, lookup, between)
        _compare(spool, file)
    finally:
        spool.unlink(missing_ok=True)
    return WrittenFile(rows, ROWS_PER_GROUP, _footer_bytes(file), file.stat().st_size, digest_of_file(file))


def digest_of_file(file: Path) -> str:
    """Return the digest of a file's bytes."""
    hashed = blake2b(digest_size=32)
    with file.open("rb") as opened:
        while piece := opened.read(1024 * 1024):
            hashed.update(piece)
    return hashed.hexdigest()


def arrow() -> Any:
    """Return pyarrow, which takes a tenth of a second and 60 MB the first time."""
    return importlib.import_module("pyarrow")


def parquet() -> Any:
    """Return pyarrow's Parquet."""
    return importlib.import_module("pyarrow.parquet")


def _schema() -> Any:
    pa = arrow()
    types = {
        "scope": pa.string(),
        "player": pa.string(),
        "digest": pa.string(),
        "reached_at": pa.timestamp("ms", tz="UTC"),
    }
    names = (*ROW_COLUMNS, *LOOKUP_COLUMNS)
    may_be_null = ("reached_at", "tiebreak")
    return pa.schema([pa.field(name, types.get(name, pa.int64()), nullable=name in may_be_null) for name in names])


def row_schema() -> Any:
    """Return the columns that are about their row."""
    return arrow().schema([_schema().field(name) for name in ROW_COLUMNS])


class _RowGroup:
    """The rows of a group, until it is full."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in ROW_COLUMNS}

    def __len__(self) -> int:
        return len(self.columns["rank"])

    def batch(self) -> Any:
        """Return the first full group, and keep the rest."""
        pa, schema = arrow(), row_schema()
        taken = {name: values[:ROWS_PER_GROUP] for name, values in self.columns.items()}
        self.columns = {name: values[ROWS_PER_GROUP:] for name, values in self.columns.items()}
        return pa.record_batch([pa.array(taken[field.name], field.type) for field in schema], schema=schema)


def _spool(window: FinalWindow, spool: Path, between: Callable[[], None]) -> tuple[int, array[int]]:
    """Write the rows as they are read, group by group; return their number and their hashes."""
    pa, group, hashes = arrow(), _RowGroup(), array("q")
    ipc = importlib.import_module("pyarrow.ipc")
    with pa.OSFile(str(spool), "wb") as file, ipc.new_file(file, row_schema()) as spooled:
        for key in window.instances():
            for part in _parts(window.store, window.board, key):
                for name, values in part.items():
                    group.columns[name] += values
                hashes.extend([lookup_hash(key.scope, player) for player in part["player"]])
                while len(group) >= ROWS_PER_GROUP:
                    spooled.write_batch(group.batch())
                between()
        if len(group):
            spooled.write_batch(group.batch())
    return len(hashes), hashes


def _parts(store: RankStore, board: Board, key: InstanceKey) -> Iterator[dict[str, list[Any]]]:
    """Yield the columns of an instance in parts."""
    top = board.archive_top
    total, digest = store.total(key), f"{store.digest(key):032x}"
    after: tuple[Kept, str] | None = None
    place = competition = dense = 0
    score: int | None = None
    while entries := store.following(key, after, _CHUNK if top is None else max(1, min(_CHUNK, top - place))).entries:
        competitions, denses = [], []
        for entry in entries:
            place += 1
            if entry.score != score:
                competition, dense, score = place, dense + 1, entry.score
            competitions.append(competition)
            denses.append(dense)
        count = len(entries)
        yield {
            "scope": [key.scope] * count,
            "rank": list(range(place - count + 1, place + 1)),
            "competition": competitions,
            "dense": denses,
            "player": [entry.player for entry in entries],
            "score": [entry.score for entry in entries],
            "reached_at": [board.reached_at(entry.tie) for entry in entries],
            "tiebreak": [board.tiebreak(entry.tie) for entry in entries],
            "total": [total] * count,
            "digest": [digest] * count,
        }
        if place == top:
            return
        after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player


def _write(spool: Path, file: Path, rows: int, hashes: array[int], between: Callable[[], None]) -> None:
    pa, pq = arrow(), parquet()
    compute, ipc = importlib.import_module("pyarrow.compute"), importlib.import_module("pyarrow.ipc")
    schema = _schema()
    unsorted = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(hashes)])
    order = compute.sort_indices(unsorted).cast(pa.int64())
    lookup = compute.take(unsorted, order)
    with (
        pq.ParquetWriter(
            str(file),
            schema,
            compression="zstd",
            compression_level=_COMPRESSION_LEVEL,
            use_dictionary=["scope", "total", "digest"],
            column_encoding={**dict.fromkeys(_DELTAS, "DELTA_BINARY_PACKED"), "player": "DELTA_BYTE_ARRAY"},
            write_statistics=["scope", "lookup_hash"],
            write_page_checksum=True,
            store_schema=False,
        ) as writer,
        pa.memory_map(str(spool)) as source,
    ):
        spooled = ipc.open_file(source)
        for index in range(spooled.num_record_batches):
            batch, start = spooled.get_batch(index), index * ROWS_PER_GROUP
            columns = [*batch.columns, lookup.slice(start, batch.num_rows), order.slice(start, batch.num_rows)]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=ROWS_PER_GROUP)
            between()


def _compare(spool: Path, file: Path) -> None:
    """Read a file back, and compare it with what was to be written."""
    pa, ipc = arrow(), importlib.import_module("pyarrow.ipc")
    with (
        pa.memory_map(str(spool)) as source,
        parquet().ParquetFile(str(file), page_checksum_verification=True) as written,
    ):
        spooled = ipc.open_file(source)
        is_equal = written.num_row_groups == spooled.num_record_batches and all(
            written.read_row_group(index, list(ROW_COLUMNS)).equals(pa.Table.from_batches([spooled.get_batch(index)]))
            for index in range(spooled.num_record_batches)
        )
    if not is_equal:
        raise ArchiveDamaged(f"{file.name} is not what was to be written; check memory and disk")


def _footer_bytes(file: Path) -> int:
    with file.open("rb") as opened:
        opened.seek(-8, 2)
        return int.from_bytes(opened.read(4), "little") + 8


def digests_of(tables: Iterator[Any], board: Board, rules: Rules) -> dict[str, int]:
    """Return the digest of each scope in row groups of a file, worked out by the engine."""
    digests: dict[str, int] = {}
    for table in tables:
        columns = {name: table.column(name).to_pylist() for name in ("scope", "player", "score", "tiebreak")}
        reached = table.column("reached_at").cast(arrow().int64()).to_pylist()
        scopes = {scope: index for index, scope in enumerate(dict.fromkeys(columns["scope"]))}
        instances = [(InstanceKey(board.id, "archived", scope), rules) for scope in scopes]
        ties = [
            at // board.tie_resolution_ms if at is not None else tiebreak or 0
            for at, tiebreak in zip(reached, columns["tiebreak"], strict=True)
        ]
        store = EngineStore()
        store.apply(
            UpdateBatch(
                instances,
                columns["player"],
                array("q", columns["score"]),
                array("q", ties),
                array("I", [scopes[scope] for scope in columns["scope"]]),
                op=bytes([Op.PUT]) * len(ties),
            )
        )
        for key, _ in instances:
            digests[key.scope] = (digests.get(key.scope, 0) + store.digest(key)) % 2**128
        store.close()
    return digests
