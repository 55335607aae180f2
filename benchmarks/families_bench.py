"""A family of small boards through the library: one board by one scope, with very many values, in a daily window.

    fill → memory → close → open from the checkpoint → top of a value beside top of a lone board → midnight, archive,
    retirement, while one thread submits and one reads

Waits are those of single calls, a submit with its sync. The same threads run before midnight: what they wait then is
the machine's and the disk's own part. Everything happens in a process of its own.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

import rankd
from benchmarks.contender import without_garbage_collection
from benchmarks.disk import bytes_below, folder_on_disk
from benchmarks.figures import BOARD_PLAYERS, LONE, QUIET, RANKD, Row, Scale, Series
from benchmarks.isolated import resident_bytes, run_isolated
from benchmarks.workload import SEED, Workload, player_ids

FAMILY, ALONE = "lobbies", "lone"
ATTRIBUTE = "lobby"
BEGIN_MS = 1_777_888_800_000  # 2026-05-04 10:00 UTC
TO_MIDNIGHT_MS = 14 * 3_600_000
LATE_BY_MS, RETENTION_MS = 60_000, 3_600_000
FINISH_S_MAX = 3_000.0
LOOK_EVERY_S = 0.05


class Family(msgspec.Struct, frozen=True):
    """What to build and to ask."""

    values: int
    players: int  # who stand in BOARD_PLAYERS of the boards each, on average
    batch_rows: int
    calls: int  # of a round
    rounds: int
    quiet_s: float


class FamilyFigures(msgspec.Struct, frozen=True):
    """What came out."""

    entries: int
    fill_s: float
    resident_bytes: int  # growth by filling
    engine_bytes: int
    disk_bytes: int
    snapshot_s: float
    open_s: float
    top_ns: list[float]  # of one value, read again and again
    top_any_ns: list[float]  # of any value, hardly ever the same
    top_lone_ns: list[float]
    top_checksum: int
    waits: dict[str, dict[str, float]]  # by phase: longest and 99.9th of submits and reads, in ns
    roll_over_s: float  # from midnight until nothing is left of the day
    archive_bytes: int


def families_rows(scale: Scale) -> Iterator[Row]:
    """Memory, opening, the top of one value, and waits around midnight."""
    asked = Family(
        values=scale.family_values,
        players=scale.family_players,
        batch_rows=scale.embedded_batch_rows,
        calls=scale.family_calls,
        rounds=scale.rounds,
        quiet_s=scale.family_quiet_s,
    )
    figures = run_isolated(__name__, asked, FamilyFigures)
    entries, judged = figures.entries, not scale.smoke

    def row(
        name: str, unit: str, cost: float, extra: dict[str, float], *, note: str, beside: float | None = None
    ) -> Row:
        series = Series()
        series.add(RANKD, cost)
        if beside is not None:
            series.add(QUIET, beside)
        return series.row(name, entries, unit, extra, note, judged=judged)

    yield row(
        "family_memory",
        "bytes_per_entry",
        figures.resident_bytes / entries,
        {
            "engine_bytes_per_entry": figures.engine_bytes / entries,
            "disk_bytes_per_entry": figures.disk_bytes / entries,
            "fill_us_per_event": figures.fill_s * 1e6 / entries,
            "values": float(scale.family_values),
        },
        note="growth of a process by filling, players and ledger included",
    )
    yield row("family_open", "seconds", figures.open_s, {"snapshot_s": figures.snapshot_s}, note="from a checkpoint")
    for name, samples, which in (
        ("family_top", figures.top_ns, "one value"),
        ("family_top_any", figures.top_any_ns, "any of the values, from memory that no cache holds"),
    ):
        top = Series()
        for ours, lone in zip(samples, figures.top_lone_ns, strict=True):
            top.add(RANKD, ours)
            top.add(LONE, lone)
        top.checksums = dict.fromkeys((RANKD, LONE), figures.top_checksum)
        yield top.row(name, entries, "ns_per_call", note=f"{which}; lone: a board of as many players", judged=judged)
    night, quiet = figures.waits["midnight"], figures.waits["quiet"]
    extra = {"roll_over_s": figures.roll_over_s, "archive_bytes_per_entry": figures.archive_bytes / entries}
    for kind in ("submit", "read"):
        yield row(
            f"family_midnight_{kind}",
            "longest_wait_ns",
            night[f"{kind}_longest"],
            {**extra, "p999_ns": night[f"{kind}_p999"], "quiet_p999_ns": quiet[f"{kind}_p999"]},
            note="until the day is archived and gone; quiet: before midnight",
            beside=quiet[f"{kind}_longest"],
        )


class _Calls:
    """One thread that makes a call again and again, and how long each took."""

    def __init__(self, call: Callable[[random.Random], object], seed: int) -> None:
        self._call = call
        self._rng = random.Random(seed)
        self._took_ns: list[int] = []
        self._stop = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.001):  # a client pauses; a processor of two is left to the rest
                began_ns = time.perf_counter_ns()
                self._call(self._rng)
                self._took_ns.append(time.perf_counter_ns() - began_ns)
        except BaseException as problem:
            self._problem = problem

    def end(self) -> tuple[float, float]:
        """Return the longest, and the 99.9th of a hundred."""
        self._stop.set()
        self._thread.join()
        if self._problem is not None:
            raise self._problem
        return float(max(self._took_ns)), float(np.percentile(self._took_ns, 99.9))


class _Subject:
    def __init__(self, asked: Family, folder: Path) -> None:
        self._asked = asked
        self._folder = folder
        self._clock = rankd.ManualClock(BEGIN_MS)
        self.boards = rankd.open(folder, clock=self._clock)

    def fill(self) -> float:
        """Define and fill the family, and a board of its own with the players of the first value."""
        asked, boards = self._asked, self.boards
        retention = f"{RETENTION_MS}ms"
        boards.define(
            FAMILY,
            windows=["daily"],
            scopes=[ATTRIBUTE],
            global_=False,
            late_by=f"{LATE_BY_MS}ms",
            retention=retention,
            scope_values_max=asked.values,
            ties="player",
        )
        boards.define(ALONE, windows=["daily"], late_by=f"{LATE_BY_MS}ms", retention=retention, ties="player")
        workload = Workload(asked.players)
        values_a_batch = max(1, asked.batch_rows // BOARD_PLAYERS)
        began_s = time.perf_counter()
        for first in range(0, asked.values, values_a_batch):
            values = range(first, min(first + values_a_batch, asked.values))
            # Players next to each other differ, so nobody stands twice in one lobby.
            starts = workload.numbers(len(values))
            numbers = (starts[:, None] + np.arange(BOARD_PLAYERS)) % asked.players
            scores = workload.scores(numbers.size)
            attributes = [
                player_attributes
                for value in values
                for player_attributes in [{ATTRIBUTE: f"{value:07d}"}] * BOARD_PLAYERS
            ]
            players = player_ids(numbers.ravel())
            boards.submit_many(FAMILY, players=players, scores=scores.tolist(), attributes=attributes)
            if first == 0:
                boards.submit_many(ALONE, players=players[:BOARD_PLAYERS], scores=scores[:BOARD_PLAYERS].tolist())
        return time.perf_counter() - began_s

    def reopen(self) -> tuple[float, float]:
        """Return how long a checkpoint and an opening from it take."""
        began_s = time.perf_counter()
        self.boards.snapshot()
        saved_s = time.perf_counter()
        self.boards.close()
        closed_s = time.perf_counter()
        self.boards = rankd.open(self._folder, clock=self._clock)
        if self.boards.started.replayed:
            raise RuntimeError("the boards were not opened from the checkpoint alone")
        return saved_s - began_s, time.perf_counter() - closed_s

    def tops(self) -> tuple[list[float], list[float], list[float], int]:
        """Return what tops of one value, of any and of a lone board cost by turns, and their checksum."""
        rng = random.Random(SEED)
        single, several, lone = [], [], []
        calls = self._asked.calls
        for _ in range(self._asked.rounds):
            some = [self._scope(rng) for _ in range(calls)]
            with without_garbage_collection():
                single.append(self._top_ns(FAMILY, some[:1] * calls))
                several.append(self._top_ns(FAMILY, some))
                lone.append(self._top_ns(ALONE, [None] * calls))
        sums = {
            sum(entry.rank * entry.score for entry in page.entries)
            for page in (self.boards.top(FAMILY, 10, scope=f"{ATTRIBUTE}:{0:07d}"), self.boards.top(ALONE, 10))
        }
        if len(sums) != 1:
            raise RuntimeError("a value and a lone board of the same scores answer differently")
        return single, several, lone, sums.pop()

    def _top_ns(self, board: str, scopes: Sequence[str | None]) -> float:
        began_ns = time.perf_counter_ns()
        for scope in scopes:
            self.boards.top(board, 10, scope=scope)
        return (time.perf_counter_ns() - began_ns) / len(scopes)

    def waits(self, work: Callable[[], None]) -> dict[str, float]:
        """Return what single calls wait at most while some work is done."""
        submits, reads = _Calls(self._submit, 1), _Calls(self._read, 2)
        try:
            work()
        finally:
            costs_by_kind = {"submit": submits.end(), "read": reads.end()}
        return {
            f"{kind}_{what}": cost
            for kind, costs in costs_by_kind.items()
            for what, cost in zip(("longest", "p999"), costs, strict=True)
        }

    def pass_midnight(self) -> None:
        """Let the day end, be final, be archived and be gone."""
        day = self.boards.figures().entries
        self._clock.advance(TO_MIDNIGHT_MS)
        time.sleep(1.0)  # both threads are in the new day
        self._clock.advance(LATE_BY_MS)
        self._wait_for(lambda: any((self._folder / "archive" / "standings").glob(f"{FAMILY}.*/*/manifest-*.json")))
        self._clock.advance(RETENTION_MS)
        most = day

        def is_going() -> bool:
            # The new day grows meanwhile, on a slow machine beyond what is left of the old one.
            nonlocal most
            entries = self.boards.figures().entries
            most = max(most, entries)
            return entries < most - day / 2

        self._wait_for(is_going)

    @staticmethod
    def _wait_for(is_so: Callable[[], bool]) -> None:
        until_s = time.monotonic() + FINISH_S_MAX
        while not is_so():
            if time.monotonic() > until_s:
                raise RuntimeError("the day did not end in time")
            time.sleep(LOOK_EVERY_S)

    def _scope(self, rng: random.Random) -> str:
        return f"{ATTRIBUTE}:{rng.randrange(self._asked.values):07d}"

    def _submit(self, rng: random.Random) -> None:
        value, player = rng.randrange(self._asked.values), rng.randrange(self._asked.players)
        self.boards.submit(
            FAMILY, f"user_{player:08d}", rng.randrange(1_000_000), attributes={ATTRIBUTE: f"{value:07d}"}
        )

    def _read(self, rng: random.Random) -> None:
        self.boards.top(FAMILY, 10, scope=self._scope(rng))


def _say(what: str) -> None:
    print(f"family: {what}", file=sys.stderr, flush=True)


def _measured(asked: Family) -> FamilyFigures:
    with folder_on_disk() as folder:
        subject = _Subject(asked, folder)
        gc.collect()
        before_bytes = resident_bytes()
        fill_s = subject.fill()
        gc.collect()
        grown, figures = resident_bytes() - before_bytes, subject.boards.figures()
        _say(f"filled in {fill_s:.0f} s, {grown / figures.entries:.1f} bytes an entry")
        disk = bytes_below(folder)
        snapshot_s, open_s = subject.reopen()
        _say(f"saved in {snapshot_s:.1f} s, opened in {open_s:.1f} s")
        top_ns, top_any_ns, top_lone_ns, checksum = subject.tops()
        quiet = subject.waits(lambda: time.sleep(asked.quiet_s))
        _say(f"before midnight: {quiet}")
        began_s = time.perf_counter()
        midnight = subject.waits(subject.pass_midnight)
        roll_over_s = time.perf_counter() - began_s
        archived = bytes_below(folder / "archive")
        subject.boards.close()
    return FamilyFigures(
        entries=asked.values * BOARD_PLAYERS,
        fill_s=fill_s,
        resident_bytes=grown,
        engine_bytes=figures.engine_bytes,
        disk_bytes=disk,
        snapshot_s=snapshot_s,
        open_s=open_s,
        top_ns=top_ns,
        top_any_ns=top_any_ns,
        top_lone_ns=top_lone_ns,
        top_checksum=checksum,
        waits={"quiet": quiet, "midnight": midnight},
        roll_over_s=roll_over_s,
        archive_bytes=archived,
    )


if __name__ == "__main__":
    print(msgspec.json.encode(_measured(msgspec.json.decode(sys.argv[1], type=Family))).decode())
