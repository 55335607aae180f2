"""PostgreSQL goes away in every way it can: nothing acknowledged is lost, nobody waits for ever, and it goes on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.contract.ledger_drafts import control, draft, events_in, player_in
from tests.contract.postgres_ledgers import opened, uncommitted, waiting_for_locks
from tests.servers.postgres import PostgresServer
from tests.servers.waiting import WAIT_S, wait_until
from tests.timing import BUSY_MACHINE

from rankd.errors import Closed, InvalidValue, LedgerUnavailable
from rankd.ledger.port import KeysTaken
from rankd.ledger.postgres import PostgresLedger, migrate
from rankd.ledger.postgres import ledger as adapter

NOBODY = "postgresql://rankd@127.0.0.1:1/none"


class Proxy:
    """Stands between, and can swallow an answer: the server has committed, and its client never hears of it."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (target.hostname, target.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        self.url = url.replace(f":{target.port}/", f":{port}/")
        self.swallowing = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            for source, sink, is_answer in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pass_on, args=(source, sink, is_answer), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with source, sink:
            while True:
                try:
                    data = source.recv(65_536)
                    if not data or (is_answer and self.swallowing.is_set()):
                        # An answer that ends with ReadyForQuery is whole: its transaction is committed.
                        sink.shutdown(socket.SHUT_RDWR)
                        return
                    sink.sendall(data)
                except OSError:
                    return

    def close(self) -> None:
        self._listening.close()


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[PostgresLedger]:
    with opened(ledger_url) as opened_ledger:
        yield opened_ledger


def terminate_others(url: str, only_waiting: bool = False) -> None:
    """Cut the connections of everybody else."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND (NOT %s OR wait_event_type = 'Lock')",
            (only_waiting,),
        )


def test_an_append_that_is_cut_off_writes_nothing_and_the_next_goes_on(ledger: PostgresLedger, ledger_url: str) -> None:
    with ThreadPoolExecutor(1) as threads, uncommitted(ledger, draft(ledger, (player_in(1), 1))):
        cut = threads.submit(ledger.append, draft(ledger, (player_in(1), 2), key="k"))
        wait_until(lambda: waiting_for_locks(ledger_url) == 1)
        terminate_others(ledger_url, only_waiting=True)
        with pytest.raises(LedgerUnavailable):
            cut.result(WAIT_S)

    assert ledger.request("sender", "k") is None
    assert ledger.append(draft(ledger, (player_in(1), 2), key="k")).place(0) == (1, 2)
    assert events_in(ledger) == [(player_in(1), 1), (player_in(1), 2)]


def test_connections_that_were_cut_while_idle_are_replaced_unnoticed(ledger: PostgresLedger, ledger_url: str) -> None:
    ledger.append(draft(ledger, ("alice", 1)))
    for score in (2, 3):
        terminate_others(ledger_url)
        ledger.append(draft(ledger, ("alice", score)))

    assert [score for _, score in events_in(ledger)] == [1, 2, 3]


def test_a_commit_whose_answer_was_lost_is_settled_by_its_key(ledger: PostgresLedger, ledger_url: str) -> None:
    with proxied(ledger_url) as proxy, opened(proxy.url) as distant:
        distant.append(draft(distant, ("alice", 1)))
        lost = draft(distant, ("alice", 2), key="k")
        proxy.swallowing.set()
        with pytest.raises(LedgerUnavailable):
            distant.append(lost)
        wait_until(lambda: ledger.request("sender", "k") is not None)
        proxy.swallowing.clear()

        with pytest.raises(KeysTaken):
            distant.append(lost)
        stored_request = distant.request("sender", "k")
        assert stored_request is not None
        assert stored_request.positions == {5: 2}
        assert events_in(distant) == [("alice", 1), ("alice", 2)]


@pytest.mark.timed
def test_a_server_that_is_not_there_is_unavailable_soon(own_postgres: PostgresServer) -> None:
    migrate(own_postgres.url())
    with opened(own_postgres.url()) as ledger:
        ledger.append(draft(ledger, ("alice", 1)))
        own_postgres.stop()

        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(LedgerUnavailable):
                ledger.append(draft(ledger, ("alice", 2)))
            with pytest.raises(LedgerUnavailable):
                ledger.read([0] * 8, 10)
        assert time.monotonic() - began < 5 * BUSY_MACHINE

        own_postgres.start()
        ledger.append(draft(ledger, ("alice", 3)))
        own_postgres.kill()
        with pytest.raises(LedgerUnavailable):
            ledger.append_control([control()], 0)
        own_postgres.start()
        assert events_in(ledger) == [("alice", 1), ("alice", 3)]
        assert ledger.heads().control == 0


@pytest.mark.timed
def test_a_server_that_stands_still_is_unavailable_in_time(own_postgres: PostgresServer) -> None:
    migrate(own_postgres.url())
    with opened(own_postgres.url(), answer_wait_s=1.0) as ledger:
        ledger.append(draft(ledger, ("alice", 1)))
        own_postgres.pause()
        try:
            began = time.monotonic()
            with pytest.raises(LedgerUnavailable):
                ledger.append(draft(ledger, ("alice", 2), key="k"))
            assert time.monotonic() - began < 5 * BUSY_MACHINE
        finally:
            own_postgres.resume()
        # Whether it took effect is open until it is sent again.
        with suppress(KeysTaken):
            ledger.append(draft(ledger, ("alice", 2), key="k"))
        assert events_in(ledger) == [("alice", 1), ("alice", 2)]


def test_a_wait_for_a_lock_that_takes_too_long_fails(ledger: PostgresLedger, ledger_url: str) -> None:
    with opened(ledger_url, answer_wait_s=3.0) as hasty, uncommitted(ledger, draft(ledger, (player_in(1), 1))):
        with pytest.raises(LedgerUnavailable):
            hasty.append(draft(hasty, (player_in(1), 2)))
        hasty.append(draft(hasty, (player_in(2), 3)))


def test_a_large_append_may_take_longer_and_the_next_may_not(
    ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "LARGE_EVENTS", 5)
    monkeypatch.setattr(adapter, "EVENT_WAIT_S", 1.0)
    ledger.append(draft(ledger, *(("alice", score) for score in range(10)), key="k"))
    with pytest.raises(KeysTaken):
        ledger.append(draft(ledger, *(("alice", score) for score in range(10)), key="k"))

    with ledger.connections.using() as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("30s",)
        assert connection.answer_wait_s == 30
        with connection.waiting_longer(10):
            assert connection.execute("SHOW statement_timeout").fetchone() == ("40s",)


def test_a_connection_is_used_again(ledger: PostgresLedger) -> None:
    def session() -> object:
        with ledger.connections.using() as connection:
            return connection.execute("SELECT pg_backend_pid()").fetchone()

    ledger.append(draft(ledger, ("alice", 1), key="k"))  # may begin a month, which replaces the connection
    first = session()
    with pytest.raises(KeysTaken):
        ledger.append(draft(ledger, ("alice", 1), key="k"))
    assert session() == first


def test_more_threads_than_connections_take_turns(ledger_url: str) -> None:
    with opened(ledger_url, pool_max=2) as ledger, ThreadPoolExecutor(8) as threads:
        drafts = [draft(ledger, ("alice", number)) for number in range(40)]
        list(threads.map(ledger.append, drafts))
        assert sorted(score for _, score in events_in(ledger)) == list(range(40))


def test_what_cannot_be_reached_or_read_is_said_clearly() -> None:
    with pytest.raises(LedgerUnavailable, match="refused"):
        PostgresLedger(NOBODY)
    with pytest.raises(LedgerUnavailable, match="refused"):
        migrate(NOBODY)
    with pytest.raises(InvalidValue, match="url") as raised:
        PostgresLedger("postgresql://rankd:secret@[::1")
    assert "secret" not in str(raised.value)


def test_a_closed_ledger_says_so(ledger_url: str) -> None:
    ledger = PostgresLedger(ledger_url)
    ledger.close()
    ledger.close()
    with pytest.raises(Closed):
        ledger.heads()


def test_a_session_acknowledges_what_is_on_disk_alone(ledger_url: str) -> None:
    with psycopg.connect(ledger_url, autocommit=True) as connection:
        connection.execute("ALTER ROLE rankd SET synchronous_commit = off")
    try:
        with opened(ledger_url) as ledger, ledger.connections.using() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    finally:
        with psycopg.connect(ledger_url, autocommit=True) as connection:
            connection.execute("ALTER ROLE rankd RESET synchronous_commit")
