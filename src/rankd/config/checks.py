"""Check the values of the configuration: limits, addresses, and keys that depend on each other."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from rankd.config.masking import masked_url
from rankd.config.model import ArchiveConfig, AuthConfig, Config, ServerConfig
from rankd.domain.partition import PARTITIONS_MAX
from rankd.errors import InvalidValue

JWT_SECRET_BYTES_MIN = 32  # the size of HMAC-SHA256's output: a shorter secret is easier to guess than to forge
JWT_LEEWAY_S_MAX = 300
TOKEN_KEYS = ("jwt_secret", "jwt_public_key", "jwt_jwks")  # one of them verifies all tokens
SIGNATURE_TOLERANCE_S = 300  # how far the timestamp of a signed submission may be off, before and after
SIGNED_UNDER_WAY_S = 60  # between the check of a signature and the commit, and between the clocks of two servers
# As long as a signed submission is accepted, its key must be remembered: a repeat would count again.
IDEMPOTENCY_TTL_MS_MIN = (2 * SIGNATURE_TOLERANCE_S + SIGNED_UNDER_WAY_S) * 1_000
BATCH_EVENTS_MAX = 1_000_000
WORKERS_MAX = 64  # each has all ranks in its memory
HEADER_BYTES_MIN = 8_192  # the HTTP server's own least buffer
# Every other number is at least 1; a rate of 0 is no limit.
MAY_BE_ZERO = {
    "server.port",
    "server.stop_wait_ms",
    "server.stale_after_ms",
    "ledger.commit_wait_ms",
    "ranks.at_least_wait_ms",
    "ranks.as_of_max",
    "ranks.as_of_wait_ms",
    "ranks.cache_ms",
    "auth.jwt_leeway_s",
    "limits.lag_max_ms",
}
LOWEST = {"limits.header_bytes_max": HEADER_BYTES_MIN}
HIGHEST = {
    "server.port": 65_535,
    "server.workers": WORKERS_MAX,
    "ledger.partitions": PARTITIONS_MAX,
    "auth.jwt_leeway_s": JWT_LEEWAY_S_MAX,
    "limits.batch_events_max": BATCH_EVENTS_MAX,
}
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")
ENGINE = "engine:"
POSTGRES = ("postgresql", "postgres")
KAFKA = "kafka"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")  # Kafka's limit is 249; ours has a suffix for control events
BUCKETS = ("s3", "gs", "az")
_BUCKET = re.compile(rf"(?:{'|'.join(BUCKETS)})://[A-Za-z0-9][A-Za-z0-9._-]{{1,254}}(?:/[A-Za-z0-9_.=@+/-]*)?")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
REDIS = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
_SUPPORTED = {
    "ledger": "sqlite:<folder>, such as sqlite:rankd-data, postgresql://… or kafka://…",
    "registry": "nothing: profiles live beside the ledger; postgresql://… where the ledger is PostgreSQL or Kafka",
    "ranks": "engine:, or where the ledger is PostgreSQL or Kafka also redis://… or redis+cluster://…",
    "outbox": "none, or kafka://…",
    "consume": "none, or kafka://…",
}

Where = Callable[[str], str]


def check_config(config: Config, where: Where) -> None:
    """Refuse invalid values; `where` returns how an error names a key."""
    if config.ledger.idempotency_ttl_ms < IDEMPOTENCY_TTL_MS_MIN:
        raise InvalidValue(
            where("ledger.idempotency_ttl_ms"),
            f"must be at least {IDEMPOTENCY_TTL_MS_MIN}, raise it; got {config.ledger.idempotency_ttl_ms}: "
            f"a signed submission is accepted for {2 * SIGNATURE_TOLERANCE_S} s, and would count again without its key",
        )
    for section in config.__struct_fields__:
        values = getattr(config, section)
        if isinstance(values, msgspec.Struct):
            for name, value in msgspec.structs.asdict(values).items():
                _check_number(f"{section}.{name}", value, where)
    _check_server(config.server, where)
    for pattern in config.workers.boards:
        _check_board_pattern(where("workers.boards"), pattern)
    _check_urls(config, where)
    if config.ledger.checkpoint_bytes_max < config.ledger.checkpoint_bytes:
        raise InvalidValue(
            where("ledger.checkpoint_bytes_max"),
            f"must not be below ledger.checkpoint_bytes, {config.ledger.checkpoint_bytes}; raise it or lower the other",
        )
    if config.limits.requests_max <= config.push.streams_max:
        raise InvalidValue(
            where("push.streams_max"),
            f"must be below limits.requests_max, {config.limits.requests_max}: an open stream is an open request, and "
            "other requests would wait for ever; lower it or raise the other",
        )
    for origin in config.push.avatar_origins:
        _check_origin(where("push.avatar_origins"), origin)
    for key, listen in (("projector.listen", config.projector.listen), ("outbox.listen", config.outbox.listen)):
        if listen:
            listen_address(where(key), listen)
    check_auth(config.auth, where)


def _check_number(key: str, value: object, where: Where) -> None:
    if type(value) is not int:
        return
    low = 0 if key in MAY_BE_ZERO or key.endswith(("_per_s", "_per_minute")) else LOWEST.get(key, 1)
    high = HIGHEST.get(key)
    if high is not None and not low <= value <= high:
        raise InvalidValue(where(key), f"must be from {low} to {high}; got {value}")
    if value < low:
        raise InvalidValue(where(key), f"must be at least {low}; got {value}")


# [server]


def _check_server(server: ServerConfig, where: Where) -> None:
    _check_host(where("server.host"), server.host)
    for key, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        file = getattr(server, key)
        if not file and getattr(server, other):
            raise InvalidValue(where(f"server.{key}"), f"must be set too, since server.{other} is")
        if file:
            _check_file(where(f"server.{key}"), file)
    for network in server.trusted_proxies:
        _check_network(where("server.trusted_proxies"), network)
    for origin in server.cors_origins:
        _check_origin(where("server.cors_origins"), origin)
    if not re.fullmatch(r"[!-~]*", server.metrics_token):
        raise InvalidValue(
            where("server.metrics_token"),
            "must be letters, digits and signs of ASCII without spaces: it goes in a header",
        )
    if "*" in server.cors_origins and len(server.cors_origins) > 1:
        raise InvalidValue(where("server.cors_origins"), 'must be "*" alone or a list of origins, not both')


def _check_host(where: str, host: str) -> None:
    if host.startswith("[") and host.endswith("]"):
        raise InvalidValue(where, f"must be written without brackets: {host[1:-1]}")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        is_numeric = re.fullmatch(r"[0-9.]+", host) is not None
        if is_numeric or len(host) > 253 or not _HOST_NAME.fullmatch(host):
            raise InvalidValue(
                where, f'must be an address or a host name, such as "127.0.0.1", "::" or "localhost"; got {host!r:.80}'
            ) from None


def listen_address(where: str, address: str) -> tuple[str, int]:
    """Return host and port of an address such as 127.0.0.1:9108 or [::1]:9108."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > HIGHEST["server.port"]:
        raise InvalidValue(where, f'must be a host and a port, such as "127.0.0.1:9108"; got {address!r:.80}')
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidValue(where, f"must have brackets around an IPv6 address: [{host}]:{port}")
    _check_host(where, host)
    return host, int(port)


def _check_board_pattern(where: str, pattern: str) -> None:
    if not re.fullmatch(r"[a-z0-9_.*-]{1,64}", pattern):
        raise InvalidValue(where, f'must be ids, with * for any characters, such as "arcade*"; got {pattern!r:.80}')


def _check_network(where: str, network: str) -> None:
    try:
        ipaddress.ip_network(network)
    except ValueError:
        try:
            enclosing = ipaddress.ip_network(network, strict=False)
        except ValueError:
            raise InvalidValue(
                where, f'must be addresses or networks such as "10.0.0.0/8"; got {network!r:.80}'
            ) from None
        raise InvalidValue(where, f"{network} is one address of a network; did you mean {enclosing}?") from None


def _check_origin(where: str, origin: str) -> None:
    if origin == "*":
        return
    try:
        parts = urlsplit(origin)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    is_origin = host is not None and parts.scheme in ("http", "https") and origin == f"{parts.scheme}://{parts.netloc}"
    # Origins are written into headers, which these characters would end.
    if not is_origin or any(character in origin for character in " ;,'\"\\"):
        raise InvalidValue(
            where,
            f'must be origins such as "https://game.example", without a path or a slash at the end; got {origin!r:.80}',
        )
    if "@" in parts.netloc:
        raise InvalidValue(where, "must not hold a user or a password")


def _check_file(where: str, file: str) -> None:
    try:
        with Path(file).expanduser().open("rb"):
            pass
    except OSError as problem:
        raise InvalidValue(where, f"{file} cannot be read: {problem.strerror}") from None


# Addresses of the ledger, the registry, the ranks and the outbox


def _check_urls(config: Config, where: Where) -> None:
    if is_shared(config):
        _check_shared(config, where)
    else:
        folder_of(where("ledger.url"), config.ledger.url)
        if config.registry.url not in ("", config.ledger.url):
            _refuse("registry", where("registry.url"), config.registry.url)
        if _scheme(config.ranks.url) in REDIS:
            raise InvalidValue(
                where("ranks.url"),
                "must be engine: where the ledger is SQLite; Redis needs one in PostgreSQL or Kafka",
            )
        if config.ranks.url != ENGINE:
            _refuse("ranks", where("ranks.url"), config.ranks.url)
    if config.outbox.url != "none":
        _check_outbox(config, where)
    if config.consume.url != "none":
        if _scheme(config.consume.url) != KAFKA:
            _refuse("consume", where("consume.url"), config.consume.url)
        if not config.consume.topics:
            raise InvalidValue(where("consume.topics"), "must name the topics to read, since consume.url is set")
    _check_archive(config.archive, where)
    for name in ("ca", "cert", "key"):
        if getattr(config.kafka, name):
            _check_file(where(f"kafka.{name}"), getattr(config.kafka, name))


def _check_outbox(config: Config, where: Where) -> None:
    outbox = config.outbox
    if _scheme(outbox.url) != KAFKA:
        _refuse("outbox", where("outbox.url"), outbox.url)
    if outbox.topic == outbox.notifications_topic:
        raise InvalidValue(where("outbox.notifications_topic"), "must be another topic than outbox.topic")
    if config.consume.url != "none" and outbox.topic in config.consume.topics:
        raise InvalidValue(
            where("outbox.topic"), f"{outbox.topic} is in consume.topics: each score would come again, for ever"
        )


def _check_archive(archive: ArchiveConfig, where: Where) -> None:
    check_archive_url(where("archive.url"), archive.url)
    if archive.endpoint and not re.fullmatch(r"https?://[A-Za-z0-9._\[\]:-]+", archive.endpoint):
        raise InvalidValue(
            where("archive.endpoint"),
            f"must be http:// or https:// and a host, such as https://s3.example:9000; got "
            f"{masked_url(archive.endpoint)!r:.120}",
        )


def check_archive_url(where: str, url: str) -> None:
    """Refuse an address that is neither a folder nor a bucket."""
    if "\0" in url or url == "file://":
        raise InvalidValue(where, "must name a folder")
    if _BUCKET.fullmatch(url) or url.startswith("file:///") or not _URL.match(url):
        return
    raise InvalidValue(
        where,
        f"must be a folder, or a bucket such as s3://bucket/folder, gs://… or az://…, without a user or a password: "
        f"credentials come from the environment; got {masked_url(url)!r:.120}",
    )


def is_bucket(url: str) -> bool:
    """Tell whether an archive's address is a bucket, not a folder."""
    return _scheme(url) in BUCKETS


def is_shared(config: Config) -> bool:
    """Tell whether several processes share one ledger."""
    return _scheme(config.ledger.url) in (*POSTGRES, KAFKA)


def is_in_postgres(ledger_url: str) -> bool:
    """Tell whether a ledger is in PostgreSQL."""
    return _scheme(ledger_url) in POSTGRES


def is_in_kafka(ledger_url: str) -> bool:
    """Tell whether a ledger is a topic of Kafka, which needs PostgreSQL beside it."""
    return _scheme(ledger_url) == KAFKA


def is_in_redis(config: Config) -> bool:
    """Tell whether ranks are in Redis, not in each process's engine."""
    return _scheme(config.ranks.url) in REDIS


def _check_shared(config: Config, where: Where) -> None:
    if config.server.workers > 1:
        raise InvalidValue(
            where("server.workers"),
            "must be 1 where the ledger is PostgreSQL or Kafka: start several `rankd serve`, each with its own port",
        )
    if config.registry.url and _scheme(config.registry.url) not in POSTGRES:
        _refuse("registry", where("registry.url"), config.registry.url)
    if is_in_kafka(config.ledger.url):
        _check_kafka_ledger(config, where)
    if config.ranks.url != ENGINE and _scheme(config.ranks.url) not in REDIS:
        _refuse("ranks", where("ranks.url"), config.ranks.url)


def _check_kafka_ledger(config: Config, where: Where) -> None:
    topic = config.kafka.ledger_topic
    if not config.registry.url:
        raise InvalidValue(
            where("registry.url"),
            "must be set where the ledger is Kafka: a log cannot answer who a player is, so profiles, credentials and "
            "leases need PostgreSQL, postgresql://…",
        )
    if not _TOPIC.fullmatch(topic):
        raise InvalidValue(
            where("kafka.ledger_topic"),
            f"must be up to 200 letters, digits, dots, underscores and hyphens; got {topic!r:.80}",
        )
    if config.consume.url != "none":
        raise InvalidValue(
            where("consume.url"),
            "must be none where the ledger is Kafka: it cannot store what was read of other topics in the same commit",
        )
    if config.outbox.url != "none":
        raise InvalidValue(
            where("outbox.url"),
            "must be none where the ledger is Kafka: it cannot store how far a relay is",
        )


def _scheme(url: str) -> str:
    return url.partition(":")[0]


def folder_of(where: str, url: str) -> Path:
    """Return the folder of a ledger's `sqlite:` address."""
    scheme, separator, folder = url.partition(":")
    if scheme != "sqlite" or not separator:
        _refuse("ledger", where, url)
    if not folder or "\0" in folder:
        raise InvalidValue(where, "must name a folder, such as sqlite:rankd-data")
    if folder.startswith("//"):
        raise InvalidValue(
            where, f"must be sqlite: and a folder, without slashes of a host: sqlite:/{folder.strip('/')}"
        )
    try:
        return Path(folder).expanduser()
    except RuntimeError as problem:
        raise InvalidValue(where, f"{folder} cannot be found: {problem}") from None


def _refuse(section: str, where: str, url: str) -> None:
    raise InvalidValue(
        where, f"rankd does not know the address {masked_url(url)!r:.120}; what works is {_SUPPORTED[section]}"
    )


# [auth]


def check_auth(auth: AuthConfig, where: Where) -> None:
    """Refuse invalid settings of tokens; the server calls this too, before it opens the keys."""
    sources = [name for name in TOKEN_KEYS if getattr(auth, name)]
    if len(sources) > 1:
        raise InvalidValue(
            where(f"auth.{sources[1]}"), f"must not be set beside auth.{sources[0]}: choose one way to sign tokens"
        )
    size = len(auth.jwt_secret.encode(errors="surrogatepass"))
    if auth.jwt_secret and size < JWT_SECRET_BYTES_MIN:
        raise InvalidValue(
            where("auth.jwt_secret"),
            f"must be at least {JWT_SECRET_BYTES_MIN} bytes, and random, such as `openssl rand -hex 32` prints; "
            f"got {size} bytes",
        )
    for name, claim in (("jwt_issuer", "iss"), ("jwt_audience", "aud")):
        if sources and not getattr(auth, name):
            raise InvalidValue(
                where(f"auth.{name}"),
                f"must be set with auth.{sources[0]}: name what your tokens carry as `{claim}`, "
                "so that tokens for other services are refused",
            )
    for name in ("jwt_public_key", "jwt_jwks"):
        if getattr(auth, name):
            _check_file(where(f"auth.{name}"), getattr(auth, name))
