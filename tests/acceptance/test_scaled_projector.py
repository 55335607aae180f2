"""`rankd project` as an operator meets it: it waits for what is away, and says how it does."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.fixtures_redis import needs_redis
from tests.servers.waiting import wait_until

from .scaled_serving import Installation, installed
from .serving import STOP_S, free_port


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    needs_postgres()
    needs_redis()
    with installed(tmp_path) as scaled_installation:
        yield scaled_installation


def project(installation: Installation) -> tuple[subprocess.Popen[bytes], str]:
    """Start a projector that listens; return it with its address."""
    address = f"127.0.0.1:{free_port()}"
    return installation.project("a", RANKD_PROJECTOR_LISTEN=address), f"http://{address}"


def status(url: str) -> tuple[int, str]:
    """What /readyz says; 0 while nobody listens."""
    try:
        answer = httpx.get(f"{url}/readyz")
    except httpx.TransportError:
        return 0, ""
    return answer.status_code, answer.json().get("detail", answer.json()["role"])


def log(installation: Installation) -> str:
    return (installation.folder / "project-a.log").read_text()


def test_it_waits_for_postgres_before_it_starts(installation: Installation) -> None:
    installation.postgres.stop()
    process, url = project(installation)
    wait_until(lambda: status(url) == (503, "it waits for the ledger"))
    assert httpx.get(f"{url}/healthz").status_code == 200
    wait_until(lambda: "the projector waits for the ledger before it starts" in log(installation))
    assert process.poll() is None

    installation.postgres.start()
    wait_until(lambda: status(url) == (200, "active"))
    metrics = httpx.get(f"{url}/metrics").text
    assert 'rankd_projector_role{role="active"} 1.0' in metrics
    assert "rankd_projector_epoch 1.0" in metrics


def test_it_ends_by_a_signal_while_it_waits(installation: Installation) -> None:
    installation.postgres.stop()
    process, _ = project(installation)
    wait_until(lambda: "before it starts" in log(installation))
    process.send_signal(signal.SIGTERM)

    assert process.wait(STOP_S) == 0


def test_it_waits_for_redis(installation: Installation) -> None:
    installation.redis.stop()
    process, url = project(installation)
    wait_until(lambda: status(url) == (503, "it waits for Redis"))
    assert "the projector waits: Redis cannot be reached" in log(installation)

    installation.redis.start()
    wait_until(lambda: status(url) == (200, "active"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_S) == 0


def test_one_that_stands_by_is_ready_too(installation: Installation) -> None:
    _, url = project(installation)
    wait_until(lambda: status(url) == (200, "active"))
    address = f"127.0.0.1:{free_port()}"
    installation.project("b", RANKD_PROJECTOR_LISTEN=address)
    wait_until(lambda: status(f"http://{address}") == (200, "standby"))


def test_an_address_that_is_taken_is_refused_with_the_setting(installation: Installation) -> None:
    _, url = project(installation)
    wait_until(lambda: status(url)[0] != 0)
    process = installation.project("b", RANKD_PROJECTOR_LISTEN=url.removeprefix("http://"))

    assert process.wait(STOP_S) != 0
    assert "projector.listen: cannot listen on" in (installation.folder / "project-b.log").read_text()
