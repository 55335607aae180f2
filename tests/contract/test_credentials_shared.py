"""Credentials that several processes share on PostgreSQL: changes one after the other, memory while it is away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

import psycopg
import pytest
from tests.servers.postgres import PostgresServer
from tests.servers.waiting import WAIT_S, join_all, wait_until

from rankd.clock import ManualClock
from rankd.errors import Closed, InvalidValue, LedgerNewer, LedgerUnavailable
from rankd.registry.credentials import Scope
from rankd.registry.postgres.credentials import PostgresCredentials
from rankd.registry.postgres.registry import migrate_registry

NOW = 1_777_896_000_000
CLOCK = ManualClock(NOW)
PROCESSES = 4


def outcomes(calls: list[Callable[[], object]]) -> list[object]:
    """Make calls at the same moment; return what each returned or raised."""
    together = threading.Barrier(len(calls))
    results: list[object] = []

    def run(call: Callable[[], object]) -> None:
        together.wait(WAIT_S)
        try:
            results.append(call())
        except Exception as problem:
            results.append(problem)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    join_all(threads)
    return results


def test_of_many_who_want_one_name_one_gets_it(registry_url: str) -> None:
    with ExitStack() as closing:
        processes = [closing.enter_context(PostgresCredentials(registry_url, CLOCK)) for _ in range(PROCESSES)]
        results = outcomes(
            [lambda process=process: process.create("server", ["read"], "alice") for process in processes]  # type: ignore[misc]
        )

        assert sum(isinstance(result, InvalidValue) for result in results) == PROCESSES - 1
        for process in processes:
            process.refresh()
            assert [credential.name for credential in process.list()] == ["server"]


def test_of_many_who_start_at_once_one_makes_the_first_key(registry_url: str) -> None:
    kept: list[str] = []
    with ExitStack() as closing:
        processes = [closing.enter_context(PostgresCredentials(registry_url, CLOCK)) for _ in range(PROCESSES)]
        results = outcomes(
            [lambda process=process: process.create_first("admin", list(Scope), kept.append) for process in processes]  # type: ignore[misc]
        )

        assert len(kept) == 1
        assert results.count(None) == PROCESSES - 1


def test_while_postgres_is_away_keys_are_known_and_none_is_changed(own_postgres: PostgresServer) -> None:
    url = own_postgres.url(own_postgres.make_database())
    migrate_registry(url)
    with PostgresCredentials(url, CLOCK) as server, PostgresCredentials(url, CLOCK) as command:
        made, token = command.create("one", ["scores:write"])
        secret = command.create_signing_key("arcade")
        server.refresh()
        own_postgres.stop()

        for refused in (
            server.refresh,
            lambda: server.create("two", ["scores:write"]),
            lambda: server.revoke(made.id),
            lambda: server.create_signing_key("words"),
            lambda: server.revoke_signing_key("arcade"),
        ):
            with pytest.raises(LedgerUnavailable):
                refused()
        assert server.find(token) == made
        assert server.signing_key("arcade") == secret.encode()

        own_postgres.start()
        assert command.revoke(made.id)
        server.refresh()
        assert server.find(token) is None
        assert server.signing_key("arcade") == secret.encode()


def test_after_a_change_that_failed_everything_is_read_again(registry_url: str) -> None:
    """Its commit may have been made, and only the answer lost."""
    with PostgresCredentials(registry_url, CLOCK) as credentials:
        _, token = credentials.create("one", ["scores:write"])
        credentials.create_signing_key("arcade")
        with psycopg.connect(registry_url) as connection:
            connection.execute("UPDATE rankd.credentials SET revoked_at = 1")  # without another version
        credentials.refresh()
        assert credentials.find(token) is not None

        with pytest.raises(InvalidValue):
            credentials.create_signing_key("arcade")
        credentials.refresh()

        assert credentials.find(token) is None


def test_no_token_is_in_the_database(registry_url: str) -> None:
    with PostgresCredentials(registry_url, CLOCK) as credentials:
        _, token = credentials.create("one", ["scores:write"])
        with psycopg.connect(registry_url) as connection:
            rows = connection.execute("SELECT credentials::text FROM rankd.credentials").fetchall()

    assert len(rows) == 1
    assert token.split("_", 2)[2] not in rows[0][0]
    assert token.encode().hex() not in rows[0][0]


def test_a_scope_of_a_newer_rankd_is_refused(registry_url: str) -> None:
    with PostgresCredentials(registry_url, CLOCK) as credentials:
        credentials.create("one", ["scores:write"])
        with psycopg.connect(registry_url) as connection:
            connection.execute("UPDATE rankd.credentials SET scopes = 'scores:write teleport'")

    with pytest.raises(LedgerNewer, match="upgrade rankd"):
        PostgresCredentials(registry_url, CLOCK)


def test_closed_credentials_answer_from_memory_and_change_nothing(registry_url: str) -> None:
    with PostgresCredentials(registry_url, CLOCK) as credentials:
        made, token = credentials.create("one", ["scores:write"])

    assert credentials.find(token) == made
    for refused in (credentials.refresh, lambda: credentials.revoke(made.id)):
        with pytest.raises(Closed):
            refused()


def test_a_revoked_key_is_noticed_however_many_processes_there_are(registry_url: str) -> None:
    with ExitStack() as closing:
        processes = [closing.enter_context(PostgresCredentials(registry_url, CLOCK)) for _ in range(PROCESSES)]
        made, token = processes[0].create("one", ["scores:write"])
        for process in processes:
            process.refresh()
            assert process.find(token) == made
        processes[-1].revoke(made.id)

        def is_gone() -> bool:
            for process in processes:
                process.refresh()
            return all(process.find(token) is None for process in processes)

        wait_until(is_gone)
