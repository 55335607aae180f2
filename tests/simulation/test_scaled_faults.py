"""Processes and servers fail under load: nothing acknowledged is lost or doubled, no answer is wrong, ranks come back.

Every check is of the same kind: what was acknowledged is what is ranked, Redis equals a recomputation from the ledger
within ten seconds of the fault's end, and what readers saw meanwhile was right as of the position it named.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisCluster, RedisServer
from tests.servers.slow_line import SlowLine
from tests.servers.waiting import wait_until

from rankd.node.shared_stores import SharedStores
from rankd.redis.connection.client import connect
from rankd.redis.keys import ShardKeys
from rankd.redis.read.reader import RedisReader

from .extent import short_and_long
from .scaled_load import BOARDS, Load
from .scaled_processes import Projectors

pytestmark = pytest.mark.timeout(300)  # processes that start, fail and catch up
EVENTS, EVENTS_LONG = 600, 200_000
ROWS, PAUSE_S = 20, 0.05
ROWS_LONG, PAUSE_LONG_S = 40, 0.1  # many events, and not so many that a hundred starts are about nothing else
KILLS, KILLS_LONG = 3, 100
PROGRESS = 100  # events between two faults
DELAY_S_MAX = 0.02
CUTS_MAX = 50


class LoadedInstallation:
    """An installation under load."""

    def __init__(self, projectors: Projectors, load: Load, ledger_url: str, ranks_url: str) -> None:
        self.projectors = projectors
        self.load = load
        self.ledger_url = ledger_url
        self.ranks_url = ranks_url

    def wait_for_events(self, more: int = PROGRESS) -> None:
        """Wait until so many more events are acknowledged."""
        self.load.renew()
        wanted = self.load.acknowledged + more
        wait_until(lambda: self.load.acknowledged >= wanted)

    def finish(self, events: int = EVENTS) -> None:
        """Let the load come to an end, and check everything."""
        while self.load.acknowledged < events:
            self.wait_for_events(min(PROGRESS, events - self.load.acknowledged))
        self.load.check(self.load.finish())


Run = Callable[..., AbstractContextManager[LoadedInstallation]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    @contextmanager
    def running(
        ledger_url: str, ranks_url: str, projectors: int = 2, rows: int = ROWS, pause_s: float = PAUSE_S
    ) -> Iterator[LoadedInstallation]:
        SharedStores(ledger_url).migrate()
        with ExitStack() as stack:
            children = Projectors(ledger_url, ranks_url, tmp_path)
            stack.callback(children.end)
            for _ in range(projectors):
                children.start()
            load = Load(ledger_url, ranks_url, rows, pause_s)
            stack.callback(load.close)
            children.wait_for_holder()
            wait_until(lambda: bool(load.seen))
            yield LoadedInstallation(children, load, ledger_url, ranks_url)

    return running


def epochs_in_redis(ranks_url: str) -> set[int]:
    with connect(ranks_url) as client:
        reader = RedisReader(client, lambda board: int(BOARDS[board].get("shards", 1)))
        return {position.epoch for board in BOARDS for position in reader.positions(board).values()}


@short_and_long
def test_projectors_killed_one_after_the_other(
    run: Run, postgres_url: str, own_redis: RedisServer, everything: bool
) -> None:
    rows, pause_s = (ROWS_LONG, PAUSE_LONG_S) if everything else (ROWS, PAUSE_S)
    with run(postgres_url, own_redis.url, rows=rows, pause_s=pause_s) as running:
        killed: list[int] = []
        for _ in range(KILLS_LONG if everything else KILLS):
            running.wait_for_events()
            _, active = running.projectors.wait_for_holder(*killed)
            running.projectors.kill(active)
            killed.append(active)
            running.projectors.start(running.projectors.folder(active))
        running.projectors.wait_for_holder(*killed)
        running.finish(EVENTS_LONG if everything else EVENTS)


def test_a_projector_that_was_paused_and_replaced_changes_nothing_when_it_wakes(
    run: Run, postgres_url: str, own_redis: RedisServer
) -> None:
    with run(postgres_url, own_redis.url) as running:
        projectors = running.projectors
        zombie = projectors.holder().pid
        running.load.mark()
        projectors.pause(zombie)
        epoch, successor = projectors.wait_for_holder(zombie)
        running.load.mark()
        projectors.resume(zombie)
        wait_until(lambda: any(line in projectors.log(zombie) for line in ("lease was lost", "becomes a standby")))
        running.wait_for_events()
        running.finish()
        assert projectors.is_alive(zombie)
        assert projectors.holder() == (epoch, successor)
        assert epochs_in_redis(running.ranks_url) == {epoch}


def test_two_projectors_started_at_once_do_not_disturb_each_other(
    run: Run, postgres_url: str, own_redis: RedisServer
) -> None:
    with run(postgres_url, own_redis.url, projectors=3) as running:
        epoch, active = running.projectors.holder()
        running.finish()
        assert running.projectors.holder() == (epoch, active)


def test_answers_say_that_they_are_stale_while_nobody_ranks(
    run: Run, postgres_url: str, own_redis: RedisServer
) -> None:
    with run(postgres_url, own_redis.url, projectors=1) as running:
        running.wait_for_events()
        active = running.projectors.holder().pid
        running.projectors.kill(active)
        wait_until(lambda: running.load.boards.top("counts", 1).stale)
        running.wait_for_events()
        running.projectors.start(running.projectors.folder(active))
        wait_until(lambda: not running.load.boards.top("counts", 1).stale)
        running.finish()


def test_redis_comes_back_with_an_older_log(run: Run, postgres_url: str, own_redis: RedisServer) -> None:
    log, older = own_redis.folder / "appendonlydir", own_redis.folder / "older"
    with run(postgres_url, own_redis.url) as running:
        running.wait_for_events()
        shutil.copytree(log, older)
        running.wait_for_events()
        running.load.mark()  # lost with Redis, and never sent again by anybody
        own_redis.kill()
        running.wait_for_events()  # writes go on
        shutil.rmtree(log)
        older.rename(log)
        own_redis.start()
        running.wait_for_events()
        running.finish()


def test_redis_is_emptied(run: Run, postgres_url: str, own_redis: RedisServer) -> None:
    with run(postgres_url, own_redis.url) as running:
        for functions_too in (False, True):
            running.wait_for_events()
            with own_redis.client() as client:
                client.flushall()
                if functions_too:
                    client.function_flush()
        running.wait_for_events()
        running.finish()


@pytest.mark.parametrize("how", ["stopped", "killed", "paused"])
def test_postgres_goes_away_and_comes_back(
    how: str, run: Run, own_postgres: PostgresServer, own_redis: RedisServer
) -> None:
    url = own_postgres.url(own_postgres.make_database())
    with run(url, own_redis.url) as running:
        running.wait_for_events()
        seen = len(running.load.seen)
        if how == "paused":
            own_postgres.pause()
        else:
            (own_postgres.stop if how == "stopped" else own_postgres.kill)()
            wait_until(lambda: running.load.refused_writes > 0)
        wait_until(lambda: len(running.load.seen) > seen + 5)  # reads go on
        if how == "paused":
            own_postgres.resume()
        else:
            own_postgres.start()
        running.wait_for_events()
        running.finish()


def test_a_replica_is_promoted(run: Run, postgres_url: str, own_cluster: RedisCluster) -> None:
    with run(postgres_url, own_cluster.url) as running:
        running.wait_for_events()
        for board in ("counts", "cut"):
            key = ShardKeys(board, 0).meta
            master = own_cluster.master_of(key)
            master.kill()
            wait_until(lambda key=key, master=master: _has_moved(own_cluster, key, master))  # type: ignore[misc]
            master.start()
            running.wait_for_events()
        running.finish()


def _has_moved(cluster: RedisCluster, key: bytes, master: RedisServer) -> bool:
    return cluster.master_of(key) is not master


def test_lines_are_slow_and_cut_while_commits_are_under_way(
    run: Run, postgres: PostgresServer, postgres_url: str, own_redis: RedisServer
) -> None:
    with (
        closing(SlowLine(postgres.port, DELAY_S_MAX)) as ledger,
        closing(SlowLine(own_redis.port, DELAY_S_MAX)) as ranks,
    ):
        slow_ledger = postgres_url.replace(f":{postgres.port}/", f":{ledger.port}/")
        slow_ranks = own_redis.url.replace(f":{own_redis.port}", f":{ranks.port}")
        with run(slow_ledger, slow_ranks) as running:
            for line in (ledger, ranks, ledger, ranks, ledger):
                running.wait_for_events()
                line.cut()
            for _ in range(CUTS_MAX):  # until one of them meets a commit
                if running.load.refused_writes:
                    break
                running.wait_for_events()
                ledger.cut()
            running.wait_for_events()
            running.finish()
            assert running.load.refused_writes > 0, "no commit was cut off"
