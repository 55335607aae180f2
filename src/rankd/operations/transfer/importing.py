"""Imports scores from a file: checks every line, then sends all of them, each batch under its own key.

The keys derive from the file's content, so that repeating an interrupted import counts nothing twice until keys expire;
batches recorded in the progress file are not sent again even later. While ranks lag too far behind, it pauses.
"""

from __future__ import annotations

import inspect
import os
import secrets
from collections.abc import Callable, Iterator
from hashlib import blake2b
from time import monotonic, sleep
from typing import Any

import msgspec

from rankd.domain.board import Board
from rankd.domain.definition import NAMES, define_board
from rankd.domain.fields import read_integer
from rankd.domain.position import parse_position
from rankd.errors import Behind, BoardClosed, Conflict, InvalidValue
from rankd.intake.results import Batched
from rankd.operations.transfer.checking import CheckedBatch, CheckedColumns, Checker
from rankd.operations.transfer.columnar_rows import ColumnarReader
from rankd.operations.transfer.csv_rows import CsvReader
from rankd.operations.transfer.formats import Format
from rankd.operations.transfer.input import Input, open_input
from rankd.operations.transfer.ndjson_rows import NdjsonReader
from rankd.operations.transfer.port import ImportTarget
from rankd.operations.transfer.report import BadLines, ImportReport
from rankd.operations.transfer.resuming import ImportProgress, ProgressFile
from rankd.operations.transfer.rows import RowReader, attribute_rows, batches_of
from rankd.reads.answers import Page

BATCH_EVENTS = 2_000  # one commit, which the scores of others wait for
BATCH_EVENTS_MAX = 1_000_000
REQUEST_BYTES_MAX = 8 * 1024 * 1024  # half of a server's limit, since attributes and metadata are estimated
EVENT_BYTES = 512  # of one event as JSON, without attributes and metadata
BATCH_BYTES_MIN = 8 * 1024 * 1024  # of the file, allowed for any `batch_events`
BEHIND_WAIT_S = 1  # while ranks lag too far, where nothing says how long
BEHIND_WAIT_S_MAX = 600.0  # for one request

Progress = Callable[[int, int], None]  # done, all


def import_scores(
    target: ImportTarget,
    board: str,
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 - as the option is called
    *,
    batch_events: int = BATCH_EVENTS,
    skip_bad_lines: bool = False,
    on_check: Progress | None = None,
    on_progress: Progress | None = None,
    resume: bool = True,
    destination: str | None = None,
) -> ImportReport:
    """Import every line of a file into a board: all of them, or none if one is bad.

    `path` is a file, or `-` for standard input. `skip_bad_lines` imports the others. Repeating an import counts only
    what an earlier run did not; with `resume` false it counts everything again. `on_check` is called with bytes and
    `on_progress` with lines, each as (done, all). `destination` names the target in the progress file; the default is
    the target's `url` or `folder`, and without those there is no progress file.
    """
    read_integer("batch_events", batch_events, 1, BATCH_EVENTS_MAX)
    with open_input(path, format) as source:
        definition = _find_board(target, board)
        page = _first_page(target, definition)
        run = _Import(target, definition, source, page.as_of)
        run.resume(
            resume,
            batch_events,
            _destination(target) if destination is None else destination,
            page.position,
        )
        run.check_lines(on_check)
        if run.bad.count and not skip_bad_lines:
            return run.report(refused=True)
        run.send_lines(on_progress)
        return run.report(refused=False)


class _Import:
    """One import from its beginning to its report."""

    def __init__(self, target: ImportTarget, board: Board, source: Input, now: int) -> None:
        self._target = target
        self._board = board
        self._source = source
        self._reader: RowReader = _reader_of(source)
        self._checker = Checker(board, now)
        self._options = _options_of(target)
        self._progress_file: ProgressFile | None = None
        self.bad = BadLines()
        self._lines = 0
        self._imported = 0
        self._repeated = 0

    def resume(self, resume: bool, batch_events: int, destination: str | None, position: str) -> None:
        """Begin at the first line, or where an earlier run of this import stopped."""
        self._reached = ImportProgress(
            destination=destination or "",
            board=self._board.id,
            fingerprint=self._source.fingerprint(),
            format=self._source.format.value,
            batch_events=batch_events,
            run="" if resume else secrets.token_hex(8),
            batches=0,
            line=0,
            position=None,
        )
        if self._source.path is None or destination is None:
            return
        self._progress_file = ProgressFile(self._source.path)
        earlier = self._progress_file.find(destination, self._board.id) if resume else None
        if earlier is None:
            return
        is_same = (earlier.fingerprint, earlier.format) == (self._reached.fingerprint, self._reached.format)
        if is_same and not _is_before(position, earlier.position):
            self._reached = earlier
        elif not is_same and earlier.batches:
            raise Conflict(
                f"file: {self._source.name} has changed since an import of it into {self._board.id} was interrupted "
                f"after line {earlier.line}; import the missing lines as another file, or begin anew without "
                "resuming to count every line again"
            )

    def check_lines(self, on_check: Progress | None) -> None:
        """Check every line, and collect the bad ones."""
        for _, checked in self._batches():
            self._lines += len(checked.columns.players) + len(checked.bad)
            self.bad.add(checked.bad)
            if on_check is not None:
                on_check(min(self._source.done_bytes, self._source.size_bytes), self._source.size_bytes)
        self._source.check_unchanged()

    def send_lines(self, on_progress: Progress | None) -> None:
        """Send the batches that an earlier run has not, in the order of the file."""
        done = self._reached.batches
        lines = bad = 0
        self._record(self._reached)
        for index, (last_line, checked) in enumerate(self._batches()):
            bad += len(checked.bad)
            self._source.check_unchanged()
            if index < done:
                self._repeated += len(checked.columns.players)
            else:
                position = self._send(index, checked.columns)
                self._reached = msgspec.structs.replace(
                    self._reached, batches=index + 1, line=last_line, position=position or self._reached.position
                )
                self._record(self._reached)
            lines += len(checked.columns.players) + len(checked.bad)
            if on_progress is not None:
                on_progress(lines, self._lines)
        if (lines, bad) != (self._lines, self.bad.count):
            raise AssertionError("an unchanged file was read differently the second time")
        if self._progress_file is not None:
            self._progress_file.forget(self._reached.destination, self._board.id)

    def report(self, refused: bool) -> ImportReport:
        """Return the report."""
        return ImportReport(
            lines=self._lines,
            imported=self._imported,
            repeated=self._repeated,
            skipped=0 if refused else self.bad.count,
            bad=self.bad.first,
            bad_count=self.bad.count,
            refused=refused,
        )

    def _batches(self) -> Iterator[tuple[int, CheckedBatch]]:
        batch_events = self._reached.batch_events
        batch_bytes = max(BATCH_BYTES_MIN, batch_events * EVENT_BYTES)
        for batch in batches_of(self._reader.pieces(), batch_events, batch_bytes):
            yield batch.numbers[-1], self._checker.check(self._reader, batch)

    def _record(self, reached: ImportProgress) -> None:
        if self._progress_file is not None:
            self._progress_file.note(reached)

    def _send(self, index: int, columns: CheckedColumns) -> str | None:
        """Send one batch, in several requests if too large; return the position after it."""
        position = None
        for part, (start, end) in enumerate(_requests(columns)):
            try:
                answer = self._submit_when_taken(columns.part(start, end), self._key(index, part))
            except Exception as problem:
                problem.add_note(
                    f"{self._imported + self._repeated} of {self._lines} lines of {self._source.name} count; "
                    "the same import again goes on from there"
                )
                raise
            if answer.repeated:
                self._repeated += end - start
            else:
                self._imported += end - start
            position = answer.position
        return position

    def _submit_when_taken(self, columns: CheckedColumns, key: str) -> Batched:
        """Submit a request, again while ranks lag too far for it."""
        deadline_s = monotonic() + BEHIND_WAIT_S_MAX
        while True:
            try:
                return self._submit(columns, key)
            except Behind as problem:
                wait_s = problem.retry_after_s or BEHIND_WAIT_S
                if monotonic() + wait_s > deadline_s:
                    raise
                sleep(wait_s)

    def _submit(self, columns: CheckedColumns, key: str) -> Batched:
        if columns.at is not None and None in columns.at:  # a column has no "now"
            return self._target.submit_many(self._board.id, _rows(columns), key=key, **self._options)
        return self._target.submit_many(
            self._board.id,
            players=columns.players,
            scores=columns.scores,
            tiebreaks=columns.tiebreaks,
            at=columns.at,  # type: ignore[arg-type]  # None is not among them
            attributes=columns.attributes,
            metadata=columns.metadata,
            key=key,
            **self._options,
        )

    def _key(self, index: int, part: int) -> str:
        reached = self._reached
        named = (reached.fingerprint, reached.board, reached.format, reached.batch_events, reached.run, index, part)
        return f"import-{blake2b(msgspec.json.encode(named), digest_size=16).hexdigest()}"


def _find_board(target: ImportTarget, board: str) -> Board:
    definition = target.definition(board)
    defined = define_board(board, {name: definition[name] for name in NAMES if name in definition})
    if not defined.open:
        raise BoardClosed(f"board: {defined.id} takes no scores now; define it with open = true")
    return defined


def _first_page(target: ImportTarget, board: Board) -> Page:
    # Any page has the target's time and position; an unused scope is an empty page.
    return target.top(board.id, 1, scope=None if board.with_global else f"{board.scopes[0]}:-")


def _reader_of(source: Input) -> RowReader:
    match source.format:
        case Format.CSV:
            return CsvReader(source)
        case Format.NDJSON:
            return NdjsonReader(source)
        case Format.PARQUET | Format.ARROW | Format.ARROW_STREAM:
            return ColumnarReader(source)


def _options_of(target: ImportTarget) -> dict[str, Any]:
    return {"imported": True} if "imported" in inspect.signature(target.submit_many).parameters else {}


def _destination(target: ImportTarget) -> str | None:
    url, folder = getattr(target, "url", None), getattr(target, "folder", None)
    if url is not None:
        return str(url)
    return None if folder is None else os.path.realpath(folder)


def _is_before(position: str, recorded: str | None) -> bool:
    """Return whether a ledger is behind a recorded position: a restored copy, or another ledger."""
    if recorded is None:
        return False
    try:
        now, then = parse_position(position), parse_position(recorded)
    except InvalidValue:
        return False
    return now.partition == then.partition and now.sequence < then.sequence


def _requests(columns: CheckedColumns) -> Iterator[tuple[int, int]]:
    """Cut a batch into requests within the size limit; most batches are one."""
    count = len(columns.players)
    start = size = 0
    for index, detail_bytes in enumerate(columns.detail_bytes or ()):
        if size and size + EVENT_BYTES + detail_bytes > REQUEST_BYTES_MAX:
            yield start, index
            start, size = index, 0
        size += EVENT_BYTES + detail_bytes
    if start < count:
        yield start, count


def _rows(columns: CheckedColumns) -> list[dict[str, object]]:
    named = {
        "player": columns.players,
        "score": columns.scores,
        "tiebreak": columns.tiebreaks,
        "at": columns.at,
        "attributes": attribute_rows(columns.attributes),
        "metadata": columns.metadata,
    }
    present = [(name, column) for name, column in named.items() if column is not None]
    cells = zip(*(column for _, column in present), strict=True)
    return [{name: cell for (name, _), cell in zip(present, row, strict=True) if cell is not None} for row in cells]
