"""The backlog of a shared ledger: how far nodes have ranked, and holds of writes that leave writers their part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from tests.servers.waiting import wait_until

from rankd.ledger.backlog import HOLD_MS_MAX, Backlog, BacklogState
from rankd.ledger.postgres.backlog import PostgresBacklog
from rankd.ledger.postgres.connections import Connections
from rankd.ledger.postgres.ledger import PostgresLedger, migrate
from rankd.ledger.postgres.migrations import migrate_component
from rankd.node.shared_stores import COORDINATION, SharedStores, coordination_scripts

PARTITIONS = 3


@pytest.fixture
def open_backlog(postgres_url: str) -> Iterator[Callable[[], Backlog]]:
    """Return a function that opens the backlog in one more process."""
    migrate(postgres_url, PARTITIONS)
    ledgers: list[PostgresLedger] = []

    def opened() -> Backlog:
        ledgers.append(PostgresLedger(postgres_url))
        return ledgers[-1].backlog

    yield opened
    for ledger in ledgers:
        with closing(ledger):
            pass


def test_a_new_ledger_has_no_ranked_positions_and_no_hold(open_backlog: Callable[[], Backlog]) -> None:
    assert open_backlog().read() == BacklogState((), is_held=False)


def test_the_furthest_position_of_any_node_counts(open_backlog: Callable[[], Backlog]) -> None:
    first_backlog, second_backlog = open_backlog(), open_backlog()
    first_backlog.note_ranked([5, 0, 9])
    second_backlog.note_ranked([4, 2, 10])
    first_backlog.note_ranked([5, 1, 9])
    assert first_backlog.read().ranked == second_backlog.read().ranked == (5, 2, 10)


def test_a_hold_is_seen_by_everybody_until_it_is_released(open_backlog: Callable[[], Backlog]) -> None:
    first_backlog, second_backlog = open_backlog(), open_backlog()
    assert first_backlog.hold(HOLD_MS_MAX, 0)
    assert first_backlog.read().is_held
    assert second_backlog.read().is_held
    first_backlog.release()
    assert not second_backlog.read().is_held


def test_a_hold_ends_by_itself(open_backlog: Callable[[], Backlog]) -> None:
    backlog = open_backlog()
    assert backlog.hold(50, 0)
    wait_until(lambda: not backlog.read().is_held)


def test_one_hold_is_under_way_and_the_next_begins_after_a_pause(open_backlog: Callable[[], Backlog]) -> None:
    first_backlog, second_backlog = open_backlog(), open_backlog()
    assert first_backlog.hold(HOLD_MS_MAX, 0)
    assert not second_backlog.hold(HOLD_MS_MAX, 0)
    first_backlog.release()
    assert not second_backlog.hold(HOLD_MS_MAX, 60_000)
    assert not second_backlog.read().is_held
    wait_until(lambda: second_backlog.hold(HOLD_MS_MAX, 100))


def test_a_release_without_a_hold_does_not_prolong_the_pause(
    open_backlog: Callable[[], Backlog], postgres_url: str
) -> None:
    backlog = open_backlog()
    backlog.release()
    assert backlog.hold(1, 60_000)


def test_a_clock_that_was_set_back_does_not_hold_writes_for_long(
    open_backlog: Callable[[], Backlog], postgres_url: str
) -> None:
    backlog = open_backlog()
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE rankd.backlog SET held_until = now() + interval '1 hour'")
    assert not backlog.read().is_held
    assert backlog.hold(HOLD_MS_MAX, 1_000)
    assert backlog.read().is_held


def test_a_database_beside_a_log_has_a_backlog_and_a_new_one_when_it_gets_a_ledger(postgres_url: str) -> None:
    scripts = coordination_scripts()
    migrate_component(postgres_url, COORDINATION, scripts[:1])  # as an earlier version left it
    migrate_component(postgres_url, COORDINATION, scripts)
    with closing(Connections(postgres_url)) as connections:
        backlog = PostgresBacklog(connections)
        backlog.note_ranked([3, 5])
        assert backlog.read().ranked == (3, 5)
        for _ in range(2):
            SharedStores(postgres_url).migrate(PARTITIONS)
            assert backlog.read().ranked == ()
        backlog.note_ranked([1, 2, 3])
        SharedStores(postgres_url).migrate(PARTITIONS)
        assert backlog.read().ranked == (1, 2, 3)
