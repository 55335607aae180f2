"""`rankd serve`: one process that listens, with the boards in it.

    signals → stop listening → open requests end → committer → snapshot → folder let go

It listens before the boards are open: /healthz answers at once, everything else when the ledger has been replayed.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import msgspec
import uvloop

from rankd.api import logs
from rankd.api.app import App
from rankd.api.authentication import Authenticator
from rankd.api.docs import docs_page, docs_policy
from rankd.api.http.server import HttpServer
from rankd.api.metrics import UNMATCHED, Metrics, Sources
from rankd.api.openapi import describe
from rankd.api.routes import CALLS
from rankd.api.service import Service
from rankd.api.signing import Signatures
from rankd.api.static import StaticBody
from rankd.api.streams import STOPPING
from rankd.api.tokens import open_tokens
from rankd.boards import Boards
from rankd.clock import SystemClock
from rankd.config.masking import masking, secrets_of
from rankd.config.model import Config
from rankd.installation import OpenCredentials, installation_of

SWITCH_INTERVAL_S = 0.0005  # a thread that comes back from the disk gets the interpreter after this, not after 5 ms
STOP_POLL_S = 0.01
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - how a server is asked that listens on all of them
FULL_COLLECTION_AFTER = 100  # collections of younger objects; Python's own 10 are reached by three bursts of requests
M_MMAP_THRESHOLD = -3  # of mallopt
MAPPED_BYTES_MIN = 128 * 1024
_log = logging.getLogger("rankd")


Beside = Callable[[Boards, threading.Event], None]


def serve(config: Config, beside: Beside | None = None) -> None:
    """Serve until a signal says to stop; raises what keeps the boards from being opened.

    `beside` runs in a thread of its own once the boards are open, and ends when its event is set.
    """
    logs.set_up_logs(config.server.log_format, config.server.log_level, masking(secrets_of(config)))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _keep_memory_small()
    uvloop.run(_Serving(config, beside).run())


class _Serving:
    """One run of a server."""

    def __init__(self, config: Config, beside: Beside | None) -> None:
        self._config = config
        self._beside = beside
        self._app = App(config)
        self._stop = asyncio.Event()
        self._server = HttpServer(self._app, config, self._count_malformed)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        await self._server.start()
        try:
            await self._serve(loop)
        finally:
            await self._server.stop()

    def _count_malformed(self, status: int) -> None:
        self._app.routes.observe(UNMATCHED, status, 0.0)

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        installation, host = installation_of(self._config), self._config.server.host
        boards = await loop.run_in_executor(None, installation.open_boards)
        try:
            installation.note_server(self._url(_ANY_ADDRESS.get(host, host)))
            with installation.open_credentials() as credentials:
                _tell_of_first_key(installation.first_key(credentials))
                await self._serve_boards(loop, boards, credentials)
        finally:
            _log.info("closing the boards")
            await loop.run_in_executor(None, boards.close)
            _log.info("stopped")

    async def _serve_boards(
        self, loop: asyncio.AbstractEventLoop, boards: Boards, credentials: OpenCredentials
    ) -> None:
        config, clock = self._config, SystemClock()
        for board, definition in sorted(
            config.boards.items(), key=lambda item: bool(item[1].get("feeds"))
        ):  # fed first
            if boards.define(board, definition, sender="config").changed:
                _log.info("board %s is defined as the configuration says", board)
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
        self._app.start(service)
        keep_collections_short()
        _log.info("ready on %s", self._url(config.server.host))
        stopping = threading.Event()
        beside = self._beside
        playing = None if beside is None else loop.run_in_executor(None, lambda: beside(boards, stopping))
        try:
            await self._stop.wait()
            await self._drain(loop, service)
        finally:
            stopping.set()
            if playing is not None:
                await playing
            sharing.cancel()
            live.stop()
            await loop.run_in_executor(None, service.stop)

    async def _share_rates(self, service: Service) -> None:
        """Hold rate limits over all processes, where there are several."""
        remote = service.boards.remote
        if remote is not None:
            await self._app.rates.share(lambda spent: service.in_thread(lambda: remote.share_rates(spent)))

    async def _drain(self, loop: asyncio.AbstractEventLoop, service: Service) -> None:
        """Take no more requests, and let those end that are open."""
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
            rate_refusals=lambda: self._app.rates.refusals,
        )


def _keep_memory_small() -> None:
    """Let large blocks go back to the system when they are freed; glibc would learn to keep them for the next."""
    with suppress(OSError, AttributeError):  # another C library has its own ways
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)


def keep_collections_short() -> None:
    """Leave what is there when the server is ready, code and boards, out of garbage collections.

    To look through it takes some 100 ms for a thousand boards, in which nobody is answered. What is frozen is still
    freed when nothing refers to it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION_AFTER)


def _tell_of_first_key(path: Path | None) -> None:
    if path is not None:
        _log.warning("a key for administrators was made; it is in %s, readable by its owner only", path)
