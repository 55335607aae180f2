"""HTTP endpoints for probes and Prometheus, of processes that serve nothing else: projectors and relays.

    /healthz   200 while the process lives
    /readyz    200 while it does its work, or is ready to take over; else 503 with the reason
    /metrics   its figures, in Prometheus' text format

They expose no secrets and change nothing, but belong in a private network.
"""

from __future__ import annotations

import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Protocol

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from rankd.errors import AddressTaken

REQUEST_WAIT_S = 5.0
JSON = "application/json"


class Readiness(NamedTuple):
    """Whether a process is ready, and why not."""

    is_ready: bool
    role: str
    why: str


class ProbedFigures(Protocol):
    """What is served; any thread may ask."""

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""

    def readiness(self) -> Readiness:
        """Return whether the process does its work, or is ready to take over."""


class ProbeServer:
    """Serves the endpoints until it is closed."""

    def __init__(self, setting: str, host: str, port: int, figures: ProbedFigures) -> None:
        """Listen; AddressTaken, which names the setting, where the address is not available."""

        class Handler(_Handler):
            pass

        Handler.figures = figures
        family = socket.AF_INET6 if ":" in host else socket.AF_INET

        class Server(ThreadingHTTPServer):
            address_family = family
            daemon_threads = True

        try:
            self._server = Server((host, port), Handler)
        except OSError as problem:
            raise AddressTaken(
                f"{setting}: cannot listen on {host} port {port}: {problem.strerror}; choose another address"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="rankd-listen", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port; for 0, the one that the system chose."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    figures: ProbedFigures
    timeout = REQUEST_WAIT_S
    server_version = "rankd"
    sys_version = ""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._answer(HTTPStatus.OK, JSON, b'{"status":"alive"}')
        elif path == "/readyz":
            ready = self.figures.readiness()
            body = {"status": "ready" if ready.is_ready else "not ready", "role": ready.role}
            if not ready.is_ready:
                body["detail"] = ready.why
            status = HTTPStatus.OK if ready.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, JSON, msgspec.json.encode(body))
        elif path == "/metrics":
            self._answer(HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, self.figures.text())
        else:
            self._answer(HTTPStatus.NOT_FOUND, JSON, b'{"detail":"there are /healthz, /readyz and /metrics"}')

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: probes call every few seconds."""
