"""One run of a worker: how a server is connected to its supervisor and to the other workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import msgspec

from rankd.api.app import App
from rankd.api.forwarding import AllMetrics, Forwarder, LocalApp
from rankd.api.http.listening import local_socket
from rankd.api.http.server import HttpServer
from rankd.api.local_calls import LocalClient
from rankd.api.metrics import Scrapes
from rankd.api.service import Service
from rankd.config.model import Config
from rankd.domain.board_selection import BoardSelection
from rankd.node.installation import EmbeddedInstallation, Installation, ReplicaInstallation
from rankd.workers.worker import WRITER, Worker

WRITER_POLL_S = 0.02
IDLE_CONNECTION_MS_MAX = 10 * 365 * 86_400_000  # workers close connections to each other when they end
_log = logging.getLogger("rankd")


class WorkerRun:
    """What a server does because it is one of several workers; on the event loop."""

    def __init__(self, worker: Worker, config: Config, stop: Callable[[], None]) -> None:
        """`stop` begins the shutdown."""
        self._worker = worker
        self._config = config
        self._stop = stop
        self._others = {number: LocalClient(worker.local_path(number)) for number in worker.others}
        self._local: HttpServer | None = None
        self.is_reader = not worker.is_writer
        self.name = f"worker {worker.number}, which {'reads' if self.is_reader else 'writes'},"

    @property
    def installation(self) -> Installation:
        """The boards as this worker opens them."""
        if self.is_reader:
            return ReplicaInstallation(self._config, self._worker.wait_for_commit)
        return EmbeddedInstallation(self._config, self._worker.signal_commit, self._worker.supervisor_process)

    def watch_supervisor(self) -> None:
        """Stop when the supervisor has died: nobody would stop this process otherwise."""
        asyncio.get_running_loop().add_reader(self._worker.supervisor, self._supervisor_ended)

    def _supervisor_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._worker.supervisor)
        _log.error("the supervisor has ended: this worker stops too")
        self._stop()

    async def writer_is_there(self, stop: asyncio.Event) -> bool:
        """Wait until the worker that writes has opened the folder; False where the shutdown began first."""
        writer = self._others[WRITER]
        while not stop.is_set():
            if await writer.is_there():
                return True
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), WRITER_POLL_S)
        return False

    async def join(self, app: App, service: Service) -> None:
        """Answer the other workers, ask them for their figures, and hand changes to the one that writes."""
        own = service.scrapes.text
        service.scrapes = Scrapes(AllMetrics(self._worker.number, [*self._others.items()], own).text)
        if self.is_reader:
            kept = BoardSelection(self._config.workers.boards)
            forwarder = Forwarder(self._others[WRITER], service, kept)
            service.forward, service.take_ticket = forwarder.forward, forwarder.take_ticket
            if service.live is not None:
                service.live.kept = kept
        server = msgspec.structs.replace(self._config.server, tls_cert="", tls_key="")
        limits = msgspec.structs.replace(self._config.limits, keep_alive_ms=IDLE_CONNECTION_MS_MAX)
        self._local = HttpServer(
            LocalApp(app, service, own),
            msgspec.structs.replace(self._config, server=server, limits=limits),
            sockets=[local_socket(self._worker.local_path(self._worker.number))],
        )
        await self._local.start()

    def tell_ready(self) -> None:
        """Tell the supervisor that this worker serves."""
        self._worker.tell_ready()

    async def leave(self) -> None:
        """End the connections to the other workers."""
        if self._local is not None:
            await self._local.stop()
        for client in self._others.values():
            client.close()
