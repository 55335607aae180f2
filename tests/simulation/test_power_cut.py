"""After a power cut everything acknowledged is there, once, and nothing else but what was under way."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import apsw
import pytest

import rankd.node.embedded
from rankd.errors import LedgerUnavailable
from rankd.ledger.sqlite.database import FILE_NAME, Database

from .disk import Fault, FaultyDisk, Operation, Trouble
from .disk_image import Unsynced
from .disk_scenario import (
    UPKEEP_EVERY_S,
    History,
    check_is_one_of,
    check_keys_count_once,
    close_at_last,
    observed,
    open_at_last,
    opened,
    play,
    steps,
)
from .extent import replayable, sampled, scratch_folder, short_and_long

SAMPLE = 40
SAMPLE_AFTER_FAULT = 10
SCENARIOS_LONG = 20
AT_THE_END = -1  # of a scenario, in place of the number of a sync
ROWS = 200


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that takes no time to sync: how the disk fails is up to the test."""
    with scratch_folder() as made_for_this:
        yield made_for_this


@pytest.fixture(autouse=True)
def _upkeep_at_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the log be moved and snapshots be taken between the calls of a scenario that is over in a blink."""
    monkeypatch.setattr(rankd.node.embedded, "UPKEEP_EVERY_S", UPKEEP_EVERY_S)


@dataclass(frozen=True)
class Cut:
    """A folder as it was found when the power was back, and what had been done by then."""

    folder: Path
    unsynced: Unsynced
    history: History

    def check(self) -> None:
        """Open it and look for everything."""
        with FaultyDisk() as disk:
            boards = opened(self.folder, disk.name)
            check_is_one_of(observed(boards), self.history)
            boards.verify()
            check_keys_count_once(boards, self.history)
            boards.close()


def cuts(folder: Path, rng: random.Random, chosen: set[tuple[int, Unsynced]], fault: Fault | None = None) -> list[Cut]:
    """Play a scenario and cut the power just before the syncs named, counted from 1, and at the very end."""
    made: list[Cut] = []
    history = History()
    with FaultyDisk() as disk:
        live = folder / "live"

        def cut(number: int) -> None:
            for unsynced in Unsynced:
                if (number, unsynced) in chosen:
                    # First what is known to have happened, then the image, which may hold a little more.
                    made.append(Cut(folder / f"cut-{number}-{unsynced.value}", unsynced, history.so_far()))
                    disk.cut_power(live, made[-1].folder, unsynced, rng)

        disk.before_sync = lambda _path: cut(disk.count(Operation.SYNC) + 1)
        if fault is not None:
            disk.fail(fault)
        boards = open_at_last(live, disk.name, lambda: None)
        play(boards, steps(rng), history, lambda: None)
        cut(AT_THE_END)
        close_at_last(boards)
    return made


def count_syncs(folder: Path, rng: random.Random) -> int:
    with FaultyDisk() as disk:
        boards = opened(folder, disk.name)
        play(boards, steps(rng), History(), lambda: None)
        boards.close()
        return disk.count(Operation.SYNC)


def check(cut: Cut) -> None:
    try:
        cut.check()
    except BaseException as error:
        error.add_note(f"{cut.folder.name}, unsynced writes {cut.unsynced.value}")
        raise


@short_and_long
def test_a_power_cut_at_any_sync_loses_nothing_acknowledged(folder: Path, everything: bool) -> None:
    with replayable() as rng:
        for number in range(SCENARIOS_LONG if everything else 1):
            seed, here = rng.randrange(2**32), folder / str(number)
            syncs = count_syncs(here / "counted", random.Random(seed))
            possible = list(product([*range(1, syncs + 1), AT_THE_END], Unsynced))
            chosen = possible if everything else sampled(possible, SAMPLE, rng)
            made = cuts(here, random.Random(seed), set(chosen))
            assert len(made) > len(chosen) // 2
            for cut in made:
                check(cut)
            shutil.rmtree(here)


@short_and_long
def test_a_power_cut_after_a_sync_that_failed_loses_nothing_acknowledged(folder: Path, everything: bool) -> None:
    with replayable() as rng:
        for number in range(SCENARIOS_LONG if everything else 1):
            seed, here = rng.randrange(2**32), folder / str(number)
            nths = list(range(1, count_syncs(here / "counted", random.Random(seed))))
            for nth in nths if everything else sampled(nths, SAMPLE_AFTER_FAULT, rng):
                fault = Fault(Operation.SYNC, nth, Trouble.EIO)
                soon, unsynced = nth + rng.randrange(1, 4), rng.choice(list(Unsynced))
                chosen = {(soon, unsynced), (AT_THE_END, rng.choice(list(Unsynced)))}
                for cut in cuts(here / str(nth), random.Random(seed), chosen, fault):
                    check(cut)
            shutil.rmtree(here)


def add_players(database: Database, first: int) -> None:
    with database.writing() as writer:
        rows = ((first + number, f"player-{first + number:060}") for number in range(ROWS))
        writer.executemany("INSERT INTO players (number, id) VALUES (?, ?)", rows)


@pytest.mark.parametrize("closed_before", [False, True])
def test_what_a_failed_sync_forgot_is_written_again_before_the_log_goes(folder: Path, closed_before: bool) -> None:
    """A checkpoint beside a reader moves a part of the log and does not sync it; the sync it counts on may fail."""
    live = folder / "live"
    live.mkdir()
    with FaultyDisk() as disk:
        database = Database(live, disk.name)
        add_players(database, 1)
        reader = apsw.Connection(str(live / FILE_NAME), vfs=disk.name)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM players").get == ROWS
        add_players(database, ROWS + 1)
        database.checkpoint()
        reader.close()
        disk.fail(Fault(Operation.SYNC, nth=2, trouble=Trouble.EIO))  # The first is of the log, which is durable.
        with pytest.raises(LedgerUnavailable):
            database.checkpoint()
        database.checkpoint()
        add_players(database, 2 * ROWS + 1)
        if not closed_before:
            disk.cut_power(live, folder / "cut", Unsynced.DROPPED, random.Random(7))
        with suppress(LedgerUnavailable):  # Its own open file has not reported the failed sync yet.
            database.close()
        if closed_before:
            database = Database(live, disk.name)
            database.checkpoint(restart=True)
            database.close()
            disk.cut_power(live, folder / "cut", Unsynced.DROPPED, random.Random(7))

    after = apsw.Connection(str(folder / "cut" / FILE_NAME))
    assert after.pragma("integrity_check") == "ok"
    assert after.execute("SELECT count(*) FROM players").get == 3 * ROWS
    after.close()
