"""The limits and intervals of the embedded library, with their defaults."""

from __future__ import annotations

import msgspec

from rankd.errors import InvalidValue
from rankd.shortening import list_names

FRIENDS_BYTES_MAX = 1024 * 1024 * 1024


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `rankd.open` takes beside the folder and the clock; docs/settings.md explains each."""

    commit_wait_ms: int = 0  # how long a commit waits for more requests to join it
    commit_events_max: int = 20_000  # events that share one commit, unless a single request has more
    request_events_max: int = 1_000_000  # events of one request
    idempotency_ttl_ms: int = 86_400_000  # how long a repeat is recognised
    snapshot_events: int = 2_000_000  # events after which a checkpoint is written
    snapshots_kept: int = 2
    checkpoint_bytes: int = 32 * 1024 * 1024  # of the log, after which it is moved into the file
    checkpoint_bytes_max: int = 256 * 1024 * 1024  # of the log, after which commits wait until it is
    scope_values_max: int = 10_000  # values of one attribute on one board
    instances_per_event_max: int = 1_000  # instances that one event may touch, by a board's definition
    profiles_cached_max: int = 100_000
    friends_bytes_max: int = FRIENDS_BYTES_MAX  # of all lists of friends together
    metadata_cached_max: int = 100_000
    at_least_wait_ms: int = 1_000
    as_of_max: int = 2  # past states in memory, each with every rank; 0: none
    as_of_wait_ms: int = 5_000  # how long a read waits for one that is being worked out
    archive_url: str = ""  # a folder, s3://…, gs://… or az://…; empty: `archive` in the data folder
    archive_endpoint: str = ""  # of S3
    archive_region: str = ""
    archive_cache_bytes_max: int = 1024 * 1024 * 1024  # of a bucket's objects, on disk
    archive_segments_every_ms: int = 10_000  # how often the ledger is sent to archive_url
    archive_snapshots_every_ms: int = 3_600_000  # how often a checkpoint is sent there
    vfs: str | None = None  # SQLite's VFS; None is its default


LOWEST = {"commit_wait_ms": 0, "idempotency_ttl_ms": 0, "at_least_wait_ms": 0, "as_of_max": 0, "as_of_wait_ms": 0}
_TEXTS = {"archive_url", "archive_endpoint", "archive_region"}


def read_settings(values: dict[str, object]) -> Settings:
    """Return the settings with some of them changed; refuse unknown names and values out of range."""
    known = {field.name for field in msgspec.structs.fields(Settings)}
    for name, value in values.items():
        if name not in known:
            raise InvalidValue(name, f"is not a setting; there are {list_names(sorted(known))}")
        if name == "vfs":
            if value is not None and not isinstance(value, str):
                raise InvalidValue(name, f"must be the name of a VFS; got {type(value).__name__}")
        elif name in _TEXTS:
            if not isinstance(value, str):
                raise InvalidValue(name, f"must be text; got {type(value).__name__}")
        elif type(value) is not int or value < LOWEST.get(name, 1):
            raise InvalidValue(name, f"must be an integer of at least {LOWEST.get(name, 1)}; got {value!r:.40}")
    return Settings(**values)  # type: ignore[arg-type]
