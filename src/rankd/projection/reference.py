"""The reference rank store: slow and obviously right; tests compare every other adapter with it.

    RankStore.apply → a dictionary an instance → sorted() at every read

It holds only kept scores: each read sorts its whole instance by domain/order.py and counts. It is for tests, for
`verify` and for readers of the code; a few thousand players are a large board here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock

from rankd.domain.digest import digest
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking, Rules, Ties, score_key, settle, sort_key, tie_key
from rankd.projection import arguments
from rankd.projection.port import (
    QUANTILE_PPM_MAX,
    RANK_ABSENT,
    START,
    Applied,
    Dropped,
    InstanceTable,
    Op,
    Position,
    RankedAround,
    RankedBucket,
    RankedEntry,
    RankedFriend,
    RankedPage,
    RankedPlace,
    RankedStanding,
    RowFlag,
    RowOutcome,
    UpdateBatch,
    Verdict,
    WindowSum,
)


@dataclass(slots=True)
class _Instance:
    rules: Rules  # for its order and ties; each row brings its own keep rule and bounds
    kept: dict[str, Kept] = field(default_factory=dict)
    captured: dict[str, int] = field(default_factory=dict)  # only of players who stayed since


class ReferenceStore:
    """A rank store of plain dictionaries; see port.py for what it promises."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._instances: dict[InstanceKey, _Instance] = {}
        self._positions: dict[int, Position] = {}

    # Writing

    def apply(self, batch: UpdateBatch) -> Applied:
        """Apply a batch and move its partition's position, both or neither."""
        columns = arguments.check_batch(batch)
        arguments.check_rows(batch, columns)
        rows = _rows(batch, columns)
        with self._lock:
            stored = self._positions.get(batch.partition, START)
            if batch.epoch < stored.epoch:
                return Applied(Verdict.FENCED, stored)
            if batch.after < stored.sequence:
                return Applied(Verdict.DUP, stored)
            if batch.after > stored.sequence:
                return Applied(Verdict.GAP, stored)
            held = {key: instance.rules for key, instance in self._instances.items()}
            for row in rows:
                arguments.check_rules(row.key, held.setdefault(row.key, row.rules), row.rules)

            before = self._rank_column(rows, batch.ranks)
            flags, old_scores, new_scores = array("B"), array("q"), array("q")
            for row in rows:
                flag, old, new = self._apply_row(row)
                flags.append(flag)
                old_scores.append(0 if old is None else old.score)
                new_scores.append(0 if new is None else new.score)
            after = self._rank_column(rows, batch.ranks)

            position = Position(batch.epoch, batch.upto)
            self._positions[batch.partition] = position
            return Applied(
                Verdict.APPLIED,
                position,
                memoryview(flags),
                memoryview(old_scores),
                memoryview(new_scores),
                rank_before=before,
                rank_after=after,
            )

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
        applied = self.apply(
            arguments.batch_of_one(table, player, score, ties, at=at, ranks=ranks, partition=partition)
        )
        return applied.row(0) if applied.verdict is Verdict.APPLIED else applied.verdict

    def _apply_row(self, row: _Row) -> tuple[int, Kept | None, Kept | None]:
        instance = self._instances.get(row.key, _Instance(row.rules))
        if row.op is Op.CLEAR:
            flag = RowFlag.SET if instance.kept else RowFlag(0)
            self._instances.pop(row.key, None)
            return flag, None, None

        old = instance.kept.pop(row.player, None)
        new: Kept | None = None
        if row.op is Op.REMOVE:
            instance.captured.pop(row.player, None)
        if row.op is Op.APPLY:
            new = settle(row.rules, old, row.score, row.tie)
        elif row.op is Op.PUT:
            new = Kept(row.score, 0 if row.rules.ties is Ties.PLAYER else row.tie)
        if new is not None:
            instance.kept[row.player] = new
        if instance.kept:
            self._instances[row.key] = instance
        else:
            self._instances.pop(row.key, None)

        flag = RowFlag(0)
        if old is not None:
            flag |= RowFlag.WAS_PRESENT
        if new is not None:
            flag |= RowFlag.IS_PRESENT
        if old != new:
            flag |= RowFlag.SET
        return flag, old, new

    def _rank_column(self, rows: list[_Row], ranking: Ranking | None) -> memoryview | None:
        if ranking is None:
            return None
        standings = {key: self._standings(key, ranking) for key in {row.key for row in rows}}
        ranks = array("q")
        for row in rows:
            standing = None if row.op is Op.CLEAR else standings[row.key].get(row.player)
            ranks.append(RANK_ABSENT if standing is None else standing.rank)
        return memoryview(ranks)

    def position(self, partition: int) -> Position:
        """Return this partition's position; START before its first batch."""
        arguments.check_partition(partition)
        with self._lock:
            return self._positions.get(partition, START)

    def instances(self) -> Iterator[InstanceKey]:
        """Yield the instances that have an entry, in no particular order."""
        with self._lock:
            return iter(list(self._instances))

    def drop(self, instance: InstanceKey) -> bool:
        """Drop an instance; False when the store does not have it."""
        with self._lock:
            return self._instances.pop(instance, None) is not None

    def drop_window(self, board: str, window: str, _instances_max: int | None = None) -> Dropped:
        """Drop all instances of a window instance."""
        with self._lock:
            dropped = [self._instances.pop(key) for key in self._window(board, window)]
            return Dropped(sum(len(instance.kept) for instance in dropped), is_all=True)

    def scopes(self, board: str, window: str, player: str | None = None) -> Iterator[str]:
        """Yield the scopes of a window instance that have an entry, or those that hold this player."""
        with self._lock:
            keys = self._window(board, window)
            return iter([key.scope for key in keys if player is None or player in self._instances[key].kept])

    def window_sum(self, board: str, window: str) -> WindowSum:
        """Add up the instances of a window instance."""
        with self._lock:
            keys = self._window(board, window)
        digest = sum(self.digest(key) for key in keys) % 2**128
        return WindowSum(len(keys), sum(self.total(key) for key in keys), digest)

    def _window(self, board: str, window: str) -> list[InstanceKey]:
        return [key for key in self._instances if key.board == board and key.window == window]

    def capture(self, instance: InstanceKey) -> None:
        """Capture every player's current place, replacing the last capture."""
        with self._lock:
            if instance in self._instances:
                entries = self._entries(instance, Ranking.ORDINAL)
                self._instances[instance].captured = {entry.player: entry.rank for entry in entries}

    def forget_capture(self, instance: InstanceKey) -> None:
        """Forget the captured places of an instance."""
        with self._lock:
            if instance in self._instances:
                self._instances[instance].captured = {}

    # Reading

    def total(self, instance: InstanceKey) -> int:
        """Return the number of players in the instance."""
        with self._lock:
            return len(self._kept(instance))

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field."""
        arguments.check_player(player)
        with self._lock:
            return self._kept(instance).get(player)

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return the kept scores of many players at one instant, in request order."""
        arguments.check_players(players)
        with self._lock:
            return [self._kept(instance).get(player) for player in players]

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = Ranking.ORDINAL) -> RankedStanding | None:
        """Return a player's standing."""
        arguments.check_ranking(ranking)
        arguments.check_player(player)
        with self._lock:
            return self._standings(instance, ranking).get(player)

    def ranks(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[RankedStanding | None]:
        """Return the standings of many players at one instant, in request order; None for an absent player."""
        arguments.check_ranking(ranking)
        arguments.check_players(players)
        with self._lock:
            standings = self._standings(instance, ranking)
        return [standings.get(player) for player in players]

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = Ranking.ORDINAL) -> RankedPage:
        """Return the places `first` … `last` (from 1, both included), cut at the end."""
        arguments.check_ranking(ranking)
        count = arguments.places(first, last)
        with self._lock:
            entries = self._entries(instance, ranking)
        return RankedPage(entries[first - 1 : first - 1 + count], len(entries))

    def following(
        self,
        instance: InstanceKey,
        after: tuple[Kept, str] | None,
        limit: int,
        ranking: Ranking = Ranking.ORDINAL,
    ) -> RankedPage:
        """Return at most `limit` entries behind the sort key of `after`, which need not be in the instance."""
        arguments.check_ranking(ranking)
        arguments.check_after(after)
        arguments.check_limit(limit)
        with self._lock:
            entries = self._entries(instance, ranking)
            rules = self._rules(instance)
        behind = [entry for entry in entries if after is None or _entry_key(rules, entry) > sort_key(rules, *after)]
        return RankedPage(behind[:limit], len(entries))

    def around(
        self, instance: InstanceKey, player: str, above: int, below: int, ranking: Ranking = Ranking.ORDINAL
    ) -> RankedAround | None:
        """Return a player with up to `above` and `below` neighbours; None when the player is absent."""
        arguments.check_ranking(ranking)
        arguments.check_player(player)
        arguments.check_neighbours(above, below)
        with self._lock:
            entries = self._entries(instance, ranking)
            standing = self._standings(instance, ranking).get(player)
        if standing is None:
            return None
        place = [entry.player for entry in entries].index(player)
        return RankedAround(entries[max(0, place - above) : place], standing, entries[place + 1 : place + 1 + below])

    def friends(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[RankedFriend]:
        """Return those of `players` who are in the instance, in standing order, each once."""
        arguments.check_ranking(ranking)
        arguments.check_players(players)
        wanted = set(players)
        with self._lock:
            group = [entry for entry in self._entries(instance, ranking) if entry.player in wanted]
        ranks = _count([entry.score for entry in group], ranking)
        return [
            RankedFriend(rank, entry.player, entry.score, entry.tie, entry.rank)
            for rank, entry in zip(ranks, group, strict=True)
        ]

    def rank_of_score(
        self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = Ranking.ORDINAL
    ) -> RankedPlace:
        """Return where a new player with this score and tie field would stand, last by id."""
        arguments.check_ranking(ranking)
        arguments.check_score("score", score)
        arguments.check_tie(tie)
        with self._lock:
            kept_scores = list(self._kept(instance).values())
            rules = self._rules(instance)
        wanted = score_key(rules, score)
        better = [kept.score for kept in kept_scores if score_key(rules, kept.score) < wanted]
        match ranking:
            case Ranking.ORDINAL:
                # Last by id: all players with the same score and tie field come first.
                level = [k for k in kept_scores if k.score == score and tie_key(rules, k.tie) <= tie_key(rules, tie)]
                rank = 1 + len(better) + len(level)
            case Ranking.COMPETITION:
                rank = 1 + len(better)
            case Ranking.DENSE:
                rank = 1 + len(set(better))
        return RankedPlace(rank, len(kept_scores))

    def count(self, instance: InstanceKey, low: int, high: int) -> int:
        """Return how many players have low ≤ score ≤ high; none when low > high."""
        arguments.check_score("low", low)
        arguments.check_score("high", high)
        return sum(low <= score <= high for score in self._scores(instance))

    def quantiles(self, instance: InstanceKey, ppm: Sequence[int]) -> list[int] | None:
        """Return, for each q, the smallest kept score that at least this share of players do not exceed."""
        arguments.check_ppm(ppm)
        scores = sorted(self._scores(instance))
        if not scores:
            return None
        return [scores[max(1, _ceil_div(q * len(scores), QUANTILE_PPM_MAX)) - 1] for q in ppm]

    def histogram(self, instance: InstanceKey, buckets: int) -> list[RankedBucket]:
        """Cut lowest … highest score into at most `buckets` equal ranges and count the players in each."""
        arguments.check_buckets(buckets)
        scores = self._scores(instance)
        if not scores:
            return []
        lowest, highest = min(scores), max(scores)
        width = _ceil_div(highest - lowest + 1, buckets)
        answer = []
        for low in range(lowest, highest + 1, width):
            high = min(low + width - 1, highest)
            answer.append(RankedBucket(low, high, sum(low <= score <= high for score in scores)))
        return answer

    def captured(self, instance: InstanceKey, player: str) -> int | None:
        """Return the player's place at the instance's last capture."""
        arguments.check_player(player)
        with self._lock:
            return self._instances[instance].captured.get(player) if instance in self._instances else None

    def digest(self, instance: InstanceKey) -> int:
        """Return the digest of domain/digest.py; 0 when the instance is empty."""
        with self._lock:
            kept_scores = list(self._kept(instance).items())
        return digest((player, kept.score, kept.tie) for player, kept in kept_scores)

    # Parts of the reads; callers of all but _scores hold the lock

    def _kept(self, key: InstanceKey) -> dict[str, Kept]:
        return self._instances[key].kept if key in self._instances else {}

    def _rules(self, key: InstanceKey) -> Rules:
        return self._instances[key].rules if key in self._instances else Rules()

    def _scores(self, key: InstanceKey) -> list[int]:
        with self._lock:
            return [kept.score for kept in self._kept(key).values()]

    def _entries(self, key: InstanceKey, ranking: Ranking) -> list[RankedEntry]:
        """Return all entries in standing order."""
        rules = self._rules(key)
        ordered = sorted(self._kept(key).items(), key=lambda item: sort_key(rules, item[1], item[0]))
        ranks = _count([kept.score for _, kept in ordered], ranking)
        return [
            RankedEntry(rank, player, kept.score, kept.tie) for rank, (player, kept) in zip(ranks, ordered, strict=True)
        ]

    def _standings(self, key: InstanceKey, ranking: Ranking) -> dict[str, RankedStanding]:
        entries = self._entries(key, ranking)
        better = [rank - 1 for rank in _count([entry.score for entry in entries], Ranking.COMPETITION)]
        return {
            entry.player: RankedStanding(entry.rank, entry.player, entry.score, entry.tie, ahead, len(entries))
            for entry, ahead in zip(entries, better, strict=True)
        }


@dataclass(frozen=True, slots=True)
class _Row:
    key: InstanceKey
    rules: Rules
    op: Op
    player: str  # "" where the op ignores it
    score: int
    tie: int


def _rows(batch: UpdateBatch, columns: arguments.BatchColumns) -> list[_Row]:
    rows = []
    for op, instance, player, score, tie in arguments.rows_of(columns):
        key, rules = batch.instances[instance]
        rows.append(_Row(key, rules, Op(op), "" if op == Op.CLEAR else batch.players[player], score, tie))
    return rows


def _count(scores: list[int], ranking: Ranking) -> list[int]:
    """Return the rank at each place of scores in standing order."""
    ranks = []
    competition = dense = 0
    previous: int | None = None
    for place, score in enumerate(scores, start=1):
        if score != previous:
            competition, dense, previous = place, dense + 1, score
        ranks.append({Ranking.ORDINAL: place, Ranking.COMPETITION: competition, Ranking.DENSE: dense}[ranking])
    return ranks


def _entry_key(rules: Rules, entry: RankedEntry) -> tuple[int, int, bytes]:
    return sort_key(rules, Kept(entry.score, entry.tie), entry.player)


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
