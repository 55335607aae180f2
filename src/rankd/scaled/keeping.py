"""Standings in PostgreSQL, kept by the projector for when Redis is away: each board's first window.

    changes → Notes → every `every_ms` what is kept of them now → a thread → StandingsWriter

What is kept is read in the projector's thread, between two steps, so that it is of exactly the positions it is written
with. Writing it waits for PostgreSQL, and ranks do not wait for that. Where it is not known what is missing there, all
of it is written anew: the thread reads page by page while ranks go on, and at the end what changed meanwhile is added,
in the same transaction.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from time import monotonic

from rankd.complaints import Complaints
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Rules
from rankd.errors import LedgerUnavailable
from rankd.projection.port import READ_ENTRIES_MAX
from rankd.projection.redis.blob import without_gone
from rankd.projection.redis.changes import Columned, changed
from rankd.registry.standings import AsOf
from rankd.registry.standings_writer import Changed, Move, Rest, StandingsWriter, Verdict
from rankd.scaled.boards_in_redis import instances_of
from rankd.scaled.noted import Noted, Notes
from rankd.scaled.recorded_follower import RecordedFollower
from rankd.scaled.recording import Changes, Touched
from rankd.scaled.vector import Vector, reaches

EVERY_MS = 1_000
NOTED_ROWS_MAX = 2_000_000  # more than that, and all of it is written anew
ROUND_ROWS_MAX = 20_000  # that the projector's thread reads at the end of that; the other reads what is more
REST_WAIT_S = 100.0  # PostgreSQL ends a transaction that is idle for 120 s
BEHIND_SHARE = 0.2  # of the time, while more is waiting to be ranked: PostgreSQL and this process have ranks to do
BEHIND_REST_S = 10.0  # at most between two writes, however long they take
BEHIND_WAIT_S = 30.0  # until standings that are ahead of us are taken for those of another ledger
_log = logging.getLogger("rankd")


class _Unwanted(Exception):
    """The projector ends or stands by."""


class _Rewriting:
    """All standings, being written by a thread; what changed meanwhile is told at the end."""

    def __init__(self, store: Columned, instances: Sequence[tuple[InstanceKey, Rules]]) -> None:
        self._store = store
        self._instances = instances
        self._given = threading.Event()
        self._rest: Rest | Noted | None = None
        self.is_unwanted = False
        self.is_waiting = False  # for the rest

    def pages(self) -> Iterator[Changed]:
        """Read everything, while it changes."""
        for key, rules in self._instances:
            after: tuple[Kept, str] | None = None
            while entries := self._store.following(key, after, READ_ENTRIES_MAX).entries:
                if self.is_unwanted:
                    raise _Unwanted
                players = [entry.player for entry in entries]
                yield Changed(key, rules, players, [one.score for one in entries], [one.tie for one in entries])
                after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player

    def rest(self) -> Rest:
        """Wait for what changed since, at last with the positions that all of it is of."""
        self.is_waiting = True
        if self.is_unwanted or not self._given.wait(REST_WAIT_S) or self.is_unwanted:
            raise _Unwanted
        rest, self._rest = self._rest, None
        self._given.clear()
        if isinstance(rest, Rest):
            return rest
        return Rest([_changed(self._store, touched) for touched in (rest or {}).values()], is_last=False)

    def give(self, rest: Rest | Noted) -> None:
        """Tell the rest as it is now, or who changed so far, of whom more may change."""
        self.is_waiting = False
        self._rest = rest
        self._given.set()

    def end(self) -> None:
        """Have it written by nobody."""
        self.is_unwanted = True
        self._given.set()


class Keeping:
    """Keeps standings; used by the projector's thread, writes in another."""

    def __init__(self, follower: RecordedFollower, writer: StandingsWriter, every_ms: int = EVERY_MS) -> None:
        """Note from here on; nothing is written before the first `keep`."""
        self._follower = follower
        self._writer = writer
        self._every_ms = every_ms
        self._notes = Notes(follower)
        self._looked_at = 0.0
        self._stored: Vector | None = None  # how far the standings are; None when that is to be asked
        self._target: Vector = ()  # how far what is being written takes them,
        self._target_ms = 0  # and when ranks were there
        self._thread: threading.Thread | None = None
        self._verdict: Verdict | None = None  # of the last write; None when it failed
        self._rewriting: _Rewriting | None = None
        self._behind_since: float | None = None
        self._has_swept = False
        self._took_s = 0.0  # the last write
        self._complaints = Complaints(_log)
        self.written_ms: int | None = None  # when standings were equal to ranks last; None: not by us
        self.rewrites = 0

    def note(self, changes: Changes) -> None:
        """Note what changed, whether or not we write."""
        self._notes.add(changes)

    def watch(self) -> None:
        """Let go of what another has written; by whoever stands by."""
        if monotonic() - self._looked_at >= self._every_ms / 1_000:
            self._looked_at = monotonic()
            self._notes.cut()
            if self._ask() is None or self._notes.rows > NOTED_ROWS_MAX:
                self._notes.forget()

    def keep(self, now_ms: int, epoch: int, *, is_behind: bool = False) -> None:
        """Write what is noted if it is time to, and the last write is done.

        `is_behind` tells that more of the ledger is waiting to be ranked: ranks come first then.
        """
        if self._thread is not None and self._thread.is_alive():
            if self._rewriting is not None and self._rewriting.is_waiting:
                self._finish_rewriting(self._rewriting, now_ms, epoch)
            return
        self._settle()
        if monotonic() - self._looked_at < self._pause_s(is_behind):
            return
        self._looked_at = monotonic()
        ours = self._follower.positions
        if self._stored is None:
            self._stored = self._ask()
        if self._notes.rows > NOTED_ROWS_MAX:
            self._notes.forget()
        self._target, self._target_ms = ours, now_ms
        if self._is_still_behind():
            self._stored = None  # whoever wrote them had read more than we have yet
        elif self._stored is None or not reaches(self._stored, self._notes.since) or not reaches(ours, self._stored):
            self._rewrite(now_ms, epoch)
        elif ours != self._stored:
            self._notes.cut()
            changed, moves = self._changed(), self._moves(self._stored, epoch)
            self._start(lambda: self._writer.write(changed, moves, now_ms))
        elif self._has_swept:
            self.written_ms = now_ms
        else:
            self._start(lambda: Verdict.WRITTEN)  # nothing, and sweeps

    def _pause_s(self, is_behind: bool) -> float:
        """Return how long after the beginning of the last write the next one begins."""
        usual_s = self._every_ms / 1_000
        rest_s = min(self._took_s * (1 / BEHIND_SHARE - 1), BEHIND_REST_S)
        return max(usual_s, self._took_s + rest_s) if is_behind else usual_s

    def stand_by(self) -> None:
        """Let another write: end what is under way, and note only."""
        if self._rewriting is not None:
            self._rewriting.end()
        if self._thread is not None:
            self._thread.join()
        self._settle()
        self._stored = None

    def close(self) -> None:
        """Finish what is being written."""
        self.stand_by()
        self._writer.close()

    # What stands there

    def _ask(self) -> Vector | None:
        """Return how far the standings are, and let go of what is noted before."""
        found: AsOf | None = self._writer.positions()
        if found is None:
            return None
        stored = tuple(found.sequences.get(partition, 0) for partition in range(len(self._notes.since)))
        self._notes.let_go(stored)
        return stored

    def _is_still_behind(self) -> bool:
        """Tell whether the standings are ahead of us, and have not been for long."""
        if self._stored is None or reaches(self._target, self._stored):
            self._behind_since = None
            return False
        self._behind_since = self._behind_since or monotonic()
        return monotonic() - self._behind_since < BEHIND_WAIT_S

    def _settle(self) -> None:
        """See what became of the last write."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._rewriting = None
        if self._verdict is Verdict.WRITTEN:
            self._stored = self._target
            self._notes.let_go(self._target)
        else:
            self._stored = None  # a commit whose answer was lost may have taken effect

    # Writing

    def _rewrite(self, now_ms: int, epoch: int) -> None:
        instances = []
        for board_id in self._follower.applier.state.boards:
            board, live = self._follower.board(board_id)
            for key, rules in instances_of(board, live):
                if board.window_of(key.window) is board.first_window:
                    instances.append((key, rules))
        self._notes.forget()  # who changes from now on
        self.rewrites += 1
        self._rewriting = rewriting = _Rewriting(self._follower.store, instances)
        moves = self._moves(None, epoch)
        self._start(lambda: self._writer.rewrite(rewriting.pages(), moves, now_ms, rewriting.rest))

    def _finish_rewriting(self, rewriting: _Rewriting, now_ms: int, epoch: int) -> None:
        if self._notes.rows > ROUND_ROWS_MAX:
            noted = self._notes.all()
            self._notes.forget()
            rewriting.give(noted)
            return
        self._notes.cut()
        self._target = self._follower.positions
        self._target_ms = now_ms
        rewriting.give(Rest(self._changed(), self._moves(None, epoch), now_ms))

    def _moves(self, stored: Vector | None, epoch: int) -> list[Move]:
        return [
            Move(partition, epoch, 0 if stored is None else stored[partition], upto)
            for partition, upto in enumerate(self._target)
        ]

    def _changed(self) -> list[Changed]:
        return [_changed(self._follower.store, touched) for touched in self._notes.all().values()]

    def _start(self, write: Callable[[], Verdict]) -> None:
        self._verdict = None
        self._thread = threading.Thread(target=self._write, args=(write,), name="rankd-standings", daemon=True)
        self._thread.start()

    def _write(self, write: Callable[[], Verdict]) -> None:
        began = monotonic()
        try:
            self._verdict = write()
            self._took_s = monotonic() - began
            if self._verdict is Verdict.WRITTEN:
                self.written_ms = self._target_ms
            elif self._verdict is Verdict.FENCED:
                self._complaints.tell("standings wait: %s", LedgerUnavailable("another projector has written them"))
            while not (has_swept := not self._writer.sweep()) and monotonic() - began < self._every_ms / 1_000:
                pass  # the next write does not wait for all of it
            self._has_swept = has_swept
        except _Unwanted:
            pass
        except LedgerUnavailable as problem:
            self._complaints.tell("standings wait: %s", problem)
        except Exception:
            _log.exception("standings could not be written")


def _changed(store: Columned, touched: Touched) -> Changed:
    rules = touched.rules or Rules()
    found = changed(store, touched.key, rules, list(touched.players))
    there = without_gone(found) if found.gone else found
    gone = list(compress(found.players, found.gone))
    return Changed(touched.key, rules, there.players, there.score, there.tie, gone, touched.cleared)
