"""Proof, while traffic runs, that Redis holds what the ledger says: every entry compared with a recomputation.

    ledger → RecordedFollower (from the first event) → compared with what Redis holds, instance by instance

Both move on meanwhile. Whoever changed between two looks is looked at again, by one call that says as of when it
answers, until nobody is left whose entry could differ for being newer.

Of boards with exact_top, three things are compared: the sorted set with the first so many, the scores of all players,
and how many of them are in each step. Steps that change all the while may differ by as many players as changed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept
from rankd.errors import RanksUnavailable, VerificationFailed
from rankd.ledger.port import Ledger
from rankd.projection.catalogue import Catalogue
from rankd.projection.placement import visible_scopes
from rankd.projection.port import READ_ENTRIES_MAX, READ_PLAYERS_MAX, Position
from rankd.projection.redis.estimates import COARSE_STEPS, scores_of_step, step_of
from rankd.projection.redis.reader import RedisReader
from rankd.projection.state import State
from rankd.scaled.boards_in_redis import shards_of
from rankd.scaled.recorded_follower import RecordedFollower
from rankd.scaled.recording import RecordingStore

FOLLOW_EVENTS = 50_000
LOOKS_MAX = 50  # at players who keep changing
STEP_LOOKS_MAX = 5  # at steps that keep changing
CATCH_UP_S = 30.0  # for Redis, to come as far as the recomputation
_POLL_S = 0.01
Progress = Callable[[int, int], None]
Table = dict[str, Kept]


class Verified(msgspec.Struct, frozen=True):
    """What was compared."""

    events: int
    instances: int
    entries: int
    looked_at_again: int  # entries that changed meanwhile


class Verifying:
    """Compares Redis with a recomputation; used by one thread."""

    def __init__(self, ledger: Ledger, progress: Progress | None = None) -> None:
        """Nothing is read yet."""
        self._ledger = ledger
        self._progress = progress or (lambda _done, _all: None)
        self._follower = RecordedFollower(ledger, RecordingStore(), State(), Catalogue())
        self._again = 0

    def shards_of(self, board_id: str) -> int:
        """Return how many shards a board has, as far as the ledger was followed."""
        return shards_of(self._follower.board(board_id)[0])

    def run(self, reader: RedisReader) -> Verified:
        """Compare everything; VerificationFailed names the first difference."""
        self._reader = reader
        self._follow_to_the_end()
        instances = entries = 0
        for board_id in sorted(self._follower.applier.state.boards):
            for key in self._instances(board_id):
                entries += self._compare(key)
                instances += 1
        return Verified(self._follower.events, instances, entries, self._again)

    def _instances(self, board_id: str) -> Iterator[InstanceKey]:
        live = self._follower.applier.state.boards[board_id]
        ours = {
            InstanceKey(board_id, window, scope).text
            for window, scopes in live.windows.items()
            for scope in visible_scopes(scopes)
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
        found = self._entries(key) if exact_top is None else self._reader.entries_of_all(key)
        self._follow_to_the_end()
        changed = self._changed(key)
        ours = self._ours(key)
        doubtful = [player for player in {*found, *ours} if found.get(player) != ours.get(player)]
        for player in doubtful:
            # Somebody who moved to another bucket may have been passed over: that is seen at the next look.
            if player not in changed and exact_top is None:
                raise _differs(key, player, ours.get(player), found.get(player))
        for _ in range(LOOKS_MAX):
            if not doubtful:
                return self._follower.store.total(key)
            doubtful = self._look_again(key, doubtful)
        raise RanksUnavailable(f"{key.text} changes too fast to be compared; verify when less is written")

    def _compare_steps(self, key: InstanceKey, width: int) -> None:
        """Compare how many players have a score in each step, fine ones or coarse ones of so many."""
        for _ in range(STEP_LOOKS_MAX):
            self._wait_for_redis(key.board)
            self._follower.begin_recording()
            counts, form = self._reader.steps(key, is_coarse=width > 1)
            self._follow_to_the_end()
            changed = self._changed(key)
            ours: Counter[int] = Counter()
            if form is not None:
                ours.update(step_of(form, *kept) // width for kept in self._ours(key).values())
            elif self._follower.store.total(key):
                ours[0] = self._follower.store.total(key)  # wherever they are, Redis counts nobody
            apart = {step: abs(ours[step] - counts.get(step, 0)) for step in ours.keys() | counts.keys()}
            if not any(apart.values()):
                return
            if changed is not _EVERYBODY and sum(apart.values()) > 2 * len(changed):
                step = max(apart, key=apart.__getitem__)
                raise _miscounted(key, scores_of_step(step * width, width), ours[step], counts.get(step, 0))

    def _compare_top(self, key: InstanceKey, exact_top: int) -> None:
        """Compare the part of an instance that is ranked exactly: others may push somebody out of it at any time."""
        for _ in range(LOOKS_MAX):
            self._wait_for_redis(key.board)
            self._follower.begin_recording()
            found = self._entries(key)
            self._follow_to_the_end()
            ours = dict(islice(self._ours(key).items(), exact_top))
            if found == ours:
                return
            if not self._changed(key):
                player = next(one for one in {**ours, **found} if found.get(one) != ours.get(one))
                raise _differs(key, player, ours.get(player), found.get(player))
            self._again += len(found)
        raise RanksUnavailable(f"{key.text} changes too fast to be compared; verify when less is written")

    def _look_again(self, key: InstanceKey, players: list[str]) -> list[str]:
        """Compare some players again, and return those who may differ for being newer."""
        doubtful: list[str] = []
        for start in range(0, len(players), READ_PLAYERS_MAX):
            some = players[start : start + READ_PLAYERS_MAX]
            self._again += len(some)
            self._wait_for_redis(key.board)
            self._follower.begin_recording()
            found = self._reader.kept_of_all(key, some)
            self._follow_to_the_end()
            changed = self._changed(key)
            for player, theirs, ours in zip(some, found, self._follower.store.scores(key, some), strict=True):
                if theirs != ours:
                    if player not in changed:
                        raise _differs(key, player, ours, theirs)
                    doubtful.append(player)
        return doubtful

    # Both sides

    def _entries(self, key: InstanceKey) -> Table:
        """Return everybody in the sorted set."""
        found: Table = {}
        after: tuple[Kept, str] | None = None
        while True:
            entries = self._reader.following(key, after, READ_ENTRIES_MAX).entries
            found.update((entry.player, Kept(entry.score, entry.tie)) for entry in entries)
            if len(entries) < READ_ENTRIES_MAX:
                return found
            after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player

    def _ours(self, key: InstanceKey) -> Table:
        store = self._follower.store
        found: Table = {}
        after: tuple[Kept, str] | None = None
        while entries := store.following(key, after, READ_ENTRIES_MAX).entries:
            found.update((entry.player, Kept(entry.score, entry.tie)) for entry in entries)
            after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player
        return found

    def _changed(self, key: InstanceKey) -> set[str]:
        """Return who changed since the recording began; everybody, where all left at once."""
        touched = self._follower.store.take().boards.get(key.board, {}).get(key.text)
        if touched is None:
            return set()
        return _EVERYBODY if touched.cleared else set(touched.players)

    def _follow_to_the_end(self) -> None:
        """Come as far as the ledger is now, and so at least as far as anything that was read from Redis before."""
        ends = self._ledger.heads().sequences
        while not _has_come(self._follower.positions, ends):
            self._follower.follow(FOLLOW_EVENTS)
            done = sum(self._follower.positions)
            self._progress(done, max(done, sum(ends)))

    def _wait_for_redis(self, board_id: str) -> None:
        ours, deadline = self._follower.positions, time.monotonic() + CATCH_UP_S
        while not _reaches(self._reader.positions(board_id), ours):
            if time.monotonic() > deadline:
                raise RanksUnavailable(
                    f"Redis is not as far as the ledger on board {board_id}: does a projector run? (`rankd project`)"
                )
            time.sleep(_POLL_S)


class _Everybody(set[str]):
    """Whoever one asks for."""

    def __contains__(self, _player: object) -> bool:
        return True


_EVERYBODY = _Everybody({""})  # true, as sets with somebody in them are


def _has_come(positions: Sequence[int], ends: Sequence[int]) -> bool:
    return all(position >= end for position, end in zip(positions, ends, strict=True))


def _reaches(stored: dict[int, Position], ours: Sequence[int]) -> bool:
    return all(stored.get(partition, Position(0, 0)).sequence >= one for partition, one in enumerate(ours))


def _differs(key: InstanceKey, player: str, ours: Kept | None, theirs: Kept | None) -> VerificationFailed:
    return VerificationFailed(
        f"{key.board} in {key.window}, {key.scope!r}: {player!r} has {_told(theirs)} in Redis and {_told(ours)} by the "
        "ledger; `rankd rebuild` puts it right"
    )


def _miscounted(key: InstanceKey, scores: tuple[int, int], ours: int, theirs: int) -> VerificationFailed:
    return VerificationFailed(
        f"{key.board} in {key.window}, {key.scope!r}: Redis counts {theirs} players with scores from {scores[0]} to "
        f"{scores[1]} and the ledger {ours}; `rankd rebuild` puts it right"
    )


def _told(kept: Kept | None) -> str:
    return "no score" if kept is None else f"{kept.score} (tie field {kept.tie})"
