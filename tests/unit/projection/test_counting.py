"""Entries counted as they come and go, beside a scan of every instance."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from pathlib import Path
from shutil import rmtree

import rankd
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking, Rules
from rankd.node.open_embedded import embedded_of
from rankd.projection.counting import CountingStore
from rankd.projection.port import Op, UpdateBatch, Verdict

DAY_MS = 86_400_000
MONDAY = 1_777_852_800_000  # 2026-05-04T00:00:00Z
ALL_TIME, DAILY = InstanceKey("arcade"), InstanceKey("arcade", "daily:2026-05-04")
XP = InstanceKey("xp")
TABLE = tuple((key, Rules()) for key in (ALL_TIME, DAILY, XP))


def send(store: CountingStore, *rows: tuple[int, str, Op]) -> None:
    """Apply rows of (instance, player, op)."""
    players = sorted({player for _, player, _ in rows})
    after = store.position(0).sequence
    batch = UpdateBatch(
        instances=TABLE,
        players=players,
        score=array("q", bytes(8 * len(rows))),
        instance=array("I", [instance for instance, _, _ in rows]),
        player=array("I", [players.index(player) for _, player, _ in rows]),
        op=bytes(op for _, _, op in rows),
        after=after,
        upto=after + 1,
    )
    assert store.apply(batch).verdict is Verdict.APPLIED


def scanned(store: CountingStore) -> dict[str, int]:
    counts = Counter[str]()
    for key in store.instances():
        counts[key.board] += store.total(key)
    return dict(counts)


def check(store: CountingStore, arcade: int, xp: int) -> None:
    expected = {board: count for board, count in (("arcade", arcade), ("xp", xp)) if count}
    assert scanned(store) == expected
    assert (store.board_entries("arcade"), store.board_entries("xp"), store.entries) == (arcade, xp, arcade + xp)


def filled() -> CountingStore:
    store = CountingStore()
    send(store, (0, "ann", Op.APPLY), (0, "ann", Op.APPLY), (0, "bob", Op.PUT), (1, "ann", Op.APPLY), (2, "cy", Op.PUT))
    check(store, arcade=3, xp=1)
    return store


def test_rows_of_several_boards_count_for_each() -> None:
    store = filled()
    send(store, (0, "ann", Op.REMOVE), (2, "cy", Op.REMOVE), (2, "di", Op.APPLY), (2, "eve", Op.APPLY))
    check(store, arcade=2, xp=2)


def test_a_row_that_takes_everybody_out_counts_what_was_there_and_what_comes_after_it() -> None:
    store = filled()
    send(store, (0, "fay", Op.APPLY), (0, "ann", Op.CLEAR), (0, "gil", Op.APPLY), (2, "hal", Op.APPLY))
    check(store, arcade=2, xp=2)


def test_one_event_counts_in_each_instance_that_it_is_new_in() -> None:
    store = filled()
    table = (*TABLE,)  # which the store sees with the first of them
    for player in ("bob", "bob", "cy", "ivy"):
        at = store.position(0).sequence + 1
        store.apply_one(table, player, 5, [0, 0, 0], at=at, ranks=Ranking.ORDINAL, partition=0)
    check(store, arcade=3 + 1 + 2 + 2, xp=1 + 1 + 0 + 1)
    assert store.apply_one(table, "jo", 5, [0, 0, 0], at=at, ranks=Ranking.ORDINAL, partition=0) is Verdict.DUP
    check(store, arcade=8, xp=3)


def test_events_by_several_tables_in_turn_are_counted_once_where_they_share_instances() -> None:
    store = filled()
    tables = [(*TABLE,), (*TABLE[:2],), (*TABLE[1:],)]
    for player in ("ivy", "jo", "ivy"):
        for table in tables:
            at = store.position(0).sequence + 1
            store.apply_one(table, player, 5, [0] * len(table), at=at, ranks=Ranking.ORDINAL, partition=0)
        check(store, **{board: scanned(store)[board] for board in ("arcade", "xp")})
    check(store, arcade=3 + 2 * 2, xp=1 + 2)


def test_a_batch_that_came_already_counts_nothing() -> None:
    store = filled()
    batch = UpdateBatch(instances=TABLE, players=["kim"], score=array("q", [1]), after=0, upto=1)
    assert store.apply(batch).verdict is Verdict.DUP
    check(store, arcade=3, xp=1)


def test_what_is_dropped_and_what_is_loaded_is_counted(tmp_path: Path) -> None:
    store = filled()
    store.save(tmp_path / "snapshot")
    assert store.drop(ALL_TIME)
    assert not store.drop(ALL_TIME)
    check(store, arcade=1, xp=1)
    check(CountingStore.load(tmp_path / "snapshot"), arcade=3, xp=1)


def test_a_library_that_is_used_reset_restarted_and_retained_counts_as_a_scan_does(tmp_path: Path) -> None:
    rng, clock = random.Random(20_260_504), rankd.ManualClock(MONDAY)
    for start in range(4):
        if start % 2:
            rmtree(tmp_path / "snapshots")  # all of it is replayed
        with rankd.open(tmp_path, clock=clock) as boards:
            store = embedded_of(boards).rank_store
            for round_ in range(12):
                boards.define("teams", team={"attribute": "guild", "by": "sum"}, windows=["daily"])
                boards.define("arcade", windows=["all_time", "daily"], scopes=["country"], retention={"daily": "1d"})
                boards.define("feeder", feeds=["arcade"])
                for board in ("arcade", "feeder", "teams"):
                    rows = [
                        {
                            "player": f"p{rng.randrange(60)}",
                            "score": rng.randrange(100),
                            "attributes": {"country": rng.choice("ABC"), "guild": f"g{rng.randrange(4)}"},
                        }
                        for _ in range(rng.randrange(1, 40))
                    ]
                    boards.submit_many(board, rows)
                    boards.submit(board, f"p{rng.randrange(60)}", 5)
                match rng.randrange(5):
                    case 0:
                        boards.remove("arcade", f"p{rng.randrange(60)}")
                    case 1:
                        boards.reset("arcade", rng.choice(["daily", "all_time"]))
                    case 2:
                        boards.delete("feeder")
                    case 3:
                        boards.reset("teams")
                clock.advance(DAY_MS // 3)
                boards.settle()
                counts = scanned(store)
                figures, by_board = boards.figures(), boards.entries_by_board()
                assert {board: count for board, count in by_board.items() if count} == counts, (start, round_)
                assert figures.entries == sum(counts.values())
                assert set(by_board) == set(boards.list())
