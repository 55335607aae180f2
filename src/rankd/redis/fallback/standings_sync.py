"""Standings of each board's first window in PostgreSQL, written by the projector for reads while Redis is away.

    changes → PendingStandings → every `every_ms` the current rows → a thread → StandingsWriter

The projector's thread reads the rows between two steps, so they match the positions they are written with. A second
thread writes them, so ranks do not wait for PostgreSQL. Where the missing rows are unknown, the thread rewrites all
standings: it reads page by page while ranks go on, and adds what changed meanwhile in the same transaction.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from time import monotonic

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Rules
from rankd.errors import LedgerUnavailable
from rankd.ledger.vector import Vector, reaches
from rankd.projection.port import READ_ENTRIES_MAX
from rankd.redis.fallback.pending_standings import PendingSpan, PendingStandings
from rankd.redis.write.blob import without_gone
from rankd.redis.write.boards import instances_of
from rankd.redis.write.changes import ColumnSource, changed
from rankd.redis.write.recorded_follower import RecordedFollower
from rankd.redis.write.recording import DirtyInstance, RecordedChanges
from rankd.registry.postgres.standings import AsOf
from rankd.registry.postgres.standings_writer import (
    ChangedStandings,
    StandingsMove,
    StandingsRemainder,
    StandingsVerdict,
    StandingsWriter,
)
from rankd.throttled_warnings import ThrottledWarnings

EVERY_MS = 1_000
PENDING_ROWS_MAX = 2_000_000  # with more, all standings are rewritten
ROUND_ROWS_MAX = 20_000  # that the projector's thread reads to finish a rewrite; the writing thread reads more
REST_WAIT_S = 100.0  # PostgreSQL ends a transaction that is idle for 120 s
BEHIND_SHARE = 0.2  # of the time for standings while the ledger has a backlog
BEHIND_REST_S = 10.0  # longest pause between two writes
BEHIND_WAIT_S = 30.0  # then standings ahead of our positions are taken for another ledger's
_log = logging.getLogger("rankd")


class _Cancelled(Exception):
    """The projector ends or becomes a standby."""


class _Rewrite:
    """A rewrite of all standings by the writing thread; the projector's thread adds what changed meanwhile."""

    def __init__(self, store: ColumnSource, instances: Sequence[tuple[InstanceKey, Rules]]) -> None:
        self._store = store
        self._instances = instances
        self._given = threading.Event()
        self._rest: StandingsRemainder | PendingSpan | None = None
        self.is_cancelled = False
        self.is_waiting = False  # for `give`

    def pages(self) -> Iterator[ChangedStandings]:
        """Read all standings, while they change."""
        for key, rules in self._instances:
            after: tuple[Kept, str] | None = None
            while entries := self._store.following(key, after, READ_ENTRIES_MAX).entries:
                if self.is_cancelled:
                    raise _Cancelled
                players = [entry.player for entry in entries]
                yield ChangedStandings(
                    key, rules, players, [entry.score for entry in entries], [entry.tie for entry in entries]
                )
                after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player

    def rest(self) -> StandingsRemainder:
        """Wait for a part of what changed since; the last part has the positions of the whole."""
        self.is_waiting = True
        if self.is_cancelled or not self._given.wait(REST_WAIT_S) or self.is_cancelled:
            raise _Cancelled
        rest, self._rest = self._rest, None
        self._given.clear()
        if isinstance(rest, StandingsRemainder):
            return rest
        return StandingsRemainder([_changed(self._store, dirty) for dirty in (rest or {}).values()], is_last=False)

    def give(self, rest: StandingsRemainder | PendingSpan) -> None:
        """Pass the last part with its rows, or players whose rows the writing thread reads before another part."""
        self.is_waiting = False
        self._rest = rest
        self._given.set()

    def end(self) -> None:
        """Cancel the rewrite."""
        self.is_cancelled = True
        self._given.set()


class StandingsSync:
    """Keeps stored standings up to date; used by the projector's thread, writes in another."""

    def __init__(self, follower: RecordedFollower, writer: StandingsWriter, every_ms: int = EVERY_MS) -> None:
        """Track changes from here on; the first `keep` writes."""
        self._follower = follower
        self._writer = writer
        self._every_ms = every_ms
        self._pending = PendingStandings(follower)
        self._checked_at = 0.0
        self._stored: Vector | None = None  # positions of the stored standings; None: to be read
        self._target: Vector = ()  # positions of the current write,
        self._target_ms = 0  # and when the ranks reached them
        self._thread: threading.Thread | None = None
        self._verdict: StandingsVerdict | None = None  # of the last write; None when it failed
        self._rewriting: _Rewrite | None = None
        self._behind_since: float | None = None
        self._has_swept = False
        self._took_s = 0.0  # duration of the last write
        self._warnings = ThrottledWarnings(_log)
        self.written_ms: int | None = None  # when this process last wrote standings equal to the ranks
        self.rewrites = 0

    def add(self, changes: RecordedChanges) -> None:
        """Track changes, as leader or standby."""
        self._pending.add(changes)

    def watch(self) -> None:
        """As a standby, discard the changes that the leader has written."""
        if monotonic() - self._checked_at >= self._every_ms / 1_000:
            self._checked_at = monotonic()
            self._pending.cut()
            if self._read_positions() is None or self._pending.rows > PENDING_ROWS_MAX:
                self._pending.restart()

    def keep(self, now_ms: int, epoch: int, *, is_behind: bool = False) -> None:
        """Write the pending changes if it is time to and the last write is done.

        `is_behind` means that the ledger has a backlog: ranks come first then.
        """
        if self._thread is not None and self._thread.is_alive():
            if self._rewriting is not None and self._rewriting.is_waiting:
                self._finish_rewriting(self._rewriting, now_ms, epoch)
            return
        self._settle()
        if monotonic() - self._checked_at < self._pause_s(is_behind):
            return
        self._checked_at = monotonic()
        ours = self._follower.positions
        if self._stored is None:
            self._stored = self._read_positions()
        if self._pending.rows > PENDING_ROWS_MAX:
            self._pending.restart()
        self._target, self._target_ms = ours, now_ms
        if self._is_still_behind():
            self._stored = None  # the former leader had followed further than we have yet
        elif self._stored is None or not reaches(self._stored, self._pending.since) or not reaches(ours, self._stored):
            self._rewrite(now_ms, epoch)
        elif ours != self._stored:
            self._pending.cut()
            changed, moves = self._changed(), self._moves(self._stored, epoch)
            self._start(lambda: self._writer.write(changed, moves, now_ms))
        elif self._has_swept:
            self.written_ms = now_ms
        else:
            self._start(lambda: StandingsVerdict.WRITTEN)  # only to sweep

    def _pause_s(self, is_behind: bool) -> float:
        """Return the time between the starts of two writes."""
        usual_s = self._every_ms / 1_000
        rest_s = min(self._took_s * (1 / BEHIND_SHARE - 1), BEHIND_REST_S)
        return max(usual_s, self._took_s + rest_s) if is_behind else usual_s

    def stand_by(self) -> None:
        """Cancel the current write and only track changes."""
        if self._rewriting is not None:
            self._rewriting.end()
        if self._thread is not None:
            self._thread.join()
        self._settle()
        self._stored = None

    def close(self) -> None:
        """Wait for the writing thread, and close the writer."""
        self.stand_by()
        self._writer.close()

    def _read_positions(self) -> Vector | None:
        """Return the positions of the stored standings, and discard the changes they cover."""
        as_of: AsOf | None = self._writer.positions()
        if as_of is None:
            return None
        stored = tuple(as_of.sequences.get(partition, 0) for partition in range(len(self._pending.since)))
        self._pending.discard(stored)
        return stored

    def _is_still_behind(self) -> bool:
        """Return whether the stored standings are ahead of the follower, for less than BEHIND_WAIT_S."""
        if self._stored is None or reaches(self._target, self._stored):
            self._behind_since = None
            return False
        self._behind_since = self._behind_since or monotonic()
        return monotonic() - self._behind_since < BEHIND_WAIT_S

    def _settle(self) -> None:
        """Take over the verdict of the last write."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._rewriting = None
        if self._verdict is StandingsVerdict.WRITTEN:
            self._stored = self._target
            self._pending.discard(self._target)
        else:
            self._stored = None  # a commit whose answer was lost may have taken effect

    # Writing

    def _rewrite(self, now_ms: int, epoch: int) -> None:
        instances = []
        for board_id in self._follower.applier.state.boards:
            board, live = self._follower.board(board_id)
            for key, rules in instances_of(self._follower.store, board, live):
                if board.window_of(key.window) is board.first_window:
                    instances.append((key, rules))
        self._pending.restart()
        self.rewrites += 1
        self._rewriting = rewriting = _Rewrite(self._follower.store, instances)
        moves = self._moves(None, epoch)
        self._start(lambda: self._writer.rewrite(rewriting.pages(), moves, now_ms, rewriting.rest))

    def _finish_rewriting(self, rewriting: _Rewrite, now_ms: int, epoch: int) -> None:
        if self._pending.rows > ROUND_ROWS_MAX:
            span = self._pending.all()
            self._pending.restart()
            rewriting.give(span)
            return
        self._pending.cut()
        self._target = self._follower.positions
        self._target_ms = now_ms
        rewriting.give(StandingsRemainder(self._changed(), self._moves(None, epoch), now_ms))

    def _moves(self, stored: Vector | None, epoch: int) -> list[StandingsMove]:
        return [
            StandingsMove(partition, epoch, 0 if stored is None else stored[partition], upto)
            for partition, upto in enumerate(self._target)
        ]

    def _changed(self) -> list[ChangedStandings]:
        return [_changed(self._follower.store, dirty) for dirty in self._pending.all().values()]

    def _start(self, write: Callable[[], StandingsVerdict]) -> None:
        self._verdict = None
        self._thread = threading.Thread(target=self._write, args=(write,), name="rankd-standings", daemon=True)
        self._thread.start()

    def _write(self, write: Callable[[], StandingsVerdict]) -> None:
        began = monotonic()
        try:
            self._verdict = write()
            self._took_s = monotonic() - began
            if self._verdict is StandingsVerdict.WRITTEN:
                self.written_ms = self._target_ms
            elif self._verdict is StandingsVerdict.FENCED:
                self._warnings.warn("standings wait: %s", LedgerUnavailable("another projector has written them"))
            while not (has_swept := not self._writer.sweep()) and monotonic() - began < self._every_ms / 1_000:
                pass  # the next write does not wait for all of it
            self._has_swept = has_swept
        except _Cancelled:
            pass
        except LedgerUnavailable as problem:
            self._warnings.warn("standings wait: %s", problem)
        except Exception:
            _log.exception("standings could not be written")


def _changed(store: ColumnSource, dirty: DirtyInstance) -> ChangedStandings:
    rules = dirty.rules or Rules()
    change = changed(store, dirty.key, rules, list(dirty.players))
    rows = without_gone(change) if change.gone else change
    gone = list(compress(change.players, change.gone))
    return ChangedStandings(dirty.key, rules, rows.players, rows.score, rows.tie, gone, dirty.cleared)
