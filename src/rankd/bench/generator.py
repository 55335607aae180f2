"""Send requests when they are due, over a fixed number of connections, and count the answers.

    timer → due? → free connection → send … answered → count → next one due? → send on the same connection

While no connection is free, due requests wait in the schedule, which is an iterator: a stalled server costs no memory,
and every waiting request keeps the instant at which it was due.
"""

from __future__ import annotations

import asyncio
import gc
import random
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import perf_counter, process_time

import uvloop

from rankd.bench.connection import LoadConnection
from rankd.bench.histogram import LatencyHistogram
from rankd.bench.load import Load, RequestKind, check_load
from rankd.bench.report import TIMED_OUT, UNANSWERED, UNSENT, LoadReport, RunTotals, Tally, report_of
from rankd.bench.requests import Requests
from rankd.bench.schedule import instants, kinds
from rankd.errors import Unavailable

TIMER_S = 0.001  # the event loop's resolution: a shorter timer would keep a core busy
SWEEP_S = 0.25
CONNECT_S = 10.0
RECONNECT_S = 0.25
ANSWER_S = 10.0  # how long a request may be open, and how long the run waits for the last ones

Progress = Callable[[int, int], None]


def generate(load: Load, progress: Progress | None = None) -> LoadReport:
    """Run a load against a server; raises Unavailable where none listens."""
    with _without_collector():
        return uvloop.run(_Run(check_load(load), progress).run())


class _Run:
    """One run, on one event loop."""

    def __init__(self, load: Load, progress: Progress | None) -> None:
        self._load = load
        self._progress = progress
        # One random stream each, so that the instants do not depend on the requests.
        seed = random.SystemRandom().getrandbits(64) if load.seed is None else load.seed
        self._kinds = kinds(load, random.Random(f"kinds-{seed}"))  # noqa: S311 - a load, not a secret
        self._makers = Requests(load, random.Random(f"players-{seed}")).makers  # noqa: S311
        self._instants: Iterator[float] | None = None
        if load.rate:
            self._instants = instants(load, random.Random(f"instants-{seed}"))  # noqa: S311
        self._due = 0.0 if self._instants is None else next(self._instants, inf)
        self._duration = load.duration_s
        self._tallies = {kind: Tally() for kind in load.weights()}
        self._after_sending = LatencyHistogram()
        self._late = LatencyHistogram()
        self._errors: dict[str, int] = {}
        self._first_errors: dict[str, str] = {}
        self._sent = self._sent_in_time = self._waited = self._reconnected = self._open = 0
        self._connections: set[LoadConnection] = set()
        self._idle: deque[LoadConnection] = deque()
        self._reconnecting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._done = asyncio.Event()
        self._is_over = False
        self._tls = ssl.create_default_context() if load.address.is_tls else None
        self._began = 0.0

    async def run(self) -> LoadReport:
        self._loop = asyncio.get_running_loop()
        await self._connect_all()
        sweeping = asyncio.create_task(self._sweep())
        self._began, processor_s = perf_counter(), process_time()
        self._tick()
        try:
            await self._done.wait()
            elapsed_s, processor_s = self._now(), process_time() - processor_s
            self._count_unanswered(elapsed_s)
        finally:
            self._is_over = True
            for task in (sweeping, *self._reconnecting):
                task.cancel()
            for connection in list(self._connections):
                connection.abort(UNANSWERED)
        return report_of(
            self._load,
            RunTotals(
                tallies=self._tallies,
                after_sending=self._after_sending,
                late=self._late,
                sent_in_time=self._sent_in_time,
                errors=self._errors,
                first_errors=self._first_errors,
                waited_for_connection=self._waited,
                reconnected=self._reconnected,
                processor_s=processor_s,
                elapsed_s=elapsed_s,
            ),
        )

    def _now(self) -> float:
        return perf_counter() - self._began

    # Sending

    def _tick(self) -> None:
        """Send the due requests while a connection is free; otherwise the next answer continues."""
        self._timer = None
        idle = self._idle
        while idle and self._due <= (now := self._now()):
            if self._instants is not None:
                self._late.add(int((now - self._due) * 1e6))
            self._send(idle.popleft(), now)
        if idle:
            self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._due < inf:
            self._timer = self._loop.call_later(max(TIMER_S, self._due - self._now()), self._tick)

    def _use(self, connection: LoadConnection, now: float) -> None:
        """Send the next due request on a free connection, or keep it idle."""
        if self._instants is None and now >= self._duration:
            self._due = inf
        if self._due <= now:
            if self._instants is not None:
                if self._idle:  # the answer came before the timer
                    self._late.add(int((now - self._due) * 1e6))
                else:
                    self._waited += 1
            self._send(connection, now)
            return
        self._idle.append(connection)
        self._arm()

    def _send(self, connection: LoadConnection, now: float) -> None:
        kind = next(self._kinds)
        due = now
        if self._instants is not None:
            due, self._due = self._due, next(self._instants, inf)
        self._open += 1
        self._sent += 1
        self._sent_in_time += now <= self._duration
        self._tallies[kind].sent += 1
        connection.send(self._makers[kind](), kind, due, now)

    # Answers

    def answered(self, connection: LoadConnection, kind: RequestKind, status: int, error: bytes) -> None:
        """Count an answer, and reuse its connection."""
        now = self._now()
        self._open -= 1
        tally = self._tallies[kind]
        if 200 <= status < 300:
            tally.answered += 1
            tally.latency.add(int((now - connection.due) * 1e6))
            self._after_sending.add(int((now - connection.sent) * 1e6))
        else:
            tally.errors += 1
            self._count_error(str(status), error)
        if not connection.is_closing:
            self._use(connection, now)
        self._check_done()

    def lost(self, connection: LoadConnection, why: str) -> None:
        """Count the open request of a lost connection, and reconnect."""
        self._connections.discard(connection)
        if self._is_over:
            return
        if connection.kind is None:
            if connection in self._idle:
                self._idle.remove(connection)
        else:
            self._count_without_answer(connection.kind, why, self._now() - connection.due)
            self._open -= 1
        self._reconnected += 1
        task = asyncio.create_task(self._reconnect())
        self._reconnecting.add(task)
        task.add_done_callback(self._reconnecting.discard)
        self._check_done()

    def _check_done(self) -> None:
        if self._open == 0 and self._due == inf:
            self._done.set()

    def _count_error(self, name: str, body: bytes = b"") -> None:
        self._errors[name] = self._errors.get(name, 0) + 1
        if body and name not in self._first_errors:
            self._first_errors[name] = body.decode(errors="replace")

    def _count_without_answer(self, kind: RequestKind, name: str, waited_s: float) -> None:
        tally = self._tallies[kind]
        tally.errors += 1
        tally.latency.add(int(waited_s * 1e6))
        self._count_error(name)

    def _count_unanswered(self, now: float) -> None:
        """Count open and unsent requests: leaving them out would hide the stall that caused them."""
        for connection in self._connections:
            if connection.kind is not None:
                self._count_without_answer(connection.kind, UNANSWERED, now - connection.due)
        while self._instants is not None and self._due < inf:
            self._count_without_answer(next(self._kinds), UNSENT, now - self._due)
            self._due = next(self._instants, inf)

    # Connections

    async def _connect_all(self) -> None:
        try:
            opened = await asyncio.gather(*(self._connect() for _ in range(self._load.connections)))
        except (OSError, TimeoutError) as problem:
            raise Unavailable(
                f"nothing answers at {self._load.address.name} ({problem or 'timed out'}); is the server running?"
            ) from None
        self._idle.extend(opened)

    async def _connect(self) -> LoadConnection:
        address = self._load.address
        opening = self._loop.create_connection(lambda: LoadConnection(self), address.host, address.port, ssl=self._tls)
        _, connection = await asyncio.wait_for(opening, CONNECT_S)
        self._connections.add(connection)
        return connection

    async def _reconnect(self) -> None:
        while True:
            try:
                connection = await self._connect()
            except (OSError, TimeoutError):
                await asyncio.sleep(RECONNECT_S)
                continue
            self._use(connection, self._now())
            return

    async def _sweep(self) -> None:
        """Abort requests that are open for too long, end a run without connections, and report progress."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self._now()
            for connection in list(self._connections):
                if connection.kind is not None and now - connection.sent > ANSWER_S:
                    connection.abort(TIMED_OUT)
            if self._progress is not None:
                self._progress(self._sent, round(self._sent * max(1.0, self._duration / now)))
            if now > self._duration + ANSWER_S or (now >= self._duration and not self._connections):
                self._done.set()


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable garbage collection, whose pauses would distort the figures: nothing here makes cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
