"""Where a projector says how it does: three paths over HTTP, for probes and for Prometheus.

    /healthz   200 while the process lives
    /readyz    200 while it ranks, or follows closely enough to take over; else 503 with the reason
    /metrics   figures.py, in Prometheus' text format

It tells no secret and takes no order. It still belongs where only the machines of the installation reach it.
"""

from __future__ import annotations

import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from rankd.errors import AddressTaken
from rankd.scaled.figures import CONTENT_TYPE, Figures

REQUEST_WAIT_S = 5.0
JSON = "application/json"


class Listening:
    """Answers until it is closed."""

    def __init__(self, host: str, port: int, figures: Figures) -> None:
        """Listen; AddressTaken where that cannot be."""

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
                f"projector.listen: cannot listen on {host} port {port}: {problem.strerror}; choose another address"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="rankd-listen", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that was given, or that the system chose for 0."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    figures: Figures
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
            said = {"status": "ready" if ready.is_ready else "not ready", "role": ready.role}
            if not ready.is_ready:
                said["detail"] = ready.why
            status = HTTPStatus.OK if ready.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, JSON, msgspec.json.encode(said))
        elif path == "/metrics":
            self._answer(HTTPStatus.OK, CONTENT_TYPE, self.figures.text())
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
        """Say nothing: probes ask every few seconds."""
