"""The write side of the ranks in Redis: after each batch, what the engine keeps now of those who changed.

    InstanceChange → blob.py → one rankd_write per shard (more, if it is large) → Written

Promises
- The positions of a write are stored in the call that writes its last rows, so what stands in Redis is at least as new
  as its positions. A write that does not follow what is stored (DUP, GAP), comes from an older epoch (FENCED) or is
  malformed changes nothing.
- A write of more than `call_updates_max` updates is cut into several calls; only the last moves positions. After a
  crash between them the next writer sends the same rows again, or newer ones: rows are states. A part counts only after
  the part before it, so nothing is skipped when an earlier part was refused.
- What is written while a slot is on the move, a replica is promoted or the library is lost is sent again until
  `Client.answer_wait_s` has passed, then RanksUnavailable: ask `positions` and go on from there.

One thread writes. Whoever else may write has another epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from rankd.errors import RanksUnavailable
from rankd.projection.port import Position, Verdict
from rankd.projection.redis.changes import InstanceChange, Move, Written
from rankd.projection.redis.client import Call, Client, Pending
from rankd.projection.redis.keys import ShardKeys
from rankd.projection.redis.known import KnownBoard, look_at, positions_in
from rankd.projection.redis.loading import Loading, refusal, sweep
from rankd.projection.redis.operations import WRITE, Head
from rankd.projection.redis.writing import Whole, Writing

CALL_UPDATES_MAX = 5_000
_ATTEMPTS_MAX = 3  # a generation that is switched while a write is under way needs a second one


@dataclass(frozen=True, slots=True)
class Sent:
    """A write that is under way; `answers` says what became of it on each shard."""

    pending: Pending
    boundaries: list[int]  # the calls of shard n end before boundaries[n]
    epoch: int
    moves: Sequence[Move]
    forget: Callable[[], None]
    again: Callable[[], list[Written]]

    def answers(self) -> list[Written]:
        """Wait for the answers, one a shard; to be asked exactly once."""
        try:
            answers = self.pending.answers()
        except RanksUnavailable:
            self.forget()
            raise
        written, first = [], 0
        for boundary in self.boundaries:
            parts = answers[first:boundary]
            first = boundary
            refused = next((part for part in parts if part[0] != b"applied"), None)
            if refused is None:
                reached = {move.partition: Position(self.epoch, move.upto) for move in self.moves}
                written.append(Written(Verdict.APPLIED, reached))
            elif refused[0] == b"other":
                self.forget()
                return self.again()
            else:
                self.forget()
                written.append(Written(Verdict(refused[0].decode()), positions_in(refused[3:])))
        return written


@dataclass(frozen=True, slots=True)
class Moved:
    """Boards that are moved on together; `answers` says what became of it, by board and shard."""

    pending: Pending
    shards: Mapping[str, int]
    epoch: int
    moves: Sequence[Move]
    forget: Callable[[str], None]

    def answers(self) -> dict[str, list[Written]]:
        """Wait for the answers; to be asked exactly once."""
        answers = iter(self.pending.answers())
        reached = {move.partition: Position(self.epoch, move.upto) for move in self.moves}
        found = {}
        for board, count in self.shards.items():
            of_board = [next(answers) for _ in range(count)]
            found[board] = [
                Written(Verdict.APPLIED, reached)
                if answer[0] == b"applied"
                else Written(refusal(answer[0]), positions_in(answer[3:]))
                for answer in of_board
            ]
            if any(answer[0] != b"applied" for answer in of_board):
                self.forget(board)
        return found


class Mirror:
    """Writes boards to Redis. `whole` gives everybody in an instance, page by page, when its form has to change."""

    def __init__(self, client: Client, *, whole: Whole | None = None, call_updates_max: int = CALL_UPDATES_MAX) -> None:
        """Nothing is asked of Redis yet."""
        self._client = client
        self._channel = client.channel()
        self._whole = whole
        self._call_updates_max = call_updates_max
        self._known: dict[str, KnownBoard] = {}

    def positions(self, board: str, shards: int) -> list[dict[int, Position] | None]:
        """Return how far each shard is written; None for one that is not there. One round trip per node."""
        return self.find({board: shards})[board]

    def find(self, shards: Mapping[str, int]) -> dict[str, list[dict[int, Position] | None]]:
        """Return how far boards are written, as `positions` does, all of them in one round trip per node."""
        found = look_at(self._client, shards)
        self._known.update(found)
        return {board: known.positions for board, known in found.items()}

    def write(
        self,
        board: str,
        shards: int,
        epoch: int,
        moves: Sequence[Move],
        changes: Sequence[InstanceChange],
        *,
        time_ms: int,
        dense: bool = False,
        shards_only: Collection[int] | None = None,
    ) -> list[Written]:
        """Write what changed to every shard of a board and move its positions: one round trip per node.

        A shard whose players did not change is moved on all the same. `moves` names at least one partition; a move with
        after = upto only claims the epoch. `dense` keeps distinct scores, on boards of one shard. `shards_only` leaves
        the other shards as they are, to bring one that has lost something to where they are; it is answered for those,
        ascending.
        """
        return self.send(
            board, shards, epoch, moves, changes, time_ms=time_ms, dense=dense, shards_only=shards_only
        ).answers()

    def send(
        self,
        board: str,
        shards: int,
        epoch: int,
        moves: Sequence[Move],
        changes: Sequence[InstanceChange],
        *,
        time_ms: int,
        dense: bool = False,
        shards_only: Collection[int] | None = None,
        is_behind: bool = False,
        attempt: int = 1,
    ) -> Sent:
        """Do as `write` does without waiting for the answers, so that the next batch can be prepared meanwhile.

        `is_behind` tells that an earlier write may still be under way: then OtherFormNeeded where an instance has to
        take another form, whose rows would gather before that one has come to its end.
        """
        head = Head(epoch, time_ms, moves, secrets.token_hex(4))
        writing = Writing(
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

        def again() -> list[Written]:
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

        return Sent(self._channel.start(calls), boundaries, epoch, moves, lambda: self._forget(board), again)

    def move(self, shards: Mapping[str, int], epoch: int, moves: Sequence[Move], *, time_ms: int) -> Moved:
        """Move boards on that nothing changed on, all from the same positions, in one go and without waiting."""
        unknown = {board: count for board, count in shards.items() if not self._is_known(board, count)}
        if unknown:
            self.find(unknown)
        head = Head(epoch, time_ms, moves, "")
        heads: dict[int, bytes] = {}  # by generation: they differ in nothing else
        calls = []
        for board, count in shards.items():
            for shard, generation in enumerate(self._known[board].generations[:count]):
                encoded = heads.get(generation)
                if encoded is None:
                    encoded = heads[generation] = head.encoded(generation, 1, 1, ())
                keys = ShardKeys(board, shard)
                calls.append(Call(WRITE, [keys.meta, keys.described(generation)], [encoded]))
        return Moved(self._channel.start(calls), shards, epoch, moves, self._forget)

    def begin(self, board: str, shards: int, epoch: int) -> Loading | None:
        """Begin a new generation beside the live one; None when another writer has a higher epoch."""
        self._forget(board)
        return Loading.begin(self._client, board, shards, epoch, updates_max=self._call_updates_max, whole=self._whole)

    def drop(self, board: str, shards: int, epoch: int, *, first: int = 0) -> bool:
        """Take a deleted board out of Redis, in steps; False when another writer has a higher epoch.

        `first` is the first shard that goes; those before it stay.
        """
        self._forget(board)
        shard_keys = [ShardKeys(board, shard) for shard in range(first, shards)]
        answers = self._client.call_all([Call("rankd_abandon", [keys.meta], [epoch, "board"]) for keys in shard_keys])
        sweep(self._client, shard_keys)
        return all(answer[0] == b"applied" for answer in answers)

    def find_left(self, deleted: Mapping[str, int], kept: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Return what is left of deleted boards, and of shards that kept boards no longer have.

        For each board that something is left of: its id, the first shard to drop, and how many shards there are.
        """
        asked = [(board, 0, shard) for board, count in deleted.items() for shard in range(count)]
        asked += [(board, 0, count) for board, count in deleted.items()]
        asked += [(board, count, count) for board, count in kept.items()]
        declared = {**kept, **deleted}
        found: dict[str, tuple[int, int]] = {}
        while asked:
            calls = [Call("EXISTS", [ShardKeys(board, shard).meta], is_command=True) for board, _, shard in asked]
            there = [one for one, answer in zip(asked, self._client.call_all(calls), strict=True) if answer]
            asked = []
            for board, first, shard in there:
                earliest, count = found.get(board, (first, 0))
                found[board] = min(earliest, first), max(count, shard + 1)
                if shard >= declared[board]:
                    asked.append((board, first, shard + 1))  # as long as there are more
        return [(board, first, count) for board, (first, count) in found.items()]

    def sweep(self, board: str, shards: int) -> None:
        """Remove what earlier generations have left; a rebuild that was cut off leaves some."""
        sweep(self._client, [ShardKeys(board, shard) for shard in range(shards)])

    def close(self) -> None:
        """Give its connections back; the client stays open."""
        self._channel.close()

    # What is known of a board, so that a write needs no question first

    def _board(self, board: str, shards: int) -> KnownBoard:
        if not self._is_known(board, shards):
            self.find({board: shards})
        return self._known[board]

    def _is_known(self, board: str, shards: int) -> bool:
        known = self._known.get(board)
        return known is not None and len(known.generations) == shards

    def _forget(self, board: str) -> None:
        self._known.pop(board, None)
