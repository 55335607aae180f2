"""A node that does not know a board looks in the ledger, at a bounded rate and never on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from tests.servers.waiting import WAIT_S, wait_until

from rankd.background import ThreadNeeded
from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.errors import Closed, LedgerUnavailable
from rankd.intake import board_lookup
from rankd.intake.board_lookup import BoardLookup

ASKED = 200


class Ledger:
    """Boards that are defined by others, and known when the ledger is followed."""

    def __init__(self) -> None:
        self.known: dict[str, Board] = {}
        self.defined: dict[str, Board] = {}
        self.looks = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.is_away = False

    def define(self, board_id: str) -> None:
        self.defined[board_id] = define_board(board_id, {})

    def follow(self) -> None:
        self.looks += 1
        seen = dict(self.defined)
        assert self.may_answer.wait(60)
        if self.is_away:
            raise LedgerUnavailable("PostgreSQL is away")
        self.known.update(seen)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


class Finder:
    """Finds boards as the writer does."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._look = BoardLookup(ledger.follow)
        self.close = self._look.close

    def get(self, board_id: str) -> Board | None:
        if board_id not in self._ledger.known:
            self._look.open()
        return self._ledger.known.get(board_id)


@pytest.fixture
def known(ledger: Ledger) -> Iterator[Finder]:
    with closing(Finder(ledger)) as made:
        yield made


def test_a_board_that_is_known_costs_no_look(ledger: Ledger, known: Finder) -> None:
    ledger.define("arcade")
    ledger.follow()
    assert known.get("arcade") is ledger.known["arcade"]
    assert ledger.looks == 1


def test_a_board_that_another_node_defined_is_found(ledger: Ledger, known: Finder) -> None:
    ledger.define("arcade")
    assert known.get("arcade") is not None
    assert known.get("words") is None


def test_many_who_ask_at_once_share_a_look(ledger: Ledger, known: Finder) -> None:
    ledger.may_answer.clear()
    with ThreadPoolExecutor(ASKED) as threads:
        asked = [threads.submit(known.get, f"board-{number}") for number in range(ASKED)]
        wait_until(lambda: ledger.looks == 1)
        ledger.may_answer.set()
        assert [future.result(WAIT_S) for future in asked] == [None] * ASKED
    assert ledger.looks <= ASKED // 10


def test_who_asks_while_somebody_looks_waits_for_the_next_look(ledger: Ledger, known: Finder) -> None:
    ledger.may_answer.clear()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(known.get, "words")
        wait_until(lambda: ledger.looks == 1)
        ledger.define("arcade")  # behind what the look under way has seen
        second = threads.submit(known.get, "arcade")
        ledger.may_answer.set()
        assert first.result(WAIT_S) is None
        assert second.result(WAIT_S) is not None


def test_an_event_loop_is_refused(ledger: Ledger, known: Finder) -> None:
    async def ask() -> None:
        known.get("arcade")

    with pytest.raises(ThreadNeeded):
        asyncio.run(ask())
    assert ledger.looks == 0


def test_a_ledger_that_is_away_is_said_to_be(ledger: Ledger, known: Finder) -> None:
    ledger.is_away = True
    with pytest.raises(LedgerUnavailable):
        known.get("arcade")


def test_a_ledger_that_hangs_is_not_waited_for_for_long(
    ledger: Ledger, known: Finder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_lookup, "LOOK_WAIT_S", 0.05)
    ledger.may_answer.clear()
    with pytest.raises(LedgerUnavailable, match="does not answer"):
        known.get("arcade")
    ledger.may_answer.set()


def test_nothing_is_looked_for_after_the_end(ledger: Ledger, known: Finder) -> None:
    known.close()
    with pytest.raises(Closed):
        known.get("arcade")
