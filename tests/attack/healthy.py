"""A healthy client: a process of its own that asks in turn, every 20 ms, over one connection, and notes latencies.

A latency is counted from the instant at which a request was due, not from when it was sent: a server that stands still
for a second is late for fifty requests, not for one. What the server's main thread and the client waited for a
processor meanwhile is taken off: tests share their machine, and that is its fault.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
EVERY_S = 0.02
ANSWER_S = 10.0  # one that takes longer has failed
REQUESTS_MIN = 50  # so that a short attack is measured too
RUN_S_MAX = 600.0
STOPPED_S_MAX = 2 * REQUESTS_MIN * EVERY_S
END_S = STOPPED_S_MAX + 2 * ANSWER_S
FAILURES_SHOWN_MAX = 5


class ClientRecord(NamedTuple):
    """What a healthy client measured."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    raw_p99_ms: float  # with what the machine made it wait
    requests: int
    failures: list[str]
    resident_bytes_peak: int


class HealthyClient:
    """The process, from outside."""

    def __init__(self, address: tuple[str, int], server_pid: int, requests: Sequence[bytes]) -> None:
        """Begin at once: `requests` are sent in turn, and every answer has to be 200."""
        plan = {"address": address, "pid": server_pid, "requests": [request.decode() for request in requests]}
        command = [sys.executable, "-m", "tests.attack.healthy"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(plan).encode() + b"\n")
        self._process.stdin.flush()
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"connected\n"

    def stop(self) -> ClientRecord:
        """Let it end, once it has asked often enough, and return what it measured."""
        try:
            written, _ = self._process.communicate(timeout=END_S)
        finally:
            self._process.kill()
            self._process.wait(END_S)
        return ClientRecord(**json.loads(written))


def percentile(latencies: Sequence[float], share: float) -> float:
    """Return the latency that all but a share of the requests stayed below; at least one is left out."""
    ordered = sorted(latencies)
    return ordered[max(0, len(ordered) - 1 - max(1, int(len(ordered) * share)))]


def resident_bytes(pid: int, field: str = "VmRSS") -> int:
    """Return how much memory a process has, or with VmHWM the most it has had; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)


def waited_ms(pid: int) -> float:
    """Return how long the main thread of a process was ready to run while the system ran others, since its start."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1_000_000
    except (OSError, IndexError):  # it has ended, or the system does not say
        return 0.0


class _Machine:
    """How long the server and its client were kept from running by others, as of any instant."""

    def __init__(self, server_pid: int) -> None:
        self._pids = (server_pid, os.getpid())
        self._instants: list[float] = []
        self._waited_ms: list[float] = []

    def open(self) -> float:
        """Note how long it was up to now; return the instant."""
        self._waited_ms.append(sum(waited_ms(pid) for pid in self._pids))
        self._instants.append(time.monotonic())
        return self._instants[-1]

    def kept_ms(self, since: float) -> float:
        """Return how long it was from an instant to the last look; in between looks it grows evenly."""
        after = bisect_left(self._instants, since)
        if after == 0:
            return self._waited_ms[-1] - self._waited_ms[0]
        (began, ended), (low, high) = self._instants[after - 1 : after + 1], self._waited_ms[after - 1 : after + 1]
        return self._waited_ms[-1] - low - (high - low) * (since - began) / (ended - began)


class _HealthyClient:
    """The process, from inside."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._address = (plan["address"][0], plan["address"][1])
        self._pid = plan["pid"]
        self._requests = [request.encode() for request in plan["requests"]]
        self._link = socket.create_connection(self._address, timeout=ANSWER_S)
        self._machine = _Machine(self._pid)
        self._latencies_ms: list[float] = []
        self._raw_ms: list[float] = []
        self._failures: list[str] = []
        self._resident_bytes_peak = 0

    def run(self) -> ClientRecord:
        due = self._machine.open()
        deadline = due + RUN_S_MAX
        is_stopped = False
        while not (is_stopped and len(self._raw_ms) >= REQUESTS_MIN) and time.monotonic() < deadline:
            left_s = max(0.0, due - time.monotonic())
            if is_stopped:
                select.select([], [], [], left_s)
            elif select.select([sys.stdin], [], [], left_s)[0]:
                is_stopped = True
                deadline = min(deadline, time.monotonic() + STOPPED_S_MAX)
                continue
            self._machine.open()
            self._ask(self._requests[len(self._raw_ms) % len(self._requests)])
            self._raw_ms.append((self._machine.open() - due) * 1_000)
            self._latencies_ms.append(max(0.0, self._raw_ms[-1] - self._machine.kept_ms(due)))
            due += EVERY_S
            self._resident_bytes_peak = max(self._resident_bytes_peak, resident_bytes(self._pid))
        self._link.close()
        of = self._latencies_ms
        return ClientRecord(
            round(percentile(of, 0.5), 1),
            round(percentile(of, 0.01), 1),
            round(max(of), 1),
            round(percentile(self._raw_ms, 0.01), 1),
            len(of),
            [f"{len(self._failures)} failed", *self._failures[:FAILURES_SHOWN_MAX]] if self._failures else [],
            self._resident_bytes_peak,
        )

    def _ask(self, request: bytes) -> None:
        target = request.split(b" ", 2)[1].decode()
        try:
            self._link.sendall(request)
            status = self._status()
        except OSError as problem:
            self._failures.append(f"{target}: {problem!r}")
            self._reconnect()
        else:
            if status != 200:
                self._failures.append(f"{target}: {status}")

    def _reconnect(self) -> None:
        self._link.close()
        try:
            self._link = socket.create_connection(self._address, timeout=ANSWER_S)
        except OSError as problem:
            self._failures.append(f"connect: {problem!r}")

    def _status(self) -> int:
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._piece()
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        while len(body) < length:
            body += self._piece()
        return int(head.split(b" ", 2)[1])

    def _piece(self) -> bytes:
        piece = self._link.recv(65_536)
        if not piece:
            raise ConnectionResetError("the server ended the connection")
        return piece


if __name__ == "__main__":
    client = _HealthyClient(json.loads(sys.stdin.readline()))
    sys.stdout.write("connected\n")
    sys.stdout.flush()
    sys.stdout.write(json.dumps(client.run()._asdict()))
