"""`rankd serve`: one process that listens, with the boards in it.

    signals → stop listening → open requests end → committer → snapshot → folder let go

It listens before the boards are open: /healthz answers at once, everything else when the ledger has been replayed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import msgspec
import uvloop
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from rankd.api import logs
from rankd.api.app import App
from rankd.api.authentication import Authenticator
from rankd.api.docs import docs_page, docs_policy
from rankd.api.metrics import Metrics, Sources
from rankd.api.openapi import describe
from rankd.api.routes import CALLS
from rankd.api.service import Service
from rankd.api.signing import Signatures
from rankd.api.streams import STOPPING
from rankd.api.tokens import open_tokens
from rankd.boards import Boards
from rankd.clock import SystemClock
from rankd.config.masking import masking, secrets_of
from rankd.config.model import Config
from rankd.errors import AddressTaken
from rankd.installation import OpenCredentials, installation_of

SWITCH_INTERVAL_S = 0.0005  # a thread that comes back from the disk gets the interpreter after this, not after 5 ms
REFRESH_EVERY_S = 0.25  # how soon a new or revoked key is noticed
STOP_POLL_S = 0.01
_log = logging.getLogger("rankd")


Beside = Callable[[Boards, threading.Event], None]


def serve(config: Config, beside: Beside | None = None) -> None:
    """Serve until a signal says to stop; raises what keeps the boards from being opened.

    `beside` runs in a thread of its own once the boards are open, and ends when its event is set.
    """
    logs.set_up_logs(config.server.log_format, config.server.log_level, masking(secrets_of(config)))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    uvloop.run(_Serving(config, beside).run())


class _Serving:
    """One run of a server."""

    def __init__(self, config: Config, beside: Beside | None) -> None:
        self._config = config
        self._beside = beside
        self._app = App(config)
        self._stop = asyncio.Event()
        self._server = _make_server(self._app, config)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        _check_free(self._config)
        listening = asyncio.create_task(self._server.serve())
        listening.add_done_callback(lambda _: self._stop.set())  # it ends before it is told to when it fails
        try:
            await self._serve(loop)
        finally:
            self._server.stop()  # type: ignore[no-untyped-call]
            await listening

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        installation = installation_of(self._config)
        boards = await loop.run_in_executor(None, installation.open_boards)
        try:
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
        service.description = msgspec.json.encode(description)
        service.docs_page, service.docs_policy = docs_page(description), docs_policy()
        refreshing = asyncio.create_task(_refresh(loop, credentials))
        sharing = asyncio.create_task(self._share_rates(service))
        live = service.go_live()
        self._app.start(service)
        _log.info("ready on %s", self._address)
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
            refreshing.cancel()
            sharing.cancel()
            live.stop()
            await loop.run_in_executor(None, service.stop)

    async def _share_rates(self, service: Service) -> None:
        """Hold rate limits over all processes, where there are several."""
        remote = service.boards.remote
        if remote is not None:
            await self._app.rates.share(lambda spent: service.in_thread(lambda: remote.share_rates(spent)))

    async def _drain(self, loop: asyncio.AbstractEventLoop, service: Service) -> None:
        """Let open requests end; new ones are still taken while somebody sends them on an open connection."""
        _log.info("stopping: open requests may take %d ms", self._config.server.stop_wait_ms)
        service.is_stopping = True
        if service.live is not None:
            service.live.streams.end_all(STOPPING)
        deadline = loop.time() + self._config.server.stop_wait_ms / 1_000
        while self._app.open and loop.time() < deadline:
            await asyncio.sleep(STOP_POLL_S)

    @property
    def _address(self) -> str:
        server = self._config.server
        host = f"[{server.host}]" if ":" in server.host else server.host
        return f"{'https' if server.tls_cert else 'http'}://{host}:{server.port}"

    def _sources(self, boards: Boards, service: Service) -> Sources:
        figures = boards.figures
        return Sources(
            requests_open=lambda: self._app.open,
            position=lambda: figures().position,
            snapshot_position=lambda: figures().snapshot,
            queue_depth=lambda: service.committer.waiting,
            streams=lambda: 0 if service.live is None else len(service.live.streams),
            topics=lambda: 0 if service.live is None else service.live.hub.topics,
            boards=lambda: len(boards.list()),
            entries=lambda: figures().entries,
            board_entries=boards.entries_by_board,
            engine_bytes=lambda: figures().engine_bytes,
            replay_events=lambda: boards.started.replayed,
            replay_seconds=lambda: boards.started.seconds,
            rate_refusals=lambda: self._app.rates.refusals,
        )


async def _refresh(loop: asyncio.AbstractEventLoop, credentials: OpenCredentials) -> None:
    """Notice keys that were made or revoked by another process."""
    while True:
        await asyncio.sleep(REFRESH_EVERY_S)
        try:
            await loop.run_in_executor(None, credentials.refresh)
        except Exception as problem:
            _log.warning("credentials cannot be read again: %s", problem)


def _tell_of_first_key(path: Path | None) -> None:
    if path is not None:
        _log.warning("a key for administrators was made; it is in %s, readable by its owner only", path)


def _check_free(config: Config) -> None:
    """Refuse an address that somebody listens on: the server would share it, and each get a part of the requests."""
    host, port = config.server.host, config.server.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
    except OSError as problem:
        raise AddressTaken(
            f"server.host, server.port: cannot listen on {host} port {port}: {problem.strerror}"
        ) from None


def _make_server(app: App, config: Config) -> Server:
    server, limits = config.server, config.limits
    return Server(
        app,
        address=server.host,
        port=server.port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        backlog=1_024,
        backpressure=limits.requests_max,
        http1_settings=HTTP1Settings(
            header_read_timeout=limits.header_read_ms, max_buffer_size=limits.header_bytes_max
        ),
        log_level=LogLevels.error,  # what it has to say of its start and end, we say
        log_dictconfig=logs.GRANIAN_LOGS,
        ssl_cert=Path(server.tls_cert) if server.tls_cert else None,
        ssl_key=Path(server.tls_key) if server.tls_key else None,
        ssl_protocol_min=SSLProtocols.tls12,
    )
