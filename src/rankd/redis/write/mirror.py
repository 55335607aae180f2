"""The write side of the ranks in Redis: after each batch, the engine's current rows of changed players.

    InstanceChange → blob.py → one rankd_write per shard (more, if it is large) → WriteReply

Promises
- The call that writes the last rows of a write also stores its positions, so rows in Redis are at least as new as the
  positions. A write that does not follow the stored positions (DUP, GAP), comes from an older epoch (FENCED) or is
  malformed changes nothing.
- A write of more than `call_updates_max` updates is cut into several calls; only the last moves positions. After a
  crash between them the next writer sends the same rows again, or newer ones: rows are states. Redis accepts a part
  only after the part before it, so nothing is skipped when an earlier part was refused.
- A write that meets a migrating slot, a promoted replica or a lost library is retried until
  `RedisClient.answer_wait_s` has passed, then RanksUnavailable: read `positions` and go on from there.

One thread writes. Another writer has another epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from rankd.errors import RanksUnavailable
from rankd.projection.port import Position, Verdict
from rankd.redis.connection.client import FunctionCall, Pending, RedisClient
from rankd.redis.keys import ShardKeys
from rankd.redis.write.changes import InstanceChange, PartitionMove, WriteReply
from rankd.redis.write.loading import Loading, refusal, sweep
from rankd.redis.write.operations import WRITE, WriteHead
from rankd.redis.write.stored_board import StoredBoard, positions_in, read_boards
from rankd.redis.write.writing import Whole, WriteCalls

CALL_UPDATES_MAX = 5_000
_ATTEMPTS_MAX = 3  # a generation switch during a write needs a second one


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write in flight."""

    pending: Pending
    boundaries: list[int]  # the calls of shard n end before boundaries[n]
    epoch: int
    moves: Sequence[PartitionMove]
    forget: Callable[[], None]
    again: Callable[[], list[WriteReply]]

    def answers(self) -> list[WriteReply]:
        """Wait for the answers, one per shard; call it exactly once."""
        try:
            answers = self.pending.answers()
        except RanksUnavailable:
            self.forget()
            raise
        results, first = [], 0
        for boundary in self.boundaries:
            parts = answers[first:boundary]
            first = boundary
            refused = next((part for part in parts if part[0] != b"applied"), None)
            if refused is None:
                reached = {move.partition: Position(self.epoch, move.upto) for move in self.moves}
                results.append(WriteReply(Verdict.APPLIED, reached))
            elif refused[0] == b"other":
                self.forget()
                return self.again()
            else:
                self.forget()
                results.append(WriteReply(Verdict(refused[0].decode()), positions_in(refused[3:])))
        return results


@dataclass(frozen=True, slots=True)
class MovedBoards:
    """Boards without changes whose positions are being advanced."""

    pending: Pending
    shards: Mapping[str, int]
    epoch: int
    moves: Sequence[PartitionMove]
    forget: Callable[[str], None]

    def answers(self) -> dict[str, list[WriteReply]]:
        """Wait for the answers, by board and shard; call it exactly once."""
        answers = iter(self.pending.answers())
        reached = {move.partition: Position(self.epoch, move.upto) for move in self.moves}
        results = {}
        for board, count in self.shards.items():
            of_board = [next(answers) for _ in range(count)]
            results[board] = [
                WriteReply(Verdict.APPLIED, reached)
                if answer[0] == b"applied"
                else WriteReply(refusal(answer[0]), positions_in(answer[3:]))
                for answer in of_board
            ]
            if any(answer[0] != b"applied" for answer in of_board):
                self.forget(board)
        return results


class Mirror:
    """Writes boards to Redis. `whole` yields all rows of an instance, page by page, when its form has to change."""

    def __init__(
        self, client: RedisClient, *, whole: Whole | None = None, call_updates_max: int = CALL_UPDATES_MAX
    ) -> None:
        """Nothing is sent to Redis yet."""
        self._client = client
        self._channel = client.channel()
        self._whole = whole
        self._call_updates_max = call_updates_max
        self._known: dict[str, StoredBoard] = {}

    def positions(self, board: str, shards: int) -> list[dict[int, Position] | None]:
        """Return the stored positions of each shard; None for a missing shard. One round trip per node."""
        return self.find({board: shards})[board]

    def find(self, shards: Mapping[str, int]) -> dict[str, list[dict[int, Position] | None]]:
        """Return the stored positions of boards, as `positions` does: one round trip per node for all."""
        boards = read_boards(self._client, shards)
        self._known.update(boards)
        return {board: known.positions for board, known in boards.items()}

    def write(
        self,
        board: str,
        shards: int,
        epoch: int,
        moves: Sequence[PartitionMove],
        changes: Sequence[InstanceChange],
        *,
        time_ms: int,
        dense: bool = False,
        shards_only: Collection[int] | None = None,
    ) -> list[WriteReply]:
        """Write changes to every shard of a board and advance its positions: one round trip per node.

        Shards without changes are advanced too. `moves` names at least one partition; a move with after = upto only
        claims the epoch. `dense` keeps distinct scores, on boards of one shard. `shards_only` writes and answers only
        these shards, ascending, to bring one that has lost something level with the others.
        """
        return self.send(
            board, shards, epoch, moves, changes, time_ms=time_ms, dense=dense, shards_only=shards_only
        ).answers()

    def send(
        self,
        board: str,
        shards: int,
        epoch: int,
        moves: Sequence[PartitionMove],
        changes: Sequence[InstanceChange],
        *,
        time_ms: int,
        dense: bool = False,
        shards_only: Collection[int] | None = None,
        is_behind: bool = False,
        attempt: int = 1,
    ) -> PendingWrite:
        """Write as `write` does without waiting for the answers, so that the next batch can be prepared meanwhile.

        `is_behind` means that an earlier write may be in flight: then an instance that needs another form raises
        OtherFormNeeded, since its rows would be read before that write has ended.
        """
        head = WriteHead(epoch, time_ms, moves, secrets.token_hex(4))
        writing = WriteCalls(
            self._client,
            self._board(board, shards),
            head,
            self._call_updates_max,
            whole=None if is_behind else self._whole,
            dense=dense,
            shards=range(shards) if shards_only is None else sorted(shards_only),
        )
        for change in changes:
            writing.add(change)
        calls, boundaries = writing.calls()

        def again() -> list[WriteReply]:
            if attempt >= _ATTEMPTS_MAX:
                raise RanksUnavailable(f"the ranks of {board} are being replaced: try again in a moment")
            return self.send(
                board,
                shards,
                epoch,
                moves,
                changes,
                time_ms=time_ms,
                dense=dense,
                shards_only=shards_only,
                attempt=attempt + 1,
            ).answers()

        return PendingWrite(self._channel.start(calls), boundaries, epoch, moves, lambda: self._forget(board), again)

    def move(
        self, shards: Mapping[str, int], epoch: int, moves: Sequence[PartitionMove], *, time_ms: int
    ) -> MovedBoards:
        """Advance boards without changes, all from the same positions, without waiting."""
        unknown = {board: count for board, count in shards.items() if not self._is_known(board, count)}
        if unknown:
            self.find(unknown)
        head = WriteHead(epoch, time_ms, moves, "")
        heads: dict[int, bytes] = {}  # by generation
        calls = []
        for board, count in shards.items():
            for shard, generation in enumerate(self._known[board].generations[:count]):
                encoded = heads.get(generation)
                if encoded is None:
                    encoded = heads[generation] = head.encoded(generation, 1, 1, ())
                keys = ShardKeys(board, shard)
                calls.append(FunctionCall(WRITE, [keys.meta, keys.described(generation)], [encoded]))
        return MovedBoards(self._channel.start(calls), shards, epoch, moves, self._forget)

    def begin(self, board: str, shards: int, epoch: int) -> Loading | None:
        """Begin a new generation beside the live one; None when another writer has a higher epoch."""
        self._forget(board)
        return Loading.begin(self._client, board, shards, epoch, updates_max=self._call_updates_max, whole=self._whole)

    def drop(self, board: str, shards: int, epoch: int, *, first: int = 0) -> bool:
        """Remove a deleted board from Redis, in steps; False when another writer has a higher epoch.

        Shards before `first` stay.
        """
        self._forget(board)
        shard_keys = [ShardKeys(board, shard) for shard in range(first, shards)]
        answers = self._client.call_all(
            [FunctionCall("rankd_abandon", [keys.meta], [epoch, "board"]) for keys in shard_keys]
        )
        sweep(self._client, shard_keys)
        return all(answer[0] == b"applied" for answer in answers)

    def find_left(self, deleted: Mapping[str, int], kept: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Return the remains of deleted boards, and of shards that kept boards no longer have.

        Each is a board's id, the first shard to drop, and the number of shards present.
        """
        asked = [(board, 0, shard) for board, count in deleted.items() for shard in range(count)]
        asked += [(board, 0, count) for board, count in deleted.items()]
        asked += [(board, count, count) for board, count in kept.items()]
        declared = {**kept, **deleted}
        remains: dict[str, tuple[int, int]] = {}
        while asked:
            calls = [
                FunctionCall("EXISTS", [ShardKeys(board, shard).meta], is_command=True) for board, _, shard in asked
            ]
            present = [question for question, answer in zip(asked, self._client.call_all(calls), strict=True) if answer]
            asked = []
            for board, first, shard in present:
                earliest, count = remains.get(board, (first, 0))
                remains[board] = min(earliest, first), max(count, shard + 1)
                if shard >= declared[board]:
                    asked.append((board, first, shard + 1))
        return [(board, first, count) for board, (first, count) in remains.items()]

    def close(self) -> None:
        """Return the connections; the client stays open."""
        self._channel.close()

    # Known boards, so that a write needs no read first

    def _board(self, board: str, shards: int) -> StoredBoard:
        if not self._is_known(board, shards):
            self.find({board: shards})
        return self._known[board]

    def _is_known(self, board: str, shards: int) -> bool:
        known = self._known.get(board)
        return known is not None and len(known.generations) == shards

    def _forget(self, board: str) -> None:
        self._known.pop(board, None)
