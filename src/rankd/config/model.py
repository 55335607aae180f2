"""Every key of `rankd.toml` with its default and its unit; docs/settings.md explains each.

The suffixes `_ms`, `_s` and `_bytes` are units, `_max` is a limit. Keys in SECRETS are never shown.
"""

from __future__ import annotations

from typing import Literal

import msgspec

MIB = 1024 * 1024


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`: its address, who may read, its log."""

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1  # processes that serve one folder: one writes, the others read
    public_read: bool = True
    tls_cert: str = ""  # a file; empty: no TLS
    tls_key: str = ""
    trusted_proxies: tuple[str, ...] = ()  # networks whose X-Forwarded-For is trusted
    cors_origins: tuple[str, ...] = ()  # whose pages may read; "*": all
    record_origin: bool = False  # keep address, user agent and request id of each write
    log_format: Literal["auto", "json", "text"] = "auto"  # auto: text on a terminal
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_requests: Literal["none", "errors", "all"] = "errors"
    metrics_token: str = ""  # the bearer token for /metrics; empty: as for other reads
    stop_wait_ms: int = 10_000  # how long open requests may take to finish
    stale_after_ms: int = 1_000


class WorkersConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[workers]`: what the workers that read keep, where several processes serve one folder."""

    boards: tuple[str, ...] = ()  # patterns of ids such as "arcade*"; none: every board


class LedgerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[ledger]`: where scores become durable."""

    url: str = "sqlite:rankd-data"
    commit_wait_ms: int = 0
    commit_events_max: int = 20_000
    idempotency_ttl_ms: int = 86_400_000
    checkpoint_bytes: int = 32 * MIB
    checkpoint_bytes_max: int = 256 * MIB
    partitions: int = 8  # of a ledger in PostgreSQL or Kafka; fixed when it is made
    kafka_wait_ms: int = 30_000  # for the brokers of a Kafka ledger to have a score


class RegistryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[registry]`: where profiles, friends and credentials are stored; with the ledger, unless that is Kafka."""

    url: str = ""
    profiles_cached_max: int = 100_000
    friends_bytes_max: int = 1024 * MIB  # of all lists of friends together


class RanksConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[ranks]`: where scores are ranked."""

    url: str = "engine:"
    folder: str = "rankd-node"  # of a node: its checkpoints
    snapshot_events: int = 2_000_000
    snapshots_kept: int = 2
    scope_values_max: int = 10_000
    metadata_cached_max: int = 100_000
    at_least_wait_ms: int = 1_000
    as_of_max: int = 2  # past states in memory, each with every rank; 0: none
    as_of_wait_ms: int = 5_000
    cache_ms: int = 100  # how long an answer from Redis is reused; 0: never
    redis_call_updates_max: int = 5_000  # entries that one call may change: it blocks Redis meanwhile


class ProjectorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[projector]`: `rankd project`, which ranks a shared ledger into Redis."""

    folder: str = "rankd-projector"  # checkpoints
    checkpoint_events: int = 2_000_000
    checkpoints_kept: int = 2
    listen: str = ""  # host:port of /healthz, /readyz and /metrics; empty: none


class ArchiveConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[archive]`: where windows that are over are kept; shared by all processes of an installation."""

    url: str = ""  # a folder, s3://…, gs://… or az://…; empty: `archive` in the folder of the process
    endpoint: str = ""  # of S3; empty: as the environment says, or Amazon's
    region: str = ""  # of S3
    cache_bytes_max: int = 1024 * MIB  # of a bucket's objects on the disk of each process
    segments_every_ms: int = 10_000  # how often an embedded ledger is sent there; with `url` only
    snapshots_every_ms: int = 3_600_000  # and a checkpoint of it


class OutboxConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[outbox]`: topics that get every event, and what stands at the top, from `rankd relay` or from a server."""

    url: str = "none"
    topic: str = "score-events"
    partitions: int = 6  # if rankd makes the topic
    retention_ms: int = 86_400_000
    notifications_topic: str = "leaderboard-notifications"
    notifications_partitions: int = 3
    notifications_retention_ms: int = 3_600_000
    listen: str = ""  # host:port of /healthz, /readyz and /metrics of `rankd relay`; empty: none


class KafkaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[kafka]`: how every kafka:// is reached, unless its URL says otherwise."""

    tls: bool = False
    ca: str = ""  # a PEM file of the authorities to trust; empty: those of the system
    cert: str = ""  # a PEM file, where the brokers ask for a client's certificate
    key: str = ""
    username: str = ""  # empty: no SASL
    password: str = ""
    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"] = "SCRAM-SHA-512"
    ledger_topic: str = "rankd-events"  # of a Kafka ledger
    ledger_retention_ms: int = 90 * 86_400_000  # if rankd makes the topic


class ConsumeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[consume]`: topics whose records become scores, read by `rankd consume` or by a server."""

    url: str = "none"
    topics: tuple[str, ...] = ()
    group: str = "rankd"
    batch_events_max: int = 5_000  # appended at once
    dead_letters: str = "score-events-dlq"  # the topic of refused records
    dead_letters_retention_ms: int = 14 * 86_400_000


class AuthConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[auth]`: JSON Web Tokens; API keys need no configuration."""

    jwt_secret: str = ""  # HS256, HS384, HS512; at least 32 bytes
    jwt_public_key: str = ""  # a PEM file: RS or ES
    jwt_jwks: str = ""  # a JWKS file: RS or ES
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_leeway_s: int = 5


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: of one request, one credential, one player, one address. A rate of 0 is no limit."""

    body_bytes_max: int = MIB
    batch_bytes_max: int = 16 * MIB
    batch_events_max: int = 10_000
    instances_per_event_max: int = 1_000  # that one event may change, by a board's definition
    header_bytes_max: int = 64 * 1024
    header_read_ms: int = 10_000
    keep_alive_ms: int = 75_000  # between two requests of a connection
    body_read_ms: int = 10_000  # between two pieces, and 6 times that for the whole
    requests_max: int = 8_192  # connections open at the same time
    connections_per_address_max: int = 4_096  # of one address; not of trusted proxies
    untrusted_bodies_bytes_max: int = 32 * MIB  # of all senders together, except services
    bodies_bytes_max: int = 256 * MIB  # of all services together
    service_writes_per_s: int = 0
    service_reads_per_s: int = 0
    player_writes_per_s: int = 10
    player_reads_per_s: int = 0
    player_lists_per_minute: int = 10  # lists of friends
    address_writes_per_s: int = 0
    address_reads_per_s: int = 0
    rates_tracked_max: int = 100_000
    lag_max_ms: int = 10_000  # of ranks behind a shared ledger, beyond which scores are refused; 0: no limit


class PushConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[push]`: live updates."""

    push_interval_ms: int = 500  # between two messages of a topic
    streams_max: int = 4_096  # live connections
    streams_per_address_max: int = 256
    avatar_origins: tuple[str, ...] = ()  # where pages may load avatars from; others show initials


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sections."""

    server: ServerConfig = ServerConfig()
    workers: WorkersConfig = WorkersConfig()
    ledger: LedgerConfig = LedgerConfig()
    registry: RegistryConfig = RegistryConfig()
    ranks: RanksConfig = RanksConfig()
    projector: ProjectorConfig = ProjectorConfig()
    archive: ArchiveConfig = ArchiveConfig()
    outbox: OutboxConfig = OutboxConfig()
    kafka: KafkaConfig = KafkaConfig()
    consume: ConsumeConfig = ConsumeConfig()
    auth: AuthConfig = AuthConfig()
    limits: LimitsConfig = LimitsConfig()
    push: PushConfig = PushConfig()
    boards: dict[str, dict[str, object]] = {}  # definitions, applied at the start


SECRETS = frozenset({"auth.jwt_secret", "kafka.password", "server.metrics_token"})  # besides passwords in URLs
