"""What a benchmark yields: rows of costs, the targets they are held against, and how much work a run does.

Every figure is a cost (time, memory or bytes on disk), so less is better everywhere and a ratio is rival ÷ rankd.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Literal

import msgspec

from rankd.operations.transfer.importing import BATCH_EVENTS

RANKD = "rankd"
REDIS = "redis"
SORTED = "sortedcontainers"
SQLITE = "sqlite"
APPEND = "append"
SMALLER = "smaller"  # ourselves with fewer players, or fewer boards
LIBRARY = "library"  # ourselves without a server
BARE = "bare"  # a handler that does nothing, on Granian
BARE_OWN = "bare_own"  # the same handler on rankd's own server
BARE_POST = "bare_post"  # the same, once it has read a body
COPY = "copy"  # of rows into a table of PostgreSQL, or out of it
LONE = "lone"  # ourselves with one board in place of a family
QUIET = "quiet"  # ourselves before midnight
UNARCHIVED = "unarchived"  # ourselves without an archive
UNWATCHED = "unwatched"  # ourselves without live connections
KAFKA = "kafka"  # a bare consumer or producer of Kafka
ONE_WORKER = "one_worker"  # ourselves in one process
PLAIN = "plain"  # a board of ours with windows and nothing else
LIVE = "live"  # ourselves when the events came
RIVALS = (REDIS, SORTED)  # the others do less than we do, or are ourselves: shown beside, and nothing is lost to them

TARGET_ENTRIES = 10_000_000
EMBEDDED_PLAYERS = 1_000_000
EMBEDDED_PLAYERS_HUGE = 10_000_000
HTTP_PLAYERS = 1_000_000
LIVE_CLIENTS = 5_000
LIVE_WATCHERS = 100
SCALED_PLAYERS = 1_000_000
SCALED_PLAYERS_HUGE = 10_000_000
SCALED_SHARDS = 8
HUGE_PLAYERS = 100_000_000
BOARD_PLAYERS = 30
MANY_BOARDS = (10_000, 100_000)
FAMILY_VALUES = 1_000_000
KINDS_PLAYERS = 1_000_000
KINDS_MEMORY_PLAYERS = 200_000
KINDS_FOLLOWED_PLAYERS = 100_000

Verdict = Literal["pass", "miss"]


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a row must reach: so many times less than a rival, or no more than this."""

    ratio_min: float | None = None
    cost_max: float | None = None
    rival: str = REDIS  # whom `ratio_min` is about
    entries: int | None = TARGET_ENTRIES  # judged at this size only; None: at whatever full size the row has


TARGETS = {
    "kafka_consume": Target(cost_max=1e9 / 60_000, entries=None),
    "kafka_relay_sqlite": Target(ratio_min=0.6, rival=KAFKA, entries=None),
    "kafka_relay_postgres": Target(ratio_min=0.4, rival=KAFKA, entries=None),
    "kafka_ledger_submit": Target(ratio_min=0.8, rival=LIBRARY, entries=SCALED_PLAYERS),
    "kafka_ledger_submit_p99": Target(cost_max=50e6, entries=SCALED_PLAYERS),
    "kafka_ledger_batches": Target(cost_max=1e9 / 100_000, entries=SCALED_PLAYERS),
    "kafka_ledger_visible_p99": Target(cost_max=300e6, entries=SCALED_PLAYERS),
    "kafka_ledger_backlog": Target(cost_max=5_000, entries=SCALED_PLAYERS),
    "kafka_burst_p99": Target(ratio_min=0.5, rival=QUIET, entries=None),
    "updates": Target(ratio_min=6),
    "ranks": Target(ratio_min=8),
    "rank_call": Target(ratio_min=50),
    "around_call": Target(ratio_min=20),
    "top100_call": Target(ratio_min=8),
    "memory_first_board": Target(cost_max=72),
    "memory_first_board_resident": Target(cost_max=72),
    "memory_further_board": Target(cost_max=48),
    "memory_further_board_resident": Target(cost_max=48),
    "load": Target(ratio_min=3),
    "small_boards": Target(cost_max=BOARD_PLAYERS * 32 + 128, entries=None),
    "small_boards_resident": Target(cost_max=BOARD_PLAYERS * 32 + 128, entries=None),
    "reader_p99": Target(cost_max=1_000_000),
    "huge_peak": Target(cost_max=8 * 2**30, entries=HUGE_PLAYERS),
    "huge_build": Target(cost_max=300, entries=HUGE_PLAYERS),
    "huge_rank_p99": Target(cost_max=20_000, entries=HUGE_PLAYERS),
    "embedded_submit_many": Target(cost_max=10_000, entries=EMBEDDED_PLAYERS),
    "embedded_submit_many_redis_py": Target(ratio_min=3, entries=EMBEDDED_PLAYERS),
    "embedded_submit_many_redis_raw": Target(ratio_min=1.5, entries=EMBEDDED_PLAYERS),
    "embedded_submit_threads": Target(cost_max=1e9 / 15_000, entries=EMBEDDED_PLAYERS),
    "embedded_submit": Target(ratio_min=0.7, rival=APPEND, entries=EMBEDDED_PLAYERS),
    "embedded_reader_p99": Target(cost_max=1_000_000, entries=EMBEDDED_PLAYERS),
    "embedded_reader_p99_tuples": Target(cost_max=10_000_000, entries=EMBEDDED_PLAYERS),
    "embedded_replay": Target(cost_max=5_000, entries=EMBEDDED_PLAYERS),
    "archive_page_first_local": Target(cost_max=100e6, entries=1_000_000),
    "archive_page_first_s3": Target(cost_max=300e6, entries=1_000_000),
    "embedded_open": Target(cost_max=20, entries=EMBEDDED_PLAYERS_HUGE),
    "embedded_growth": Target(ratio_min=0.6, rival=SMALLER, entries=EMBEDDED_PLAYERS_HUGE),
    "embedded_join": Target(cost_max=1e9 / 150_000, entries=EMBEDDED_PLAYERS_HUGE),
    **{
        f"many_boards_{call}": Target(ratio_min=1 / 1.5, rival=SMALLER, entries=None)
        for call in ("define", "first_score", "top", "midnight")
    },
    "family_memory": Target(cost_max=60, entries=FAMILY_VALUES * BOARD_PLAYERS),
    "family_open": Target(cost_max=20, entries=FAMILY_VALUES * BOARD_PLAYERS),
    "family_top": Target(ratio_min=1 / 1.2, rival=LONE, entries=FAMILY_VALUES * BOARD_PLAYERS),
    "family_midnight_submit": Target(cost_max=50e6, entries=FAMILY_VALUES * BOARD_PLAYERS),
    "family_midnight_read": Target(cost_max=50e6, entries=FAMILY_VALUES * BOARD_PLAYERS),
    "as_of_first": Target(cost_max=15, entries=EMBEDDED_PLAYERS),
    "as_of_again": Target(cost_max=10e6, entries=EMBEDDED_PLAYERS),
    "history_reader": Target(cost_max=5e6, entries=EMBEDDED_PLAYERS),
    "history_bytes": Target(cost_max=12, entries=EMBEDDED_PLAYERS),
    "history_year": Target(cost_max=0.2, entries=EMBEDDED_PLAYERS),
    "lone_plain": Target(ratio_min=0.7, rival=APPEND, entries=KINDS_PLAYERS),
    "lone_scope": Target(ratio_min=0.6, rival=APPEND, entries=KINDS_PLAYERS),
    "kind_boards": Target(ratio_min=1 / 1.5, rival=PLAIN, entries=KINDS_PLAYERS),
    "kind_scope": Target(ratio_min=0.45, rival=PLAIN, entries=KINDS_PLAYERS),
    "kind_three_scopes": Target(ratio_min=0.22, rival=PLAIN, entries=KINDS_PLAYERS),
    "kind_roll_up": Target(ratio_min=0.7, rival=PLAIN, entries=KINDS_PLAYERS),
    "kind_roll_ups": Target(ratio_min=0.7, rival=PLAIN, entries=KINDS_PLAYERS),
    "kind_team_sum": Target(ratio_min=0.5, rival=PLAIN, entries=KINDS_PLAYERS),
    "kind_team_sum_windows": Target(ratio_min=0.5, rival=PLAIN, entries=KINDS_PLAYERS),
    "kind_team_best": Target(ratio_min=0.5, rival=PLAIN, entries=KINDS_PLAYERS),
    "kind_decay": Target(ratio_min=0.7, rival=PLAIN, entries=KINDS_PLAYERS),
    "kind_feeds": Target(ratio_min=0.22, rival=PLAIN, entries=KINDS_PLAYERS),
    "kind_metadata": Target(ratio_min=0.4, rival=PLAIN, entries=KINDS_PLAYERS),
    **{
        f"kind_{name}_replay": Target(ratio_min=0.6, rival=LIVE, entries=KINDS_PLAYERS)
        for name in ("scope", "three_scopes", "roll_up", "roll_ups", "team_sum", "decay", "feeds", "metadata")
    },
    **{
        f"kind_{name}_memory": Target(cost_max=40, entries=KINDS_MEMORY_PLAYERS)
        for name in ("metadata", "team_sum", "team_best", "team_average")
    },
    **{
        f"kind_{name}_{how}": Target(ratio_min=0.6, rival=LIVE, entries=KINDS_FOLLOWED_PLAYERS)
        for name in ("plain", "scope", "roll_up", "team_sum", "decay", "metadata")
        for how in ("node", "projector", "rebuild")
    },
    "http_rank": Target(ratio_min=0.5, rival=BARE, entries=HTTP_PLAYERS),
    "http_around": Target(ratio_min=0.3, rival=BARE, entries=HTTP_PLAYERS),
    "http_top": Target(ratio_min=0.4, rival=BARE, entries=HTTP_PLAYERS),
    "http_submit": Target(ratio_min=0.3, rival=BARE, entries=HTTP_PLAYERS),
    "http_batch": Target(cost_max=1e9 / 60_000, entries=HTTP_PLAYERS),
    "http_batch_scopes": Target(ratio_min=0.5, rival=PLAIN, entries=HTTP_PLAYERS),
    "http_memory": Target(cost_max=120e6, entries=HTTP_PLAYERS),
    "http_sustained_p95": Target(cost_max=10e6, entries=HTTP_PLAYERS),
    "http_sustained_p99": Target(cost_max=50e6, entries=HTTP_PLAYERS),
    "priority_submit_p99": Target(cost_max=50e6, entries=HTTP_PLAYERS),
    "priority_rank_p99": Target(cost_max=10e6, entries=HTTP_PLAYERS),
    "workers_page": Target(ratio_min=1.5, rival=ONE_WORKER, entries=HTTP_PLAYERS),
    "workers_visible_p99": Target(cost_max=50e6, entries=HTTP_PLAYERS),
    "live_delay_p99": Target(cost_max=1e9, entries=LIVE_CLIENTS),
    "live_processor": Target(cost_max=1e9, entries=LIVE_CLIENTS),
    "live_memory": Target(cost_max=64 * 1024, entries=LIVE_CLIENTS),
    "live_submit": Target(ratio_min=0.8, rival=UNWATCHED, entries=LIVE_WATCHERS),
    "scaled_append": Target(ratio_min=0.6, rival=COPY, entries=SCALED_PLAYERS),
    "scaled_mirror": Target(ratio_min=0.7, entries=SCALED_PLAYERS),
    "scaled_backlog": Target(ratio_min=0.7, entries=SCALED_PLAYERS),
    "scaled_mirror_sums": Target(ratio_min=0.5, entries=SCALED_PLAYERS),
    "scaled_rebuild": Target(ratio_min=1 / 1.5, entries=SCALED_PLAYERS),
    "scaled_rebuild_huge": Target(ratio_min=1 / 1.5, entries=SCALED_PLAYERS_HUGE),
    "scaled_visible_p99": Target(cost_max=1e9, entries=SCALED_PLAYERS),
    "scaled_visible_busy_p99": Target(cost_max=1e9, entries=SCALED_PLAYERS),
    "nodes_http_rank": Target(ratio_min=0.9, rival=LIBRARY, entries=SCALED_PLAYERS),
    "nodes_submit_p99": Target(cost_max=50e6, entries=SCALED_PLAYERS),
    "nodes_visible_p99": Target(cost_max=100e6, entries=SCALED_PLAYERS),
    "nodes_visible_busy_p99": Target(cost_max=1e9, entries=SCALED_PLAYERS),
    "nodes_open": Target(cost_max=5, entries=SCALED_PLAYERS),
    "scaled_shards_rank_p99": Target(cost_max=10e6, entries=SCALED_PLAYERS * SCALED_SHARDS),
}


class Row(msgspec.Struct, kw_only=True):
    """One measured line: for each contender its samples, in `unit`, and the checksum of its answers."""

    name: str
    entries: int  # on the board, or on all boards together
    unit: str  # ns_per_update, bytes_per_player, seconds, …
    samples: dict[str, list[float]]
    checksums: dict[str, str] = {}
    extra: dict[str, float] = {}  # further figures, units in their names
    note: str = ""
    target: Target | None = None
    failures: list[str] = []  # what went wrong while it was measured; such a row reaches no target

    def cost(self, contender: str) -> float | None:
        samples = self.samples.get(contender)
        return median(samples) if samples else None

    def ratio(self, rival: str) -> float | None:
        ours, theirs = self.cost(RANKD), self.cost(rival)
        return theirs / ours if ours and theirs else None

    def verdict(self) -> Verdict | None:
        """None when there is no target at this size, or no rival to judge it by."""
        if self.target is None:
            return None
        if self.failures:
            return "miss"
        if self.target.ratio_min is not None:
            ratio = self.ratio(self.target.rival)
            return None if ratio is None else _verdict(ratio >= self.target.ratio_min)
        ours = self.cost(RANKD)
        return None if ours is None or self.target.cost_max is None else _verdict(ours <= self.target.cost_max)

    def checksums_agree(self) -> bool | None:
        """None when nobody else answered."""
        return None if len(self.checksums) < 2 else len(set(self.checksums.values())) == 1


def _verdict(reached: bool) -> Verdict:
    return "pass" if reached else "miss"


def target_of(name: str, entries: int) -> Target | None:
    """Return the target a row of this name is judged by at this size, if any."""
    target = TARGETS.get(name)
    return target if target is not None and target.entries in (None, entries) else None


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work a run does. `*_rows` and `*_calls` are a round's, for each contender."""

    smoke: bool = False
    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    rounds: int = 5
    build_batch_rows: int = 100_000
    batch_rows: int = 20_000
    batch_rows_variants: tuple[int, ...] = (1_000, 100_000)
    update_rows: int = 200_000
    rank_batch_players: int = 10_000
    rank_players: int = 100_000
    rank_calls: int = 30_000
    around_calls: int = 15_000
    top_calls: int = 3_000
    load_rounds_max: int = 3
    reader_s: float = 2.0
    reader_rounds_max: int = 3
    reader_large_batch_rows: int = 1_000_000
    boards: int = 1_000_000
    boards_from_players: int = 1_000_000
    boards_a_batch: int = 10_000
    boards_in_redis_max: int = 50_000
    huge_players: int = HUGE_PLAYERS
    huge_batch_rows: int = 1_000_000
    huge_rank_calls: int = 200_000
    embedded_players: int = EMBEDDED_PLAYERS
    embedded_batch_rows: int = 10_000
    embedded_rows: int = 100_000
    embedded_threads: int = 64
    embedded_thread_calls: int = 100  # of each thread
    embedded_calls: int = 1_000
    embedded_calls_a_turn: int = 100
    embedded_players_smaller: int = 100_000
    embedded_players_huge: int = EMBEDDED_PLAYERS_HUGE
    join_players: int = EMBEDDED_PLAYERS_HUGE
    archive_players: int = EMBEDDED_PLAYERS
    archive_events: int = 1_000_000  # of a round but the first
    many_boards: tuple[int, ...] = MANY_BOARDS
    many_boards_smaller: int = 10
    many_boards_calls: int = 200
    family_values: int = FAMILY_VALUES
    family_players: int = 1_000_000
    family_calls: int = 5_000
    family_quiet_s: float = 30.0
    past_players: int = EMBEDDED_PLAYERS
    past_events: int = 2_000_000
    kinds: tuple[str, ...] = ()  # of boards; none: all of them
    kinds_players: int = KINDS_PLAYERS
    kinds_rows: int = 100_000
    kinds_memory_players: int = KINDS_MEMORY_PLAYERS
    kinds_followed_players: int = KINDS_FOLLOWED_PLAYERS
    http_players: int = HTTP_PLAYERS
    http_rounds_max: int = 5
    http_turn_s: int = 4
    http_answers_max: int | None = None  # of a turn
    http_batch_events: int = 1_000
    http_reads_per_s: int = 5_000
    http_writes_per_s: int = 600
    http_sustained_s: int = 60
    workers_visible_calls: int = 1_000
    priority_calls_per_s: int = 300
    priority_import_events: int = BATCH_EVENTS
    priority_s: int = 20
    live_players: int = 100_000
    live_clients: int = LIVE_CLIENTS
    live_scores_per_s: int = 1_000
    live_scores_s: float = 20.0
    live_changes: int = 20
    live_watchers: int = LIVE_WATCHERS
    live_rounds_max: int = 5
    live_turn_s: int = 4
    kafka_players: int = EMBEDDED_PLAYERS
    kafka_records: int = 300_000
    kafka_records_per_s: int = 10_000
    kafka_burst_s: float = 30.0
    scaled_players: int = SCALED_PLAYERS  # of one shard
    scaled_players_huge: int = SCALED_PLAYERS_HUGE
    scaled_shards: int = SCALED_SHARDS
    scaled_calls: int = 2_000
    scaled_batch_events: int = 1_000
    scaled_events: int = 20_000
    scaled_seconds: float = 10.0  # of a round at a fixed rate
    scaled_rows_before: int = 300_000  # in the ledger before appends are measured


SMOKE = Scale(
    smoke=True,
    sizes=(1_000,),
    rounds=2,
    build_batch_rows=400,
    batch_rows=200,
    batch_rows_variants=(100,),
    update_rows=400,
    rank_batch_players=200,
    rank_players=400,
    rank_calls=100,
    around_calls=100,
    top_calls=40,
    load_rounds_max=1,
    reader_s=0.1,
    reader_rounds_max=1,
    reader_large_batch_rows=400,
    boards=100,
    boards_from_players=1_000,
    boards_a_batch=40,
    boards_in_redis_max=100,
    huge_players=2_000,
    huge_batch_rows=500,
    huge_rank_calls=100,
    archive_players=1_000,
    archive_events=400,
    embedded_players=1_000,
    embedded_batch_rows=200,
    embedded_rows=400,
    embedded_thread_calls=2,
    embedded_calls=20,
    embedded_calls_a_turn=10,
    embedded_players_smaller=300,
    embedded_players_huge=2_000,
    join_players=2_000,
    kafka_players=500,
    kafka_records=600,
    kafka_records_per_s=200,
    kafka_burst_s=0.5,
    many_boards=(40,),
    many_boards_smaller=4,
    many_boards_calls=10,
    family_values=50,
    family_players=500,
    family_calls=20,
    family_quiet_s=0.2,
    past_players=1_000,
    past_events=2_000,
    kinds_players=1_000,
    kinds_rows=400,
    kinds_memory_players=1_000,
    kinds_followed_players=500,
    http_players=1_000,
    http_rounds_max=1,
    http_turn_s=1,
    http_answers_max=200,
    http_batch_events=100,
    http_reads_per_s=50,
    http_writes_per_s=10,
    http_sustained_s=1,
    workers_visible_calls=20,
    priority_calls_per_s=50,
    priority_import_events=200,
    priority_s=1,
    live_players=1_000,
    live_clients=40,
    live_scores_per_s=100,
    live_scores_s=1.0,
    live_changes=3,
    live_watchers=10,
    live_rounds_max=1,
    live_turn_s=1,
    scaled_players=1_000,
    scaled_players_huge=2_000,
    scaled_shards=3,
    scaled_calls=20,
    scaled_batch_events=100,
    scaled_events=400,
    scaled_seconds=1.0,
    scaled_rows_before=1_000,
)


@dataclass(slots=True)
class Series:
    """Collects the samples of one row while rounds go on."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    checksums: dict[str, int] = field(default_factory=dict)

    def add(self, contender: str, cost: float, checksum: int | None = None) -> None:
        self.samples.setdefault(contender, []).append(cost)
        if checksum is not None:
            self.checksums[contender] = self.checksums.get(contender, 0) + checksum

    def row(
        self, name: str, entries: int, unit: str, extra: dict[str, float] | None = None, note: str = "", *, judged: bool
    ) -> Row:
        """Make the row; it is `judged` by its target unless this is a smoke run."""
        return Row(
            name=name,
            entries=entries,
            unit=unit,
            samples=self.samples,
            checksums={contender: format(checksum, "x") for contender, checksum in self.checksums.items()},
            extra=extra or {},
            note=note,
            target=target_of(name, entries) if judged else None,
        )
