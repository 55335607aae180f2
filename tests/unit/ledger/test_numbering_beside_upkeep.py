"""Players are looked up on the writing connection, which upkeep uses too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.waiting import join_all

from rankd.ledger.database import Database
from rankd.ledger.numbers import PlayerNumbers


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path, None)
    yield opened
    opened.close()


def test_players_are_numbered_while_another_thread_writes(database: Database) -> None:
    players = PlayerNumbers(database)
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
            numbers = players.number([f"player-{batch}-{index}" for index in range(500)])
            assert len(set(numbers)) == 500
            players.forget_fresh()
    finally:
        done.set()
        join_all([upkeep])

    assert not problems


def test_looking_players_up_gives_nobody_a_number(database: Database) -> None:
    players = PlayerNumbers(database)
    players.look_up(["alice", "bob", "alice"])
    numbers = list(players.number(["bob", "alice"]))
    players.look_up(["alice", "carol"])

    assert numbers == [1, 2]
    with database.reading() as reader:
        assert reader.execute("SELECT count(*) FROM players").get == 0


def test_players_are_at_hand_after_a_start_whoever_comes(database: Database) -> None:
    with database.writing() as writer:
        writer.execute("INSERT INTO players (number, id) VALUES (1, 'alice'), (2, 'bob'), (9, 'carol')")
    players = PlayerNumbers(database)
    warmed: list[str] = []
    while (some := players.read_next(2)) is not None:
        players.warm(some)
        warmed += some.numbers
    database.exclusive = None  # type: ignore[assignment, method-assign]  # nobody is looked up any more
    numbers = list(players.number(["carol", "alice", "bob"]))

    assert warmed == ["alice", "bob", "carol"]
    assert numbers == [9, 1, 2]
