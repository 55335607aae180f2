"""Every kind of board beside a plain one with as many windows: what a synced event costs, live and replayed.

    join → checkpoint → batches of columns, by turns with the plain board → close, open from that checkpoint

Every event changes its score (keep = latest) unless a kind needs another rule, which its plain board then has too.
"""

from __future__ import annotations

import shutil
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import rankd
from benchmarks.contender import without_garbage_collection
from benchmarks.disk import folder_on_disk
from benchmarks.embedded_subject import BEGIN_MS, SteadyClock, columns_of, rest
from benchmarks.figures import LIVE, PLAIN, RANKD, Row, Scale, Series
from benchmarks.workload import Events, Workload, player_ids
from rankd.backend import Started

BOARD = "bench"
SECONDS_MIN = 1e-6  # of a replay: at a tiny size opening twice takes as long as it likes
FIVE = ["all_time", "monthly", "weekly", "daily", "hourly"]
TWO = ["daily", "weekly"]
FOUR = ["hourly", "daily", "weekly", "monthly"]
ONE = ["all_time"]
VALUES = {"country": 200, "level": 50, "device": 4, "guild": 2_000}  # how many an attribute has
EVENT = "ns_per_event"
MOVED = 100  # one player of so many changes teams with each batch
DAY_MS = 86_400_000
SPREAD_DAYS = 20  # of an `at` that is sent
PROFILES_MAX = 20_000  # each is a synced commit

Definition = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """One kind of board, the plain one that it is held against, and what events bring beside a score."""

    definition: Definition
    plain: Definition
    attributes: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    has_moving_members: bool = False
    has_metadata: bool = False
    has_tiebreaks: bool = False
    has_instants: bool = False
    has_profiles: bool = False  # the attributes come from profiles
    has_keys: bool = False
    boards: int = 1  # of the same kind; the events of a batch come by turns


def _latest(windows: Sequence[str], **more: Any) -> dict[str, Any]:
    return {"windows": list(windows), "keep": "latest", **more}


def _rolled_up(part: str, wholes: Sequence[str]) -> dict[str, Any]:
    keep = {part: "latest", **dict.fromkeys(wholes, f"sum_of_{part}")}
    return {"windows": [part, *wholes], "keep": keep}


KINDS: dict[str, Kind] = {
    "scope": Kind(_latest(FIVE, scopes=["country"]), _latest(FIVE), ("country",)),
    "three_scopes": Kind(
        _latest(FIVE, scopes=["country", "level", "device"]), _latest(FIVE), ("country", "level", "device")
    ),
    "roll_up": Kind(_rolled_up("daily", ["weekly"]), _latest(TWO)),
    "roll_ups": Kind(_rolled_up("hourly", ["daily", "weekly", "monthly"]), _latest(FOUR)),
    "team_sum": Kind(_latest(ONE, team={"attribute": "guild", "by": "sum"}), _latest(ONE), ("guild",)),
    "team_sum_windows": Kind(_latest(FIVE, team={"attribute": "guild", "by": "sum"}), _latest(FIVE), ("guild",)),
    "team_best": Kind({"windows": ONE, "team": {"attribute": "guild", "by": "best"}}, {"windows": ONE}, ("guild",)),
    "team_best_falling": Kind(_latest(ONE, team={"attribute": "guild", "by": "best"}), _latest(ONE), ("guild",)),
    "team_average": Kind(_latest(ONE, team={"attribute": "guild", "by": "average"}), _latest(ONE), ("guild",)),
    "team_average_windows": Kind(
        _latest(FIVE, team={"attribute": "guild", "by": "average"}), _latest(FIVE), ("guild",)
    ),
    "team_moves": Kind(
        _latest(ONE, team={"attribute": "guild", "by": "sum"}), _latest(ONE), ("guild",), has_moving_members=True
    ),
    "decay": Kind(
        _latest(ONE, decay={"factor": 0.9, "every": "1d"}, ties="player", score_min=1),
        _latest(ONE, ties="player", score_min=1),
    ),
    "feeds": Kind(_latest(FIVE), _latest(FIVE), feeds=("fed-1", "fed-2")),
    "metadata": Kind(_latest(FIVE), _latest(FIVE), has_metadata=True),
    "tiebreaks": Kind(_latest(FIVE, ties="value"), _latest(FIVE), has_tiebreaks=True),
    "instants": Kind(_latest(FIVE, late_by="30d"), _latest(FIVE), has_instants=True),
    "profiles": Kind(_latest(FIVE, scopes=["country"]), _latest(FIVE), ("country",), has_profiles=True),
    "keys": Kind(_latest(FIVE), _latest(FIVE), has_keys=True),
    "boards": Kind(_latest(FIVE), _latest(FIVE), boards=20),
}


class KindSubject:
    """The library on a folder with one board of a kind."""

    def __init__(
        self, folder: Path, kind: Kind, players: int, *, is_plain: bool, boards: rankd.Boards | None = None
    ) -> None:
        """`boards` are those of a node, in place of the folder's own."""
        self._folder = folder
        self._kind = kind
        self._is_plain = is_plain
        self._keys = 0
        self._workload = Workload(players)
        self._batches = 0
        self._clock = SteadyClock()
        self.boards = boards or rankd.open(folder, clock=self._clock)
        for fed in () if is_plain else kind.feeds:
            self.boards.define(fed, **kind.plain)
        definition = dict(kind.plain) if is_plain else {**kind.definition, "feeds": list(kind.feeds)}
        for name in self._names:
            self.boards.define(name, **definition)
        if kind.has_profiles and not is_plain:
            for number, player in enumerate(player_ids(np.arange(players, dtype=np.int64))):
                self.boards.set_player(player, country=f"country-{number % VALUES['country']}")

    @property
    def _names(self) -> list[str]:
        if self._is_plain or self._kind.boards == 1:
            return [BOARD]
        return [f"{BOARD}-{number}" for number in range(self._kind.boards)]

    def join(self, batch_rows: int) -> None:
        """Have every player send a score."""
        for events in self._workload.joining(batch_rows):
            for name in self._names:
                self.boards.submit_many(name, **self._batch(events))

    def _batch(self, events: Events) -> dict[str, Any]:
        players, scores = columns_of(Events(events.numbers, events.scores + 1))
        batch: dict[str, Any] = {"players": players, "scores": scores}
        if self._is_plain:
            return batch
        kind, numbers = self._kind, events.numbers.tolist()
        if kind.has_keys:
            self._keys += 1
            batch["key"] = f"batch-{self._keys}"
        if kind.attributes and not kind.has_profiles:
            values = self._moved(numbers) if kind.has_moving_members else numbers
            batch["attributes"] = {
                name: [f"{name}-{value % VALUES[name]}" for value in values] for name in kind.attributes
            }
        if kind.has_metadata:
            batch["metadata"] = [{"replay": f"r-{number:024}", "car": "red", "laps": 3} for number in numbers]
        if kind.has_tiebreaks:
            batch["tiebreaks"] = array("q", [number % 1_000 for number in numbers])
        if kind.has_instants:
            spread = SPREAD_DAYS * DAY_MS
            batch["at"] = array("q", [BEGIN_MS - (number * 7_919_777) % spread for number in numbers])
        return batch

    def _moved(self, numbers: Sequence[int]) -> list[int]:
        """Return numbers by which one player in `MOVED` has another team than in the batch before."""
        self._batches += 1
        return [number + (number + self._batches) // MOVED for number in numbers]

    def turn(self, rows: int, batch_rows: int) -> tuple[float, float, int]:
        """Submit some batches; return time and processor time of an event, and how many were acknowledged."""
        batches = [self._batch(events) for events in self._workload.updates(rows).batches(batch_rows)]
        mixed = [self._mixed(batch) for batch in batches] if self._kind.boards > 1 else []
        acknowledged = 0
        with without_garbage_collection():
            began_ns, worked_ns = time.perf_counter_ns(), time.process_time_ns()
            for events in mixed:
                acknowledged += self.boards.submit_events(events).count
            for batch in [] if mixed else batches:
                acknowledged += self.boards.submit_many(BOARD, **batch).count
            spent_ns, used_ns = time.perf_counter_ns() - began_ns, time.process_time_ns() - worked_ns
        return spent_ns / acknowledged, used_ns / acknowledged, acknowledged

    def _mixed(self, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a batch as events of all boards by turns."""
        rows = zip(cycle(self._names), batch["players"], batch["scores"], strict=False)
        return [{"board": name, "player": player, "score": score} for name, player, score in rows]

    def close(self) -> None:
        self.boards.close()

    def digest(self) -> int:
        """Sum up what every instance of the board holds."""
        return digest_of(self.boards)

    def keep_checkpoint(self) -> None:
        """Copy the newest checkpoint, for `replay`."""
        shutil.copytree(self._folder / "snapshots", self._folder / "kept")

    def replay(self) -> float:
        """Open the folder with the kept checkpoint only; return the cost of an event behind it.

        What opening takes with the newest checkpoint, which is as large and has nothing behind it, is taken off.
        """
        opened = self._reopened()
        self.boards.close()
        shutil.rmtree(self._folder / "snapshots")
        (self._folder / "kept").rename(self._folder / "snapshots")
        started = self._reopened()
        return max(started.seconds - opened.seconds, SECONDS_MIN) * 1e9 / started.replayed

    def _reopened(self) -> Started:
        self.boards.close()
        self.boards = rankd.open(self._folder, clock=self._clock, progress=lambda _done, _all: None)
        return self.boards.started


def digest_of(boards: rankd.Boards) -> int:
    """Sum up what every instance of boards that are ranked here holds."""
    store = boards._backend.rank_store
    return sum(store.digest(key) for key in store.instances()) & ((1 << 64) - 1)


def kind_rows(scale: Scale) -> Iterator[Row]:
    """All rows of one number of players."""
    for name in scale.kinds or KINDS:
        yield from _rows_of(scale, name, KINDS[name])


def _rows_of(scale: Scale, name: str, kind: Kind) -> Iterator[Row]:
    live, replayed = Series(), Series()
    players = min(scale.kinds_players, PROFILES_MAX) if kind.has_profiles else scale.kinds_players
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        subjects = {
            RANKD: KindSubject(folder / "kind", kind, players, is_plain=False),
            PLAIN: KindSubject(folder / "plain", kind, players, is_plain=True),
        }
        for subject in subjects.values():
            stack.callback(subject.close)
            subject.join(scale.embedded_batch_rows)
            rest(subject.boards)
            subject.keep_checkpoint()
        processor: dict[str, list[float]] = {side: [] for side in subjects}
        for _ in range(scale.rounds):
            for side, subject in subjects.items():
                spent, used, acknowledged = subject.turn(scale.kinds_rows, scale.embedded_batch_rows)
                live.add(side, spent, acknowledged)
                processor[side].append(used)
        subject = subjects[RANKD]
        replayed.add(LIVE, live_cost := median(live.samples[RANKD]), subject.digest())
        replayed.add(RANKD, subject.replay(), subject.digest())
        figures = {f"processor_ns_{side}": median(used) for side, used in processor.items()}
        yield live.row(f"kind_{name}", players, EVENT, figures, _note(kind), judged=not scale.smoke)
        yield replayed.row(
            f"kind_{name}_replay",
            players,
            EVENT,
            {"events_per_s": 1e9 / live_cost},
            "live: the same events when they came",
            judged=not scale.smoke,
        )


def _note(kind: Kind) -> str:
    plain = f"plain: {len(kind.plain['windows'])} windows, nothing else"
    return (
        plain
        if kind.boards == 1
        else f"{plain}; {kind.boards} boards by turns, plain: one board, rows of the same form"
    )
