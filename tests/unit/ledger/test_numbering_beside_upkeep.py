"""Players are looked up on the writing connection, which upkeep uses too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.waiting import join_all

from rankd.ledger.database import Database
from rankd.ledger.sqlite import SqliteLedger


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path, None)
    yield opened
    opened.close()


def test_players_are_numbered_while_another_thread_writes(database: Database, tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path, database)
    done = threading.Event()
    problems: list[BaseException] = []

    def keep_up() -> None:
        try:
            while not done.is_set():
                with database.writing() as writer:
                    writer.execute("UPDATE registry_changes SET count = count")
        except BaseException as problem:
            problems.append(problem)

    upkeep = threading.Thread(target=keep_up)
    upkeep.start()
    try:
        for batch in range(60):
            numbers = ledger.number_players([f"player-{batch}-{index}" for index in range(500)])
            assert len(set(numbers)) == 500
            ledger.forget_numbers()
    finally:
        done.set()
        join_all([upkeep])
        ledger.close()

    assert not problems


def test_looking_players_up_gives_nobody_a_number(database: Database, tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path, database)
    ledger.look_up_players(["alice", "bob", "alice"])
    numbers = list(ledger.number_players(["bob", "alice"]))
    ledger.look_up_players(["alice", "carol"])
    ledger.close()

    assert numbers == [1, 2]
    with database.reading() as reader:
        assert reader.execute("SELECT count(*) FROM players").get == 0


def test_players_are_at_hand_after_a_start_whoever_comes(database: Database, tmp_path: Path) -> None:
    with database.writing() as writer:
        writer.execute("INSERT INTO players (number, id) VALUES (1, 'alice'), (2, 'bob'), (9, 'carol')")
    ledger = SqliteLedger(tmp_path, database)
    seen: list[str] = []
    while (players := ledger.next_players(2)) is not None:
        ledger.warm_players(players)
        seen += players.numbers
    database.exclusive = None  # type: ignore[assignment, method-assign]  # nobody is looked up any more
    numbers = list(ledger.number_players(["carol", "alice", "bob"]))
    ledger.close()

    assert seen == ["alice", "bob", "carol"]
    assert numbers == [9, 1, 2]
