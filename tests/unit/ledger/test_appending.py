"""Commits of every size: all of their rows, or none."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.contract.ledger_drafts import scores
from tests.servers.waiting import join_all

from rankd.errors import Closed, LedgerUnavailable
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind, Scored, rows
from rankd.ledger.port import Draft
from rankd.ledger.sqlite.database import Database
from rankd.ledger.sqlite.ledger import LedgerHead, SqliteLedger

from .drafts import draft, end_of, everything, opened

WAIT_S = 20.0
Append = Callable[[SqliteLedger, Draft], LedgerHead]


def cut_off_after(append: Append) -> Append:
    """Return an append that commits, and then fails all the same."""

    def cut_off(ledger: SqliteLedger, draft: Draft) -> LedgerHead:
        append(ledger, draft)
        raise LedgerUnavailable("cut off")

    return cut_off


def context(sender: str) -> Context:
    return Context(EventKind.SCORE, "arcade", sender, {"arcade": AcceptanceContext(1)})


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
            event_runs = [
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
            ledger.append(draft(*event_runs, at=at))
            written.extend(row for event_run in event_runs for row in rows(event_run))
            assert ledger.heads().at == at
    with opened(tmp_path) as ledger:
        assert [row for event_run in everything(ledger) for row in rows(event_run)] == written


def test_a_commit_that_fails_in_its_middle_leaves_nothing(database: Database, ledger: SqliteLedger) -> None:
    ledger.append(draft(scores(ledger, ("ann", 1))))
    with database.writing() as writer:
        writer.execute("INSERT INTO events SELECT 150, context, at, player, score, tiebreak, detail, NULL FROM events")
    with pytest.raises(LedgerUnavailable, match=r"UNIQUE constraint failed: events\.sequence"):
        ledger.append(draft(scores(ledger, *[("ann", score) for score in range(200)])))
    with database.writing() as writer:
        writer.execute("DELETE FROM events WHERE sequence = 150")

    assert end_of(ledger) == 1
    assert ledger.append(draft(scores(ledger, *[("ann", score) for score in range(200)]))).end == {0: 201}
    assert sum(map(len, everything(ledger))) == 201


def test_other_threads_run_while_a_commit_is_inserted_and_see_the_end_before_it(
    database: Database, ledger: SqliteLedger
) -> None:
    """A statement that waits, inside SQLite, for a function in Python that another thread must let go on."""
    reached, go_on, ends = threading.Event(), threading.Event(), list[int]()
    ledger.append(draft(scores(ledger, ("ann", 0))))

    def wait(*_: object) -> int:
        reached.set()
        in_time = go_on.wait(WAIT_S)
        go_on.set()  # who comes too late has failed already
        return int(in_time)

    def let_go() -> None:
        assert reached.wait(WAIT_S)
        ends.append(end_of(ledger))
        go_on.set()

    with database.exclusive() as writer:
        writer.create_scalar_function("wait", wait, 0)
        writer.execute("CREATE TEMP TRIGGER waits AFTER INSERT ON events BEGIN SELECT wait(); END")
    other = threading.Thread(target=let_go)
    other.start()
    assert ledger.append(draft(scores(ledger, *[("ann", score) for score in range(200)]))).end == {0: 201}
    join_all([other])
    assert ends == [1]
    assert go_on.is_set()


def test_an_event_that_cannot_be_written_is_not_there(tmp_path: Path, database: Database, ledger: SqliteLedger) -> None:
    ledger.append(draft(scores(ledger, ("ann", 10))))
    heads = ledger.heads()
    other = Database(tmp_path)
    database._writer.set_busy_timeout(0)
    with other.writing(), pytest.raises(LedgerUnavailable, match="locked"):
        ledger.append(draft(scores(ledger, ("ann", 11))))
    other.close()

    assert ledger.heads() == heads
    assert ledger.append(draft(scores(ledger, ("ann", 12)))).end == {0: 2}


@pytest.mark.parametrize("newcomers", [[], ["bob", "carol"]])
def test_an_append_that_failed_after_its_commit_is_there_and_the_next_goes_on_behind_it(
    tmp_path: Path, ledger: SqliteLedger, newcomers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.append(draft(scores(ledger, ("ann", 10))))
    with monkeypatch.context() as patched:
        patched.setattr(SqliteLedger, "_append", cut_off_after(SqliteLedger._append))
        with pytest.raises(LedgerUnavailable, match="cut off"):
            ledger.append(draft(scores(ledger, ("ann", 11), *((player, 1) for player in newcomers))))

    end = 2 + len(newcomers)
    assert end_of(ledger) == end
    assert sum(map(len, everything(ledger))) == end
    again = draft(scores(ledger, *((player, 2) for player in newcomers), ("dan", 2), context=context("other")))
    assert ledger.append(again).place(0) == (0, end + 1)
    with opened(tmp_path) as reopened:
        read = [(row.player, row.score) for event_run in everything(reopened) for row in rows(event_run)]
    first, second = ([(player, score) for player in newcomers] for score in (1, 2))
    assert read == [("ann", 10), ("ann", 11), *first, *second, ("dan", 2)]


def test_a_closed_file_takes_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.close()

    with pytest.raises(Closed):
        database.write_one("INSERT INTO players (number, id) VALUES (1, 'ann')", ())
