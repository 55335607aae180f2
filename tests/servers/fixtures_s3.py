"""S3 for tests: one server a session, a bucket of each test's own.

Without a server such tests are skipped with a sentence how to get it; where CI=true, they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.servers.s3 import ACCESS_KEY, HOW_TO_GET_S3, REGION, SECRET_KEY, S3Server, running_s3, s3_is_installed

from rankd.archive.remote_objects import RemoteObjects


def needs_s3() -> None:
    """Skip the test, or fail it where CI=true, when there is no S3 server."""
    if not s3_is_installed():
        if os.environ.get("CI") == "true":
            pytest.fail(HOW_TO_GET_S3)
        pytest.skip(HOW_TO_GET_S3)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A server that many tests share: none of them stops it, and each has a bucket of its own."""
    needs_s3()
    with running_s3() as server:
        yield server


@pytest.fixture
def own_s3() -> Iterator[S3Server]:
    """A server of the test's own, which it may stop, kill and start again."""
    needs_s3()
    with running_s3() as server:
        yield server


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of the servers, in the environment of this process and its children."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", REGION)


@pytest.fixture
def bucket(s3: S3Server, s3_credentials: None) -> RemoteObjects:
    """A folder of a new bucket."""
    return RemoteObjects(f"s3://{s3.new_bucket()}/rankd", endpoint=s3.endpoint)
