"""Sends the ledger of a running process to its archive, in a thread of its own: no commit waits for it.

Being behind is no failure of the server: it is a metric, a line of /readyz and a warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import msgspec

from rankd.background import lower_priority
from rankd.backup.sending import Backup, SegmentSender
from rankd.errors import ArchiveForked, Closed, RankdError
from rankd.throttled_warnings import ThrottledWarnings

BEHIND_WARN_S = 60.0  # and a few intervals: from then on it is logged
BEHIND_AGAIN_S = 600.0
CLOSE_S = 10.0  # what the last events may take when the process ends
_log = logging.getLogger("rankd")


class ArchiveStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an archive is behind its ledger."""

    behind_events: int | None  # and changes of profiles that it lacks; None until it has answered
    behind_ms: int  # since it had everything; 0 while it does
    problem: str | None = None  # why nothing is sent, as anybody may see it


class LedgerArchiver:
    """Sends segments and checkpoints while a process runs."""

    def __init__(
        self,
        sender: SegmentSender,
        send_snapshot: Callable[[bool], object],
        *,
        every_s: float,
        snapshots_every_s: float,
    ) -> None:
        """`send_snapshot` sends a checkpoint: with True a new one, else one only where the archive has none."""
        self._sender = sender
        self._send_snapshot = send_snapshot
        self._every_s = every_s
        self._snapshots_every_s = snapshots_every_s
        self._warnings = ThrottledWarnings(_log, BEHIND_AGAIN_S)
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._is_current_at_s = monotonic()
        self._problem: str | None = None
        self._warned_at_s = -BEHIND_AGAIN_S
        self._fork: ArchiveForked | None = None
        self._thread = threading.Thread(target=self._run, name="rankd-segments", daemon=True)

    def start(self) -> None:
        """Send from now on."""
        self._thread.start()

    @property
    def status(self) -> ArchiveStatus:
        """How far the archive is behind; from any thread."""
        events = None if self._sender.sequence is None else self._sender.behind()
        behind_s = 0.0 if events == 0 and self._problem is None else monotonic() - self._is_current_at_s
        return ArchiveStatus(events, round(1_000 * behind_s), self._problem)

    def backup(self) -> Backup:
        """Send everything now, with a checkpoint; return when it is there."""
        before = self._send()
        with self._sending:
            self._send_snapshot(True)
        after = self._send()  # a checkpoint may hold events that came meanwhile
        return msgspec.structs.replace(after, sent=before.sent + after.sent)

    def close(self) -> None:
        """Send what is left, for a bounded time, and stop."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            _log.warning("the archive does not answer: what it lacks is sent after the next start")
        else:
            self._sender.close()

    def _run(self) -> None:
        lower_priority()
        snapshot_at_s = monotonic() + self._snapshots_every_s
        is_first = True
        while True:
            is_last = self._closing.wait(0 if is_first else self._every_s)
            with suppress(RankdError, OSError):  # noted already
                self._send()
                if is_first or monotonic() >= snapshot_at_s:
                    with self._sending:
                        self._send_snapshot(not is_first)
                    is_first, snapshot_at_s = False, monotonic() + self._snapshots_every_s
            is_first = False
            if is_last:
                return
            self._warn()

    def _send(self) -> Backup:
        with self._sending:
            if self._fork is not None:
                raise self._fork
            began_s = monotonic()
            try:
                sent = self._sender.send()
            except Closed:
                raise
            except (RankdError, OSError) as problem:
                self._note(problem)
                raise
            except Exception as problem:
                self._problem = "a fault of this server"
                _log.exception("the ledger could not be sent to its archive, and is tried again")
                raise OSError(str(problem)) from problem
            self._is_current_at_s, self._problem = began_s, None
            return sent

    def _note(self, problem: RankdError | OSError) -> None:
        if isinstance(problem, ArchiveForked):
            self._fork = problem  # until the next start, which looks again
            _log.error("nothing more is sent to the archive: %s", problem)
        else:
            self._warnings.warn("the ledger is not sent to its archive now, and is tried again: %s", problem)
        self._problem = getattr(problem, "public_message", None) or "the archive cannot be used"

    def _warn(self) -> None:
        now_s = monotonic()
        behind_s = now_s - self._is_current_at_s
        if behind_s > BEHIND_WARN_S + 3 * self._every_s and now_s - self._warned_at_s >= BEHIND_AGAIN_S:
            self._warned_at_s = now_s
            _log.warning("the archive is %d s behind: as much would be lost with this machine", behind_s)
