"""Archives final windows in a thread, so that ranks wait neither for a disk nor for a network.

    a window is final → `has` queues it → the thread archives it → `finished` goes up → the window may retire

A window that cannot be archived stays in the ranks, and is tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from rankd.archive.manifest import Manifest
from rankd.archive.standings_file import FinalWindow
from rankd.archive.windows import WindowArchive
from rankd.errors import RankdError
from rankd.projection.port import WindowSum
from rankd.throttled_warnings import ThrottledWarnings

AGAIN_S = 5.0  # after a window that could not be archived
# After each part of a file. A thread that never pauses gives the interpreter up only every few milliseconds, and
# a commit wants it back after each of a dozen statements.
PAUSE_S = 0.000_2
_log = logging.getLogger("rankd")
_Key = tuple[str, int, str]  # board, its birth, window


class _QueuedWindow(NamedTuple):
    """A window to archive."""

    window: FinalWindow
    is_wanted: Callable[[], bool]


class _Stopped(Exception):
    """The process ends, and its successor archives the window; or the board was deleted."""


class ArchiveStep:
    """Archives windows; called by the follower's thread, writes in another."""

    def __init__(
        self,
        archive: WindowArchive,
        position: Callable[[], str],
        again_s: float = AGAIN_S,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """The first window starts the thread.

        `position` is that of the ranks; `check` raises while nothing may be written.
        """
        self.archive = archive
        self._position = position
        self._check = check
        self._again_s = again_s
        self._warnings = ThrottledWarnings(_log)
        # What the archive has of windows in the ranks: by board, its birth and window.
        self._archived: dict[str, dict[tuple[int, str], WindowSum]] = {}
        self._queue: dict[_Key, _QueuedWindow] = {}  # in order
        self._pruning: tuple[Callable[[Manifest], int | None], int] | None = None
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self.finished = 0  # windows archived, or seen to be, since the start
        self.failed = 0  # attempts that failed

    @property
    def waiting(self) -> int:
        """The number of queued windows."""
        return len(self._queue)

    def has(self, window: FinalWindow, is_wanted: Callable[[], bool]) -> bool:
        """Return whether the archive has a window as it is ranked; if not, queue it while `is_wanted`."""
        key = window.board.id, window.live.born, window.instance
        with self._changed:
            if self._is_stopped or key in self._queue:
                return False
            archived = self._archived.get(key[0], {}).get(key[1:])
        if archived is not None and archived == window.sum():
            return True
        self._put(key, _QueuedWindow(window, is_wanted))
        return False

    def prune(self, kept_until: Callable[[Manifest], int | None], now: int) -> None:
        """Delete archived windows that are kept no longer, after the queued ones; see `WindowArchive.prune`."""
        with self._changed:
            self._pruning = kept_until, now
            self._start()

    def forget(self, board_id: str, is_there: Callable[[str], bool]) -> None:
        """Forget the windows of a board that are in the ranks no longer."""
        with self._changed:
            archived = self._archived.get(board_id, {})
            for gone in [(born, instance) for born, instance in archived if not is_there(instance)]:
                del archived[gone]
            if not archived:
                self._archived.pop(board_id, None)

    def wait(self) -> None:
        """Return when every queued window was archived and the archive pruned, or a window has failed."""
        with self._changed:
            failed = self.failed
            self._changed.wait_for(
                lambda: self._is_stopped or (not self._queue and self._pruning is None) or self.failed > failed
            )

    def close(self) -> None:
        """Stop soon, leaving each window whole in the archive or absent."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _put(self, key: _Key, queued: _QueuedWindow) -> None:
        with self._changed:
            self._queue[key] = queued
            self._start()

    def _start(self) -> None:
        """Let the thread work; the caller holds the lock."""
        self._changed.notify_all()
        if self._thread is None and not self._is_stopped:
            self._thread = threading.Thread(target=self._run, name="rankd-archive", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or bool(self._queue) or self._pruning is not None)
                if self._is_stopped:
                    return
                pruning = None if self._queue else self._pruning
                key, queued = next(iter(self._queue.items()), (None, None))
            if pruning is not None:
                self._prune(*pruning)
            if key is None or queued is None:
                continue
            is_done = self._archive_window(key, queued)
            with self._changed:
                del self._queue[key]
                if is_done:
                    self._changed.notify_all()
                else:
                    self.failed += 1
                    self._queue[key] = queued  # at the end of the queue
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._is_stopped, self._again_s)

    def _prune(self, kept_until: Callable[[Manifest], int | None], now: int) -> None:
        try:
            self._check()
            pruned = self.archive.prune(kept_until, now)
            if pruned.windows:
                _log.info("%d archived windows were kept long enough and are deleted", pruned.windows)
        except (RankdError, OSError) as problem:
            self._warnings.warn("the archive is not pruned: %s; it is tried again within the hour", problem)
        except Exception:
            _log.exception("the archive could not be pruned")
        with self._changed:
            self._pruning = None
            self._changed.notify_all()

    def _archive_window(self, key: _Key, queued: _QueuedWindow) -> bool:
        """Archive a window; False when it is to be tried again."""

        def check_wanted() -> None:
            if self._is_stopped or not queued.is_wanted():
                raise _Stopped
            time.sleep(PAUSE_S)

        try:
            check_wanted()
            self._check()
            archived = self.archive.keep(queued.window, self._position, check_wanted)
            with self._changed:
                self._archived.setdefault(key[0], {})[key[1:]] = archived
            self.finished += 1
            return True
        except _Stopped:
            return True
        except (RankdError, OSError) as problem:
            self._warnings.warn("final windows stay in the ranks until they are archived: %s", problem)
        except Exception:
            _log.exception("window %s of board %s could not be archived", queued.window.instance, key[0])
        return False
