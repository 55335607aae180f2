"""The rank store in this process: the native engine behind the port.

    Batch → _engine.Engine.apply (columns copied, interpreter released) → Applied

It keeps every promise of port.py; what it adds is saving and loading, memory figures and `check()`.
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
    Around,
    Batch,
    Bucket,
    Change,
    Entry,
    Friend,
    One,
    Page,
    Place,
    Position,
    Standing,
    Table,
    Verdict,
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
_TABLES_MAX = 256


_NativeInstance = tuple[str, int, int, int, int, int]


class KeptColumns(NamedTuple):
    """What is kept of some players, in the order they were asked for; 0 of those who are gone."""

    score: array[int]
    tie: array[int]
    gone: bytes  # one byte a player, 1: not there


class MemoryUse(msgspec.Struct, frozen=True):
    """Bytes the engine holds, by purpose; `idle_bytes` are kept ready and used by nobody."""

    players_bytes: int  # ids, stored once
    boards_bytes: int  # names and heads of instances
    entries_bytes: int  # scores in order
    maps_bytes: int  # from players to entries
    captures_bytes: int  # places of an instant
    saving_bytes: int  # what a save remembers of changes since it began
    idle_bytes: int

    @property
    def total_bytes(self) -> int:
        """All that grows with players and boards; its own lists, 32 bytes for each 64 KiB, are left out."""
        return sum(msgspec.structs.astuple(self))


class Waits(msgspec.Struct, frozen=True):
    """The longest that a batch kept a reader out, inside the engine, each figure on its own.

    A reader's wait holds the rest of the writer's turn, and what the machine adds: the processor taken from the writer
    meanwhile, and the time until the reader runs again. `work_ns` is the engine's own part.
    """

    reader_ns: int  # from being kept out to being inside
    let_in_ns: int  # from the first reader being kept out to the writer letting it in
    work_ns: int  # processor time the writer used between these two


class _Gone:
    """Stands where the engine was; whoever still asks is told."""

    def __getattr__(self, _name: str) -> NoReturn:
        raise Closed("the boards were closed; open them again with rankd.open")


class EngineStore:
    """Every board of a process, ranked in memory; see port.py for what it promises.

    >>> from rankd.projection.port import batch_of_rows
    >>> store, arcade = EngineStore(), InstanceKey("arcade")
    >>> applied = store.apply(batch_of_rows((arcade, Rules()), [("alice", 976), ("bob", 965)], upto=2))
    >>> store.rank(arcade, "bob")
    Standing(rank=2, player='bob', score=965, tie=0, better=1, total=2)
    """

    __slots__ = ("_native", "_tables")

    def __init__(self) -> None:
        """Start empty."""
        self._native = Engine(Entry, Standing, Friend, Kept, Change, _VERDICTS)
        # Tables that were checked, by id, with their native form. What is held here keeps its id.
        self._tables: dict[int, tuple[object, list[_NativeInstance]]] = {}

    # Writing

    def apply(self, batch: Batch) -> Applied:
        """Apply a batch and move its partition's position, both or neither."""
        # The table of one batch is often that of the next: a tuple, which cannot have changed, is checked once.
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
            # The engine only finds that something is wrong; what to say is the same for every adapter.
            arguments.check_rows(batch, columns)
            raise
        position = Position(epoch, sequence)
        if verdict != 0:
            return Applied(_VERDICTS[verdict], position)
        return Applied(Verdict.APPLIED, position, flags, old_score, new_score, before, after)

    def apply_one(
        self,
        table: Table,
        player: str,
        score: int,
        ties: Sequence[int],
        *,
        at: int,
        ranks: Ranking,
        partition: int = 0,
    ) -> One:
        """Apply one event, a row for each entry of a table, and say what the first row did."""
        known = self._tables.get(id(table))
        if known is not None and partition == 0:
            try:
                number = _ORDINAL_NUMBER if ranks is _ORDINAL else _RANKINGS[ranks]
                one: One = self._native.apply_one(known[1], player, score, ties, at, number)
                return one
            except (InvalidValue, MalformedBatch, TypeError):
                pass  # the batch of its rows finds the same, and says what it is
        applied = self.apply(
            arguments.batch_of_one(table, player, score, ties, at=at, ranks=ranks, partition=partition)
        )
        return applied.row(0) if applied.verdict is Verdict.APPLIED else applied.verdict

    def _note_table(self, table: Sequence[tuple[InstanceKey, Rules]]) -> list[_NativeInstance]:
        instances = [_native_instance(key, rules) for key, rules in table]
        if type(table) is tuple:
            if len(self._tables) >= _TABLES_MAX:
                self._tables.clear()
            self._tables[id(table)] = table, instances
        return instances

    def drop(self, instance: InstanceKey) -> bool:
        """Take a whole instance out and give its memory back; False when it is not in the store."""
        return self._native.drop(instance.text)

    def capture(self, instance: InstanceKey) -> None:
        """Remember every player's place as it is now: 4 bytes a player. Readers go on meanwhile, batches wait."""
        self._native.capture(instance.text)

    def forget_capture(self, instance: InstanceKey) -> None:
        """Forget the captured places of an instance and give their memory back."""
        self._native.forget_capture(instance.text)

    # Reading

    def position(self, partition: int = 0) -> Position:
        """Return how far this partition is applied; START when nothing was."""
        arguments.check_partition(partition)
        return Position(*self._native.position(partition))

    def instances(self) -> Iterator[InstanceKey]:
        """Go through the instances in which somebody stands, in no particular order."""
        cursor: int | None = 0
        while cursor is not None:
            names, cursor = self._native.names(cursor, _NAMES_PER_STEP)
            yield from map(InstanceKey.parse, names)

    def total(self, instance: InstanceKey) -> int:
        """Return how many players stand in the instance."""
        return self._native.total(instance.text)

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field."""
        kept: Kept | None = self._native.score(instance.text, player)
        return kept

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return many kept scores of one instant, in request order."""
        arguments.check_player_count(players)
        return self._native.scores(instance.text, players)

    def columns(self, instance: InstanceKey, players: Sequence[str]) -> KeptColumns:
        """Return what `scores` does, as columns."""
        arguments.check_player_count(players)
        score, tie, gone = self._native.columns(instance.text, players)
        return KeptColumns(array("q", score.tobytes()), array("q", tie.tobytes()), gone.tobytes())

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = Ranking.ORDINAL) -> Standing | None:
        """Return where a player stands."""
        number = _ORDINAL_NUMBER if ranking is _ORDINAL else _RANKINGS[ranking]  # the usual one without a lookup
        standing: Standing | None = self._native.rank(instance.text, player, number)
        return standing

    def ranks(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[Standing | None]:
        """Return where many players stand at one instant, in request order, None for those who are absent."""
        arguments.check_player_count(players)
        return self._native.ranks(instance.text, players, _RANKINGS[ranking])

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = Ranking.ORDINAL) -> Page:
        """Return the places `first` … `last` (from 1, both included), cut at the end."""
        if arguments.places(first, last) == 0:
            return Page([], self._native.total(instance.text))
        return Page(*self._native.range(instance.text, first, last, _RANKINGS[ranking]))

    def following(
        self,
        instance: InstanceKey,
        after: tuple[Kept, str] | None,
        limit: int,
        ranking: Ranking = Ranking.ORDINAL,
    ) -> Page:
        """Return at most `limit` entries that stand behind the sort key of `after`, whether or not it is there."""
        arguments.check_after(after)
        arguments.check_limit(limit)
        if after is None:
            return Page(*self._native.range(instance.text, 1, limit, _RANKINGS[ranking]))
        (score, tie), player = after
        return Page(*self._native.following(instance.text, score, tie, player, limit, _RANKINGS[ranking]))

    def around(
        self, instance: InstanceKey, player: str, above: int, below: int, ranking: Ranking = Ranking.ORDINAL
    ) -> Around | None:
        """Return a player with up to `above` and `below` neighbours; None when the player is absent."""
        arguments.check_player(player)
        arguments.check_neighbours(above, below)
        found = self._native.around(instance.text, player, above, below, _RANKINGS[ranking])
        return None if found is None else Around(*found)

    def friends(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[Friend]:
        """Return those of `players` who are in the instance, in standing order, each once."""
        arguments.check_player_count(players)
        return self._native.friends(instance.text, players, _RANKINGS[ranking])

    def rank_of_score(self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = Ranking.ORDINAL) -> Place:
        """Return where a new player with this score and tie field would stand, last by id."""
        arguments.check_score("score", score)
        arguments.check_tie(tie)
        return Place(*self._native.rank_of_score(instance.text, score, tie, _RANKINGS[ranking]))

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

    def histogram(self, instance: InstanceKey, buckets: int) -> list[Bucket]:
        """Cut lowest … highest score into at most `buckets` equal ranges and count the players in each."""
        arguments.check_buckets(buckets)
        return [Bucket(*bucket) for bucket in self._native.histogram(instance.text, buckets)]

    def captured(self, instance: InstanceKey, player: str) -> int | None:
        """Return the player's place at the instance's last capture."""
        return self._native.captured(instance.text, player)

    def captured_many(self, instance: InstanceKey, players: Sequence[str]) -> array[int]:
        """Return what `captured` does for many players at one instant, in request order; -1 for those without one."""
        arguments.check_player_count(players)
        return array("q", self._native.captured_many(instance.text, players).tobytes())

    def digest(self, instance: InstanceKey) -> int:
        """Return the digest of domain/digest.py; the engine keeps it up to date, so this is one lookup."""
        low, high = self._native.digest(instance.text)
        return high << 64 | low

    # What only the engine has

    def begin_save(self, undo_bytes_max: int | None = None) -> Saving:
        """Begin to save the store as it is now; batches and readers go on, and the file is written by `Saving.write`.

        What the save remembers of later changes, about 45 bytes for each changed entry, takes at most `undo_bytes_max`:
        by default a quarter of the store's memory, or 256 MiB if that is more. Beyond it the save is interrupted. What
        is dropped or cleared meanwhile is given back when the save ends. A second save at a time is SaveUnderWay.
        """
        return Saving(self._native, *self._native.begin_save(undo_bytes_max))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything as it is now to a file that is complete or absent. Readers and batches go on meanwhile."""
        self.begin_save().write(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read back what `save` wrote; SnapshotDamaged or SnapshotNewer when that cannot be done."""
        store = cls()
        with Path(path).open("rb", buffering=0) as file:
            store._native.load(file.fileno())
        return store

    def memory(self) -> MemoryUse:
        """Return the bytes the engine holds, each counted where it was taken."""
        return MemoryUse(**self._native.memory())

    def longest_waits(self) -> Waits:
        """Return how long readers had to wait for batches, at most, since the start or `forget_waits`."""
        return Waits(**self._native.longest_waits())

    def forget_waits(self) -> None:
        """Begin to look for the longest waits anew."""
        self._native.forget_waits()

    def close(self) -> None:
        """Give the memory back as soon as nobody is reading; Closed for whoever asks later."""
        self._native = cast(Engine, _Gone())

    def check(self) -> None:
        """Test every invariant of every structure; RuntimeError names the first that does not hold. For tests."""
        self._native.check()


def _native_instance(key: InstanceKey, rules: Rules) -> _NativeInstance:
    return (
        key.text,
        _KEEPS[rules.keep],
        _ORDERS[rules.order],
        _TIES[rules.ties],
        rules.score_min,
        rules.score_max,
    )
