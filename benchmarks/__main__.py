"""The figures of the engine, the embedded library and the service beside those of their rivals, in the same run.

For each size a board is built in every contender; then the same questions go to each in turn, several rounds, and the
medians are shown with the checksum of the answers. Up to 10 M, expect some ten minutes and 6 GB of memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.servers.kafka import HOW_TO_GET_KAFKA, kafka_is_installed
from tests.servers.postgres import HOW_TO_GET_POSTGRES, binaries

from benchmarks.archive_bench import archive_rows
from benchmarks.archive_segments import segment_rows
from benchmarks.embedded_bench import embedded_rows
from benchmarks.embedded_huge import embedded_huge_rows
from benchmarks.embedded_join import join_rows
from benchmarks.engine_bench import Arena, built_arena, call_rows, rank_rows, update_rows, variant_rows
from benchmarks.families_bench import families_rows
from benchmarks.figures import SMOKE, Row, Scale
from benchmarks.http_bench import http_rows
from benchmarks.http_wrk import HOW_TO_GET_WRK, wrk_is_installed
from benchmarks.huge_bench import huge_rows
from benchmarks.kafka_bench import kafka_rows
from benchmarks.kafka_burst import kafka_burst_rows
from benchmarks.kafka_ledger import kafka_ledger_rows
from benchmarks.kafka_relay import kafka_relay_rows
from benchmarks.kinds_bench import KINDS, kind_rows
from benchmarks.kinds_following import kind_following_rows
from benchmarks.kinds_memory import kind_memory_rows
from benchmarks.live_bench import live_rows
from benchmarks.load_bench import load_rows
from benchmarks.lone_bench import lone_rows
from benchmarks.many_boards import many_board_rows
from benchmarks.memory_bench import player_rows, small_board_rows
from benchmarks.nodes_bench import node_rows
from benchmarks.past_bench import past_rows
from benchmarks.postgres_append import postgres_rows
from benchmarks.priority_bench import priority_node_rows, priority_rows
from benchmarks.reader_bench import reader_rows
from benchmarks.redis_mirror import redis_mirror_rows
from benchmarks.redis_reads import redis_read_rows
from benchmarks.redis_server import HOW_TO_GET_REDIS, redis_is_installed, running_redis
from benchmarks.report import busy_warning, extras, report_of, size_text, summary, table, write_report
from benchmarks.rivals import Redis
from benchmarks.scaled_huge import scaled_huge_rows
from benchmarks.scaled_path import scaled_path_rows
from benchmarks.workers_bench import worker_rows
from benchmarks.workload import PLAYERS_MAX

# In this order: memory is read off a freshly built Redis; reader and variants leave boards that differ.
GROUPS_A_SIZE: dict[str, Callable[[Arena], Iterator[Row]]] = {
    "memory": player_rows,
    "updates": update_rows,
    "ranks": rank_rows,
    "calls": call_rows,
    "load": load_rows,
    "reader": reader_rows,
    "variants": variant_rows,
}
HUGE_GROUPS = frozenset(
    {"huge", "embedded_huge", "embedded_join", "families", "scaled_huge"}
)  # asked for by name, or with --huge
GROUPS = (
    *GROUPS_A_SIZE,
    "boards",
    "huge",
    "embedded",
    "embedded_huge",
    "embedded_join",
    "archive_segments",
    "many_boards",
    "families",
    "as_of",
    "kinds",
    "lone",
    "archive",
    "kinds_memory",
    "http",
    "priority",
    "workers",
    "live",
    "scaled",
    "scaled_huge",
    "nodes",
    "kafka",
    "kafka_relay",
    "kafka_ledger",
    "kinds_following",
)
WRK_GROUPS = frozenset({"http", "live", "priority", "workers"})  # they need it as a client
ROUNDS_MAX = 100

EXAMPLE = """example:
  python -m benchmarks --sizes 100K,1M --rounds 3 --only updates,ranks
groups for --only: """ + ", ".join(GROUPS)


def size(text: str) -> int:
    """Read a size such as 10K or 10M.

    >>> size("10K"), size("2m"), size("1234")
    (10000, 2000000, 1234)
    """
    factor = {"K": 1_000, "M": 1_000_000}.get(text[-1:].upper(), 1)
    players = int(text.rstrip("kKmM")) * factor
    if not 1 <= players <= PLAYERS_MAX:
        raise ValueError(f"a size must be from 1 to {PLAYERS_MAX:,}")
    return players


def sizes(text: str) -> tuple[int, ...]:
    return tuple(size(part) for part in text.split(","))


def rounds(text: str) -> int:
    number = int(text)
    if not 1 <= number <= ROUNDS_MAX:
        raise ValueError(f"rounds must be from 1 to {ROUNDS_MAX}")
    return number


def groups(text: str) -> frozenset[str]:
    chosen = frozenset(text.split(","))
    if unknown := chosen - set(GROUPS):
        raise argparse.ArgumentTypeError(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    return chosen


def kinds(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := set(chosen) - set(KINDS):
        raise argparse.ArgumentTypeError(f"no such kind: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    return chosen


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sizes", type=sizes, help="players on the board (default 10K,100K,1M,10M)")
    parser.add_argument("--rounds", type=rounds, help="times each question is asked (default 5)")
    parser.add_argument("--only", type=groups, help="run these groups only, separated by commas")
    parser.add_argument("--embedded-players", type=size, help="players of the embedded library's rows (default 1M)")
    parser.add_argument("--join-players", type=size, help="new players of the row embedded_join (default 10M)")
    parser.add_argument("--family-values", type=size, help="small boards of the family's rows (default 1M)")
    parser.add_argument("--many-boards", type=sizes, help="boards of the group many_boards (default 10K,100K)")
    parser.add_argument("--kinds", type=kinds, default=(), help=f"of the group kinds, these only: {', '.join(KINDS)}")
    parser.add_argument("--kinds-players", type=size, help="players of the kinds of boards (default 1M)")
    parser.add_argument("--http-players", type=size, help="players of the service's rows (default 1M)")
    parser.add_argument(
        "--huge", action="store_true", help="also a board of 100 M (8 GiB) and a data folder of 10 M; some minutes each"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="every row at a tiny size in seconds; figures mean nothing"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="where to keep the figures (default: results/)")
    return parser.parse_args(given)


def measured(scale: Scale, chosen: Iterable[str], with_redis: bool) -> Iterator[Row]:
    """Yield the rows of a run as they are measured."""
    wanted = [group for group in GROUPS if group in set(chosen)]
    if set(wanted) & set(GROUPS_A_SIZE):
        for players in scale.sizes:
            with ExitStack() as stack:
                redis = None
                if with_redis:
                    redis = stack.enter_context(Redis(stack.enter_context(running_redis())))
                arena, built = built_arena(scale, players, redis)
                yield built
                for group in wanted:
                    if group in GROUPS_A_SIZE:
                        yield from GROUPS_A_SIZE[group](arena)
            del arena
    groups: dict[str, Callable[[], Iterator[Row]]] = {
        "boards": lambda: small_board_rows(scale, with_redis),
        "huge": lambda: huge_rows(scale),
        "embedded": lambda: embedded_rows(scale, with_redis),
        "embedded_huge": lambda: embedded_huge_rows(scale),
        "embedded_join": lambda: join_rows(scale),
        "archive_segments": lambda: segment_rows(scale),
        "many_boards": lambda: many_board_rows(scale),
        "families": lambda: families_rows(scale),
        "as_of": lambda: past_rows(scale),
        "kinds": lambda: kind_rows(scale),
        "lone": lambda: lone_rows(scale),
        "archive": lambda: archive_rows(scale),
        "kinds_memory": lambda: kind_memory_rows(scale),
        "http": lambda: http_rows(scale),
        "priority": lambda: priority_rows(scale),
        "workers": lambda: worker_rows(scale),
        "live": lambda: live_rows(scale),
    }
    for group, rows in groups.items():
        if group in wanted:
            yield from rows()
    yield from scaled_rows(scale, wanted, with_redis)


def scaled_rows(scale: Scale, wanted: Sequence[str], with_redis: bool) -> Iterator[Row]:
    """The parts of the scaled-out composition, of those whose server is installed."""
    with_postgres = binaries() is not None
    if "priority" in wanted and with_postgres:
        yield from priority_node_rows(scale)
    if "scaled" in wanted:
        if with_postgres:
            yield from postgres_rows(scale)
        if with_redis:
            yield from redis_mirror_rows(scale)
            yield from redis_read_rows(scale)
        if with_redis and with_postgres:
            yield from scaled_path_rows(scale, wrk_is_installed())
    if "scaled_huge" in wanted and with_redis and with_postgres:
        yield from scaled_huge_rows(scale)
    if "nodes" in wanted and with_postgres:
        yield from node_rows(scale, wrk_is_installed())
    if "kafka" in wanted and kafka_is_installed():
        yield from kafka_rows(scale)
        yield from kafka_burst_rows(scale)
    if "kafka_relay" in wanted and kafka_is_installed():
        yield from kafka_relay_rows(scale)
    if "kafka_ledger" in wanted and kafka_is_installed() and with_postgres:
        yield from kafka_ledger_rows(scale, wrk_is_installed())
    if "kinds_following" in wanted and with_postgres:
        yield from kind_following_rows(scale, with_redis)


def main(given: Sequence[str]) -> int:
    asked = arguments(given)
    scale = SMOKE if asked.smoke else Scale()
    scale = replace(
        scale,
        sizes=asked.sizes or scale.sizes,
        rounds=asked.rounds or scale.rounds,
        embedded_players=asked.embedded_players or scale.embedded_players,
        join_players=asked.join_players or scale.join_players,
        many_boards=asked.many_boards or scale.many_boards,
        family_values=asked.family_values or scale.family_values,
        http_players=asked.http_players or scale.http_players,
        kinds=asked.kinds,
        kinds_players=asked.kinds_players or scale.kinds_players,
    )
    chosen = asked.only or frozenset(GROUPS) - (frozenset() if asked.huge or asked.smoke else HUGE_GROUPS)
    if asked.huge:
        chosen |= HUGE_GROUPS
    with_redis = redis_is_installed()
    if not with_redis:
        print(HOW_TO_GET_REDIS, file=sys.stderr)
        if os.environ.get("CI") == "true":
            return 2
    if chosen & WRK_GROUPS and not wrk_is_installed():
        print(HOW_TO_GET_WRK, file=sys.stderr)
        if asked.only or os.environ.get("CI") == "true":
            return 2
        chosen -= WRK_GROUPS
    if chosen & {"scaled", "nodes", "kinds_following", "kafka_ledger"} and binaries() is None:
        print(HOW_TO_GET_POSTGRES, file=sys.stderr)
        if os.environ.get("CI") == "true":
            return 2
    if chosen & {"kafka", "kafka_relay", "kafka_ledger"} and not kafka_is_installed():
        print(HOW_TO_GET_KAFKA, file=sys.stderr)
        if os.environ.get("CI") == "true":
            return 2
    load_before = os.getloadavg()[0]
    began = time.monotonic()
    rows = []
    for row in measured(scale, chosen, with_redis):
        rows.append(row)
        print(f"{time.monotonic() - began:6.1f} s  {row.name} at {size_text(row.entries)}", file=sys.stderr, flush=True)
    print(f"\n{table(rows)}\n\n{extras(rows)}\n\n{summary(rows)}")
    if warning := busy_warning(load_before):
        print(warning)
    if asked.json is not None or not asked.smoke:
        kept = write_report(report_of(rows, scale, load_before), asked.json)
        print(f"kept in {kept.name}")
    return 1 if any(row.checksums_agree() is False or row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
