"""Kinds of boards on PostgreSQL: what following an event costs beside what the same event cost when it came.

    live       batches of columns → a node that ranks: durable, followed, ranked
    projector  the same events → a projector that has fallen behind → Redis, until nothing is left to send
    node       the whole ledger → a node of its own without a checkpoint; its digests are those of the first
    rebuild    the whole ledger → a new generation in Redis

Rows of the projector and of the rebuild need redis-server.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from tests.servers.postgres import PostgresServer, running_postgres
from tests.servers.redis import running_redis

from benchmarks.disk import folder_on_disk
from benchmarks.embedded_subject import SteadyClock
from benchmarks.figures import LIVE, RANKD, Row, Scale, Series
from benchmarks.kinds_bench import EVENT, FIVE, KINDS, Kind, KindSubject, digest_of
from benchmarks.scaled_path import SETTINGS
from rankd import Boards
from rankd.node.open_node import open_node
from rankd.node.open_operations import rebuild_shared
from rankd.node.open_projector import make_projector, prepare_projector_folder
from rankd.node.projector import Projector
from rankd.node.shared_stores import SharedStores

_FIVE_WINDOWS = {"windows": FIVE, "keep": "latest"}
FOLLOWED = {
    "plain": Kind(_FIVE_WINDOWS, _FIVE_WINDOWS),
    **{name: KINDS[name] for name in ("scope", "roll_up", "team_sum", "decay", "metadata")},
}
SETTLE_S_MAX = 600.0


def kind_following_rows(scale: Scale, with_redis: bool) -> Iterator[Row]:
    """Up to three rows for each kind."""
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        folder.chmod(0o711)  # the server has a user of its own
        postgres = stack.enter_context(running_postgres(SETTINGS, parent=folder))
        for name, kind in FOLLOWED.items():
            yield from _rows_of(scale, folder / name, postgres, name, kind, with_redis=with_redis)


def _rows_of(
    scale: Scale, folder: Path, postgres: PostgresServer, name: str, kind: Kind, *, with_redis: bool
) -> Iterator[Row]:
    ledger_url = postgres.url(postgres.make_database())
    SharedStores(ledger_url).migrate()
    live, followed = Series(), {"node": Series()}
    with ExitStack() as stack:
        boards = stack.enter_context(open_node(SharedStores(ledger_url), folder / "a", clock=SteadyClock()))
        players = scale.kinds_followed_players
        subject = KindSubject(folder, kind, players, is_plain=False, boards=boards)
        subject.join(scale.embedded_batch_rows)
        projector, ranks_url = None, ""
        if with_redis:
            ranks_url = stack.enter_context(running_redis()).url
            prepare_projector_folder(folder / "projector")
            projector = make_projector(SharedStores(ledger_url), ranks_url, folder / "projector", clock=SteadyClock())
            stack.enter_context(closing(projector))
            _settle(projector)
            followed |= {"projector": Series(), "rebuild": Series()}
        for _ in range(scale.rounds):
            live.add(LIVE, subject.turn(scale.kinds_rows, scale.embedded_batch_rows)[0])
            if projector is not None:
                followed["projector"].add(RANKD, _settle(projector) / scale.kinds_rows)
        _follow_from_the_beginning(followed["node"], ledger_url, folder / "b", boards)
        events = players + scale.rounds * scale.kinds_rows
        if projector is not None:
            began_ns = time.perf_counter_ns()
            rebuild_shared(SharedStores(ledger_url), ranks_url)
            followed["rebuild"].add(RANKD, (time.perf_counter_ns() - began_ns) / events)
    for how, series in followed.items():
        series.samples[LIVE] = live.samples[LIVE]
        extra = {"live_events_per_s": 1e9 / median(live.samples[LIVE]), "events": float(events)}
        note = "live: an event that a node takes, durable and ranked, in batches of columns"
        yield series.row(f"kind_{name}_{how}", players, EVENT, extra, note, judged=not scale.smoke)


def _settle(projector: Projector) -> int:
    """Let a projector work until nothing is left; return how long that took."""
    deadline, began_ns = time.monotonic() + SETTLE_S_MAX, time.perf_counter_ns()
    while projector.step():
        if time.monotonic() > deadline:
            raise RuntimeError("the projector has not caught up in time")
    return time.perf_counter_ns() - began_ns


def _follow_from_the_beginning(series: Series, ledger_url: str, folder: Path, boards: Boards) -> None:
    with open_node(SharedStores(ledger_url), folder, clock=SteadyClock()) as node:
        started = node.started
        series.add(RANKD, started.seconds * 1e9 / started.replayed)
        series.checksums = {RANKD: digest_of(node), LIVE: digest_of(boards)}
