"""Commits of every size: all of their rows, or none."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rankd.errors import Closed, LedgerUnavailable
from rankd.ledger.database import Database
from rankd.ledger.event import Accepted, Context, Detail, Kind, Scored, rows
from rankd.ledger.sqlite import SqliteLedger

from .drafts import draft, everything, opened, scores


def context(sender: str) -> Context:
    return Context(Kind.SCORE, "arcade", sender, {"arcade": Accepted(1)})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path)) as opened:
        yield opened


@pytest.fixture
def ledger(tmp_path: Path, database: Database) -> Iterator[SqliteLedger]:
    with closing(SqliteLedger(tmp_path, database)) as opened:
        yield opened


def test_a_commit_of_any_size_is_read_as_it_was_written(tmp_path: Path, rng: random.Random) -> None:
    """Of one context and of several, with details and without, of as many rows as a statement takes and of more."""
    countries: list[Detail | None] = [
        None,
        Detail({"country": "BR"}),
        Detail({"country": 'a "quoted" \u00e9\U0001f3b2'}),
    ]
    written: list[Scored] = []
    with opened(tmp_path) as ledger:
        for at, sizes in enumerate(([1], [1], [99, 1], [100], [101], [1, 250, 3], [1_500]), start=1):
            stretches = [
                scores(
                    ledger,
                    *[(f"p{rng.randrange(50)}", rng.randrange(-(2**63), 2**63)) for _ in range(size)],
                    context=context("s" * rng.randrange(1, 300)),
                    at=at,
                    tiebreak=at % 3,
                    detail=rng.choices(countries, k=size) if rng.random() < 0.5 else None,
                )
                for size in sizes
            ]
            ledger.append(draft(*stretches, at=at))
            written.extend(row for stretch in stretches for row in rows(stretch))
            assert ledger.head() == ledger._head
    with opened(tmp_path) as ledger:
        assert [row for stretch in everything(ledger) for row in rows(stretch)] == written


def test_a_commit_that_fails_in_its_middle_leaves_nothing(database: Database, ledger: SqliteLedger) -> None:
    ledger.append(draft(scores(ledger, ("ann", 1))))
    with database.writing() as writer:
        writer.execute("INSERT INTO events SELECT 150, context, at, player, score, tiebreak, detail, NULL FROM events")
    with pytest.raises(LedgerUnavailable, match=r"UNIQUE constraint failed: events\.sequence"):
        ledger.append(draft(scores(ledger, *[("ann", score) for score in range(200)])))
    with database.writing() as writer:
        writer.execute("DELETE FROM events WHERE sequence = 150")

    assert ledger.recover().sequence == 1
    assert ledger.append(draft(scores(ledger, *[("ann", score) for score in range(200)]))).sequence == 201
    assert sum(map(len, everything(ledger))) == 201


def test_other_threads_run_while_a_commit_is_inserted(database: Database, ledger: SqliteLedger) -> None:
    """A statement that waits, inside SQLite, for a function in Python that another thread must let go on."""
    reached, go_on = threading.Event(), threading.Event()

    def wait(*_: object) -> int:
        reached.set()
        return int(go_on.wait(60))

    def let_go() -> None:
        assert reached.wait(60)
        go_on.set()

    with database.exclusive() as writer:
        writer.create_scalar_function("wait", wait, 0)
        writer.execute("CREATE TEMP TRIGGER waits AFTER INSERT ON events BEGIN SELECT wait(); END")
    other = threading.Thread(target=let_go)
    other.start()
    assert ledger.append(draft(scores(ledger, *[("ann", score) for score in range(200)]))).sequence == 200
    other.join()
    assert go_on.is_set()


def test_an_event_that_cannot_be_written_is_not_there(tmp_path: Path, database: Database, ledger: SqliteLedger) -> None:
    head = ledger.append(draft(scores(ledger, ("ann", 10))))
    other = Database(tmp_path)
    database._writer.set_busy_timeout(0)
    with other.writing(), pytest.raises(LedgerUnavailable, match="locked"):
        ledger.append(draft(scores(ledger, ("ann", 11))))
    other.close()

    assert ledger.recover() == head
    assert ledger.append(draft(scores(ledger, ("ann", 12)))).sequence == 2


def test_a_closed_file_takes_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.close()

    with pytest.raises(Closed):
        database.write_one("INSERT INTO players (number, id) VALUES (1, 'ann')", ())
