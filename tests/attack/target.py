"""A server under attack: started as in tests/acceptance, measured alone, then beside each attack."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.acceptance.serving import Serving, start

from .bounds import GROWTH_MIB_MAX, LEFT_MIB_MAX, LEFT_WAIT_S, MIB, Measured
from .healthy import ClientRecord, HealthyClient, resident_bytes

Address = tuple[str, int]
PLAYERS = 1_000
ALIVE_S = 2.0
POLL_S = 0.05

# For a test's parameter `is_long`.
short_and_long = pytest.mark.parametrize(
    "is_long", [pytest.param(False, id="short"), pytest.param(True, id="long", marks=pytest.mark.long)]
)
measurements: list[Measured] = []  # of this run, for the report


def head(method: str, target: str, *headers: str) -> bytes:
    """Return a request without a body, or the head of one."""
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: rankd", *headers, "", ""]).encode()


def address_of(server: Serving) -> Address:
    """Return where a server listens."""
    return ("127.0.0.1", int(server.url.rpartition(":")[2]))


def define_board(admin: httpx.Client) -> None:
    """Define the board that healthy clients read, with players on it."""
    assert admin.put("/v1/boards/arcade", json={"keep": "latest"}).status_code == 200
    events = [{"board": "arcade", "player": f"p{number}", "score": number} for number in range(PLAYERS)]
    assert admin.post("/v1/scores/batch", json={"events": events}).status_code == 200


class Attack:
    """An attack under way: which of its own rules were broken, beside those of `bounds.py`."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def expect(self, holds: bool, rule: str) -> None:
        """Note a rule that does not hold; the attack goes on, and all of them are listed at its end."""
        if not holds:
            self.broken.append(rule)


class Target:
    """A server, with the baselines of its healthy clients."""

    def __init__(self, folder: Path, config: str) -> None:
        """Start it; `config` is the text of its rankd.toml."""
        self._folder = folder
        self._config = config
        self._starts = 0
        self._start()

    def _start(self) -> None:
        self._starts += 1
        self.server = start(self._folder / f"data-{self._starts}", config=self._config)
        self.server.wait_until_ready()
        with self.server.client(self.server.admin_key, timeout_s=30) as admin:
            define_board(admin)
        self._fresh_bytes = resident_bytes(self.server.process.pid)
        self._baselines: dict[bool, ClientRecord] = {}

    def stop(self) -> None:
        """End it by its process id, whatever state it is in."""
        if self.server.process.poll() is None:
            self.server.stop(signal.SIGKILL)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return address_of(self.server)

    @property
    def authorization(self) -> str:
        """The header of a service that may do everything."""
        return f"Authorization: Bearer {self.server.admin_key}"

    def metric(self, line: str) -> float:
        """Return one figure of /metrics by the beginning of its line; 0 where there is none."""
        with self.server.client() as anybody:
            text = anybody.get("/metrics").text
        return next((float(row.rpartition(" ")[2]) for row in text.splitlines() if row.startswith(line)), 0.0)

    def _baseline(self, *, with_scores: bool) -> ClientRecord:
        """Return what a healthy client measures alone; measured once."""
        if with_scores not in self._baselines:
            record = self._healthy_client(with_scores=with_scores).stop()
            assert not record.failures, record.failures
            self._baselines[with_scores] = record
        return self._baselines[with_scores]

    def _healthy_client(self, *, with_scores: bool) -> HealthyClient:
        requests = [head("GET", "/healthz"), head("GET", "/v1/boards/arcade/top?limit=10")]
        if with_scores:
            body = b'{"board":"arcade","player":"healthy","score":7}'
            sized = ("Content-Type: application/json", f"Content-Length: {len(body)}")
            requests.append(head("POST", "/v1/scores", self.authorization, *sized) + body)
        return HealthyClient(self.address, self.server.process.pid, requests)

    def revive(self) -> None:
        """Start it anew where attacks before this one left it slow or large, so that each is judged by itself."""
        grown_mib = (resident_bytes(self.server.process.pid) - self._fresh_bytes) / MIB
        if grown_mib > 2 * LEFT_MIB_MAX or not self._is_alive():
            self.stop()
            self._start()

    @contextmanager
    def attack(
        self,
        name: str,
        *,
        is_long: bool,
        growth_mib_max: float = GROWTH_MIB_MAX,
        left_mib_max: float = LEFT_MIB_MAX,
        with_scores: bool = False,
    ) -> Iterator[Attack]:
        """Let a healthy client ask beside an attack, and hold both to the rules of `bounds.py` afterwards.

        `with_scores`: it sends scores as well, with a service's key.
        """
        __tracebackhide__ = True
        self.revive()
        baseline, logged = self._baseline(with_scores=with_scores), len(self.server.log.read_text())
        pid = self.server.process.pid
        before, most = resident_bytes(pid), resident_bytes(pid, "VmHWM")
        client = self._healthy_client(with_scores=with_scores)
        attack, failed = Attack(), None
        try:
            yield attack
        except Exception as problem:  # what it cost is reported too
            failed = problem
            attack.broken.append(f"the attack failed: {problem!r}")
        record = client.stop()
        most_now = resident_bytes(pid, "VmHWM")  # what it had between two looks; says nothing if it had more before
        measured = Measured(
            attack=f"{name}, long" if is_long else name,
            baseline=baseline,
            healthy=record,
            before_bytes=before,
            peak_bytes=max(before, record.resident_bytes_peak, most_now if most_now > most else 0),
            after_bytes=self._memory_afterwards(before + int(left_mib_max * MIB)),
        )
        measurements.append(measured)
        rules = measured.broken(growth_mib_max, left_mib_max, is_long=is_long)
        broken = [*attack.broken, *rules, *self._signs_of_a_fault(logged)]
        if broken:
            raise AssertionError(f"{name}:\n  " + "\n  ".join(broken)) from failed

    def _signs_of_a_fault(self, logged: int) -> Iterator[str]:
        log = self.server.log.read_text()[logged:]
        if self.server.process.poll() is not None:
            yield f"the server ended with {self.server.process.returncode}: {log[-2_000:]}"
        if "Traceback" in log:
            yield f"a trace in the log: {log[max(0, log.index('Traceback') - 500) :][:3_000]}"

    def _is_alive(self) -> bool:
        try:
            return httpx.get(f"{self.server.url}/v1/boards/arcade/top", timeout=ALIVE_S).status_code == 200
        except httpx.TransportError:
            return False

    def _memory_afterwards(self, enough: int) -> int:
        """Wait until there is no more than that, for so long; return how much there is then."""
        deadline = time.monotonic() + LEFT_WAIT_S
        while True:
            now = resident_bytes(self.server.process.pid)
            if now <= enough or time.monotonic() >= deadline:
                return now
            try:
                self.server.process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue


@contextmanager
def under_attack(folder: Path, config: str = "") -> Iterator[Target]:
    """Run a server to attack, and stop it whatever happens."""
    target = Target(folder, config)
    try:
        yield target
    finally:
        target.stop()
