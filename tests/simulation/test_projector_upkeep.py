"""What a projector does beside ranking, under load and while something is away; each step by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
import redis
from tests.archived import parquet_files, players_of
from tests.servers.redis import RedisServer
from tests.servers.waiting import wait_until

import rankd
from rankd.errors import LedgerUnavailable, RanksUnavailable
from rankd.ledger.event import EventKind
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node import projector as projector_module
from rankd.redis.fallback import standings_sync as keeping_module
from rankd.redis.fallback.standings_sync import StandingsSync
from rankd.redis.heartbeat import KEY as HEARTBEAT
from rankd.redis.write.mirroring import Fenced
from rankd.registry.postgres.standings_writer import StandingsWriter

from .conftest import LendStores, Stores
from .scaled_installation import SteppedProjector, check_standings, open_api, recomputed, standings_positions

NOON = 1_777_896_000_000
HOUR, DAY = 3_600_000, 86_400_000


class Installed:
    """An API process and projectors that are run by hand."""

    def __init__(self, stores: Stores, folder: Path, opened: ExitStack) -> None:
        self.stores = stores
        self.clock = rankd.ManualClock(NOON)
        self._folder = folder
        self._opened = opened
        self._started = 0
        running, _ = open_api(*stores, self.clock, lambda: None, commit_wait_ms=0)
        self.boards = rankd.Boards(running)
        opened.callback(self.boards.close)

    def start(self) -> SteppedProjector:
        self._started += 1
        folder = self._folder / f"projector-{self._started}"
        projector = SteppedProjector(*self.stores, folder, self.clock)
        self._opened.callback(projector.die)
        return projector

    def submit(self, *players: str, score: int = 1) -> None:
        self.boards.submit_many("b", [(player, score) for player in players])

    def controls(self) -> list[EventKind]:
        ledger = PostgresLedger(self.stores.ledger_url)
        try:
            return [event.context.kind for event in ledger.controls(0)]
        finally:
            ledger.close()

    def wait_for_standings(self, projector: SteppedProjector) -> None:
        def have_come() -> bool:
            projector.step()
            return standings_positions(self.stores.ledger_url) == projector.follower.positions

        wait_until(have_come)
        check_standings(recomputed(self.stores.ledger_url), self.stores.ledger_url)


@pytest.fixture
def installed(lend_stores: LendStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    monkeypatch.setattr(projector_module, "BOARD_IDLE_MS", 0)
    monkeypatch.setattr(projector_module, "BEAT_MS", 0)
    monkeypatch.setattr(projector_module, "StandingsSync", partial(StandingsSync, every_ms=20))
    with lend_stores(2) as stores, ExitStack() as opened:
        yield Installed(stores, tmp_path, opened)


@pytest.fixture
def rewrites(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of threads that wrote all standings anew."""
    names: list[str] = []
    rewrite = StandingsWriter.rewrite

    def counted(self: StandingsWriter, *arguments: object) -> object:
        names.append(threading.current_thread().name)
        return rewrite(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StandingsWriter, "rewrite", counted)
    return names


def test_windows_close_while_scores_come_in_all_the_time(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projector_module, "ROLL_OVER_EVERY_S", 0.05)
    installed.boards.define("b", windows=["daily"], late_by="1h")
    projector = installed.start()
    installed.submit("ann")
    projector.project()
    installed.clock.advance(14 * HOUR)

    def has_closed() -> bool:
        installed.submit("bob", "cat")
        assert projector.step() > 0, "there was nothing to rank"
        return EventKind.CLOSE in installed.controls()

    wait_until(has_closed)


def test_a_full_disk_keeps_a_window_in_the_ranks_and_the_projector_alive(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.boards.define("b", windows=["daily"], late_by="0s", retention="1d")
    projector = installed.start()
    archiving = projector.projector.archiving
    monkeypatch.setattr(archiving, "_again_s", 0.01)
    installed.submit("ann")
    projector.project()
    blocked = tmp_path / "projector-1-archive"
    blocked.write_text("a file where a folder should be")
    installed.clock.advance(4 * DAY)
    while projector.step():
        pass
    wait_until(lambda: archiving.failed >= 2)
    installed.submit("bob")
    while projector.step():
        pass
    assert EventKind.CLOSE in installed.controls()
    assert EventKind.RETIRE not in installed.controls()

    blocked.unlink()

    def has_retired() -> bool:
        projector.step()
        return EventKind.RETIRE in installed.controls()

    wait_until(has_retired)
    (path,) = parquet_files(blocked)
    assert players_of(path) == ["ann"]


# Standings


def test_a_takeover_goes_on_with_the_standings_that_are_there(installed: Installed, rewrites: list[str]) -> None:
    installed.boards.define("b", scopes=["country"])
    first, second = installed.start(), installed.start()
    installed.submit("ann", "bob")
    first.project()
    installed.wait_for_standings(first)
    assert rewrites == ["rankd-standings"]  # there was nothing before
    while second.step():
        pass
    for number in range(5):
        installed.submit(f"p{number}", "ann", score=number)
        first.step()
        second.step()  # knows what is on its way to the standings
    installed.boards.remove("b", "bob")
    first.step()
    second.step()
    first.die()
    installed.submit("zoe")
    second.project()
    installed.wait_for_standings(second)

    assert len(rewrites) == 1
    installed.boards.reset("b")
    second.project()
    installed.wait_for_standings(second)


def test_one_that_takes_over_before_it_has_read_as_much_catches_up_first(
    installed: Installed, rewrites: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.boards.define("b")
    first, second = installed.start(), installed.start()
    first.project()
    installed.wait_for_standings(first)
    while second.step():
        pass
    with monkeypatch.context() as patched:
        patched.setattr(second.follower, "follow", lambda _: 0)
        installed.submit("ann", "bob")
        first.project()
        installed.wait_for_standings(first)
        first.die()
        wait_until(lambda: second.step() >= 0 and second.projector.is_active)
        kept = second.projector.standings_sync
        assert kept is not None
        wait_until(lambda: second.step() >= 0 and kept._behind_since is not None)
    second.project()
    installed.submit("cat")
    installed.wait_for_standings(second)

    assert len(rewrites) == 1


def test_the_same_players_again_and_again_are_not_too_many(
    installed: Installed, rewrites: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping_module, "PENDING_ROWS_MAX", 8)
    installed.boards.define("b", keep="latest")
    first, second = installed.start(), installed.start()
    first.project()
    installed.wait_for_standings(first)
    for number in range(40):
        installed.submit("ann", "bob", "cat", score=number)
        first.step()
        second.step()
        if number % 5 == 0:
            installed.wait_for_standings(first)
    assert len(rewrites) == 1

    installed.submit(*(f"p{number}" for number in range(9)))
    first.project()
    installed.wait_for_standings(first)
    assert len(rewrites) == 2


def test_a_write_whose_answer_is_lost_is_not_taken_for_one_that_failed(
    installed: Installed, rewrites: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.boards.define("b")
    projector = installed.start()
    projector.project()
    installed.wait_for_standings(projector)
    write = StandingsWriter.write
    lost: list[object] = []

    def losing(self: StandingsWriter, *arguments: object) -> object:
        verdict = write(self, *arguments)  # type: ignore[arg-type]
        if len(lost) < 2:
            lost.append(verdict)
            raise LedgerUnavailable("the line was cut")
        return verdict

    monkeypatch.setattr(StandingsWriter, "write", losing)
    for number in range(4):
        installed.submit(f"p{number}", "ann", score=number)
        projector.project()
        installed.wait_for_standings(projector)

    assert len(lost) == 2
    assert len(rewrites) == 1


@pytest.mark.parametrize("round_rows_max", [1, 20_000])
def test_all_standings_are_written_anew_while_scores_come_in(
    round_rows_max: int, installed: Installed, rewrites: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping_module, "READ_ENTRIES_MAX", 10)
    monkeypatch.setattr(keeping_module, "ROUND_ROWS_MAX", round_rows_max)
    installed.boards.define("b", keep="latest")
    installed.boards.define("gone")
    installed.submit(*(f"p{number:03}" for number in range(200)))
    installed.boards.submit("gone", "ann", 1)
    projector = installed.start()
    pages = keeping_module._Rewrite.pages
    ranked = threading.Event()

    def slowly(self: keeping_module._Rewrite) -> Iterator[object]:
        for number, page in enumerate(pages(self)):
            yield page
            if number == 5:
                assert ranked.wait(60)

    monkeypatch.setattr(keeping_module._Rewrite, "pages", slowly)
    wait_until(lambda: projector.step() >= 0 and bool(rewrites))
    # From the front to the back, from the back to the front, new, gone, and a whole board gone.
    installed.submit("p000", "p001", "new", score=0)
    installed.submit("p198", "p199", score=9)
    installed.boards.remove("b", "p100")
    installed.boards.delete("gone")
    for _ in range(5):
        projector.step()
    ranked.set()
    installed.wait_for_standings(projector)

    assert len(rewrites) == 1


def test_standings_go_on_while_redis_is_away_at_a_takeover(
    lend_stores: LendStores, own_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projector_module, "StandingsSync", partial(StandingsSync, every_ms=20))
    with lend_stores(2) as stores, ExitStack() as opened:
        installed = Installed(stores, tmp_path, opened)
        installed.boards.define("b", windows=["daily"], late_by="0s")
        installed.submit("ann")
        own_redis.stop()
        installed.stores = stores._replace(ranks_url=own_redis.url)
        projector = installed.start()

        def have_come() -> bool:
            with suppress(RanksUnavailable):
                projector.step()
            return standings_positions(stores.ledger_url) == projector.follower.positions

        wait_until(have_come)
        installed.submit("bob")
        installed.clock.advance(DAY)
        wait_until(have_come)
        check_standings(recomputed(stores.ledger_url), stores.ledger_url)
        wait_until(lambda: have_come() and EventKind.CLOSE in installed.controls())
        own_redis.start()
        projector.project()
        assert projector.follower.store.take().boards == {}


# The epoch


def test_the_epoch_alone_refuses_a_writer_that_does_not_know_it_was_replaced(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its positions fit, its lease looks fine, nobody else is about to write: only its epoch is the lower one."""
    installed.boards.define("b")
    zombie, successor = installed.start(), installed.start()
    installed.submit("ann")
    zombie.project()
    zombie.forget_that_the_lease_can_be_lost()
    successor.project()
    assert successor.epoch == zombie.epoch + 1
    assert successor.follower.positions == zombie.follower.positions
    with redis.Redis.from_url(installed.stores.ranks_url) as plain:

        def everything() -> dict[bytes, bytes]:
            return {key: plain.dump(key) for key in plain.scan_iter()}

        before = everything()
        monkeypatch.setattr(projector_module, "BEAT_MS", HOUR)  # its heartbeat would be refused as well
        installed.submit("zed", score=9)
        zombie.step()  # sends it, and asks what became of it before the next
        with pytest.raises(Fenced):
            zombie.step()

        assert zombie.follower.positions != successor.follower.positions
        assert everything() == before
        assert HEARTBEAT in before
        successor.project()
        assert everything() != before
