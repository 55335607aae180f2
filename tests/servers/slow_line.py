"""A line to a server that is slow, and now and then cut: what is under way is lost, whichever way it was going."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress

from tests.servers.load_bound import LoadBound
from tests.servers.waiting import join_all

CHUNK_BYTES = 65_536


class SlowLine:
    """Passes bytes on to a port of this machine, each piece after a while."""

    def __init__(self, port: int, delay_s_max: float, seed: int = 0) -> None:
        """Connections are taken when this returns."""
        self._to = port
        self._delay_s_max = delay_s_max
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._start(self._accept)

    def cut(self) -> None:
        """Break every connection there is; new ones are taken."""
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            _break(end)

    def close(self) -> None:
        """Break everything, and take nothing more."""
        self._closed.set()
        _break(self._listener)
        join_all(self._threads[:1])  # after which no thread is added
        self.cut()
        join_all(self._threads)

    def _start(self, work: object, *about: socket.socket) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=about, name="slow-line", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        bound = LoadBound()
        while not self._closed.is_set() and bound.take():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                _break(near)
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._ends |= {near, far}
            self._start(self._pump, near, far)
            self._start(self._pump, far, near)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(CHUNK_BYTES):
                self._closed.wait(self._rng.uniform(0, self._delay_s_max))
                target.sendall(piece)
        for end in (source, target):
            _break(end)
        with self._lock:
            self._ends -= {source, target}


def _break(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
