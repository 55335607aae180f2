"""Every key of `rankd.toml` with its default and its unit; docs/settings.md explains each.

A name that ends in `_ms`, `_s`, `_bytes` or `_max` says its unit or that it is a limit. What holds a secret is in
SECRETS, and is never shown.
"""

from __future__ import annotations

from typing import Literal

import msgspec

MIB = 1024 * 1024


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`: where it listens, who may read, what it writes to its log."""

    host: str = "127.0.0.1"
    port: int = 8080
    public_read: bool = True
    tls_cert: str = ""  # a file; empty: no TLS
    tls_key: str = ""
    trusted_proxies: tuple[str, ...] = ()  # networks whose X-Forwarded-For is believed
    cors_origins: tuple[str, ...] = ()  # pages of which origins may read; "*": of all
    record_origin: bool = False  # keep the sender's address with each write
    log_format: Literal["auto", "json", "text"] = "auto"  # auto: text on a terminal
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_requests: Literal["none", "errors", "all"] = "errors"
    metrics_token: str = ""  # whoever reads /metrics must send it as a bearer token; empty: as other reads
    stop_wait_ms: int = 10_000  # how long open requests may take to finish
    stale_after_ms: int = 1_000


class Ledger(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[ledger]`: where scores are made durable."""

    url: str = "sqlite:rankd-data"
    commit_wait_ms: int = 0
    commit_events_max: int = 20_000
    idempotency_ttl_ms: int = 86_400_000
    checkpoint_bytes: int = 32 * MIB
    checkpoint_bytes_max: int = 256 * MIB
    partitions: int = 8  # of a PostgreSQL ledger; fixed when it is made


class Registry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[registry]`: where profiles, friends and credentials live; as the ledger unless said otherwise."""

    url: str = ""
    profiles_cached_max: int = 100_000
    friends_bytes_max: int = 1024 * MIB  # of all lists of friends together


class Ranks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[ranks]`: where scores are ranked."""

    url: str = "engine:"
    folder: str = "rankd-node"  # of a node on a PostgreSQL ledger: its checkpoints, and archives of windows
    snapshot_events: int = 2_000_000
    snapshots_kept: int = 2
    scope_values_max: int = 10_000
    metadata_cached_max: int = 100_000
    at_least_wait_ms: int = 1_000
    cache_ms: int = 100  # how long an answer from Redis is used again; 0: never
    redis_call_updates_max: int = 5_000  # entries that one call may change: Redis does nothing else meanwhile


class Projector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[projector]`: `rankd project`, which ranks a PostgreSQL ledger into Redis."""

    folder: str = "rankd-projector"  # checkpoints and archives of windows
    checkpoint_events: int = 2_000_000
    checkpoints_kept: int = 2
    listen: str = ""  # host:port of /healthz, /readyz and /metrics; empty: none


class Outbox(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[outbox]`: where events are handed on to."""

    url: str = "none"


class Auth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[auth]`: JSON Web Tokens; API keys need no configuration."""

    jwt_secret: str = ""  # HS256, HS384, HS512; at least 32 bytes
    jwt_public_key: str = ""  # a PEM file: RS or ES
    jwt_jwks: str = ""  # a JWKS file: RS or ES
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_leeway_s: int = 5


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: how much one request, one credential, one player, one address may ask for. 0 rates: no limit."""

    body_bytes_max: int = MIB
    batch_bytes_max: int = 16 * MIB
    batch_events_max: int = 10_000
    instances_per_event_max: int = 1_000  # that a board's definition may let one event touch
    header_bytes_max: int = 64 * 1024
    header_read_ms: int = 10_000
    keep_alive_ms: int = 75_000  # between two requests of a connection
    body_read_ms: int = 10_000  # between two pieces, and 6 times that for the whole
    requests_max: int = 8_192  # connections open at the same time
    connections_per_address_max: int = 4_096  # of one address; not of trusted proxies
    untrusted_bodies_bytes_max: int = 32 * MIB  # of all senders together that are not services
    bodies_bytes_max: int = 256 * MIB  # of all services together
    service_writes_per_s: int = 0
    service_reads_per_s: int = 0
    player_writes_per_s: int = 10
    player_reads_per_s: int = 0
    player_lists_per_minute: int = 10  # lists of friends
    address_writes_per_s: int = 0
    address_reads_per_s: int = 0
    rates_tracked_max: int = 100_000


class Push(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[push]`: live updates."""

    push_interval_ms: int = 500  # between two messages of a topic
    streams_max: int = 4_096  # live connections
    streams_per_address_max: int = 256
    avatar_origins: tuple[str, ...] = ()  # from where pages may load avatars; initials for all others


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it."""

    server: Server = Server()
    ledger: Ledger = Ledger()
    registry: Registry = Registry()
    ranks: Ranks = Ranks()
    projector: Projector = Projector()
    outbox: Outbox = Outbox()
    auth: Auth = Auth()
    limits: Limits = Limits()
    push: Push = Push()
    boards: dict[str, dict[str, object]] = {}  # definitions, put in force at the start


SECRETS = frozenset({"auth.jwt_secret", "server.metrics_token"})  # and passwords within URLs
