"""Encoded requests, each about a random player."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from itertools import count

from rankd.bench.load import Load, RequestKind

AROUND = 5  # above, and as many below
TOP = 10


class Requests:
    """Encodes requests of each kind."""

    def __init__(self, load: Load, rng: random.Random) -> None:
        """`rng` chooses everything except the keys, which must be new to the server."""
        self._random = rng.random
        self._players = load.players
        self._score_min = load.score_min
        self._scores = load.score_max - load.score_min + 1
        address = load.address
        head = f"Host: {address.name}\r\nUser-Agent: rankd-bench\r\n"
        if load.token is not None:
            head += f"Authorization: Bearer {load.token}\r\n"
        board, prefix = load.board, load.prefix
        reads = f"GET {address.path}/v1/boards/{board}"
        self._rank = f"{reads}/players/{prefix}%08d HTTP/1.1\r\n{head}\r\n".encode()
        self._around = (
            f"{reads}/players/{prefix}%08d/around?above={AROUND}&below={AROUND} HTTP/1.1\r\n{head}\r\n".encode()
        )
        self._top = f"{reads}/top?limit={TOP} HTTP/1.1\r\n{head}\r\n".encode()
        key = f"Idempotency-Key: bench-{secrets.token_hex(8)}-%d\r\n" if load.has_keys else ""
        self._submit = (
            f"POST {address.path}/v1/scores HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
            f"{key}Content-Length: %d\r\n\r\n%b"
        ).encode()
        self._score = f'{{"board":"{board}","player":"{prefix}%08d","score":%d}}'.encode()
        self._number = count(1).__next__ if load.has_keys else None
        self.makers: dict[RequestKind, Callable[[], bytes]] = {
            RequestKind.SUBMIT: self.submit,
            RequestKind.RANK: self.rank,
            RequestKind.AROUND: self.around,
            RequestKind.TOP: self.top,
        }

    def submit(self) -> bytes:
        """Return a submission of one score."""
        body = self._score % (
            int(self._random() * self._players),
            self._score_min + int(self._random() * self._scores),
        )
        if self._number is None:
            return self._submit % (len(body), body)
        return self._submit % (self._number(), len(body), body)

    def rank(self) -> bytes:
        """Return a read of one rank."""
        return self._rank % int(self._random() * self._players)

    def around(self) -> bytes:
        """Return a read of a player's neighbours."""
        return self._around % int(self._random() * self._players)

    def top(self) -> bytes:
        """Return a read of the first entries."""
        return self._top
