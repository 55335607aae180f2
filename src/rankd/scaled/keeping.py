"""Standings in PostgreSQL, kept by the projector for when Redis is away: each board's first window.

    changes on their way to Redis → noted → every `every_ms` what is kept of them now → a thread → StandingsWriter

What is kept is read in the projector's thread, between two steps, so that it is of exactly the positions it is written
with. Writing it waits for PostgreSQL, and ranks do not wait for that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from operator import ge
from time import monotonic

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Rules
from rankd.errors import LedgerUnavailable
from rankd.projection.port import READ_ENTRIES_MAX, READ_PLAYERS_MAX
from rankd.registry.standings_writer import Changed, Move, StandingsWriter, Verdict
from rankd.scaled.boards_in_redis import instances_of, window_of
from rankd.scaled.follower import Follower
from rankd.scaled.recording import Changes, Touched

EVERY_MS = 1_000
_log = logging.getLogger("rankd")


class Keeping:
    """Keeps standings; used by the projector's thread, writes in another."""

    def __init__(self, follower: Follower, writer: StandingsWriter, epoch: int, every_ms: int = EVERY_MS) -> None:
        """Nothing is written before the first `keep`."""
        self._follower = follower
        self._writer = writer
        self._epoch = epoch
        self._every_ms = every_ms
        self._noted: dict[str, Touched] = {}
        self._written_at = 0.0
        self._stored = self._find_stored()  # None: everything is written
        self._thread: threading.Thread | None = None
        self._has_failed = False

    def _find_stored(self) -> tuple[int, ...] | None:
        """Return how far the standings are, where everybody who changed since is noted; None where somebody is not."""
        found, since = self._writer.positions(), self._follower.recorded_since
        if found is None:
            return None
        stored = tuple(found.sequences.get(partition, 0) for partition in range(len(since)))
        return stored if all(map(ge, stored, since)) and all(map(ge, self._follower.positions, stored)) else None

    def note(self, changes: Changes) -> None:
        """Note what changed, before it is sent to Redis."""
        boards = self._follower.applier.state.boards
        for board_id, of_board in changes.boards.items():
            if board_id in boards:
                board, _ = self._follower.board(board_id)
                for touched in of_board.values():
                    if window_of(board, touched.key) in (board.first_window, None):
                        self._add(touched)
                    elif touched.cleared:  # it may have been the first window's, before the board was defined anew
                        self._noted[touched.key.text] = cleared = Touched(touched.key, touched.rules)
                        cleared.cleared = True
            else:
                for touched in of_board.values():
                    self._add(touched)

    def keep(self, now_ms: int) -> None:
        """Write what is noted if it is time to, and the last write is done."""
        is_early = monotonic() - self._written_at < self._every_ms / 1_000
        if is_early or (self._thread is not None and self._thread.is_alive()):
            return
        self._written_at = monotonic()
        if self._has_failed:
            self._has_failed, self._stored = False, None
        ours = self._follower.positions
        if ours == self._stored:
            return
        moves = [
            Move(partition, self._epoch, 0 if self._stored is None else self._stored[partition], upto)
            for partition, upto in enumerate(ours)
        ]
        if self._stored is None:
            # All of it, read before the next step; what is large is read once and written in one transaction.
            everything = list(self._everything())
            self._start(lambda: self._writer.rewrite(everything, moves, now_ms))
        else:
            changed = [self._changed(touched) for touched in self._noted.values()]
            self._start(lambda: self._writer.write(changed, moves, now_ms))
        self._noted = {}
        self._stored = ours

    def close(self) -> None:
        """Finish what is being written."""
        if self._thread is not None:
            self._thread.join()
        self._writer.close()

    def _start(self, write: Callable[[], Verdict]) -> None:
        self._thread = threading.Thread(target=self._write, args=(write,), name="rankd-standings", daemon=True)
        self._thread.start()

    def _write(self, write: Callable[[], Verdict]) -> None:
        try:
            verdict = write()
            self._has_failed = verdict is not Verdict.WRITTEN
            if verdict is Verdict.FENCED:
                _log.warning("standings are written by another projector")
            while self._writer.sweep():
                pass
        except LedgerUnavailable as problem:
            self._has_failed = True
            _log.warning("standings wait: %s", problem)
        except Exception:
            self._has_failed = True
            _log.exception("standings could not be written")

    def _add(self, touched: Touched) -> None:
        known = self._noted.get(touched.key.text)
        if known is None or touched.cleared:
            known = self._noted[touched.key.text] = Touched(touched.key, touched.rules)
            known.cleared = touched.cleared
        known.rules = touched.rules or known.rules
        known.players.update(touched.players)

    def _changed(self, touched: Touched) -> Changed:
        players = list(touched.players)
        kept = [
            one
            for start in range(0, len(players), READ_PLAYERS_MAX)
            for one in self._follower.store.scores(touched.key, players[start : start + READ_PLAYERS_MAX])
        ]
        there = [(player, one) for player, one in zip(players, kept, strict=True) if one is not None]
        return Changed(
            touched.key,
            touched.rules or Rules(),
            [player for player, _ in there],
            [one.score for _, one in there],
            [one.tie for _, one in there],
            [player for player, one in zip(players, kept, strict=True) if one is None],
            touched.cleared,
        )

    def _everything(self) -> Iterator[Changed]:
        for board_id in list(self._follower.applier.state.boards):
            board, live = self._follower.board(board_id)
            for key, rules in instances_of(board, live):
                if board.window_of(key.window) is board.first_window:
                    yield from self._pages(key, rules)

    def _pages(self, key: InstanceKey, rules: Rules) -> Iterator[Changed]:
        after: tuple[Kept, str] | None = None
        while entries := self._follower.store.following(key, after, READ_ENTRIES_MAX).entries:
            players: Sequence[str] = [entry.player for entry in entries]
            yield Changed(key, rules, players, [one.score for one in entries], [one.tie for one in entries])
            after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player
