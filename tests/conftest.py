"""What every test may ask for: servers of our own. And how long each may take."""

from __future__ import annotations

import pytest
from hypothesis import settings

LONG_TEST_S = 3_600

pytest_plugins = [
    "tests.run_report",
    "tests.servers.fixtures_postgres",
    "tests.servers.fixtures_kafka",
    "tests.servers.fixtures_redis",
    "tests.servers.fixtures_registry",
    "tests.servers.fixtures_s3",
]

# The profile "ci" of Hypothesis makes up the same examples each time; `make test-long` makes up others.
settings.register_profile("fresh", settings.get_profile("ci"), derandomize=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the long variants an hour; the limit of all others is in pyproject.toml."""
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.timeout(LONG_TEST_S), append=False)
