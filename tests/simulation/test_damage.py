"""What is damaged on the disk is found or does no harm: never another rank, never a crash."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

import rankd
from rankd.errors import LedgerDamaged, LedgerUnreadable, VerificationFailed

from .disk import FaultyDisk
from .disk_scenario import COUNTRIES, History, Step, befriended, named, observed, opened, play, steps
from .extent import replayable, scratch_folder, short_and_long

pytestmark = pytest.mark.timeout(300)  # hundreds of folders that are opened
FLIPS = 30
OTHERS = 12
TIMES_LONG = 50
LAST = 1_000
WRONG_SHOWN = 10
PAGE_BYTES = 4096


class End(Enum):
    """What became of some damage."""

    FOUND = "found"
    IGNORED = "ignored"  # a snapshot that is not used; what is read is right
    HARMLESS = "harmless"


@dataclass(frozen=True)
class Original:
    """A folder and everything that is read of it."""

    folder: Path
    scenario: list[Step]
    read: list[object]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that takes no time to sync: the damage is done by hand."""
    with scratch_folder() as made_for_this:
        yield made_for_this


def everything_read(boards: rankd.Boards, scenario: list[Step]) -> list[object]:
    """Return all that a user can learn, the answers to requests sent again included."""
    read: list[object] = [observed(boards), boards.position]
    for board in boards.list():
        scopes = [f"country:{country}" for country in COUNTRIES] if boards.board(board).scopes else []
        read += [board, boards.definition(board), boards.distribution(board, buckets=5)]
        read += [boards.top(board, limit=1000, scope=scope) for scope in ("global", *scopes)]
    for step in scenario:
        if step.key is not None:
            read += [step.key, step.call(boards)]
    read.append(observed(boards))
    return read


@contextmanager
def reopened(folder: Path) -> Iterator[rankd.Boards]:
    """Open a copy on a disk that does not wait for syncs."""
    with FaultyDisk() as disk, opened(folder, disk.name) as boards:
        yield boards


def made(within: Path, scenario: list[Step], *, killed: bool) -> Original:
    """Live through a scenario in two sittings; keep the folder as it is then, or as a killed process leaves it."""
    live, kept = within / "live", within / "original"
    half = len(scenario) // 2
    with FaultyDisk() as disk:
        boards = opened(live, disk.name)
        play(boards, scenario[:half], History(), lambda: None)
        boards.close()
        boards = opened(live, disk.name)
        play(boards, scenario[half:], History(), lambda: None)
        if killed:
            shutil.copytree(live, kept)
        boards.close()
    if not killed:
        shutil.copytree(live, kept)
    shutil.copytree(kept, within / "read")
    with reopened(within / "read") as boards:
        return Original(kept, scenario, everything_read(boards, scenario))


def made_without_snapshots(within: Path, scenario: list[Step]) -> Original:
    """Give a killed process's folder in which only the witness can tell that the log has lost something."""
    original = made(within, scenario, killed=True)
    shutil.rmtree(original.folder / "snapshots")
    return original


def end_of(folder: Path, original: Original) -> End:
    """Open, verify and read a folder, and hold what is read against the original."""
    try:
        with reopened(folder) as boards:
            boards.verify()
            read = everything_read(boards, original.scenario)
            passed_over = boards.started.snapshots_skipped > 0
    except (LedgerUnreadable, VerificationFailed):
        return End.FOUND
    for here, there in zip(read, original.read, strict=True):
        assert here == there, "what is read is not what was written"
    return End.IGNORED if passed_over else End.HARMLESS


Kind = Callable[[int, random.Random], Step]
Damage = Callable[[bytearray, random.Random], str]


def flip_a_bit(content: bytearray, rng: random.Random) -> str:
    bit = rng.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    return f"bit {bit} flipped"


def empty_a_page(content: bytearray, rng: random.Random) -> str:
    start = rng.randrange(len(content)) // PAGE_BYTES * PAGE_BYTES
    end = min(start + PAGE_BYTES, len(content))
    content[start:end] = bytes(end - start)
    return f"bytes {start} to {end} made zero"


def cut_short(content: bytearray, rng: random.Random) -> str:
    size = rng.randrange(len(content))
    del content[size:]
    return f"cut at {size} bytes"


def ends_after(damage: Damage, pattern: str, times: int, original: Original, rng: random.Random) -> Counter[End]:
    """Damage one file of a copy, again and again; return how often it ended in which way, all of them right."""
    ends: Counter[End] = Counter()
    wrong: list[str] = []
    for _ in range(times):
        copy = original.folder.with_name("copy")
        shutil.copytree(original.folder, copy)
        path = rng.choice(sorted(copy.glob(pattern)))
        content = bytearray(path.read_bytes())
        done = damage(content, rng)
        path.write_bytes(content)
        try:
            ends[end_of(copy, original)] += 1
        except Exception as error:
            wrong.append(f"{path.name}, {done}: {type(error).__name__}: {str(error).splitlines()[0]}")
        shutil.rmtree(copy)
    counts = ", ".join(f"{count} {end.value}" for end, count in ends.items())
    sys.stdout.write(f"{pattern}, {damage.__name__}: {counts}, {len(wrong)} wrong\n")
    assert not wrong, "\n".join([f"{len(wrong)} of {times}, among them", *wrong[:WRONG_SHOWN]])
    return ends


DAMAGES = [(flip_a_bit, FLIPS), (empty_a_page, OTHERS), (cut_short, OTHERS)]
damages = pytest.mark.parametrize(("damage", "times"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])


@short_and_long
@damages
def test_damage_to_the_database_is_found_or_harmless(
    damage: Damage, times: int, everything: bool, folder: Path
) -> None:
    with replayable() as rng:
        original = made(folder, steps(rng), killed=rng.random() < 0.3)
        ends = ends_after(damage, "ledger.db", times * TIMES_LONG if everything else times, original, rng)
    assert ends[End.FOUND]


@short_and_long
@damages
def test_damage_to_a_snapshot_is_passed_over_or_harmless(
    damage: Damage, times: int, everything: bool, folder: Path
) -> None:
    with replayable() as rng:
        original = made(folder, steps(rng), killed=rng.random() < 0.3)
        ends = ends_after(damage, "snapshots/*/*", times * TIMES_LONG if everything else times, original, rng)
    assert ends[End.IGNORED]
    assert not ends[End.FOUND], "the ledger holds all that is needed"


@short_and_long
@damages
def test_damage_to_the_log_is_found(damage: Damage, times: int, everything: bool, folder: Path) -> None:
    """SQLite ends a damaged log in silence: without the witness, acknowledged events would be missing unnoticed."""
    with replayable() as rng:
        original = made_without_snapshots(folder, steps(rng))
        ends = ends_after(damage, "ledger.db-wal", times * TIMES_LONG if everything else times, original, rng)
    assert ends[End.FOUND]


@pytest.mark.parametrize("last", [named, befriended])
def test_damage_to_what_was_written_last_is_found_though_it_is_no_event(last: Kind, folder: Path) -> None:
    with replayable() as rng:
        original = made_without_snapshots(folder, [*steps(rng), last(LAST, rng)])
        log = original.folder / "ledger.db-wal"
        content = bytearray(log.read_bytes())
        content[-1] ^= 1
        log.write_bytes(content)

        assert end_of(original.folder, original) is End.FOUND


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal"])
def test_a_ledger_that_is_gone_is_not_begun_anew(name: str, folder: Path) -> None:
    with replayable() as rng:
        original = made_without_snapshots(folder, steps(rng))
    (original.folder / name).unlink()

    with pytest.raises(LedgerDamaged), reopened(original.folder):
        pass


@pytest.mark.parametrize("left", [b"", b"RKW1", bytes(64)])
def test_a_witness_that_is_damaged_does_no_harm(left: bytes, folder: Path) -> None:
    with replayable() as rng:
        original = made(folder, steps(rng), killed=True)
        (original.folder / "witness").write_bytes(left)

        assert end_of(original.folder, original) is End.HARMLESS


def test_snapshots_that_are_gone_do_no_harm(folder: Path) -> None:
    with replayable() as rng:
        original = made(folder, steps(rng), killed=True)
        shutil.rmtree(original.folder / "snapshots")

        assert end_of(original.folder, original) is End.HARMLESS
