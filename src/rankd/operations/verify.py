"""Verifies Redis against the ledger while traffic runs: compares every entry with a replay.

    ledger → RecordedFollower (from the first event) → compared with Redis, instance by instance

Both advance meanwhile. Players who changed between the two reads are compared again, until no difference is left that a
newer event could explain. Where the replay does not come closer to the head of the ledger, writes are slowed down, and
where differences are left after HOLD_AFTER comparisons, they are refused for the next one (`WriteHold`).

On boards with exact_top it compares the sorted set with the top, the scores of all players, and the number of players
in each score step. Steps under change may differ by as many players as changed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, islice

import msgspec

from rankd.background import rare_collections
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept
from rankd.errors import RanksUnavailable, VerificationFailed
from rankd.ledger.port import SharedLedger
from rankd.ledger.vector import reaches
from rankd.operations.hold import WriteHold
from rankd.projection.catalogue import Catalogue
from rankd.projection.placement import visible_scopes
from rankd.projection.port import READ_ENTRIES_MAX, READ_PLAYERS_MAX, Position
from rankd.projection.state import State
from rankd.redis.estimates import COARSE_STEPS, scores_of_step, step_of
from rankd.redis.read.reader import RedisReader
from rankd.redis.write.boards import shards_of
from rankd.redis.write.recorded_follower import RecordedFollower
from rankd.redis.write.recording import RecordingStore

FOLLOW_EVENTS = 50_000
CLOSE_S = 1.0  # a round that takes no longer ends at the head
HOLD_AFTER = 5  # comparisons: the further ones with writes held
STEP_COMPARISONS_MAX = 5  # of steps that keep changing
CATCH_UP_S = 30.0  # longest wait for Redis to reach the replay
_POLL_S = 0.01
Progress = Callable[[int, int], None]
Table = dict[str, Kept]


class Verified(msgspec.Struct, frozen=True):
    """The result of a verification."""

    events: int
    instances: int
    entries: int
    looked_at_again: int  # entries that changed meanwhile


class Verification:
    """Compares Redis with a replay; used by one thread."""

    def __init__(self, ledger: SharedLedger, progress: Progress | None = None) -> None:
        """Nothing is read yet; `progress` is called with (events followed, events to follow)."""
        self._hold = WriteHold(ledger)
        self._progress = progress or (lambda _done, _all: None)
        self._follower = RecordedFollower(ledger, RecordingStore(), State(), Catalogue())
        self._again = 0

    def shards_of(self, board_id: str) -> int:
        """Return the number of shards of a board, by its current definition."""
        return shards_of(self._follower.board(board_id)[0])

    def run(self, reader: RedisReader) -> Verified:
        """Compare everything; VerificationFailed names the first difference."""
        self._reader = reader
        instances = entries = 0
        with rare_collections(), self._hold:
            reason = "the verification does not come closer to the head of the ledger"
            self._hold.catch_up(self._follow_to_head, CLOSE_S, reason)
            for board_id in sorted(self._follower.applier.state.boards):
                for key in self._instances(board_id):
                    entries += self._compare(key)
                    instances += 1
        return Verified(self._follower.events, instances, entries, self._again)

    def _instances(self, board_id: str) -> Iterator[InstanceKey]:
        live = self._follower.applier.state.boards[board_id]
        ours = {
            InstanceKey(board_id, window, scope).text
            for window in live.windows
            for scope in visible_scopes(self._follower.store.scopes(board_id, window))
        }
        self._wait_for_redis(board_id)
        theirs = {key.text for key in self._reader.instances_of(board_id)}
        yield from (InstanceKey.parse(text) for text in sorted(ours | theirs))

    def _compare(self, key: InstanceKey) -> int:
        exact_top = self._follower.board(key.board)[0].exact_top
        if exact_top is not None:
            self._compare_top(key, exact_top)
            self._compare_steps(key, COARSE_STEPS)
            self._compare_steps(key, 1)
        self._wait_for_redis(key.board)
        self._follower.begin_recording()
        theirs = self._entries(key) if exact_top is None else self._reader.entries_of_all(key)
        self._follow_to_head()
        changed = self._changed(key)
        ours = self._ours(key)
        doubtful = [player for player in {*theirs, *ours} if theirs.get(player) != ours.get(player)]
        for player in doubtful:
            # With exact_top, the scan may have skipped a player who moved to another bucket: compare again.
            if player not in changed and exact_top is None:
                raise _differs(key, player, ours.get(player), theirs.get(player))
        for comparison in count():  # bounded by the time for which writes are held
            if not doubtful:
                break
            self._stop_writes_if_late(comparison, key)
            doubtful = self._compare_again(key, doubtful)
        self._hold.release()
        return self._follower.store.total(key)

    def _compare_steps(self, key: InstanceKey, width: int) -> None:
        """Compare the number of players in each score step of `width` fine steps."""
        for _ in range(STEP_COMPARISONS_MAX):
            self._wait_for_redis(key.board)
            self._follower.begin_recording()
            counts, form = self._reader.steps(key, is_coarse=width > 1)
            self._follow_to_head()
            changed = self._changed(key)
            ours: Counter[int] = Counter()
            if form is not None:
                ours.update(step_of(form, *kept) // width for kept in self._ours(key).values())
            elif self._follower.store.total(key):
                ours[0] = self._follower.store.total(key)  # Redis counts none, in whatever step
            apart = {step: abs(ours[step] - counts.get(step, 0)) for step in ours.keys() | counts.keys()}
            if not any(apart.values()):
                return
            if changed is not _ALL_PLAYERS and sum(apart.values()) > 2 * len(changed):
                step = max(apart, key=apart.__getitem__)
                raise _miscounted(key, scores_of_step(step * width, width), ours[step], counts.get(step, 0))

    def _compare_top(self, key: InstanceKey, exact_top: int) -> None:
        """Compare the exact top as a whole: any change may push a player out of it."""
        for comparison in count():  # bounded by the time for which writes are held
            self._stop_writes_if_late(comparison, key)
            self._wait_for_redis(key.board)
            self._follower.begin_recording()
            theirs = self._entries(key)
            self._follow_to_head()
            ours = dict(islice(self._ours(key).items(), exact_top))
            if theirs == ours:
                self._hold.release()
                return
            if not self._changed(key):
                player = next(name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name))
                raise _differs(key, player, ours.get(player), theirs.get(player))
            self._again += len(theirs)

    def _stop_writes_if_late(self, comparison: int, key: InstanceKey) -> None:
        """After many comparisons, hold writes; the replay and Redis are close to the head of the ledger by then."""

        def follow() -> None:
            self._follow_to_head()
            self._wait_for_redis(key.board)

        if comparison >= HOLD_AFTER:
            self._hold.stop_writes(follow, CLOSE_S, f"{key.text} changes faster than it is compared")

    def _compare_again(self, key: InstanceKey, players: list[str]) -> list[str]:
        """Compare some players again, and return those whose difference a newer event may explain."""
        doubtful: list[str] = []
        for start in range(0, len(players), READ_PLAYERS_MAX):
            some = players[start : start + READ_PLAYERS_MAX]
            self._again += len(some)
            self._wait_for_redis(key.board)
            self._follower.begin_recording()
            stored = self._reader.kept_of_all(key, some)
            self._follow_to_head()
            changed = self._changed(key)
            for player, theirs, ours in zip(some, stored, self._follower.store.scores(key, some), strict=True):
                if theirs != ours:
                    if player not in changed:
                        raise _differs(key, player, ours, theirs)
                    doubtful.append(player)
        return doubtful

    # Both sides

    def _entries(self, key: InstanceKey) -> Table:
        """Return all entries of the sorted set."""
        table: Table = {}
        after: tuple[Kept, str] | None = None
        while True:
            entries = self._reader.following(key, after, READ_ENTRIES_MAX).entries
            table.update((entry.player, Kept(entry.score, entry.tie)) for entry in entries)
            if len(entries) < READ_ENTRIES_MAX:
                return table
            after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player

    def _ours(self, key: InstanceKey) -> Table:
        store = self._follower.store
        table: Table = {}
        after: tuple[Kept, str] | None = None
        while entries := store.following(key, after, READ_ENTRIES_MAX).entries:
            table.update((entry.player, Kept(entry.score, entry.tie)) for entry in entries)
            after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player
        return table

    def _changed(self, key: InstanceKey) -> set[str]:
        """Return the players changed since the recording began; all, where the instance was cleared."""
        dirty = self._follower.store.take().boards.get(key.board, {}).get(key.text)
        if dirty is None:
            return set()
        return _ALL_PLAYERS if dirty.cleared else set(dirty.players)

    def _follow_to_head(self) -> None:
        """Follow the ledger to its head, and so past everything read from Redis before."""

        def step(done: int, total: int) -> None:
            self._hold.renew()
            self._progress(done, total)

        self._follower.follow_to_head(FOLLOW_EVENTS, step)

    def _wait_for_redis(self, board_id: str) -> None:
        ours, deadline = self._follower.positions, time.monotonic() + CATCH_UP_S
        while not reaches(self._positions(board_id), ours):
            self._hold.renew()
            if time.monotonic() > deadline:
                raise RanksUnavailable(
                    f"Redis is not as far as the ledger on board {board_id}: does a projector run? (`rankd project`)"
                )
            time.sleep(_POLL_S)

    def _positions(self, board_id: str) -> list[int]:
        stored = self._reader.positions(board_id)
        return [stored.get(partition, Position(0, 0)).sequence for partition in range(len(self._follower.positions))]


class _AllPlayers(set[str]):
    """A set that contains every player."""

    def __contains__(self, _player: object) -> bool:
        return True


_ALL_PLAYERS = _AllPlayers({""})  # not empty, so true


def _differs(key: InstanceKey, player: str, ours: Kept | None, theirs: Kept | None) -> VerificationFailed:
    return VerificationFailed(
        f"{key.board} in {key.window}, {key.scope!r}: {player!r} has {_kept_text(theirs)} in Redis and "
        f"{_kept_text(ours)} by the ledger; `rankd rebuild` puts it right"
    )


def _miscounted(key: InstanceKey, scores: tuple[int, int], ours: int, theirs: int) -> VerificationFailed:
    return VerificationFailed(
        f"{key.board} in {key.window}, {key.scope!r}: Redis counts {theirs} players with scores from {scores[0]} to "
        f"{scores[1]} and the ledger {ours}; `rankd rebuild` puts it right"
    )


def _kept_text(kept: Kept | None) -> str:
    return "no score" if kept is None else f"{kept.score} (tie field {kept.tie})"
