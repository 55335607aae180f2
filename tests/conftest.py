"""What every test may ask for: servers of our own."""

from __future__ import annotations

pytest_plugins = ["tests.servers.fixtures_postgres", "tests.servers.fixtures_redis", "tests.servers.fixtures_registry"]
