"""A registry and standings on PostgreSQL for tests: empty for each, in one database, which is quicker than many."""

from __future__ import annotations

import psycopg
import pytest
from tests.servers.postgres import PostgresServer

from rankd.registry.postgres.registry import migrate_registry
from rankd.registry.postgres.standings import migrate_standings

TABLES = (
    "registry_players, registry_profiles, registry_friends, registry_changes, credentials, signing_keys,"
    " standings, standings_instances, standings_left, standings_positions"
)


@pytest.fixture(scope="session")
def registry_database(postgres: PostgresServer) -> str:
    """A database with a registry and standings."""
    url = postgres.url(postgres.make_database())
    migrate_registry(url)
    migrate_standings(url)
    return url


@pytest.fixture
def registry_url(registry_database: str) -> str:
    """A database with an empty registry and empty standings."""
    with psycopg.connect(registry_database, options="-c search_path=rankd -c lock_timeout=20000") as connection:
        connection.execute(f"TRUNCATE {TABLES}".encode())
    return registry_database
