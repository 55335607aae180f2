"""PostgreSQL for tests: one server a session, a fresh database for each test that asks for one.

Without PostgreSQL such tests are skipped with a sentence how to get it; where CI=true, they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.servers.postgres import HOW_TO_GET_POSTGRES, PostgresServer, binaries, running_postgres

from rankd.ledger.postgres import migrate


def needs_postgres() -> None:
    """Skip the test, or fail it where CI=true, when there is no PostgreSQL."""
    if binaries() is None:
        if os.environ.get("CI") == "true":
            pytest.fail(HOW_TO_GET_POSTGRES)
        pytest.skip(HOW_TO_GET_POSTGRES)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that many tests share: none of them stops it."""
    needs_postgres()
    with running_postgres() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server of the test's own, which it may stop, kill and start again."""
    needs_postgres()
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database."""
    with postgres.database() as url:
        yield url


@pytest.fixture
def ledger_url(postgres: PostgresServer) -> Iterator[str]:
    """A database with an empty ledger of eight partitions."""
    with postgres.database() as url:
        migrate(url)
        yield url
