"""The embedded library with ten million players in five windows, in a process of its own; minutes to build.

join → rest → events by turns with a folder of few players (growth) → close → open from the snapshot

Upkeep rests while growth is measured: ten million events leave it a snapshot and an index to write, which the few of
the other folder do not; and a folder that has its turn over is one where no events come, so its upkeep would index
them while the other is measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec

from benchmarks.contender import Timed, without_garbage_collection
from benchmarks.disk import folder_on_disk
from benchmarks.embedded_bench import check_places, disk_rows, opening_shares
from benchmarks.embedded_stand import shares_of
from benchmarks.embedded_subject import SAMPLE_PLAYERS, Embedded, columns_of
from benchmarks.figures import RANKD, SMALLER, Row, Scale, Series
from benchmarks.isolated import resident_bytes, resident_peak_bytes, run_isolated


class HugeFolder(msgspec.Struct, frozen=True):
    """What to build: a folder with many players, and one with few to compare with."""

    players: int
    players_smaller: int
    batch_rows: int
    rows: int
    rounds: int
    open_rounds: int
    judged: bool


class HugeFolderFigures(msgspec.Struct, frozen=True):
    """What came out; lists hold a sample a round."""

    joining_s: float
    ns_per_event: list[float]
    ns_per_event_smaller: list[float]
    open_s: list[float]
    shares: dict[str, float]  # of a round of events more
    open_shares: dict[str, float]  # of an opening more
    resident_bytes: int
    peak_bytes: int
    disk: list[Row]


def embedded_huge_rows(scale: Scale) -> Iterator[Row]:
    """Growth, opening, and what is on disk."""
    asked = HugeFolder(
        players=scale.embedded_players_huge,
        players_smaller=scale.embedded_players_smaller,
        batch_rows=scale.embedded_batch_rows,
        rows=scale.embedded_rows,
        rounds=scale.rounds,
        open_rounds=min(scale.rounds, scale.load_rounds_max),
        judged=not scale.smoke,
    )
    figures = run_isolated(__name__, asked, HugeFolderFigures)
    growth = Series({RANKD: figures.ns_per_event, SMALLER: figures.ns_per_event_smaller})
    yield growth.row(
        "embedded_growth",
        asked.players,
        "ns_per_event",
        {
            "joining_events_per_second": asked.players / figures.joining_s,
            "resident_bytes": float(figures.resident_bytes),
            "peak_bytes": float(figures.peak_bytes),
            **figures.shares,
        },
        f"smaller: the same with {asked.players_smaller:,} players",
        judged=asked.judged,
    )
    opened = Series({RANKD: figures.open_s})
    note = "from a snapshot of five windows, nothing to replay"
    yield opened.row("embedded_open", asked.players, "seconds", figures.open_shares, note, judged=asked.judged)
    yield from figures.disk


def _measured(asked: HugeFolder) -> HugeFolderFigures:
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        large = Embedded(folder / "large", asked.players)
        stack.callback(large.close)
        smaller = Embedded(folder / "smaller", asked.players_smaller)
        stack.callback(smaller.close)
        began = time.perf_counter()
        _join(large, asked.batch_rows)
        joining_s = time.perf_counter() - began
        _join(smaller, asked.batch_rows)
        large.rest()
        smaller.rest()
        ns_per_event: list[float] = []
        ns_per_event_smaller: list[float] = []
        for _ in range(asked.rounds):
            for subject, samples in ((large, ns_per_event), (smaller, ns_per_event_smaller)):
                large.wait_for_index()
                smaller.wait_for_index()
                with without_garbage_collection():
                    samples.append(_update(subject, asked).ns_per_operation)
        shares = shares_of(lambda: _update(large, asked))
        held_bytes = resident_bytes()
        sample = list(dict.fromkeys(large.workload.ids(SAMPLE_PLAYERS)))
        before = large.places(sample)
        large.close()
        disk = list(disk_rows(large, large.events, judged=asked.judged))
        open_s: list[float] = []
        for _ in range(asked.open_rounds):
            open_s.append(large.open_again(with_snapshot=True).seconds)
            check_places(large, sample, before)
        open_shares = opening_shares(large, with_snapshot=True)
        return HugeFolderFigures(
            joining_s=joining_s,
            ns_per_event=ns_per_event,
            ns_per_event_smaller=ns_per_event_smaller,
            open_s=open_s,
            shares=shares,
            open_shares=open_shares,
            resident_bytes=held_bytes,
            peak_bytes=resident_peak_bytes(),
            disk=disk,
        )


def _join(subject: Embedded, batch_rows: int) -> None:
    for events in subject.workload.joining(batch_rows):
        subject.submit_columns([columns_of(events)])


def _update(subject: Embedded, asked: HugeFolder) -> Timed:
    events = subject.workload.updates(asked.rows)
    return subject.submit_columns([columns_of(some) for some in events.batches(asked.batch_rows)])


if __name__ == "__main__":
    print(msgspec.json.encode(_measured(msgspec.json.decode(sys.argv[1], type=HugeFolder))).decode())
