"""A database is brought to the schema we know, by whoever comes first, and months have tables before they begin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.contract.ledger_drafts import AT, NEXT_MONTH, control, draft, events_in, player_in
from tests.contract.postgres_ledgers import opened, uncommitted
from tests.servers.waiting import WAIT_S

from rankd.errors import InvalidValue, LedgerDamaged, LedgerNewer, LedgerUnavailable
from rankd.ledger.postgres import PostgresLedger, migrate
from rankd.ledger.postgres.ledger import known_scripts
from rankd.ledger.postgres.migrations import check_component, migrate_component

DAY = 86_400_000


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[PostgresLedger]:
    with opened(ledger_url) as opened_ledger:
        yield opened_ledger


def months(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'rankd.events'::regclass ORDER BY 1"
        ).fetchall()
    return [row[0].removeprefix("rankd.").removeprefix("events_") for row in rows]


def test_a_database_that_was_not_migrated_says_what_to_do(postgres_url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="run `rankd migrate`"):
        PostgresLedger(postgres_url)


def test_to_migrate_twice_changes_nothing(postgres_url: str) -> None:
    assert migrate(postgres_url, 3) == 0
    with opened(postgres_url) as ledger:
        ledger.append(draft(ledger, ("alice", 1)))
        identity = ledger.identity
    assert migrate(postgres_url) == migrate(postgres_url, 3) == len(known_scripts())

    with opened(postgres_url) as ledger:
        assert (ledger.partitions, ledger.identity) == (3, identity)
        assert events_in(ledger) == [("alice", 1)]


def test_the_number_of_partitions_is_fixed(ledger_url: str) -> None:
    with pytest.raises(InvalidValue, match="is 8 in this ledger"):
        migrate(ledger_url, 16)
    with opened(ledger_url) as ledger:
        assert ledger.partitions == 8


@pytest.mark.parametrize("partitions", [0, -1, 1_025])
def test_a_number_of_partitions_that_makes_no_sense_is_refused(partitions: int) -> None:
    with pytest.raises(InvalidValue, match="partitions"):
        migrate("postgresql://nowhere", partitions)


def test_a_ledger_may_have_one_partition(postgres_url: str) -> None:
    migrate(postgres_url, 1)
    with opened(postgres_url) as ledger:
        ledger.append_control([control()], 0)
        ledger.append(draft(ledger, ("alice", 1), ("bob", 2), seen=1, ordered=True))
        assert ledger.heads().sequences == (3,)


def test_many_migrate_at_once(postgres_url: str) -> None:
    width = 6
    start = threading.Barrier(width)

    def run(_: int) -> int:
        start.wait(WAIT_S)
        return migrate(postgres_url)

    with ThreadPoolExecutor(width) as threads:
        assert sorted(threads.map(run, range(width))) == [0, *[len(known_scripts())] * (width - 1)]
    with opened(postgres_url) as ledger:
        assert ledger.heads().sequences == (0,) * 8


# Versions


def test_a_newer_schema_is_refused(ledger_url: str) -> None:
    with psycopg.connect(ledger_url) as connection:
        connection.execute("UPDATE rankd.versions SET version = 9, usable_from = 9")

    with pytest.raises(LedgerNewer, match="upgrade rankd"):
        PostgresLedger(ledger_url)
    with pytest.raises(LedgerNewer, match="upgrade rankd"):
        migrate(ledger_url)


def test_a_newer_schema_that_leaves_us_what_we_need_is_used(ledger_url: str) -> None:
    with psycopg.connect(ledger_url) as connection:
        connection.execute("UPDATE rankd.versions SET version = 9, usable_from = 1")

    assert migrate(ledger_url) == 9
    with opened(ledger_url) as ledger:
        ledger.append(draft(ledger, ("alice", 1)))
        assert events_in(ledger) == [("alice", 1)]


def test_an_older_schema_says_what_to_do(postgres_url: str) -> None:
    first, second = "CREATE TABLE one (n integer)", "-- usable from version 1\nCREATE TABLE two (n integer)"
    migrate_component(postgres_url, "part", [first])
    migrate(postgres_url)

    with opened(postgres_url) as ledger, ledger.connections.using() as connection:
        check_component(connection, "part", 1)
        with pytest.raises(LedgerUnavailable, match="has version 1, and this rankd needs 2: run `rankd migrate`"):
            check_component(connection, "part", 2)
        assert migrate_component(postgres_url, "part", [first, second]) == 1
        check_component(connection, "part", 1)
        check_component(connection, "part", 2)


def test_events_of_a_newer_version_are_refused_by_whoever_reads_them(ledger_url: str) -> None:
    with opened(ledger_url) as ledger:
        ledger.append_control([control()], 0)
        ledger.append(draft(ledger, ("alice", 1), seen=1))
    with psycopg.connect(ledger_url) as connection:
        connection.execute("""UPDATE rankd.contexts SET context = replace(context, 'version":1}', 'version":99}')""")

    with opened(ledger_url) as ledger:
        with pytest.raises(LedgerNewer, match="upgrade rankd"):
            ledger.read([0] * ledger.partitions, 100)
        with pytest.raises(LedgerNewer, match="upgrade rankd"):
            ledger.controls(0)
        with pytest.raises(LedgerNewer, match="upgrade rankd"):
            ledger.history("alice", 10)


def test_a_context_that_makes_no_sense_is_damage(ledger_url: str) -> None:
    with opened(ledger_url) as ledger:
        ledger.append(draft(ledger, ("alice", 1)))
    with psycopg.connect(ledger_url) as connection:
        connection.execute("""UPDATE rankd.contexts SET context = replace(context, '"score"', '"ban"')""")

    with opened(ledger_url) as ledger, pytest.raises(LedgerDamaged, match="context 1 is damaged"):
        ledger.read([0] * ledger.partitions, 100)


def test_a_script_that_fails_leaves_nothing(postgres_url: str) -> None:
    scripts = ["CREATE TABLE one (n integer)", "CREATE TABLE one (n integer)"]
    with pytest.raises(LedgerUnavailable, match="already exists"):
        migrate_component(postgres_url, "part", scripts)

    assert migrate_component(postgres_url, "part", scripts[:1]) == 0


# Months


def test_months_are_made_ahead(postgres_url: str) -> None:
    migrate(postgres_url, now=AT)
    assert months(postgres_url) == ["2026_05", "2026_06", "2026_07", "2026_08"]

    with opened(postgres_url) as ledger:
        ledger.prepare(NEXT_MONTH)
        ledger.prepare(NEXT_MONTH + DAY)
    assert months(postgres_url) == ["2026_05", "2026_06", "2026_07", "2026_08", "2026_09"]


@pytest.mark.parametrize("at", [0, AT - 400 * DAY, AT + 4_000 * DAY])
def test_a_month_without_a_table_gets_one_when_it_is_needed(postgres_url: str, at: int) -> None:
    migrate(postgres_url, now=AT)
    with opened(postgres_url) as ledger:
        ledger.append(draft(ledger, ("alice", 1), at=at, key="k"))
        ledger.append_control([control(at=at + 40 * DAY)], 0)
        ledger.append(draft(ledger, ("alice", 2), at=at + 500 * DAY, seen=1))
        assert events_in(ledger) == [("alice", 1), ("alice", 2)]


def test_events_lie_in_the_month_of_their_commit(postgres_url: str) -> None:
    migrate(postgres_url, now=AT)
    with opened(postgres_url) as ledger:
        for score, at in enumerate([NEXT_MONTH - 1, NEXT_MONTH, AT]):
            ledger.append(draft(ledger, ("alice", score), at=at))
        with ledger.connections.using() as connection:
            rows = connection.execute(
                "SELECT tableoid::regclass::text, score, at FROM events ORDER BY score"
            ).fetchall()

    # The last one was sent with an earlier time; the ledger's own does not go back.
    assert rows == [("events_2026_05", 0, NEXT_MONTH - 1), ("events_2026_06", 1, NEXT_MONTH), ("events_2026_06", 2, AT)]


def test_many_come_into_a_new_month_at_once(postgres_url: str) -> None:
    migrate(postgres_url, now=AT)
    width = 6
    start = threading.Barrier(width)

    with opened(postgres_url) as ledger:

        def run(number: int) -> None:
            player_draft = draft(ledger, (f"player-{number}", number), at=AT + 1_000 * DAY)
            start.wait(WAIT_S)
            ledger.append(player_draft)

        with ThreadPoolExecutor(width) as threads:
            list(threads.map(run, range(width)))
        assert len(events_in(ledger)) == width


def test_months_are_made_while_others_append_and_read(ledger: PostgresLedger, ledger_url: str) -> None:
    with opened(ledger_url, answer_wait_s=2.0) as upkeep, uncommitted(ledger, draft(ledger, ("alice", 1))):
        upkeep.prepare(AT + 1_000 * DAY)
        upkeep.append(draft(upkeep, (player_in(1), 2), at=AT + 1_000 * DAY))
    assert len(events_in(ledger)) == 2


def test_a_role_that_may_make_no_tables_can_append_into_a_new_month(postgres_url: str) -> None:
    migrate(postgres_url, now=AT)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS clerk")
        connection.execute("CREATE ROLE clerk LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA rankd TO clerk")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rankd TO clerk")
    try:
        with opened(postgres_url.replace("rankd@", "clerk@")) as ledger:
            ledger.append(draft(ledger, ("alice", 1), at=AT + 1_000 * DAY))
            assert events_in(ledger) == [("alice", 1)]
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP OWNED BY clerk")
            connection.execute("DROP ROLE clerk")
