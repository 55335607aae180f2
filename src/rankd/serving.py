"""`rankd serve`: one process that opens the boards and listens.

    signal → stop listening → open requests end → committer → snapshot → folder unlocked

It listens before the boards are open: /healthz answers at once, the other calls after the replay. Where several
workers serve a folder, those that read listen once they have caught up, so that nobody waits for them.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import msgspec
import uvloop

from rankd.api import logs
from rankd.api.app import App
from rankd.api.auth.authentication import Authenticator
from rankd.api.auth.signing import Signatures
from rankd.api.auth.tokens import open_tokens
from rankd.api.calls.routes import CALLS
from rankd.api.http.listening import shared_sockets
from rankd.api.http.server import HttpServer
from rankd.api.http.static import StaticBody
from rankd.api.live.streams import STOPPING
from rankd.api.metrics import UNMATCHED, Metrics, Sources
from rankd.api.openapi.description import describe
from rankd.api.openapi.docs import docs_page, docs_policy
from rankd.api.service import Service
from rankd.background import YOUNG_OBJECTS_MAX
from rankd.boards import Boards
from rankd.clock import SystemClock
from rankd.config.masking import masking, secrets_of
from rankd.config.model import Config
from rankd.errors import RankdError
from rankd.intake.sources import SourceIntake
from rankd.node.installation import Installation, OpenCredentials, installation_of
from rankd.node.ledger_tail import LedgerTail
from rankd.workers.run import WorkerRun
from rankd.workers.supervisor import Supervisor
from rankd.workers.worker import Worker

SWITCH_INTERVAL_S = 0.0005  # a thread that returns from the disk gets the interpreter after this, not after 5 ms
STOP_POLL_S = 0.01
AGAIN_S = 10.0  # after consuming or relaying has failed
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - how to reach a server that listens on all of them
M_MMAP_THRESHOLD = -3  # of mallopt
MAPPED_BYTES_MIN = 128 * 1024
_log = logging.getLogger("rankd")


Background = Callable[[Boards, threading.Event], None]


class TopicConsumer(Protocol):
    """Appends what arrives through topics: rankd.consume.running.ConfiguredConsumer, whose driver is an extra."""

    def run(self, intake: SourceIntake, stop: threading.Event, warn: Callable[[str], None]) -> None:
        """Consume until `stop` is set."""

    def counts(self) -> Mapping[str, int]:
        """Return how many records became what."""

    def lag(self) -> int:
        """Return how many records wait."""


class EventRelay(Protocol):
    """Forwards events to topics: rankd.outbox.running.ConfiguredRelay, whose driver is an extra."""

    def run(self, boards: Boards, tail: LedgerTail, stop: threading.Event, warn: Callable[[str], None]) -> None:
        """Relay until `stop` is set."""

    def relayed(self) -> int:
        """Return how many events were sent."""

    def lag(self) -> int | None:
        """Return how many events wait; None where another process relays."""


def serve(
    config: Config,
    background: Background | None = None,
    consuming: TopicConsumer | None = None,
    relaying: EventRelay | None = None,
) -> None:
    """Serve until a signal; raises what keeps the boards from opening.

    `background` runs in its own thread once the boards are open, and returns when its event is set; `consuming` and
    `relaying` too.
    """
    logs.set_up_logs(config.server.log_format, config.server.log_level, masking(secrets_of(config)))
    worker = None
    if config.server.workers > 1:
        worker = Supervisor(config).run()
        if worker is None:  # the supervisor, after all workers have ended
            return
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _keep_memory_small()
    is_writer = worker is None or worker.is_writer
    others = (background, consuming, relaying) if is_writer else (None, None, None)
    run = _ServerRun(config, *others, worker)
    uvloop.run(run.run())


class _ServerRun:
    """One run of a server."""

    def __init__(
        self,
        config: Config,
        background: Background | None,
        consuming: TopicConsumer | None,
        relaying: EventRelay | None,
        worker: Worker | None,
    ) -> None:
        self._config = config
        self._background = background
        self._consuming = consuming
        self._relaying = relaying
        self._app = App(config)
        self._stop = asyncio.Event()
        sockets = () if worker is None else shared_sockets(worker.addresses)
        self._server = HttpServer(self._app, config, self._count_malformed, sockets)
        self._workers = None if worker is None else WorkerRun(worker, config, self._stop.set)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        workers = self._workers
        is_reader = workers is not None and workers.is_reader
        if not is_reader:
            await self._server.start()
        try:
            if workers is not None:
                workers.watch_supervisor()
                if is_reader and not await workers.writer_is_there(self._stop):
                    return
            await self._serve(loop)
        finally:
            await self._server.stop()

    def _count_malformed(self, status: int) -> None:
        self._app.routes.observe(UNMATCHED, status, 0.0)

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        workers, host = self._workers, self._config.server.host
        installation = installation_of(self._config) if workers is None else workers.installation
        boards = await loop.run_in_executor(None, installation.open_boards)
        try:
            installation.note_server(self._url(_ANY_ADDRESS.get(host, host)))
            with installation.open_credentials() as credentials:
                _log_first_key(installation.first_key(credentials))
                await self._serve_boards(loop, installation, boards, credentials)
        finally:
            _log.info("closing the boards")
            await loop.run_in_executor(None, boards.close)
            _log.info("stopped")

    async def _serve_boards(
        self,
        loop: asyncio.AbstractEventLoop,
        installation: Installation,
        boards: Boards,
        credentials: OpenCredentials,
    ) -> None:
        config, clock = self._config, SystemClock()
        workers = self._workers
        if workers is None or not workers.is_reader:
            _define(boards, config)
        service = Service(
            boards,
            config,
            Authenticator(credentials, open_tokens(config.auth, clock), clock),
            Signatures(credentials, clock),
        )
        metrics = Metrics(version("rankd"), self._app.routes, service.commits, self._sources(boards, service))
        service.exposition = metrics.text
        description = describe(CALLS, version("rankd"))
        service.description = StaticBody(msgspec.json.encode(description))
        service.docs_page, service.docs_policy = StaticBody(docs_page(description)), docs_policy()
        sharing = asyncio.create_task(self._share_rates(service))
        live = service.go_live()
        if workers is not None:
            await workers.join(self._app, service)
        self._app.start(service)
        keep_collections_short()
        if workers is not None:
            if workers.is_reader:
                await self._server.start()
            workers.tell_ready()
        _log.info("%sready on %s", "" if workers is None else f"{workers.name} is ", self._url(config.server.host))
        stopping = threading.Event()
        running = []
        if self._background is not None:
            running.append(loop.run_in_executor(None, self._background, boards, stopping))
        if self._consuming is not None:
            consume = partial(self._consuming.run, boards.sources, stopping, _log.warning)
            running.append(loop.run_in_executor(None, _run_again, "the consumer", consume, stopping))
        if self._relaying is not None:
            relay = partial(_relay, self._relaying, installation, boards, stopping)
            running.append(loop.run_in_executor(None, _run_again, "the relay", relay, stopping))
        try:
            await self._stop.wait()
            await self._drain(loop, service)
        finally:
            stopping.set()
            await asyncio.gather(*running)
            sharing.cancel()
            live.stop()
            if workers is not None:
                await workers.leave()
            await loop.run_in_executor(None, service.stop)

    async def _share_rates(self, service: Service) -> None:
        """Apply rate limits across all processes, where there are several."""
        remote = service.boards.remote
        if remote is not None:
            await self._app.rates.share(lambda spent: service.in_thread(lambda: remote.share_rates(spent)))

    async def _drain(self, loop: asyncio.AbstractEventLoop, service: Service) -> None:
        """Accept no more requests, and wait for the open ones."""
        _log.info("stopping: open requests may take %d ms", self._config.server.stop_wait_ms)
        service.is_stopping = True
        self._server.stop_listening()
        if service.live is not None:
            service.live.streams.end_all(STOPPING)
        deadline = loop.time() + self._config.server.stop_wait_ms / 1_000
        while self._app.open and loop.time() < deadline:
            await asyncio.sleep(STOP_POLL_S)

    def _url(self, host: str) -> str:
        return f"{self._server.scheme}://{f'[{host}]' if ':' in host else host}:{self._server.port}"

    def _sources(self, boards: Boards, service: Service) -> Sources:
        return Sources(
            requests_open=lambda: self._app.open,
            figures=boards.figures,
            queue_depth=lambda: service.committer.waiting,
            work_waiting=service.work_waiting,
            streams=lambda: 0 if service.live is None else len(service.live.streams),
            topics=lambda: 0 if service.live is None else service.live.hub.topics,
            boards=lambda: len(boards.list()),
            board_entries=boards.entries_by_board,
            replay_events=lambda: boards.started.replayed,
            replay_seconds=lambda: boards.started.seconds,
            rate_refusals=lambda: {**self._app.rates.refusals, "lag_max_ms": service.backpressure.refusals},
            consumed=lambda: {} if self._consuming is None else self._consuming.counts(),
            consume_lag=lambda: None if self._consuming is None else self._consuming.lag(),
            relayed=lambda: None if self._relaying is None else self._relaying.relayed(),
            relay_lag=lambda: None if self._relaying is None else self._relaying.lag(),
            archive=lambda: boards.archive_status,
        )


def _relay(relaying: EventRelay, installation: Installation, boards: Boards, stopping: threading.Event) -> None:
    with installation.open_tail(boards) as tail:
        relaying.run(boards, tail, stopping, _log.warning)


def _run_again(what: str, run: Callable[[], None], stopping: threading.Event) -> None:
    """Run until a stop; brokers that refuse this configuration are asked again, since reads and other writes go on."""
    while not stopping.is_set():
        try:
            run()
        except RankdError as problem:
            _log.error("%s has stopped, and tries again: %s", what, problem)
            stopping.wait(AGAIN_S)
        except Exception:
            _log.exception("%s has failed, and tries again", what)
            stopping.wait(AGAIN_S)


def _define(boards: Boards, config: Config) -> None:
    """Define the boards of the configuration; one must exist before another one may feed it."""
    for board, definition in sorted(config.boards.items(), key=lambda item: bool(item[1].get("feeds"))):
        if boards.define(board, definition, sender="config").changed:
            _log.info("defined board %s from the configuration", board)


def _keep_memory_small() -> None:
    """Return large freed blocks to the system; glibc would raise its threshold and keep them."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)


def keep_collections_short() -> None:
    """Exclude the objects that exist when the server is ready, code and boards, from garbage collection.

    Scanning them takes some 100 ms for a thousand boards, in which no request is answered. Frozen objects are still
    freed when nothing refers to them. Younger objects are scanned rarely: those of a request are freed without it, and
    requests that wait would be scanned again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX)


def _log_first_key(path: Path | None) -> None:
    if path is not None:
        _log.warning("created an administrator's key; it is in %s, readable by its owner only", path)
