"""Final standings become files in a thread of their own: ranks do not wait for a disk, whatever it does.

    a window is final → `has` asks for its file → the thread writes it → `finished` goes up → it may be let go

A window whose file cannot be written stays in the ranks, and its file is tried again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rankd.complaints import Complaints
from rankd.domain.board import Board
from rankd.projection.port import RankStore
from rankd.projection.state import BoardState
from rankd.seasons.archive import Archive

AGAIN_S = 5.0  # after a file that could not be written
_log = logging.getLogger("rankd")


class _Wanted(NamedTuple):
    """A file that is asked for."""

    store: RankStore
    board: Board
    live: BoardState
    instance: str
    is_wanted: Callable[[], bool]


class _Stopped(Exception):
    """The projector ends, and whoever ranks next writes the file; or the board was deleted, and nobody does."""


class Archiving:
    """Archives windows; asked by the thread that follows, writes in another."""

    def __init__(self, folder: Path, again_s: float = AGAIN_S, check: Callable[[], None] = lambda: None) -> None:
        """No thread runs before a file is asked for; `check` raises where none may be written now."""
        self._archive = Archive(folder)
        self._check = check
        self._again_s = again_s
        self._complaints = Complaints(_log)
        self._wanted: dict[tuple[str, int, str], _Wanted] = {}  # by board, its birth and window; the first is at work
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self.finished = 0  # files written since the start
        self.failed = 0  # times that one could not be

    @property
    def waiting(self) -> int:
        """How many files are asked for and not written yet."""
        return len(self._wanted)

    def has(
        self, store: RankStore, board: Board, live: BoardState, instance: str, is_wanted: Callable[[], bool]
    ) -> bool:
        """Tell whether a window is archived as it stands now; one that is not will be, as long as it is wanted."""
        key = board.id, live.born, instance
        with self._changed:
            if self._is_stopped or key in self._wanted:
                return False
        with self._told():
            if self._archive.is_kept(store, board, live, instance):
                return True
        with self._changed:
            self._wanted[key] = _Wanted(store, board, live, instance, is_wanted)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rankd-archive", daemon=True)
                self._thread.start()
        return False

    def wait(self) -> None:
        """Return when every file that is asked for was written, or could not be."""
        with self._changed:
            failed = self.failed
            self._changed.wait_for(lambda: self._is_stopped or not self._wanted or self.failed > failed)

    def close(self) -> None:
        """Stop, within one part of a file; a file is complete or absent."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or bool(self._wanted))
                if self._is_stopped:
                    return
                key, wanted = next(iter(self._wanted.items()))
            is_done = self._write(wanted)
            with self._changed:
                del self._wanted[key]
                if is_done:
                    self._changed.notify_all()
                else:
                    self.failed += 1
                    self._wanted[key] = wanted  # behind those that have not been tried
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._is_stopped, self._again_s)

    def _write(self, wanted: _Wanted) -> bool:
        """Write a file; False when it is to be tried again."""

        def go_on() -> None:
            if self._is_stopped or not wanted.is_wanted():
                raise _Stopped

        try:
            go_on()
            with self._told():
                self._check()
                self._archive.keep(wanted.store, wanted.board, wanted.live, wanted.instance, go_on)
                self.finished += 1
                return True
        except _Stopped:
            return True
        except Exception:
            _log.exception("window %s of board %s could not be archived", wanted.instance, wanted.board.id)
        return False

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Complain of a disk that is full or gone; ranks go on without it."""
        try:
            yield
        except OSError as problem:
            self._complaints.tell("windows are not let go before they are archived: %s; make room", problem)
