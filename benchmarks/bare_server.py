"""Runs a handler that does nothing: on Granian, a fast server that many use, or on rankd's own."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any, Literal

import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server.embed import Server as Granian

from rankd import serving
from rankd.api.http.server import HttpServer
from rankd.config.model import Config

ServerName = Literal["granian", "rankd"]


def run_bare(app: Any, config: Config, server: ServerName) -> None:
    """Serve until a signal says to stop."""
    sys.setswitchinterval(serving.SWITCH_INTERVAL_S)
    uvloop.run(_on_rankd(app, config) if server == "rankd" else _on_granian(app, config))


async def _until_stopped() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


async def _on_rankd(app: Any, config: Config) -> None:
    server = HttpServer(app, config)
    await server.start()
    await _until_stopped()
    await server.stop()


async def _on_granian(app: Any, config: Config) -> None:
    server = Granian(
        app,
        address=config.server.host,
        port=config.server.port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        backlog=1_024,
        backpressure=config.limits.requests_max,
        log_level=LogLevels.error,
    )
    listening = asyncio.create_task(server.serve())
    await _until_stopped()
    server.stop()  # type: ignore[no-untyped-call]
    await listening
