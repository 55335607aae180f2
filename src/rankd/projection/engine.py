"""The rank store in this process: the native engine behind the port.

    Batch → _engine.Engine.apply (columns copied, interpreter released) → Applied

It keeps every promise of port.py and adds saving, loading, memory figures and `check()`.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, Self, cast

import msgspec

from rankd._engine import Engine
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Order, Ranking, Rules, Ties
from rankd.errors import Closed, InvalidValue, MalformedBatch
from rankd.projection import arguments
from rankd.projection.port import (
    Applied,
    Dropped,
    InstanceTable,
    Position,
    RankedAround,
    RankedBucket,
    RankedEntry,
    RankedFriend,
    RankedPage,
    RankedPlace,
    RankedStanding,
    RowChange,
    RowOutcome,
    UpdateBatch,
    Verdict,
    WindowSum,
)
from rankd.projection.saving import Saving

_KEEPS = {keep: number for number, keep in enumerate((Keep.BEST, Keep.LATEST, Keep.SUM, Keep.FIRST))}
_ORDERS = {order: number for number, order in enumerate((Order.DESC, Order.ASC))}
_TIES = {ties: number for number, ties in enumerate((Ties.EARLIEST, Ties.LATEST, Ties.VALUE, Ties.PLAYER))}


class _Numbers(dict[Ranking, int]):
    def __missing__(self, ranking: object) -> int:
        arguments.check_ranking(ranking)
        raise AssertionError(f"{ranking!r} has no number")


_RANKINGS = _Numbers((ranking, number) for number, ranking in enumerate(Ranking))
_ORDINAL = Ranking.ORDINAL
_ORDINAL_NUMBER = _RANKINGS[_ORDINAL]
_NO_RANKING = -1
_VERDICTS = (Verdict.APPLIED, Verdict.DUP, Verdict.GAP, Verdict.FENCED)
_NAMES_PER_STEP = 1_000
_TABLES_MAX = 1_024
_TABLE_ENTRIES_MAX = 100_000  # in all tables together
_SCOPES_PER_STEP = 1_000
_BOARDS_PER_STEP = 10_000  # larger: these steps return few names or none
_BOARDS_MAX = 2**32 - 1


_NativeInstance = tuple[str, int, int, int, int, int]


class KeptColumns(NamedTuple):
    """The kept scores and tie fields of some players, in request order; 0 for an absent player."""

    score: array[int]
    tie: array[int]
    gone: bytes  # one byte a player, 1: absent


class MemoryUse(msgspec.Struct, frozen=True):
    """Bytes the engine holds, by purpose; `idle_bytes` are free and kept for reuse."""

    players_bytes: int  # ids, stored once
    boards_bytes: int  # names and heads of instances
    entries_bytes: int  # scores in order
    maps_bytes: int  # from players to entries
    captures_bytes: int  # places of an instant
    saving_bytes: int  # undo records of a save under way
    idle_bytes: int

    @property
    def total_bytes(self) -> int:
        """All memory that grows with players and boards, without the page lists: 32 bytes for each 64 KiB."""
        return sum(msgspec.structs.astuple(self))


class ReaderWaits(msgspec.Struct, frozen=True):
    """The longest waits of readers for a batch inside the engine, each figure on its own.

    A reader waits for the rest of the writer's turn and for the scheduler: while the writer is preempted, and until
    the reader runs again. `work_ns` is the engine's own part.
    """

    reader_ns: int  # from the reader's arrival to its entry
    let_in_ns: int  # from the first blocked reader to the writer's release
    work_ns: int  # processor time the writer used between these two


class _Gone:
    """Replaces a closed engine and refuses every call."""

    def __getattr__(self, _name: str) -> NoReturn:
        raise Closed("the boards were closed; open them again with rankd.open")


class EngineStore:
    """Every board of a process, ranked in memory; see port.py for what it promises.

    >>> store, arcade = EngineStore(), InstanceKey("arcade")
    >>> applied = store.apply(UpdateBatch([(arcade, Rules())], ["alice", "bob"], array("q", [976, 965]), upto=2))
    >>> store.rank(arcade, "bob")
    RankedStanding(rank=2, player='bob', score=965, tie=0, better=1, total=2)
    """

    __slots__ = ("_native", "_table_entries", "_tables")

    def __init__(self) -> None:
        self._native = Engine(RankedEntry, RankedStanding, RankedFriend, Kept, RowChange, _VERDICTS)
        # Checked tables by id(), with their native form. Holding a table here keeps its id() valid.
        self._tables: dict[int, tuple[object, list[_NativeInstance]]] = {}
        self._table_entries = 0

    # Writing

    def apply(self, batch: UpdateBatch) -> Applied:
        """Apply a batch and move its partition's position, both or neither."""
        # Consecutive batches often share a table: a tuple cannot change, so it is checked once.
        known = self._tables.get(id(batch.instances))
        columns = arguments.check_batch(batch, instances_are_checked=known is not None)
        instances = self._note_table(batch.instances) if known is None else known[1]
        try:
            verdict, epoch, sequence, flags, old_score, new_score, before, after = self._native.apply(
                instances,
                batch.players,
                columns.score,
                columns.tie,
                columns.instance,
                columns.player,
                columns.op,
                batch.partition,
                batch.epoch,
                batch.after,
                batch.upto,
                _NO_RANKING if batch.ranks is None else _RANKINGS[batch.ranks],
            )
        except MalformedBatch:
            # The engine only detects a bad row; every adapter gives the same reason for it.
            arguments.check_rows(batch, columns)
            raise
        position = Position(epoch, sequence)
        if verdict != 0:
            return Applied(_VERDICTS[verdict], position)
        return Applied(Verdict.APPLIED, position, flags, old_score, new_score, before, after)

    def apply_one(
        self,
        table: InstanceTable,
        player: str,
        score: int,
        ties: Sequence[int],
        *,
        at: int,
        ranks: Ranking,
        partition: int,
    ) -> RowOutcome:
        """Apply one event, one row for each entry of a table, and return what the first row did."""
        known = self._tables.get(id(table))
        if known is not None and partition == 0:
            try:
                number = _ORDINAL_NUMBER if ranks is _ORDINAL else _RANKINGS[ranks]
                change: RowOutcome = self._native.apply_one(known[1], player, score, ties, at, number)
                return change
            except (InvalidValue, MalformedBatch, TypeError):
                pass  # `apply` refuses the same rows, with the reason
        applied = self.apply(
            arguments.batch_of_one(table, player, score, ties, at=at, ranks=ranks, partition=partition)
        )
        return applied.row(0) if applied.verdict is Verdict.APPLIED else applied.verdict

    def _note_table(self, table: Sequence[tuple[InstanceKey, Rules]]) -> list[_NativeInstance]:
        instances = [_native_instance(key, rules) for key, rules in table]
        if type(table) is tuple:
            if len(self._tables) >= _TABLES_MAX or self._table_entries >= _TABLE_ENTRIES_MAX:
                self._tables.clear()
                self._table_entries = 0
            self._tables[id(table)] = table, instances
            self._table_entries += len(table)
        return instances

    def drop(self, instance: InstanceKey) -> bool:
        """Drop an instance and free its memory; False when the store does not have it."""
        return self._native.drop(instance.text)

    def drop_window(self, board: str, window: str, instances_max: int | None = None) -> Dropped:
        """Drop the instances of a window instance, at most `instances_max` scopes in one call."""
        most = _BOARDS_MAX if instances_max is None else instances_max
        global_key = InstanceKey(board, window).text
        total = self._native.total(global_key)
        self._native.drop(global_key)
        count, entries = self._native.drop_family(_prefix(board, window), most)
        return Dropped(total + entries, is_all=count < most)

    def capture(self, instance: InstanceKey) -> None:
        """Capture every player's current place, 4 bytes a player. Readers go on meanwhile, batches wait."""
        self._native.capture(instance.text)

    def forget_capture(self, instance: InstanceKey) -> None:
        """Forget the captured places of an instance and free their memory."""
        self._native.forget_capture(instance.text)

    # Reading

    def position(self, partition: int) -> Position:
        """Return this partition's position; START before its first batch."""
        arguments.check_partition(partition)
        return Position(*self._native.position(partition))

    def instances(self) -> Iterator[InstanceKey]:
        """Yield the instances that have an entry, in no particular order."""
        cursor: int | None = 0
        while cursor is not None:
            names, cursor = self._native.names(cursor, _NAMES_PER_STEP)
            yield from map(InstanceKey.parse, names)

    def scopes(self, board: str, window: str, player: str | None = None) -> Iterator[str]:
        """Yield the scopes of a window instance that have an entry, or those that hold this player."""
        global_key = InstanceKey(board, window)
        if self.total(global_key) if player is None else self.score(global_key, player) is not None:
            yield global_key.scope
        most = _SCOPES_PER_STEP if player is None else _BOARDS_PER_STEP
        place: int | None = 0
        while place is not None:
            scopes, place = self._native.scopes(_prefix(board, window), player, place, most)
            yield from scopes

    def window_sum(self, board: str, window: str) -> WindowSum:
        """Add up the instances of a window instance, in steps."""
        global_key = InstanceKey(board, window)
        entries, digest = self.total(global_key), self.digest(global_key)
        instances = 1 if entries else 0
        place: int | None = 0
        while place is not None:
            count, within, low, high, place = self._native.family(_prefix(board, window), place, _BOARDS_PER_STEP)
            instances, entries, digest = instances + count, entries + within, digest + (high << 64 | low)
        return WindowSum(instances, entries, digest % 2**128)

    def total(self, instance: InstanceKey) -> int:
        """Return the number of players in the instance."""
        return self._native.total(instance.text)

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field."""
        kept: Kept | None = self._native.score(instance.text, player)
        return kept

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return the kept scores of many players at one instant, in request order."""
        arguments.check_player_count(players)
        return self._native.scores(instance.text, players)

    def columns(self, instance: InstanceKey, players: Sequence[str]) -> KeptColumns:
        """Return the same as `scores`, as columns."""
        arguments.check_player_count(players)
        score, tie, gone = self._native.columns(instance.text, players)
        return KeptColumns(array("q", score.tobytes()), array("q", tie.tobytes()), gone.tobytes())

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = Ranking.ORDINAL) -> RankedStanding | None:
        """Return a player's standing."""
        number = _ORDINAL_NUMBER if ranking is _ORDINAL else _RANKINGS[ranking]  # no lookup for the default
        standing: RankedStanding | None = self._native.rank(instance.text, player, number)
        return standing

    def ranks(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[RankedStanding | None]:
        """Return the standings of many players at one instant, in request order; None for an absent player."""
        arguments.check_player_count(players)
        return self._native.ranks(instance.text, players, _RANKINGS[ranking])

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = Ranking.ORDINAL) -> RankedPage:
        """Return the places `first` … `last` (from 1, both included), cut at the end."""
        if arguments.places(first, last) == 0:
            return RankedPage([], self._native.total(instance.text))
        return RankedPage(*self._native.range(instance.text, first, last, _RANKINGS[ranking]))

    def following(
        self,
        instance: InstanceKey,
        after: tuple[Kept, str] | None,
        limit: int,
        ranking: Ranking = Ranking.ORDINAL,
    ) -> RankedPage:
        """Return at most `limit` entries behind the sort key of `after`, which need not be in the instance."""
        arguments.check_after(after)
        arguments.check_limit(limit)
        if after is None:
            return RankedPage(*self._native.range(instance.text, 1, limit, _RANKINGS[ranking]))
        (score, tie), player = after
        return RankedPage(*self._native.following(instance.text, score, tie, player, limit, _RANKINGS[ranking]))

    def around(
        self, instance: InstanceKey, player: str, above: int, below: int, ranking: Ranking = Ranking.ORDINAL
    ) -> RankedAround | None:
        """Return a player with up to `above` and `below` neighbours; None when the player is absent."""
        arguments.check_player(player)
        arguments.check_neighbours(above, below)
        around = self._native.around(instance.text, player, above, below, _RANKINGS[ranking])
        return None if around is None else RankedAround(*around)

    def friends(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[RankedFriend]:
        """Return those of `players` who are in the instance, in standing order, each once."""
        arguments.check_player_count(players)
        return self._native.friends(instance.text, players, _RANKINGS[ranking])

    def rank_of_score(
        self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = Ranking.ORDINAL
    ) -> RankedPlace:
        """Return where a new player with this score and tie field would stand, last by id."""
        arguments.check_score("score", score)
        arguments.check_tie(tie)
        return RankedPlace(*self._native.rank_of_score(instance.text, score, tie, _RANKINGS[ranking]))

    def count(self, instance: InstanceKey, low: int, high: int) -> int:
        """Return how many players have low ≤ score ≤ high."""
        arguments.check_score("low", low)
        arguments.check_score("high", high)
        return self._native.count(instance.text, low, high)

    def quantiles(self, instance: InstanceKey, ppm: Sequence[int]) -> list[int] | None:
        """Return the smallest scores that these parts per million of the players do not exceed; None when empty."""
        arguments.check_ppm(ppm)
        if len(ppm) == 0:
            return [] if self._native.total(instance.text) else None
        return list(self._native.quantiles(instance.text, list(ppm))) or None

    def histogram(self, instance: InstanceKey, buckets: int) -> list[RankedBucket]:
        """Cut lowest … highest score into at most `buckets` equal ranges and count the players in each."""
        arguments.check_buckets(buckets)
        return [RankedBucket(*bucket) for bucket in self._native.histogram(instance.text, buckets)]

    def captured(self, instance: InstanceKey, player: str) -> int | None:
        """Return the player's place at the instance's last capture."""
        return self._native.captured(instance.text, player)

    def captured_many(self, instance: InstanceKey, players: Sequence[str]) -> array[int]:
        """Return the captured places of many players at one instant, in request order; -1 where there is none."""
        arguments.check_player_count(players)
        return array("q", self._native.captured_many(instance.text, players).tobytes())

    def digest(self, instance: InstanceKey) -> int:
        """Return the digest of domain/digest.py; the engine keeps it up to date, so this is one lookup."""
        low, high = self._native.digest(instance.text)
        return high << 64 | low

    # What only the engine has

    def standing_columns(self, instance: InstanceKey, most: int, hash_key: bytes) -> tuple[memoryview, memoryview]:
        """Return a hash of the id ("Q") and the score ("q") of the first players in standing order.

        Readers go on meanwhile. Hashes are SipHash-1-3 of 64 bits by a key of 16 bytes.
        """
        return self._native.standing_columns(instance.text, most, hash_key)

    def begin_save(self, undo_bytes_max: int | None = None) -> Saving:
        """Begin to save the store as it is now; batches and readers go on, and `Saving.write` writes the file.

        Undo records of later changes, about 45 bytes for each changed entry, take at most `undo_bytes_max`: by default
        a quarter of the store's memory, at least 256 MiB. Beyond it the save is interrupted. Memory that is dropped or
        cleared meanwhile is freed when the save ends. A second save at the same time raises SaveUnderWay.
        """
        return Saving(self._native, *self._native.begin_save(undo_bytes_max))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the store as it is now to a file, complete or not at all. Readers and batches go on meanwhile."""
        self.begin_save().write(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a file of `save`; raises SnapshotDamaged or SnapshotNewer."""
        store = cls()
        with Path(path).open("rb", buffering=0) as file:
            store._native.load(file.fileno())
        return store

    def memory(self) -> MemoryUse:
        """Return the bytes the engine holds, by purpose."""
        return MemoryUse(**self._native.memory())

    def longest_waits(self) -> ReaderWaits:
        """Return the longest waits of readers for batches since the start or `forget_waits`."""
        return ReaderWaits(**self._native.longest_waits())

    def forget_waits(self) -> None:
        """Reset the longest waits."""
        self._native.forget_waits()

    def close(self) -> None:
        """Free the memory after the last running read; later calls raise Closed."""
        self._native = cast(Engine, _Gone())

    def check(self) -> None:
        """Test every invariant of every structure; RuntimeError names the first that does not hold. For tests."""
        self._native.check()


def _prefix(board: str, window: str) -> str:
    """Return the common prefix of the names of a window instance's scopes."""
    return InstanceKey(board, window, "").text


def _native_instance(key: InstanceKey, rules: Rules) -> _NativeInstance:
    return (
        key.text,
        _KEEPS[rules.keep],
        _ORDERS[rules.order],
        _TIES[rules.ties],
        rules.score_min,
        rules.score_max,
    )
