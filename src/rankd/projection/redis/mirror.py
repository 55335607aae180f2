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
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from rankd.errors import RanksUnavailable
from rankd.projection.port import Position, Verdict
from rankd.projection.redis.changes import InstanceChange, Move, Written
from rankd.projection.redis.client import Call, Client, Pending
from rankd.projection.redis.keys import ShardKeys
from rankd.projection.redis.known import KnownBoard, look_at, positions_in
from rankd.projection.redis.loading import Loading, sweep
from rankd.projection.redis.operations import Head
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
        self._known[board] = known = look_at(self._client, board, shards)
        return known.positions

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
        attempt: int = 1,
    ) -> Sent:
        """Do as `write` does without waiting for the answers, so that the next batch can be prepared meanwhile."""
        head = Head(epoch, time_ms, moves, secrets.token_hex(4))
        writing = Writing(
            self._client,
            self._board(board, shards),
            head,
            self._call_updates_max,
            whole=self._whole,
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

    def begin(self, board: str, shards: int, epoch: int) -> Loading | None:
        """Begin a new generation beside the live one; None when another writer has a higher epoch."""
        self._forget(board)
        return Loading.begin(self._client, board, shards, epoch, updates_max=self._call_updates_max, whole=self._whole)

    def drop(self, board: str, shards: int, epoch: int) -> bool:
        """Take a deleted board out of Redis, in steps; False when another writer has a higher epoch."""
        self._forget(board)
        shard_keys = [ShardKeys(board, shard) for shard in range(shards)]
        answers = self._client.call_all([Call("rankd_abandon", [keys.meta], [epoch, "board"]) for keys in shard_keys])
        sweep(self._client, shard_keys)
        return all(answer[0] == b"applied" for answer in answers)

    def sweep(self, board: str, shards: int) -> None:
        """Remove what earlier generations have left; a rebuild that was cut off leaves some."""
        sweep(self._client, [ShardKeys(board, shard) for shard in range(shards)])

    def close(self) -> None:
        """Give its connections back; the client stays open."""
        self._channel.close()

    # What is known of a board, so that a write needs no question first

    def _board(self, board: str, shards: int) -> KnownBoard:
        known = self._known.get(board)
        if known is None or len(known.generations) != shards:
            known = self._known[board] = look_at(self._client, board, shards)
        return known

    def _forget(self, board: str) -> None:
        self._known.pop(board, None)
