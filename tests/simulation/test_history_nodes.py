"""Nodes record the same places, whoever appended the midnight, and so does one that comes later."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

import rankd
from rankd.errors import InvalidValue
from rankd.node.open_node import HISTORY, open_node
from rankd.node.open_thin import open_thin
from rankd.node.shared_stores import SharedStores

from .conftest import LendStores
from .playing import Folders

BEGIN_MS = 1_777_896_000_000
DAY_MS = 86_400_000
DAYS = 12


def files(folder: Path) -> dict[str, bytes]:
    history = folder / HISTORY
    return {str(path.relative_to(history)): path.read_bytes() for path in history.rglob("*.places")}


def test_every_node_records_the_same_places_and_tells_the_same_course(
    folders: Folders, lend_stores: LendStores
) -> None:
    rng, clock, days = random.Random(5), rankd.ManualClock(BEGIN_MS), range(DAYS)
    with lend_stores(3) as lent, ExitStack() as opened:
        stores = SharedStores(lent.ledger_url)
        places = [folders() for _ in range(3)]
        first, second = (opened.enter_context(open_node(stores, place, clock=clock)) for place in places[:2])
        first.define("arcade", windows=["all_time", "weekly"], history={"top": "all"})
        second.settle()
        for _ in days:
            for node in (first, second):
                node.submit_many("arcade", [(f"p-{rng.randrange(50)}", rng.randrange(1_000)) for _ in range(30)])
            clock.advance(DAY_MS)
            first.settle()
            second.settle()
        third = opened.enter_context(open_node(stores, places[2], clock=clock))
        for node in (first, second, third):
            node.settle()
            node.verify()
            node.snapshot()  # waits until what was recorded is on disk
        recorded = [files(place) for place in places]
        assert len(recorded[0]) > DAYS
        assert recorded[0] == recorded[1] == recorded[2]
        courses = [node.course("arcade", "p-7").points for node in (first, second, third)]
        assert courses[0] == courses[1] == courses[2]
        assert len(courses[0]) > DAYS // 2


def test_a_process_with_its_ranks_in_redis_says_who_knows_the_past(lend_stores: LendStores) -> None:
    with lend_stores(1) as lent, open_thin(SharedStores(lent.ledger_url), lent.ranks_url) as boards:
        boards.define("arcade", history={})
        for ask in (lambda: boards.top("arcade", as_of=BEGIN_MS), lambda: boards.course("arcade", "alice")):
            with pytest.raises(InvalidValue, match=r"ask a server with ranks\.url = engine:"):
                ask()
