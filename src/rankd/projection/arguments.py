"""The limits of the rank store's arguments, checked the same way by every adapter.

    a caller's arguments → here → an adapter's work

A read takes about a microsecond, so its check is one chained comparison; only a failed check looks for the reason.
port.py lists what they refuse.

May be imported by: adapters of the rank store.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from rankd.domain.instance import InstanceKey
from rankd.domain.order import (
    SCORE_MAX_POSSIBLE,
    SCORE_MIN_POSSIBLE,
    TIE_FIELD_MAX,
    Keep,
    Kept,
    Order,
    Ranking,
    Rules,
    Ties,
)
from rankd.domain.player import PLAYER_BYTES_MAX
from rankd.errors import InvalidValue, MalformedBatch
from rankd.projection.port import (
    BATCH_ROWS_MAX,
    HISTOGRAM_BUCKETS_MAX,
    INSTANCE_BYTES_MAX,
    QUANTILE_PPM_MAX,
    QUANTILES_MAX,
    READ_ENTRIES_MAX,
    READ_PLACE_MAX,
    READ_PLAYERS_MAX,
    SEQUENCE_MAX,
    InstanceTable,
    Op,
    UpdateBatch,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Reads


def check_partition(partition: int) -> None:
    """Refuse a partition number outside its limits."""
    _check_whole("partition", partition, 0, SEQUENCE_MAX)


def check_player(player: object) -> None:
    """Refuse a player that is not a str. A str that is no valid id is accepted: that player is absent."""
    if not isinstance(player, str):
        raise TypeError(f"player must be a str, not {type(player).__name__}")


def check_ranking(ranking: object) -> None:
    """Refuse an unknown ranking."""
    if ranking not in tuple(Ranking):
        raise InvalidValue("ranking", f"must be one of {', '.join(Ranking)}, not {_shown(ranking)}")


def check_player_count(players: Sequence[object]) -> None:
    """Refuse too many players, and anything that is not a sequence."""
    if not _is_list(players):
        raise TypeError(f"players must be a list or another sequence of str, not {type(players).__name__}")
    if len(players) > READ_PLAYERS_MAX:
        raise InvalidValue("players", f"must be at most {READ_PLAYERS_MAX} a call, not {len(players)}")


def check_players(players: Sequence[object]) -> None:
    """Refuse too many players, and a player that is not a str."""
    check_player_count(players)
    for player in players:
        if not isinstance(player, str):
            raise TypeError(f"players must be str, not {type(player).__name__}")


def places(first: int, last: int) -> int:
    """Return the number of places `first` … `last`, 0 when `last` is before `first`."""
    _check_whole("first", first, 1, READ_PLACE_MAX)
    if isinstance(last, int) and last < first:
        return 0
    _check_whole("last", last, 0, READ_PLACE_MAX)
    if last - first < READ_ENTRIES_MAX:
        return last - first + 1
    raise InvalidValue("last", f"must be at most first + {READ_ENTRIES_MAX - 1}; read the rest with another call")


def check_limit(limit: int) -> None:
    """Refuse a page of 0 entries or of too many."""
    _check_whole("limit", limit, 1, READ_ENTRIES_MAX)


def check_after(after: tuple[Kept, str] | None) -> None:
    """Refuse a cursor that is no possible sort key."""
    if after is None:
        return
    (score, tie), player = after
    check_player(player)
    if not (SCORE_MIN_POSSIBLE <= score <= SCORE_MAX_POSSIBLE and 0 <= tie <= TIE_FIELD_MAX):
        raise InvalidValue(
            "after", f"must hold a 64-bit score and a tie field of 0 … {TIE_FIELD_MAX}, such as a page's last entry"
        )
    if not player.isascii() and _utf8_bytes(player) is None:
        raise InvalidValue(
            "after", "must hold an id that is UTF-8, such as a page's last entry; it has a lone surrogate"
        )


def check_neighbours(above: int, below: int) -> None:
    """Refuse a negative number of neighbours, and too many."""
    _check_whole("above", above, 0, READ_ENTRIES_MAX)
    _check_whole("below", below, 0, READ_ENTRIES_MAX)


def check_score(field: str, score: int) -> None:
    """Refuse a score that is not a signed 64-bit integer."""
    _check_whole(field, score, SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE)


def check_tie(tie: int) -> None:
    """Refuse a tie field that does not fit in its 48 bits."""
    _check_whole("tie", tie, 0, TIE_FIELD_MAX)


def check_ppm(ppm: Sequence[int]) -> None:
    """Refuse too many quantiles, and a quantile outside its limits."""
    if len(ppm) > QUANTILES_MAX:
        raise InvalidValue("ppm", f"must be at most {QUANTILES_MAX} a call, not {len(ppm)}")
    for quantile in ppm:
        _check_whole("ppm", quantile, 0, QUANTILE_PPM_MAX)


def check_buckets(buckets: int) -> None:
    """Refuse a histogram of 0 buckets or of too many."""
    _check_whole("buckets", buckets, 1, HISTOGRAM_BUCKETS_MAX)


# Batches


class BatchColumns(NamedTuple):
    """A batch's columns, each contiguous, of `rows` items of its type; None where the batch leaves it out."""

    rows: int
    score: memoryview
    tie: memoryview | None
    instance: memoryview | None
    player: memoryview | None
    op: memoryview | None


class BatchRow(NamedTuple):
    """One row as numbers: an Op, indices into the batch's tables, score and tie field."""

    op: int
    instance: int
    player: int
    score: int
    tie: int


class _Item(NamedTuple):
    name: str
    letters: str  # buffer formats that can mean this type; `l` and `L` are 4 or 8 bytes, by platform
    size_bytes: int


_INT64 = _Item("int64", "ql", 8)
_UINT32 = _Item("uint32", "IL", 4)
_UINT8 = _Item("uint8", "B", 1)
_NATIVE_MARKS = "@=<" if sys.byteorder == "little" else "@=>"


def check_batch(batch: UpdateBatch, *, instances_are_checked: bool = False) -> BatchColumns:
    """Check a batch as a whole, without its rows, and return its columns."""
    partition, epoch, after, upto = batch.partition, batch.epoch, batch.after, batch.upto
    for name, value in (("partition", partition), ("epoch", epoch), ("after", after), ("upto", upto)):
        if not (isinstance(value, int) and 0 <= value <= SEQUENCE_MAX):
            _refuse(f"{name} must be an integer of 0 … {SEQUENCE_MAX}, not {_shown(value)}")
    if upto < after:
        _refuse(f"upto {upto} must not be less than after {after}")
    if batch.ranks is not None and batch.ranks not in tuple(Ranking):
        _refuse(f"ranks must be None or one of {', '.join(Ranking)}, not {_shown(batch.ranks)}")
    if not _is_list(batch.players):
        _refuse(f"players must be a list or another sequence of str, not {type(batch.players).__name__}")
    score = _column("score", batch.score, _INT64)
    rows = len(score)
    columns = BatchColumns(
        rows,
        score,
        tie=None if batch.tie is None else _column("tie", batch.tie, _INT64, rows),
        instance=None if batch.instance is None else _column("instance", batch.instance, _UINT32, rows),
        player=None if batch.player is None else _column("player", batch.player, _UINT32, rows),
        op=None if batch.op is None else _column("op", batch.op, _UINT8, rows),
    )
    for name, length in (("rows", rows), ("instances", len(batch.instances)), ("players", len(batch.players))):
        if length > BATCH_ROWS_MAX:
            _refuse(f"{name} must be at most {BATCH_ROWS_MAX} a batch, not {length}: cut it")
    if not instances_are_checked:
        _check_instances(batch.instances)
    return columns


def batch_of_one(
    table: InstanceTable,
    player: str,
    score: int,
    ties: Sequence[int],
    *,
    at: int,
    ranks: Ranking,
    partition: int,
) -> UpdateBatch:
    """Return the batch equal to `apply_one`: event `at`, one row for each entry of the table."""
    count = len(table)
    if count == 0 or len(ties) != count:
        _refuse(f"one event must have a row at least and a tie for each; got {count} rows and {len(ties)} ties")
    check_score("score", score)
    for tie in ties:
        check_tie(tie)
    _check_whole("at", at, 1, SEQUENCE_MAX)
    return UpdateBatch(
        instances=table,
        players=[player],
        score=array("q", [score]) * count,
        tie=array("q", ties),
        instance=array("I", range(count)),
        player=array("I", bytes(4 * count)),
        partition=partition,
        after=at - 1,
        upto=at,
        ranks=ranks,
    )


def rows_of(columns: BatchColumns) -> Iterator[BatchRow]:
    """Return the rows, with the default of each column that the batch leaves out."""
    count = columns.rows
    scores = _values(columns.score, "q")
    ties = repeat(0, count) if columns.tie is None else _values(columns.tie, "q")
    instances = repeat(0, count) if columns.instance is None else _values(columns.instance, "I")
    players = range(count) if columns.player is None else _values(columns.player, "I")
    ops = repeat(Op.APPLY.value, count) if columns.op is None else _values(columns.op, "B")
    return map(BatchRow, ops, instances, players, scores, ties)


def check_rows(batch: UpdateBatch, columns: BatchColumns) -> None:
    """Refuse the first bad row, then an invalid id that no row uses.

    Slow, row by row: for the reference, and for an adapter that needs the reason after a fast check failed.
    """
    faults = {index: fault for index, player in enumerate(batch.players) if (fault := id_fault(player))}
    for row, (op, instance, player, _, tie) in enumerate(rows_of(columns)):
        if op > Op.CLEAR:
            raise MalformedBatch(row, f"op must be one of 0 … {Op.CLEAR.value}, not {op}")
        if instance >= len(batch.instances):
            raise MalformedBatch(row, f"instance {instance} is not in a table of {len(batch.instances)}")
        if op == Op.CLEAR:
            continue
        if player >= len(batch.players):
            raise MalformedBatch(row, f"player {player} is not in a table of {len(batch.players)}")
        if player in faults:
            raise MalformedBatch(row, f"players[{player}] {faults[player]}")
        if op != Op.REMOVE and not 0 <= tie <= TIE_FIELD_MAX:
            raise MalformedBatch(row, f"tie must be 0 … {TIE_FIELD_MAX}, not {tie}")
    for index, fault in faults.items():
        _refuse(f"players[{index}] {fault}")


def id_fault(player: object) -> str | None:
    """Return why this is no valid player id; None when it is one."""
    if not isinstance(player, str):
        return f"must be a str, not {type(player).__name__}"
    encoded = _utf8_bytes(player)
    if encoded is None:
        return "must be UTF-8, and has a lone surrogate"
    if not 1 <= len(encoded) <= PLAYER_BYTES_MAX:
        return f"must be 1 … {PLAYER_BYTES_MAX} bytes of UTF-8, not {len(encoded)}"
    return None


def check_rules(instance: InstanceKey, held: Rules, listed: Rules) -> None:
    """Refuse rules with another order or ties than the instance has; keep and bounds may differ."""
    if held.order is not listed.order or held.ties is not listed.ties:
        _refuse(
            f"{instance.text} is ordered {held.order} with ties by {held.ties}, not {listed.order} by {listed.ties}: "
            f"drop it first, or name another instance"
        )


def _check_instances(instances: Sequence[object]) -> None:
    checked: Rules | None = None
    for index, pair in enumerate(instances):
        match pair:
            case (InstanceKey() as key, Rules() as rules):
                pass
            case _:
                _refuse(f"instances[{index}] must be an (InstanceKey, Rules) pair, not {pair!r}")
        text = key.text
        encoded = text if text.isascii() else _utf8_bytes(text)
        if encoded is None or len(encoded) > INSTANCE_BYTES_MAX:
            _refuse(f"instances[{index}] must have a key of at most {INSTANCE_BYTES_MAX} bytes of UTF-8, not {text!r}")
        if rules is not checked:
            if not _are_bounds(rules.score_min, rules.score_max):
                _refuse(f"instances[{index}] must have bounds that are 64-bit integers, score_min ≤ score_max: {rules}")
            if not (isinstance(rules.keep, Keep) and isinstance(rules.order, Order) and isinstance(rules.ties, Ties)):
                _refuse(f"instances[{index}] must have a Keep, an Order and Ties of domain/order.py: {rules}")
            checked = rules  # many entries in a row share their rules


def _are_bounds(low: object, high: object) -> bool:
    return isinstance(low, int) and isinstance(high, int) and SCORE_MIN_POSSIBLE <= low <= high <= SCORE_MAX_POSSIBLE


def _column(name: str, column: Buffer, item: _Item, rows: int | None = None) -> memoryview:
    try:
        view = memoryview(column)
    except (TypeError, ValueError, BufferError) as error:
        raise MalformedBatch(None, f"column {name} must be a buffer of {item.name}: {error}") from error
    letter = view.format.lstrip(_NATIVE_MARKS)
    if len(letter) != 1 or letter not in item.letters or view.itemsize != item.size_bytes:
        _refuse(f"column {name} must be of {item.name}, not of format {view.format!r}")
    if view.ndim != 1 or not view.c_contiguous:
        _refuse(f"column {name} must be one contiguous dimension: copy it first")
    if rows is not None and len(view) != rows:
        _refuse(f"column {name} must have {rows} rows as score has, not {len(view)}")
    return view


def _values(column: memoryview, letter: str) -> array[int]:
    # A memoryview cannot index formats with a byte order mark, which ctypes writes: copy the bytes.
    return array(letter, column.tobytes())


def _utf8_bytes(player: str) -> bytes | None:
    try:
        return player.encode()
    except UnicodeEncodeError:
        return None


def _refuse(problem: str) -> NoReturn:
    raise MalformedBatch(None, problem)


def _is_list(players: object) -> bool:
    return isinstance(players, list | tuple) or (isinstance(players, Sequence) and not isinstance(players, str | bytes))


def _check_whole(field: str, value: object, low: int, high: int) -> None:
    if not (isinstance(value, int) and low <= value <= high):
        raise InvalidValue(field, f"must be an integer of {low} … {high}, not {_shown(value)}")


def _shown(value: object) -> str:
    # Python refuses to print integers of thousands of digits.
    if isinstance(value, int) and value.bit_length() > 128:
        return f"one of {value.bit_length()} bits"
    return f"{value!r:.100}"
