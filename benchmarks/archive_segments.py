"""An embedded ledger that is sent to an archive, in a folder on the same disk, beside one that is not.

    everybody joins, then batches of columns, by turns → everything sent → bytes of the segments
    the folder restored from them, and opened

The archive is sent to all the time, a hundred times as often as by default: what it costs the rate is the most it can.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import rankd
from benchmarks.disk import bytes_below, folder_on_disk
from benchmarks.embedded_subject import BOARD, columns_of
from benchmarks.figures import RANKD, UNARCHIVED, Row, Scale, Series
from benchmarks.workload import Events, Workload
from rankd.archive.folder_objects import FolderObjects
from rankd.backup.restoring import restore

EVERY_MS = 100
WINDOWS = ["all_time", "weekly"]


def segment_rows(scale: Scale) -> Iterator[Row]:
    """All rows."""
    players = scale.archive_players
    series = Series()
    with folder_on_disk() as folder, ExitStack() as stack:
        archive = folder / "archive"
        sides = {RANKD: _opened(stack, folder / "data", archive), UNARCHIVED: _opened(stack, folder / "plain", None)}
        for number in range(scale.rounds):
            for side, boards in sides.items():
                series.add(side, *_turn(boards, scale, players, number))
        archived = sides[RANKD]
        began_s = time.perf_counter()
        archived.backup()
        sent_s = time.perf_counter() - began_s
        events = archived.figures().position
        segments = bytes_below(archive / "ledger" / "segments")
        position = archived.position
        stack.close()
        restored, opened_s = _restored(archive, folder / "restored", position)
    note = "unarchived: the same without an archive"
    yield series.row("archive_batches", players, "ns_per_event", {"last_send_s": sent_s}, note, judged=not scale.smoke)
    for name, unit, cost, extra in (
        ("archive_segment_bytes", "bytes_per_event", segments / events, {"events": float(events)}),
        ("archive_restore", "seconds", restored, {"open_s": opened_s, "events": float(events)}),
    ):
        alone = Series()
        alone.add(RANKD, cost, events)
        yield alone.row(name, players, unit, extra, judged=not scale.smoke)


def _opened(stack: ExitStack, folder: Path, archive: Path | None) -> rankd.Boards:
    url = "" if archive is None else str(archive)
    boards = stack.enter_context(rankd.open(folder, archive_url=url, archive_segments_every_ms=EVERY_MS))
    boards.define(BOARD, windows=WINDOWS)
    return boards


def _turn(boards: rankd.Boards, scale: Scale, players: int, number: int) -> tuple[float, int]:
    """Return the cost of an event of a round, and the number of events there are then."""
    workload = Workload(players, stream=number)
    batches = workload.joining(scale.embedded_batch_rows) if number == 0 else _updates(workload, scale)
    spent_s = 0.0
    events = 0
    for some in batches:
        columns = columns_of(some)
        began_s = time.perf_counter()
        boards.submit_many(BOARD, players=columns.players, scores=columns.scores)
        spent_s += time.perf_counter() - began_s
        events += len(columns.players)
    return spent_s * 1e9 / events, boards.figures().position


def _updates(workload: Workload, scale: Scale) -> Iterator[Events]:
    for _ in range(max(1, scale.archive_events // scale.embedded_batch_rows)):
        yield workload.updates(scale.embedded_batch_rows)


def _restored(archive: Path, folder: Path, position: str) -> tuple[float, float]:
    """Return the seconds until a folder is restored, and until it is open."""
    began_s = time.perf_counter()
    restored = restore(FolderObjects(archive), folder)
    restored_s = time.perf_counter() - began_s
    if restored.position != position:
        raise AssertionError(f"restored up to {restored.position}, and {position} was sent")
    with rankd.open(folder) as boards:
        return restored_s, boards.started.seconds
