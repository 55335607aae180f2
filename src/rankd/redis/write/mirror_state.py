"""The projector's view of boards in Redis: their stored positions, and up to where changes were sent."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from time import monotonic

from rankd.domain.board import Board
from rankd.ledger.vector import Vector, reaches
from rankd.redis.write.boards import is_dense, shards_of
from rankd.redis.write.mirror import Mirror
from rankd.redis.write.recorded_follower import RecordedFollower

_log = logging.getLogger("rankd")


class MirroredBoard:
    """A board in Redis, as last known."""

    __slots__ = ("moved_at", "stored")

    def __init__(self, stored: Sequence[Vector | None]) -> None:
        """Count it as advanced now."""
        self.stored = stored  # positions by shard; None: the shard is missing
        self.moved_at = monotonic()

    @property
    def low(self) -> Vector | None:
        """The lowest positions over the shards; None when one is missing."""
        stored = [positions for positions in self.stored if positions is not None]
        return tuple(map(min, zip(*stored, strict=True))) if len(stored) == len(self.stored) else None


class MirrorState:
    """Caches the positions of boards, reads unknown ones, and removes deleted boards from Redis."""

    def __init__(self, follower: RecordedFollower, mirror: Mirror, epoch: int) -> None:
        """Begin without known boards."""
        self._follower = follower
        self._state = follower.applier.state
        self._mirror = mirror
        self._epoch = epoch
        self._boards: dict[str, MirroredBoard] = {}
        self._sent: dict[str, Vector] = {}  # up to where a board's changes were sent; later ones are recorded
        self._shards: dict[str, int] = {}  # of boards when they were last sent
        self._dense: dict[str, bool] = {}  # whether distinct scores were kept then
        self._gone: set[str] = set()  # deleted boards that are not in Redis
        self._controls: int | None = None  # the follower's count at the last search for deleted boards

    def __getitem__(self, board_id: str) -> MirroredBoard:
        """Return a board that `ask` has read."""
        return self._boards[board_id]

    def sent(self, board_id: str) -> Vector:
        """Return up to where a board's changes were sent; later changes are recorded."""
        return self._sent.get(board_id, self._follower.recorded_since)

    def mirrored(self) -> Vector:
        """Return the positions that every shard of every board has; () while some are unknown."""
        boards = self._state.boards
        if not self._boards.keys() >= boards.keys():
            return ()
        stored = {positions for board_id in boards for positions in self._boards[board_id].stored}
        return tuple(map(min, zip(*(positions or () for positions in stored), strict=False)))

    def ask(self, board_ids: Iterable[str]) -> None:
        """Read the stored positions of unknown boards: one round trip per node."""
        shards = {
            board_id: shards_of(self._follower.board(board_id)[0])
            for board_id in board_ids
            if board_id in self._state.boards
        }
        unknown = {
            board_id: count
            for board_id, count in shards.items()
            if board_id not in self._boards or len(self._boards[board_id].stored) != count
        }
        partitions = range(len(self._follower.positions))
        for board_id, shard_positions in self._mirror.find(unknown).items():
            self._boards[board_id] = MirroredBoard(
                [
                    None
                    if positions is None
                    else tuple(positions[number].sequence if number in positions else 0 for number in partitions)
                    for positions in shard_positions
                ]
            )

    def mark_sent(self, board: Board, ours: Vector) -> None:
        """Store that Redis has all changes of a board up to our positions."""
        shards = shards_of(board)
        self._boards[board.id] = MirroredBoard([ours] * shards)
        self._sent[board.id] = ours
        self._shards[board.id] = shards
        self._dense[board.id] = is_dense(board)

    def mark_behind(self, board_id: str, since: Vector) -> None:
        """Store that a board's changes since a position are recorded, to be sent."""
        self._sent[board_id] = since

    def ask_again(self, board_id: str) -> None:
        """Read a board's positions again at the next `ask`."""
        self._boards.pop(board_id, None)

    def forget(self, board_id: str) -> None:
        """Drop a board whose positions were wrong; deleted boards may have come back too, so search for them again."""
        self._boards.pop(board_id, None)
        self._controls = None
        self._gone.clear()

    # State of a board

    def is_idle(self, board_id: str, before: float) -> bool:
        """Return whether a board is unknown, or was not advanced since `before` (monotonic)."""
        known = self._boards.get(board_id)
        return known is None or known.moved_at <= before

    def is_behind(self, board_id: str) -> bool:
        """Return whether a board lacks changes that are not recorded, and is not ahead of the follower."""
        known = self._boards.get(board_id)
        if known is None or known.low is None or reaches(known.low, self.sent(board_id)):
            return False
        ours = self._follower.positions
        return all(positions is not None and reaches(ours, positions) for positions in known.stored)

    def is_dense_as_left(self, board: Board) -> bool:
        """Return whether Redis keeps the board's distinct scores, or none, as the board is defined now."""
        return self._dense.get(board.id) is is_dense(board)

    def stored_as_left(self, board: Board) -> Vector | None:
        """Return the positions that all shards share, if the board is as last sent and lacks nothing."""
        known = self._boards.get(board.id)
        shards = shards_of(board)
        if known is None or self._shards.get(board.id) != shards or not self.is_dense_as_left(board):
            return None
        low = known.low
        is_even = (
            low is not None and all(positions == low for positions in known.stored) and len(known.stored) == shards
        )
        return low if low is not None and is_even and reaches(low, self.sent(board.id)) else None

    # Deleted boards

    def drop_former(self, board: Board) -> None:
        """Remove a board that was deleted and redefined with another number of shards."""
        before = self._shards.get(board.id)
        if before is not None and before != shards_of(board):
            self._mirror.drop(board.id, before, self._epoch)
            del self._shards[board.id]
            self._boards.pop(board.id, None)

    def drop_deleted(self) -> bool:
        """Remove deleted boards from Redis, also ones deleted while no projector ran; False when fenced."""
        controls = self._follower.controls
        if self._controls == controls:
            return True
        state, catalogue = self._state, self._follower.applier.catalogue
        self._gone -= state.boards.keys()
        shards = {
            board_id: shards_of(catalogue.board(board_id, version)) for board_id, version in state.versions.items()
        }
        deleted = {
            board_id: count
            for board_id, count in shards.items()
            if board_id not in state.boards and board_id not in self._gone
        }
        # A board redefined while no projector ran may have had more shards.
        kept = {board_id: shards[board_id] for board_id in state.boards} if self._controls is None else {}
        for board_id, first, count in self._mirror.find_left(deleted, kept):
            if not self._mirror.drop(board_id, count, self._epoch, first=first):
                return False
            _log.info("board %s was deleted, and was removed from Redis", board_id)
        for board_id in deleted:
            self._boards.pop(board_id, None)
            self._sent.pop(board_id, None)
            self._shards.pop(board_id, None)
            self._dense.pop(board_id, None)
        self._gone.update(deleted)
        self._controls = controls
        return True
