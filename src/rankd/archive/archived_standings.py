"""The reads of a rank store, answered from an archived file.

Every place is a row: a scope's rows lie together in standing order. A player is found by the file's index, a score or a
sort key by bisection; each touches a few row groups, however large the file is.

Of a file with only the first entries of each scope, those behind them are absent, and what depends on all of them is an
estimate: `is_cut` says so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from threading import Lock
from typing import Any, NamedTuple

from rankd.archive.manifest import Manifest
from rankd.archive.row_groups import DecodedGroups, DecodedRows, Fetch, RowGroups
from rankd.archive.standings_file import lookup_hash
from rankd.domain.definition import define_board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking, score_key, sort_key, tie_key
from rankd.errors import ArchiveDamaged
from rankd.projection import arguments
from rankd.projection.port import (
    QUANTILE_PPM_MAX,
    RankedAround,
    RankedBucket,
    RankedEntry,
    RankedFriend,
    RankedPage,
    RankedPlace,
    RankedStanding,
)

SCOPES_HELD_MAX = 1_000  # where they begin, by file
_COLUMN = {Ranking.ORDINAL: "rank", Ranking.COMPETITION: "competition", Ranking.DENSE: "dense"}


class _Scope(NamedTuple):
    """Where a scope's rows are."""

    first: int  # row
    kept: int  # rows
    total: int  # entries in the whole scope
    digest: int


_NOBODY = _Scope(0, 0, 0, 0)


class ArchivedStandings:
    """The final standings of a window instance; see projection/port.py for what its reads promise."""

    def __init__(self, manifest: Manifest, fetch: Fetch, decoded: DecodedGroups) -> None:
        """The end of the file is read at once."""
        self.manifest = manifest
        board = define_board(manifest.board, manifest.definition)
        self._rules = board.rules_for(board.window_of(manifest.window))
        self._groups = RowGroups(manifest, board.tie_resolution_ms, fetch, decoded)
        self._rows_per_group = manifest.file.rows_per_group
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()
        self._lock = Lock()

    def is_cut(self, instance: InstanceKey) -> bool:
        """Tell whether only the first entries of an instance are there."""
        where = self._where(instance)
        return where.kept < where.total

    def tables(self) -> Iterator[Any]:
        """Yield the whole file, row group by row group, as tables of pyarrow."""
        yield from self._groups.tables()

    # Reading

    def captured(self, _instance: InstanceKey, player: str) -> int | None:
        """Return None: places at midnight are not archived."""
        arguments.check_player(player)
        return None

    def total(self, instance: InstanceKey) -> int:
        """Return the number of players in the instance."""
        return self._where(instance).total

    def digest(self, instance: InstanceKey) -> int:
        """Return the digest of domain/digest.py; 0 when the instance is empty."""
        return self._where(instance).digest

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field."""
        arguments.check_player(player)
        row = self._row_of(instance, player)
        return None if row is None else self._kept(row)

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return the kept scores of many players, in request order."""
        arguments.check_players(players)
        rows = self._rows_of(instance, players)
        kept = {player: self._kept(row) for player, row in rows.items()}
        return [kept.get(player) for player in players]

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = Ranking.ORDINAL) -> RankedStanding | None:
        """Return a player's standing."""
        arguments.check_ranking(ranking)
        arguments.check_player(player)
        row = self._row_of(instance, player)
        return None if row is None else self._standing(instance, row, ranking)

    def ranks(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[RankedStanding | None]:
        """Return the standings of many players, in request order; None for an absent player."""
        arguments.check_ranking(ranking)
        arguments.check_players(players)
        rows = self._rows_of(instance, players)
        standings = {player: self._standing(instance, row, ranking) for player, row in rows.items()}
        return [standings.get(player) for player in players]

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = Ranking.ORDINAL) -> RankedPage:
        """Return the places `first` … `last` (from 1, both included), cut at the end."""
        arguments.check_ranking(ranking)
        return self._page(instance, first - 1, arguments.places(first, last), ranking)

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
        if after is None:
            return self._page(instance, 0, limit, ranking)
        last = sort_key(self._rules, *after)
        return self._page(
            instance, self._count_up_to(instance, lambda row: self._sort_key(row) <= last), limit, ranking
        )

    def around(
        self, instance: InstanceKey, player: str, above: int, below: int, ranking: Ranking = Ranking.ORDINAL
    ) -> RankedAround | None:
        """Return a player with up to `above` and `below` neighbours; None when the player is absent."""
        arguments.check_ranking(ranking)
        arguments.check_player(player)
        arguments.check_neighbours(above, below)
        row = self._row_of(instance, player)
        if row is None:
            return None
        where = self._where(instance)
        first, end = max(where.first, row - above), min(where.first + where.kept, row + 1 + below)
        return RankedAround(
            self._entries(first, row, ranking),
            self._standing(instance, row, ranking),
            self._entries(row + 1, end, ranking),
            is_cut=where.kept < where.total and row + below >= where.first + where.kept,
        )

    def friends(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[RankedFriend]:
        """Return those of `players` who are in the instance, in standing order, each once."""
        arguments.check_ranking(ranking)
        arguments.check_players(players)
        rows = list(self._rows_of(instance, players).values())
        friends: list[RankedFriend] = []
        competition = dense = 0
        score: int | None = None
        for place, row in enumerate(rows, start=1):
            (entry,) = self._entries(row, row + 1, ranking)
            if entry.score != score:
                competition, dense, score = place, dense + 1, entry.score
            rank = {Ranking.ORDINAL: place, Ranking.COMPETITION: competition, Ranking.DENSE: dense}[ranking]
            friends.append(RankedFriend(rank, entry.player, entry.score, entry.tie, entry.rank))
        return friends

    def rank_of_score(
        self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = Ranking.ORDINAL
    ) -> RankedPlace:
        """Return where a new player with this score and tie field would stand, last by id."""
        arguments.check_ranking(ranking)
        arguments.check_score("score", score)
        arguments.check_tie(tie)
        where, wanted = self._where(instance), score_key(self._rules, score)
        if ranking is Ranking.ORDINAL:
            key = wanted, tie_key(self._rules, tie)
            before = self._count_up_to(instance, lambda row: self._sort_key(row)[:2] <= key)
        else:
            before = self._count_up_to(instance, lambda row: self._score_key(row) < wanted)
        rank = before + 1
        if ranking is Ranking.DENSE and where.kept:
            is_last = before == where.kept
            (entry,) = self._entries(where.first + before - is_last, where.first + before - is_last + 1, ranking)
            rank = entry.rank + is_last
        is_known = before < where.kept or where.kept == where.total
        return RankedPlace(rank, where.total, None if is_known else (rank, where.total + 1))

    def count(self, instance: InstanceKey, low: int, high: int) -> int:
        """Return how many players have low ≤ score ≤ high; none when low > high."""
        arguments.check_score("low", low)
        arguments.check_score("high", high)
        return self._count(instance, low, high)

    def quantiles(self, instance: InstanceKey, ppm: Sequence[int]) -> list[int] | None:
        """Return, for each q, the smallest kept score that at least this share of players do not exceed."""
        arguments.check_ppm(ppm)
        kept = self._where(instance).kept
        if not kept:
            return None
        return [self._from_lowest(instance, max(1, _ceil_div(q * kept, QUANTILE_PPM_MAX))) for q in ppm]

    def histogram(self, instance: InstanceKey, buckets: int) -> list[RankedBucket]:
        """Cut lowest … highest score into at most `buckets` equal ranges and count the players in each."""
        arguments.check_buckets(buckets)
        kept = self._where(instance).kept
        if not kept:
            return []
        lowest, highest = self._from_lowest(instance, 1), self._from_lowest(instance, kept)
        width = _ceil_div(highest - lowest + 1, buckets)
        answer, counted = [], 0
        for low in range(lowest, highest + 1, width):
            high = min(low + width - 1, highest)
            upto = self._count(instance, lowest, high)
            answer.append(RankedBucket(low, high, upto - counted))
            counted = upto
        return answer

    # Rows

    def _where(self, instance: InstanceKey) -> _Scope:
        with self._lock:
            held = self._scopes.get(instance.scope)
            if held is not None:
                self._scopes.move_to_end(instance.scope)
                return held
        where = self._find_scope(instance.scope)
        with self._lock:
            self._scopes[instance.scope] = where
            while len(self._scopes) > SCOPES_HELD_MAX:
                self._scopes.popitem(last=False)
        return where

    def _find_scope(self, scope: str) -> _Scope:
        group = self._groups.first_with(scope)
        if group is None:
            return _NOBODY
        rows = self._groups.rows(group)
        index = rows.find_scope(scope)
        if index < 0:
            return _NOBODY
        total, top = rows.total[index], self.manifest.top
        where = _Scope(
            group * self._rows_per_group + index, total if top is None else min(top, total), total, rows.digest(index)
        )
        if where.first + where.kept > self.manifest.file.rows:
            raise ArchiveDamaged(f"{self.manifest.file_path} is damaged: scope {scope} goes beyond the end of the file")
        return where

    def _row_of(self, instance: InstanceKey, player: str) -> int | None:
        return self._rows_of(instance, [player]).get(player)

    def _rows_of(self, instance: InstanceKey, players: Sequence[str]) -> dict[str, int]:
        """Return the rows of those players who are there, in standing order."""
        hashes = {}
        for player in players:
            with suppress(UnicodeEncodeError):  # an id that nobody can have
                hashes[player] = lookup_hash(instance.scope, player)
        # In the order of the index, and then in that of the rows: each group is decoded once.
        wanted = sorted(hashes.items(), key=itemgetter(1))
        candidates = [(row, player) for player, hashed in wanted for row in self._groups.found(hashed)]
        placed: dict[str, int] = {}
        for number, player in sorted(candidates):
            rows, index = self._row(number)
            if rows.player(index) == player and rows.scope(index) == instance.scope:
                placed[player] = number
        return placed

    def _row(self, row: int) -> tuple[DecodedRows, int]:
        group, index = divmod(row, self._rows_per_group)
        return self._groups.rows(group), index

    def _kept(self, row: int) -> Kept:
        rows, index = self._row(row)
        return Kept(rows.score[index], rows.tie(index))

    def _score_key(self, row: int) -> int:
        rows, index = self._row(row)
        return score_key(self._rules, rows.score[index])

    def _sort_key(self, row: int) -> tuple[int, int, bytes]:
        rows, index = self._row(row)
        return sort_key(self._rules, Kept(rows.score[index], rows.tie(index)), rows.player(index))

    def _standing(self, instance: InstanceKey, row: int, ranking: Ranking) -> RankedStanding:
        rows, index = self._row(row)
        return RankedStanding(
            rows.ranks[_COLUMN[ranking]][index],
            rows.player(index),
            rows.score[index],
            rows.tie(index),
            rows.ranks["competition"][index] - 1,
            self._where(instance).total,
        )

    def _page(self, instance: InstanceKey, skipped: int, count: int, ranking: Ranking) -> RankedPage:
        where = self._where(instance)
        end = min(skipped + count, where.kept)
        entries = self._entries(where.first + skipped, where.first + end, ranking)
        return RankedPage(entries, where.total, is_cut=len(entries) < min(count, where.total - skipped))

    def _entries(self, first: int, end: int, ranking: Ranking) -> list[RankedEntry]:
        return list(self._rows_between(first, end, _COLUMN[ranking]))

    def _rows_between(self, first: int, end: int, column: str) -> Iterator[RankedEntry]:
        while first < end:
            rows, start = self._row(first)
            stop = min(len(rows), start + end - first)
            ranks = rows.ranks[column]
            for index, player in enumerate(rows.players(start, stop), start=start):
                yield RankedEntry(ranks[index], player, rows.score[index], rows.tie(index))
            first += stop - start

    def _count_up_to(self, instance: InstanceKey, is_before: Callable[[int], bool]) -> int:
        """Return how many rows of an instance come first, of which `is_before` holds."""
        where = self._where(instance)
        low, high = where.first, where.first + where.kept
        while low < high:
            middle = (low + high) // 2
            if is_before(middle):
                low = middle + 1
            else:
                high = middle
        return low - where.first

    def _count(self, instance: InstanceKey, low: int, high: int) -> int:
        if low > high:
            return 0
        best, worst = sorted((score_key(self._rules, low), score_key(self._rules, high)))

        def count(key: int) -> int:
            return self._count_up_to(instance, lambda row: self._score_key(row) < key)

        return count(worst + 1) - count(best)

    def _from_lowest(self, instance: InstanceKey, place: int) -> int:
        """Return the score at a place counted from the lowest."""
        where = self._where(instance)
        is_upwards = score_key(self._rules, 1) > score_key(self._rules, 0)
        row = where.first + (place - 1 if is_upwards else where.kept - place)
        return self._kept(row).score


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def fetch_from(read: Callable[[str, int, int], bytes | None], manifest: Manifest) -> Fetch:
    """Return what reads a part of a manifest's file, and refuses one that is missing or short."""

    def fetch(start: int, end: int) -> bytes:
        data = read(manifest.file_path, start, end)
        if data is None or len(data) != end - start:
            raise ArchiveDamaged(
                f"{manifest.file_path} is missing or too short: restore a copy of it",
                public_message="these standings are damaged in the archive",
            )
        return data

    return fetch
