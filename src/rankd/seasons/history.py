"""Where players stood: a file of places for each local midnight and instance of a board with a history.

    midnight event → Applier → PlaceRecorder.record: the engine's columns → [thread] packed, written → history/…
    a player's course → PlaceHistory.points: each file is searched

    history/<board>/v<born>/<window instance, with @ for :>/<at>-<checksum>.places

What is recorded follows from the ledger: a replay and a second node write the same files, and skip those they have. A
checkpoint waits until everything recorded before it is on disk, so whatever a crash loses is recorded again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from rankd.background import lower_priority
from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.errors import SnapshotUnreadable, VerificationFailed
from rankd.folder import FOLDER_MODE, private_opener, sync_folder
from rankd.ledger.event import Scored
from rankd.projection.port import RankReads
from rankd.projection.state import BoardState
from rankd.seasons.places import (
    SUFFIX,
    PlacesFile,
    StandingColumns,
    encode_places,
    hash_key,
    player_hash,
)

WAITING_ENTRIES_MAX = 20_000_000  # recorded and not written yet; a replay that is faster waits
ATTEMPTS = 3  # to write a file, before it is left out
AGAIN_S = 2.0
_DRAFT = "draft-"
_log = logging.getLogger("rankd")


class ColumnStore(RankReads, Protocol):
    """The engine."""

    def standing_columns(self, instance: InstanceKey, most: int, hash_key: bytes) -> tuple[memoryview, memoryview]:
        """Return hashes and scores of the first players in standing order."""
        ...


class PlacePoint(NamedTuple):
    """Where a player stood at an instant."""

    at: int
    window: str
    rank: int
    score: int  # as kept
    total: int


class _Recorded(NamedTuple):
    folder: Path
    columns: StandingColumns
    keep_ms: int


class PlaceHistory:
    """The files of places in a folder; from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folder_of(self, board: str, born: int, window: str) -> Path:
        """Return the folder of an instance."""
        return self._folder / board / f"v{born}" / window.replace(":", "@")

    def instances(self, board: str, born: int) -> list[str]:
        """Return the instances that have files."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return [name.replace("@", ":") for name in os.listdir(self._folder / board / f"v{born}")]
        return []

    def files(self, board: str, born: int, window: str) -> dict[int, Path]:
        """Return the files of an instance by their instant, in order."""
        names: list[tuple[int, str]] = []
        folder = self.folder_of(board, born, window)
        with suppress(FileNotFoundError, NotADirectoryError):
            names = [(int(name.partition("-")[0]), name) for name in os.listdir(folder) if _is_complete(name)]
        return {at: folder / name for at, name in sorted(names)}

    def newest(self, board: str) -> int:
        """Return the instant of a board's newest file; 0 where there is none."""
        names = (path.name for path in (self._folder / board).glob(f"v*/*/*{SUFFIX}"))
        return max((int(name.partition("-")[0]) for name in names if _is_complete(name)), default=0)

    def points(
        self, board: str, born: int, windows: Iterable[str], player: str, *, since: int, until: int, files_max: int
    ) -> list[PlacePoint]:
        """Return where a player stood in some instances, by the newest files, in order of time.

        Files that do not verify are skipped.
        """
        listed = sorted(
            (at, window, path)
            for window in windows
            for at, path in self.files(board, born, window).items()
            if since <= at <= until
        )
        hashes: dict[str, int] = {}
        points = []
        for at, window, path in listed[-files_max:]:
            if window not in hashes:
                hashes[window] = player_hash(hash_key(board, born, window), player)
            if (point := _point(path, at, window, hashes[window])) is not None:
                points.append(point)
        return points

    def check(self, store: RankReads, board: Board, live: BoardState, key: InstanceKey, event: Scored) -> None:
        """Compare a file with a replay that stands where it was recorded; VerificationFailed where they differ."""
        path = self.files(board.id, live.born, key.window).get(event.at)
        if path is None:
            return  # of a time before the history, or pruned
        try:
            with PlacesFile(path) as places:
                places.check()
                recorded = places.head.total, places.head.digest
        except (SnapshotUnreadable, OSError) as problem:
            raise VerificationFailed(
                f"{path} does not verify ({problem}); take it away and the checkpoints too"
            ) from None
        if recorded != (store.total(key), f"{store.digest(key):032x}"):
            raise VerificationFailed(f"{path} has other places than the ledger; take it away and the checkpoints too")


class PlaceRecorder:
    """Records places while the ledger is followed; `record` is called by the follower's thread."""

    def __init__(self, folder: Path, check_place: Callable[[], None] = lambda: None) -> None:
        """The first record creates the folder; `check_place` raises while no file may be written."""
        self.history = PlaceHistory(folder)
        self._check_place = check_place
        self._changed = threading.Condition()
        self._waiting: deque[_Recorded] = deque()
        self._entries = 0  # that wait
        self._newest: dict[str, int] = {}  # by board, as of the start
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self.written = 0  # files since the start
        self.failed = 0

    def record(self, store: ColumnStore, board: Board, live: BoardState, key: InstanceKey, event: Scored) -> None:
        """Record who stands where now, unless the file is there; it is written by another thread."""
        history, total = board.history, store.total(key)
        if history is None or not total or event.at in self.history.files(board.id, live.born, key.window):
            return
        if board.id not in self._newest:
            self._newest[board.id] = self.history.newest(board.id)
        if event.at < self._newest[board.id] - history.keep_ms:
            return  # a replay comes by what was deleted
        most = total if history.top is None else min(history.top, total)
        hashes, scores = store.standing_columns(key, most, hash_key(board.id, live.born, key.window))
        columns = StandingColumns(key, live.born, event.at, total, store.digest(key), hashes, scores)
        folder = self.history.folder_of(board.id, live.born, key.window)
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._entries <= WAITING_ENTRIES_MAX)
            self._waiting.append(_Recorded(folder, columns, history.keep_ms))
            self._entries += most
            self._changed.notify_all()
            if self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(target=self._run, name="rankd-history", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Return when everything recorded before is on disk, or could not be written."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or not self._waiting)

    def close(self) -> None:
        """Stop soon, leaving each file complete or absent."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    # The writing thread

    def _run(self) -> None:
        lower_priority()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or bool(self._waiting))
                if self._is_stopped:
                    return
                recorded = self._waiting[0]
            self._write_with_attempts(recorded)
            with self._changed:
                self._waiting.popleft()
                self._entries -= len(recorded.columns.scores)
                self._changed.notify_all()

    def _write_with_attempts(self, recorded: _Recorded) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._check_place()
                self._write(recorded)
                return
            except Exception as problem:
                text = f"places of {recorded.columns.key.text} at {recorded.columns.at} are not written: {problem}"
                if attempt == ATTEMPTS:
                    self.failed += 1
                    _log.error("%s; they are left out until the ledger is followed from before", text)
                    return
                _log.warning("%s; it is tried again", text)
            with self._changed:
                if self._changed.wait_for(lambda: self._is_stopped, AGAIN_S):
                    return

    def _write(self, recorded: _Recorded) -> None:
        """Write a file, complete or not at all, and delete those that are too old."""
        head, content = encode_places(recorded.columns)
        folder = recorded.folder
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        target = folder / f"{head.at}-{head.checksum[:16]}{SUFFIX}"
        draft = folder / f"{_DRAFT}{target.name}"
        try:
            with open(draft, "wb", opener=private_opener) as file:
                file.writelines(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        for synced in (folder, folder.parent, folder.parent.parent):
            sync_folder(synced)
        self.written += 1
        self._prune(folder.parent.parent, head.at - recorded.keep_ms)

    def _prune(self, board_folder: Path, before: int) -> None:
        """Delete the files of a board that are older than an instant, and what a crash left."""
        for folder in board_folder.glob("v*/*"):
            for name in os.listdir(folder):
                if not _is_complete(name) or int(name.partition("-")[0]) < before:
                    (folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # not empty
                folder.rmdir()


def _point(path: Path, at: int, window: str, wanted: int) -> PlacePoint | None:
    try:
        with PlacesFile(path) as places:
            place = places.find(wanted)
            return None if place is None else PlacePoint(at, window, place.rank, place.score, places.head.total)
    except FileNotFoundError:  # pruned meanwhile
        return None
    except (SnapshotUnreadable, OSError) as problem:
        _log.warning("places are skipped: %s", problem)
        return None


def _is_complete(name: str) -> bool:
    return name.endswith(SUFFIX) and name.partition("-")[0].isdigit()
