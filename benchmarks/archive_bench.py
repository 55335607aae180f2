"""What a window that is over costs: its bytes, the time to archive it, and reads of it from a file and from S3.

    one day in an engine → archived in a folder, and in a bucket of versitygw on loopback → pages and ranks

Every answer is compared with the engine's. "First" opens the archive anew, with nothing in memory and nothing cached.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.servers.s3 import ACCESS_KEY, HOW_TO_GET_S3, REGION, SECRET_KEY, running_s3, s3_is_installed

from benchmarks.disk import folder_on_disk
from benchmarks.figures import RANKD, Row, Scale, Series
from rankd.archive.archived_standings import ArchivedStandings
from rankd.archive.folder_objects import FolderObjects
from rankd.archive.objects import ObjectStore
from rankd.archive.remote_objects import RemoteObjects
from rankd.archive.standings_file import FinalWindow
from rankd.archive.windows import WindowArchive
from rankd.domain.definition import define_board
from rankd.domain.instance import InstanceKey
from rankd.projection.engine import EngineStore
from rankd.projection.port import BATCH_ROWS_MAX, UpdateBatch
from rankd.projection.state import BoardState

DAY, BOARD = "daily:2026-05-04", "arcade"
KEY = InstanceKey(BOARD, DAY)
PAGE = 100
PLAYERS, PLAYERS_SMOKE = 1_000_000, 2_000
SECONDS_A_DAY = 86_400


def archive_rows(scale: Scale) -> Iterator[Row]:
    """Archive one day, and read it."""
    players = PLAYERS_SMOKE if scale.smoke else PLAYERS
    window = _played(players)
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        stores: dict[str, ObjectStore] = {"local": FolderObjects(folder / "archive")}
        if s3_is_installed():
            server = stack.enter_context(running_s3())
            os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}
            stores["s3"] = RemoteObjects(f"s3://{server.new_bucket()}/rankd", endpoint=server.endpoint)
        else:
            print(HOW_TO_GET_S3, file=sys.stderr)
        for name, objects in stores.items():
            yield from _rows_of(scale, name, objects, window, players)


def _played(players: int) -> FinalWindow:
    """Rank a day: everybody once, at some second."""
    board = define_board(BOARD, {"windows": ["daily"]})
    store, rng = EngineStore(), random.Random(20260504)
    for at, start in enumerate(range(0, players, BATCH_ROWS_MAX)):
        numbers = range(start, min(players, start + BATCH_ROWS_MAX))
        batch = UpdateBatch(
            [(KEY, board.rules_for(board.first_window))],
            [f"user_{number:08d}" for number in numbers],
            array("q", [rng.randrange(1_000_000) for _ in numbers]),
            array("q", [1_777_852_800 + rng.randrange(SECONDS_A_DAY) for _ in numbers]),
            after=at,
            upto=at + 1,
        )
        store.apply(batch)
    return FinalWindow(store, board, BoardState(version=1, born=1, defined_at=0), DAY)


def _rows_of(scale: Scale, name: str, objects: ObjectStore, window: FinalWindow, players: int) -> Iterator[Row]:
    judged = not scale.smoke
    with tempfile.TemporaryDirectory(prefix="rankd-bench-") as scratch:
        written, sizes = Series(), Series()
        archive = WindowArchive(objects, Path(scratch))
        began = time.perf_counter()
        archive.keep(window, lambda: "0-1")
        written.add(RANKD, (time.perf_counter() - began) * 1e9 / players, players)
        (listed,) = archive.manifests()
        sizes.add(RANKD, listed.manifest.file.size / players, players)
        yield written.row(f"archive_write_{name}", players, "ns_per_entry", judged=judged)
        if name == "local":
            yield sizes.row("archive_size", players, "bytes_per_entry", judged=judged)
    rng = random.Random(7)
    series = {what: Series() for what in ("page_first", "page_cached", "page", "rank_first", "rank")}
    for _ in range(scale.rounds):
        place, player = rng.randrange(1, players - PAGE), f"user_{rng.randrange(players):08d}"
        _read(series, objects, window, place, player)
    for what, measured in series.items():
        if name == "s3" or what != "page_cached":
            yield measured.row(f"archive_{what}_{name}", players, "ns_per_call", judged=judged)


def _read(series: dict[str, Series], objects: ObjectStore, window: FinalWindow, place: int, player: str) -> None:
    """Read a page and a rank: from an archive that nobody has read, from one cached on disk, and again."""

    def page(standings: ArchivedStandings) -> int:
        entries = standings.range(KEY, place, place + PAGE - 1).entries
        if entries != window.store.range(KEY, place, place + PAGE - 1).entries:
            raise RuntimeError("a page of the archive is not that of the ranks")
        return entries[0].rank

    def rank(standings: ArchivedStandings) -> int:
        standing = standings.rank(KEY, player)
        if standing is None or standing != window.store.rank(KEY, player):
            raise RuntimeError("a rank of the archive is not that of the ranks")
        return standing.rank

    with tempfile.TemporaryDirectory(prefix="rankd-bench-") as scratch:
        for what, ask in (("page_first", page), ("page_cached", page), ("rank_first", rank)):
            folder = Path(scratch) / ("other" if ask is rank else "pieces")
            opened = _timed(series[what], partial(_opened, objects, folder), ask)
        _timed(series["rank"], lambda: opened, rank)
        page(opened)
        _timed(series["page"], lambda: opened, page)


def _opened(objects: ObjectStore, scratch: Path) -> ArchivedStandings:
    standings = WindowArchive(objects, scratch).find(BOARD, 1, DAY)
    if standings is None:
        raise RuntimeError("the window is not in the archive")
    return standings


def _timed(
    series: Series, open_one: Callable[[], ArchivedStandings], ask: Callable[[ArchivedStandings], int]
) -> ArchivedStandings:
    began_ns = time.perf_counter_ns()
    standings = open_one()
    checksum = ask(standings)
    series.add(RANKD, time.perf_counter_ns() - began_ns, checksum)
    return standings
