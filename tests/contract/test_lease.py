"""One projector has the lease; whoever is not answered knows in seconds that it may have it no longer."""

from __future__ import annotations

import time

import psycopg
import pytest
from tests.servers.postgres import PostgresServer
from tests.servers.waiting import wait_until

from rankd.errors import LedgerUnavailable
from rankd.ledger.postgres import lease as module
from rankd.ledger.postgres.lease import NODES, Lease
from rankd.node.shared_stores import SharedStores

UNANSWERED_S_MAX = 20.0  # far from the minutes that a socket without limits waits


def test_one_has_it_and_another_gets_it_with_a_higher_epoch(postgres_url: str) -> None:
    SharedStores(postgres_url).migrate()
    first, second = Lease(postgres_url, "first"), Lease(postgres_url, "second")
    assert first.claim()
    assert not second.claim()
    assert first.is_held()

    first.release()
    assert not first.is_held()
    wait_until(second.claim)
    assert second.epoch == first.epoch + 1
    second.release()


def test_projectors_and_nodes_have_a_lease_of_their_own(postgres_url: str) -> None:
    SharedStores(postgres_url).migrate()
    projector, node, other = (
        Lease(postgres_url, "first"),
        Lease(postgres_url, "a", NODES),
        Lease(postgres_url, "b", NODES),
    )
    assert projector.claim()
    assert node.claim()
    assert not other.claim()
    for lease in (projector, node, other):
        lease.release()


def test_its_session_says_who_it_is_and_has_limits(postgres_url: str) -> None:
    SharedStores(postgres_url).migrate()
    lease = Lease(f"{postgres_url}?application_name=other", "host:7")
    assert lease.claim()
    with psycopg.connect(postgres_url) as connection:
        sessions = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rankd project host:7'"
        ).fetchone()
    held = lease._connection
    assert held is not None
    limits = held.info.get_parameters()
    lease.release()

    assert sessions == (1,)
    assert limits["tcp_user_timeout"] == "10000"
    assert held.answer_wait_s == module.ANSWER_WAIT_S


def test_a_server_that_hangs_is_not_waited_for(own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_WAIT_S", 0.5)
    url = own_postgres.url(own_postgres.make_database())
    SharedStores(url).migrate()
    lease, other = Lease(url, "first"), Lease(url, "second")
    assert lease.claim()
    assert not other.claim()
    own_postgres.pause()
    try:
        began = time.monotonic()
        assert not lease.is_held()
        with pytest.raises(LedgerUnavailable):
            other.claim()
        assert time.monotonic() - began < UNANSWERED_S_MAX
    finally:
        own_postgres.resume()
    wait_until(other.claim)
    other.release()
