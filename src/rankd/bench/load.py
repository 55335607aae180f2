"""The parameters of a run, checked: requests and their kinds, duration, connections."""

from __future__ import annotations

import math
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from rankd.domain.board import check_board_id
from rankd.domain.text import check_text
from rankd.errors import InvalidValue

RATE_MAX = 1_000_000
CONNECTIONS_MAX = 4_096
DURATION_S_MAX = 86_400
PLAYERS_MAX = 100_000_000  # what eight digits can name
PREFIX_BYTES_MAX = 32
WEIGHT_MAX = 1_000_000


class RequestKind(StrEnum):
    """The kind of a request."""

    SUBMIT = "submit"
    RANK = "rank"
    AROUND = "around"
    TOP = "top"


class Spacing(StrEnum):
    """How requests are spread over time: independently, as those of many people, or evenly."""

    POISSON = "poisson"
    EVEN = "even"


READS = (RequestKind.RANK, RequestKind.AROUND, RequestKind.TOP)
DEFAULT_MIX = {RequestKind.RANK: 8.0, RequestKind.AROUND: 1.0, RequestKind.TOP: 1.0}


class ServerAddress(msgspec.Struct, frozen=True):
    """The server's address."""

    is_tls: bool
    host: str
    port: int
    path: str  # the prefix of all paths; empty, or `/…` without a slash at its end
    name: str  # for the Host header


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one run."""

    address: ServerAddress
    board: str
    token: str | None = None
    players: int = 1_000
    prefix: str = "bench_"  # of every player's id
    rate: float = 1_000.0  # requests a second; 0: each connection sends again as soon as it has its answer
    writes: float = 0.1  # their share of all requests
    mix: dict[RequestKind, float] = msgspec.field(default_factory=DEFAULT_MIX.copy)  # how the reads are divided
    spacing: Spacing = Spacing.POISSON
    connections: int = 64  # each has one request open at a time
    duration_s: float = 10.0
    has_keys: bool = False  # every write carries an Idempotency-Key of its own
    seed: int | None = None  # of players, scores and instants
    score_min: int = 0
    score_max: int = 1_000_000_000

    def weights(self) -> dict[RequestKind, float]:
        """Return the share of each kind that is sent at all."""
        total = sum(self.mix.values()) or 1.0
        shares = {RequestKind.SUBMIT: self.writes}
        shares |= {kind: (1 - self.writes) * weight / total for kind, weight in self.mix.items()}
        return {kind: share for kind, share in shares.items() if share > 0}


def check_load(load: Load) -> Load:
    """Return the parameters, if they are valid."""
    check_board_id(load.board)
    _check_number("players", load.players, 1, PLAYERS_MAX)
    _check_number("rate", load.rate, 0, RATE_MAX)
    _check_number("writes", load.writes, 0, 1)
    _check_number("connections", load.connections, 1, CONNECTIONS_MAX)
    _check_number("duration", load.duration_s, 0.001, DURATION_S_MAX)
    prefix = check_text("prefix", load.prefix, PREFIX_BYTES_MAX)
    if not prefix.replace("_", "").replace("-", "").isalnum() or not prefix.isascii():
        raise InvalidValue("prefix", "must be of letters, digits, _ and -, since it is part of paths")
    if load.writes < 1 and not any(weight > 0 for weight in load.mix.values()):
        raise InvalidValue("mix", "must give a read some weight, or writes must be 1")
    if load.writes > 0 and load.token is None:
        raise InvalidValue("token", "must be given to write scores; or choose --writes 0")
    token = load.token
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token and token):
        raise InvalidValue("token", "must be an API key or a JSON Web Token, as text without spaces")
    return load


def _check_number(field: str, value: float, least: float, most: float) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise InvalidValue(field, f"must be from {least:g} to {most:,}; got {value:g}")


def read_address(url: str) -> ServerAddress:
    """Parse the server's URL.

    >>> read_address("http://127.0.0.1:8080/").name, read_address("https://[::1]/ranks").path
    ('127.0.0.1:8080', '/ranks')
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not url.isascii() or not url.isprintable() or " " in url or parts.scheme not in ("http", "https"):
        raise InvalidValue("url", "must be the address of a server, such as http://127.0.0.1:8080")
    if parts.username is not None or parts.password is not None:
        raise InvalidValue("url", "must not hold a user or a password; give a token")
    if parts.query or parts.fragment:
        raise InvalidValue("url", "must end with the path prefix of the server; leave the rest out")
    is_tls = parts.scheme == "https"
    return ServerAddress(is_tls, host, port or (443 if is_tls else 80), parts.path.rstrip("/"), parts.netloc)


def read_mix(text: str) -> dict[RequestKind, float]:
    """Parse the shares of the reads.

    >>> read_mix("rank=8,top=2") == {RequestKind.RANK: 8.0, RequestKind.TOP: 2.0}
    True
    """
    mix: dict[RequestKind, float] = {}
    for part in text.split(","):
        name, _, weight = part.partition("=")
        if name not in READS or name in mix:
            raise InvalidValue("mix", f"must name {', '.join(READS)}, each at most once; got {name!r:.40}")
        try:
            mix[RequestKind(name)] = float(weight)
        except ValueError:
            raise InvalidValue("mix", f"must give {name} a number, such as {name}=8; got {weight!r:.40}") from None
        _check_number("mix", mix[RequestKind(name)], 0, WEIGHT_MAX)
    return mix
