"""Archives final windows in a thread, so that ranks do not wait for the disk.

    a window is final → `has` queues its file → the thread writes it → `finished` goes up → the window may retire

A window whose file cannot be written stays in the ranks, and the file is retried.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rankd.domain.board import Board
from rankd.projection.port import RankStore
from rankd.projection.state import BoardState
from rankd.seasons.archive import Archive
from rankd.throttled_warnings import ThrottledWarnings

AGAIN_S = 5.0  # after a file that could not be written
# After each part of a file. A thread that never pauses gives the interpreter up only every few milliseconds, and
# a commit wants it back after each of a dozen statements.
PAUSE_S = 0.000_2
_log = logging.getLogger("rankd")


class _QueuedFile(NamedTuple):
    """A file to write."""

    store: RankStore
    board: Board
    live: BoardState
    instance: str
    is_wanted: Callable[[], bool]


class _Stopped(Exception):
    """The process ends, and its successor writes the file; or the board was deleted."""


class ArchiveStep:
    """Archives windows; called by the follower's thread, writes in another."""

    def __init__(self, folder: Path, again_s: float = AGAIN_S, check: Callable[[], None] = lambda: None) -> None:
        """The first file starts the thread; `check` raises while no file may be written."""
        self._archive = Archive(folder)
        self._check = check
        self._again_s = again_s
        self._warnings = ThrottledWarnings(_log)
        self._queue: dict[tuple[str, int, str], _QueuedFile] = {}  # by board, its birth and window; in order
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self.finished = 0  # files written since the start
        self.failed = 0  # attempts that failed

    @property
    def waiting(self) -> int:
        """The number of queued files."""
        return len(self._queue)

    def has(
        self, store: RankStore, board: Board, live: BoardState, instance: str, is_wanted: Callable[[], bool]
    ) -> bool:
        """Return whether the file of a window is up to date; if not, queue it while `is_wanted`."""
        key = board.id, live.born, instance
        with self._changed:
            if self._is_stopped or key in self._queue:
                return False
        with self._warn_of_disk():
            if self._archive.is_kept(store, board, live, instance):
                return True
        with self._changed:
            self._queue[key] = _QueuedFile(store, board, live, instance, is_wanted)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rankd-archive", daemon=True)
                self._thread.start()
        return False

    def wait(self) -> None:
        """Return when every queued file was written, or one has failed."""
        with self._changed:
            failed = self.failed
            self._changed.wait_for(lambda: self._is_stopped or not self._queue or self.failed > failed)

    def close(self) -> None:
        """Stop soon, leaving each file complete or absent."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or bool(self._queue))
                if self._is_stopped:
                    return
                key, file = next(iter(self._queue.items()))
            is_done = self._write(file)
            with self._changed:
                del self._queue[key]
                if is_done:
                    self._changed.notify_all()
                else:
                    self.failed += 1
                    self._queue[key] = file  # at the end of the queue
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._is_stopped, self._again_s)

    def _write(self, file: _QueuedFile) -> bool:
        """Write a file; False when it is to be retried."""

        def check_wanted() -> None:
            if self._is_stopped or not file.is_wanted():
                raise _Stopped
            time.sleep(PAUSE_S)

        try:
            check_wanted()
            with self._warn_of_disk():
                self._check()
                self._archive.keep(file.store, file.board, file.live, file.instance, check_wanted)
                self.finished += 1
                return True
        except _Stopped:
            return True
        except Exception:
            _log.exception("window %s of board %s could not be archived", file.instance, file.board.id)
        return False

    @contextmanager
    def _warn_of_disk(self) -> Iterator[None]:
        """Log a disk that is full or gone; ranks go on without it."""
        try:
            yield
        except OSError as problem:
            self._warnings.warn("final windows stay in the ranks until they are archived: %s; make room", problem)
