"""Events are appended by native code where there is any, else by the driver: both leave the same."""

from __future__ import annotations

import random
import threading
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest
from tests.servers.waiting import join_all

from rankd.errors import LedgerUnavailable
from rankd.ledger.database import Database
from rankd.ledger.event import Accepted, Context, Detail, Kind, Single
from rankd.ledger.rows import INSERT_ONE
from rankd.ledger.sqlite import SqliteLedger
from rankd.ledger.witness import WITNESS_NAME

from .drafts import append_by, ask, draft, everything, opened, scores

if TYPE_CHECKING:
    from rankd._appender import Appender

appender = pytest.importorskip("rankd._appender")
WAYS = ("native", "driver")


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


@pytest.fixture
def native(database: Database, ledger: SqliteLedger) -> Appender:
    """What the ledger appends by."""
    assert ledger.head().sequence == 0
    assert database.appender is not None
    return database.appender


@contextmanager
def opened_by(way: str, parent: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteLedger]:
    """Open a ledger in a folder named for how events are appended to it."""
    folder = parent / way
    folder.mkdir()
    with monkeypatch.context() as patched:
        append_by(way, patched)
        with opened(folder) as ledger:
            yield ledger


def append(ledger: SqliteLedger, event: Single) -> int:
    """Append as a lone score that goes the way of the one before it."""
    known = ledger.append_known(event.context, event.at, event.player_id, event.score, event.tiebreak)
    return ledger.append_single(event).sequence if known is None else known


def test_both_ways_make_the_same_rows_seals_and_witness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    """Contexts are of any size: a hash of whole blocks is another case than one that ends in the middle of one."""
    events = [(f"p{rng.randrange(9)}", rng.randrange(-(2**63), 2**63), "s" * rng.randrange(1, 400)) for _ in range(300)]
    for way in WAYS:
        with opened_by(way, tmp_path, monkeypatch) as ledger:
            for at, (player, score, sender) in enumerate(events, start=1):
                number = ledger.number_context(context(sender))
                append(ledger, Single(number, at, player, score, at % 3))  # context and player may be new
                known = ledger.append_known(number, at, player, score, 0)
                assert (known is not None) == (way == "native")
                if known is None:
                    ledger.append_single(Single(number, at, player, score, 0))
            assert ledger.head() == ledger._head
            everything(ledger)

    rows = "SELECT * FROM events ORDER BY sequence"
    assert ask(tmp_path / "native", rows) == ask(tmp_path / "driver", rows)
    assert (tmp_path / "native" / WITNESS_NAME).read_bytes() == (tmp_path / "driver" / WITNESS_NAME).read_bytes()


def test_both_ways_make_the_same_of_a_commit_of_many_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    """Of one context and of several, with details and without, of as many rows as a statement takes and of more."""
    countries: list[Detail | None] = [
        None,
        Detail({"country": "BR"}),
        Detail({"country": 'a "quoted" \u00e9\U0001f3b2'}),
    ]
    commits = [
        [
            (
                "s" * rng.randrange(1, 3),
                [(f"p{rng.randrange(50)}", rng.randrange(-(2**63), 2**63)) for _ in range(size)],
                rng.choices(countries, k=size) if rng.random() < 0.5 else None,
            )
            for size in sizes
        ]
        for sizes in ([1], [99, 1], [101], [1, 250, 3], [1_500])
    ]
    for way in WAYS:
        with opened_by(way, tmp_path, monkeypatch) as ledger:
            for at, commit in enumerate(commits, start=1):
                ledger.append(
                    draft(
                        *[
                            scores(ledger, *events, context=context(sender), at=at, tiebreak=at % 3, detail=details)
                            for sender, events, details in commit
                        ],
                        at=at,
                    )
                )
            assert sum(map(len, everything(ledger))) == sum(
                len(events) for commit in commits for _, events, _ in commit
            )

    rows = "SELECT *, typeof(detail), typeof(seal) FROM events ORDER BY sequence"
    assert ask(tmp_path / "native", rows) == ask(tmp_path / "driver", rows)
    assert (tmp_path / "native" / WITNESS_NAME).read_bytes() == (tmp_path / "driver" / WITNESS_NAME).read_bytes()


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
    join_all([other])
    assert go_on.is_set()


def test_columns_of_other_lengths_or_kinds_are_refused(native: Appender) -> None:
    one, two = array("q", [1]), array("q", [1, 2])
    with pytest.raises(ValueError, match="one length"):
        native.insert(1, two, two, two, one, two, None, bytes(24))
    with pytest.raises(ValueError, match="one length"):
        native.insert(1, two, two, two, two, two, [b""], bytes(24))
    with pytest.raises(ValueError, match="64-bit"):
        native.insert(1, array("d", [1]), one, one, one, one, None, bytes(24))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.insert(1, one, one, one, one, one, ["text"], bytes(24))  # type: ignore[list-item]
    with pytest.raises(TypeError):
        native.insert(1, [1], one, one, one, one, None, bytes(24))  # type: ignore[arg-type]


def test_what_is_new_is_numbered_first(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        number = ledger.number_context(context("local"))
        assert ledger.append_known(number, 1, "ann", 10, 0) is None
        ledger.append_single(Single(number, 1, "ann", 10, 0))
        assert ledger.append_known(number, 2, "bob", 10, 0) is None
        assert ledger.append_known(number, 2, "ann", 11, 0) == 2
        other = ledger.number_context(context("key-1"))
        assert ledger.append_known(other, 3, "ann", 12, 0) is None


def test_what_sqlite_says_is_the_error_that_the_driver_would_raise(
    tmp_path: Path, database: Database, ledger: SqliteLedger, native: Appender
) -> None:
    number = ledger.number_context(context("local"))
    ledger.append_single(Single(number, 1, "ann", 10, 0))
    other = Database(tmp_path)
    database._writer.set_busy_timeout(0)
    with other.writing(), pytest.raises(LedgerUnavailable, match="locked") as raised:
        ledger.append_known(number, 2, "ann", 11, 0)
    other.close()
    assert isinstance(raised.value.__cause__, apsw.BusyError)
    with pytest.raises(LedgerUnavailable, match=r"UNIQUE constraint failed: events\.sequence"):
        database.append_one(native, bytes(24), b"{}", (1, 1, 2, 1, 3, 0))

    assert ledger.recover().sequence == 1
    ledger.look_up_players(["ann", "bob"])
    assert append(ledger, Single(number, 3, "ann", 12, 0)) == 2


def test_an_appender_that_is_closed_appends_nothing_and_holds_nothing(ledger: SqliteLedger, native: Appender) -> None:
    ledger.close()

    with pytest.raises(ValueError, match="closed"):
        native.append(bytes(24), b"{}", 1, 1, 1, 1, 1, 0)
    one = array("q", [1])
    with pytest.raises(ValueError, match="closed"):
        native.insert(1, one, one, one, one, one, None, bytes(24))
    native.close()


def test_an_appender_wants_a_statement_of_eight_values_and_a_witness(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "other.db"))
    with pytest.raises(ValueError, match="no such table"):
        appender.Appender(connection.sqlite3_pointer(), INSERT_ONE, bytearray(24))
    with pytest.raises(ValueError, match="eight"):
        appender.Appender(connection.sqlite3_pointer(), "SELECT 1", bytearray(24))
    with pytest.raises(ValueError, match="length"):
        appender.Appender(connection.sqlite3_pointer(), INSERT_ONE, bytearray(23))
    with pytest.raises(BufferError):
        appender.Appender(connection.sqlite3_pointer(), INSERT_ONE, bytes(24))
    connection.close()
