"""Players are numbered beside other threads, and nobody twice: after a start, a failure, a close half way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.ledger_drafts import scores
from tests.servers.load_bound import LoadBound
from tests.servers.waiting import join_all

from rankd.errors import Closed
from rankd.ledger.sqlite import history, numbers, player_ids
from rankd.ledger.sqlite.database import Database
from rankd.ledger.sqlite.numbers import PlayerNumbers

from .drafts import draft, opened


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path, None)
    yield opened
    opened.close()


def test_players_are_numbered_while_another_thread_writes(database: Database) -> None:
    players = PlayerNumbers(database)
    bound = LoadBound()
    done = threading.Event()
    problems: list[BaseException] = []

    def keep_up() -> None:
        try:
            while not done.is_set() and bound.take():
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


def test_players_on_disk_are_known_after_a_start_gaps_included(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "PLAYERS_READ_AT_ONCE", 2)
    with database.writing() as writer:
        writer.execute("INSERT INTO players (number, id) VALUES (1, 'alice'), (2, 'bob'), (8, 'dave'), (9, 'carol')")
    players = PlayerNumbers(database)

    assert list(players.number(["carol", "erin", "alice", "bob", "erin", "dave"])) == [9, 10, 1, 2, 10, 8]


def test_a_number_whose_commit_took_effect_though_it_failed_is_not_given_again(database: Database) -> None:
    players = PlayerNumbers(database)
    assert list(players.number(["alice", "bob"])) == [1, 2]
    with database.writing() as writer:
        players.save(writer)
    players.forget_fresh()
    players.saved()  # of a transaction without new players

    assert list(players.number(["carol", "bob"])) == [3, 2]
    players.forget_fresh()
    assert list(players.number(["dave"])) == [3]


def test_no_number_is_given_when_reading_was_ended_half_way(database: Database) -> None:
    players = PlayerNumbers(database)
    players.close()

    with pytest.raises(Closed):
        players.number(["alice"])


def test_the_first_commit_waits_for_the_players_that_a_start_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "PLAYERS_READ_AT_ONCE", 1)
    everybody = [f"p{number}" for number in range(2_000)]
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, *((player, 1) for player in everybody))))
    with opened(tmp_path) as ledger:
        ledger.load_players()
        event_run = scores(ledger, *((player, 2) for player in reversed(everybody)))
        ledger.append(draft(event_run))

    assert list(event_run.player) == list(range(len(everybody), 0, -1))


def test_a_commit_gets_in_between_the_steps_of_indexing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CHUNK_EVENTS", 8)
    monkeypatch.setattr(player_ids, "CHUNK_PLAYERS", 8)
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, *((f"p{number}", 1) for number in range(8)))))
        commits: list[int] = []

        def commit_meanwhile(_database: Database) -> None:
            player = f"meanwhile-{len(commits)}"
            committing = threading.Thread(target=lambda: ledger.append(draft(scores(ledger, (player, 1)))))
            committing.start()
            join_all([committing])
            commits.append(ledger.heads().sequences[0])

        monkeypatch.setattr(Database, "give_way", commit_meanwhile)
        ledger.player_index.index_chunk()
        assert ledger.player_ids.index_chunk()

    assert commits == list(range(9, 9 + history.SHARES + 1))
