"""What the projector knows of boards in Redis: where each is, and up to where it was sent what changed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from time import monotonic

from rankd.domain.board import Board
from rankd.projection.redis.mirror import Mirror
from rankd.scaled.boards_in_redis import is_dense, shards_of
from rankd.scaled.recorded_follower import RecordedFollower
from rankd.scaled.vector import Vector, reaches

_log = logging.getLogger("rankd")


class Mirrored:
    """A board in Redis, as far as we know."""

    __slots__ = ("moved_at", "stored")

    def __init__(self, stored: Sequence[Vector | None]) -> None:
        """It is taken for moved just now."""
        self.stored = stored  # by shard; None where it is not there
        self.moved_at = monotonic()

    @property
    def low(self) -> Vector | None:
        """How far every shard is; None when one of them is not there."""
        stored = [one for one in self.stored if one is not None]
        return tuple(map(min, zip(*stored, strict=True))) if len(stored) == len(self.stored) else None


class KnownBoards:
    """Remembers, asks where it does not know, and takes out of Redis what was deleted."""

    def __init__(self, follower: RecordedFollower, mirror: Mirror, epoch: int) -> None:
        """Nothing is known yet."""
        self._follower = follower
        self._state = follower.applier.state
        self._mirror = mirror
        self._epoch = epoch
        self._boards: dict[str, Mirrored] = {}
        self._sent: dict[str, Vector] = {}  # up to where a board's changes were sent; what came later is noted
        self._shards: dict[str, int] = {}  # of boards that were there
        self._dense: dict[str, bool] = {}  # whether distinct scores were kept of all instances
        self._gone: set[str] = set()  # deleted boards that are not in Redis
        self._controls: int | None = None  # as many as there were when deleted boards were looked for; None: not yet

    def __getitem__(self, board_id: str) -> Mirrored:
        """Return where a board is; it was asked for before."""
        return self._boards[board_id]

    def sent(self, board_id: str) -> Vector:
        """Return up to where a board was sent what changed; what changed later is noted."""
        return self._sent.get(board_id, self._follower.recorded_since)

    def ask(self, board_ids: Iterable[str]) -> None:
        """Ask where boards are of which it is not known: one round trip per node."""
        shards = {one: shards_of(self._follower.board(one)[0]) for one in board_ids if one in self._state.boards}
        asked = {
            one: count
            for one, count in shards.items()
            if one not in self._boards or len(self._boards[one].stored) != count
        }
        for board_id, found in self._mirror.find(asked).items():
            self._boards[board_id] = Mirrored(
                [
                    None
                    if one is None
                    else tuple(
                        one[number].sequence if number in one else 0 for number in range(len(self._follower.positions))
                    )
                    for one in found
                ]
            )

    def note_sent(self, board: Board, ours: Vector) -> None:
        """Note that all that changed is in Redis."""
        shards = shards_of(board)
        self._boards[board.id] = Mirrored([ours] * shards)
        self._sent[board.id] = ours
        self._shards[board.id] = shards
        self._dense[board.id] = is_dense(board)

    def note_behind(self, board_id: str, since: Vector) -> None:
        """Note that all that changed on a board since a position is noted, to be sent."""
        self._sent[board_id] = since

    def ask_again(self, board_id: str) -> None:
        """Ask next time where a board is."""
        self._boards.pop(board_id, None)

    def forget(self, board_id: str) -> None:
        """Ask next time: a board is not where we thought, and those that were deleted may be there again."""
        self._boards.pop(board_id, None)
        self._controls = None
        self._gone.clear()

    # How a board was left

    def is_idle(self, board_id: str, before: float) -> bool:
        """Tell whether a board was not moved on since an instant of the monotonic clock, or is not known."""
        known = self._boards.get(board_id)
        return known is None or known.moved_at <= before

    def is_behind(self, board_id: str) -> bool:
        """Tell whether a board is there and lacks something that is not noted, and has nothing that we lack."""
        known = self._boards.get(board_id)
        if known is None or known.low is None or reaches(known.low, self.sent(board_id)):
            return False
        ours = self._follower.positions
        return all(one is not None and reaches(ours, one) for one in known.stored)

    def is_dense_as_left(self, board: Board) -> bool:
        """Tell whether distinct scores are kept of all instances, or of none, as they are to be."""
        return self._dense.get(board.id) is is_dense(board)

    def stored_as_left(self, board: Board) -> Vector | None:
        """Return where all shards of a board are, if it is as we left it and lacks nothing."""
        known = self._boards.get(board.id)
        shards = shards_of(board)
        if known is None or self._shards.get(board.id) != shards or not self.is_dense_as_left(board):
            return None
        low = known.low
        is_even = low is not None and all(one == low for one in known.stored) and len(known.stored) == shards
        return low if low is not None and is_even and reaches(low, self.sent(board.id)) else None

    # What was deleted

    def drop_former(self, board: Board) -> None:
        """Take a board out that had another number of shards: it was deleted and is defined anew."""
        before = self._shards.get(board.id)
        if before is not None and before != shards_of(board):
            self._mirror.drop(board.id, before, self._epoch)
            del self._shards[board.id]
            self._boards.pop(board.id, None)

    def drop_deleted(self) -> bool:
        """Take boards out of Redis that were deleted, also while nobody ranked; False when another projector writes."""
        controls = self._follower.controls
        if self._controls == controls:
            return True
        state, catalogue = self._state, self._follower.applier.catalogue
        self._gone -= state.boards.keys()
        shards = {one: shards_of(catalogue.board(one, version)) for one, version in state.versions.items()}
        deleted = {one: count for one, count in shards.items() if one not in state.boards and one not in self._gone}
        # One that was defined anew while nobody ranked may have had more shards than it has.
        kept = {one: shards[one] for one in state.boards} if self._controls is None else {}
        for board_id, first, count in self._mirror.find_left(deleted, kept):
            if not self._mirror.drop(board_id, count, self._epoch, first=first):
                return False
            _log.info("board %s was deleted, and is taken out of Redis", board_id)
        for board_id in deleted:
            self._boards.pop(board_id, None)
            self._sent.pop(board_id, None)
            self._shards.pop(board_id, None)
            self._dense.pop(board_id, None)
        self._gone.update(deleted)
        self._controls = controls
        return True
