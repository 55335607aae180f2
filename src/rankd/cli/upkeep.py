"""`rankd verify` and `rankd rebuild`, of a data folder or of Redis."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import typer
from rich.text import Text

from rankd.boards import Boards
from rankd.cli.options import UPKEEP_PANEL, ConfigFile, Data, Json, examples
from rankd.cli.output import answer, duration_text, progress
from rankd.cli.target import Target
from rankd.cli.texts import counted
from rankd.config.checks import is_in_redis, is_shared
from rankd.config.loading import data_folder
from rankd.config.model import Config
from rankd.folder import FOLDER_MODE
from rankd.node.installation import installation_of
from rankd.projection.verify import digests

_SNAPSHOTS = "snapshots"
_CHECKPOINTS = "checkpoints"
_ASIDE = "snapshots-before-rebuild"

app = typer.Typer()


@app.command(rich_help_panel=UPKEEP_PANEL, epilog=examples("rankd verify", "rankd verify --data scores --json"))
def verify(*, data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Prove that every rank follows from the ledger: recompute all of them by other code, and compare.

    Checks checksums and seals too. Of a scaled-out installation it compares Redis with the ledger, while traffic runs.
    Exit code 5 when something differs.
    """
    began = time.monotonic()
    target = Target.folder_of(data, config)
    if is_in_redis(target.config()):
        _verify_shared(target.config(), as_json)
        return
    with _opened(target) as boards, progress("verifying") as report_progress:
        events = boards.started.position
        report = boards.verify(lambda done: report_progress(done, max(done, events)))
    took = duration_text(time.monotonic() - began)
    answer(
        report,
        as_json,
        lambda: Text.assemble(
            ("✓ ", "green"),
            f"{counted(report.events, 'event')} make the {counted(report.entries, 'entry', 'entries')} of "
            f"{counted(report.instances, 'instance')} ({took})",
        ),
        lambda: [(report.events, report.instances, report.entries)],
    )


class RebuildOutput(msgspec.Struct, frozen=True):
    """What `rankd rebuild --json` prints."""

    events: int
    instances: int
    entries: int
    differed: list[str]  # instances that differed from the ledger before


@app.command(rich_help_panel=UPKEEP_PANEL, epilog=examples("rankd rebuild", "rankd rebuild --data scores"))
def rebuild(*, data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Rank everything again from the ledger, without checkpoints, and write a new one.

    Names the instances that differed from the ledger. Deletes the old checkpoints after the new one is written. Of a
    scaled-out installation it fills Redis again, beside the ranks that are served, and then switches.
    """
    target = Target.folder_of(data, config)
    if is_in_redis(target.config()):
        _rebuild_shared(target.config(), as_json)
        return
    began = time.monotonic()
    with _opened(target) as boards:
        before, position = digests(boards.rank_store), boards.position
    with _without_checkpoints(_checkpoints_of(target.config())), _opened(target, "replaying") as boards:
        after = digests(boards.rank_store)
        events = boards.started.position
        is_same_moment = boards.position == position
        boards.snapshot()
    differed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    rebuilt = RebuildOutput(
        events, len(after), sum(total for _, total in after.values()), differed if is_same_moment else []
    )
    answer(
        rebuilt,
        as_json,
        lambda: _rebuilt_text(rebuilt, duration_text(time.monotonic() - began)),
        lambda: [(rebuilt.events, rebuilt.instances, rebuilt.entries, ",".join(rebuilt.differed))],
    )


@contextmanager
def _opened(target: Target, what: str = "opening") -> Iterator[Boards]:
    with ExitStack() as stack:
        with progress(what) as report_progress:
            boards = stack.enter_context(target.opened_folder(progress=report_progress))
        yield boards


def _checkpoints_of(config: Config) -> Path:
    if is_shared(config):
        return Path(config.ranks.folder).expanduser() / _CHECKPOINTS
    return data_folder(config) / _SNAPSHOTS


@contextmanager
def _without_checkpoints(checkpoints: Path) -> Iterator[None]:
    """Move the checkpoints aside, and back when the block fails.

    Any checkpoint may be in the folder at any time: opening skips those of another ledger.
    """
    aside = checkpoints.parent / _ASIDE
    _move_back(aside, checkpoints)  # of an earlier rebuild that was interrupted
    if checkpoints.exists():
        checkpoints.rename(aside)
    try:
        yield
    except BaseException:
        _move_back(aside, checkpoints)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _move_back(aside: Path, checkpoints: Path) -> None:
    if not aside.exists():
        return
    checkpoints.mkdir(FOLDER_MODE, exist_ok=True)
    for old in aside.iterdir():
        if not (checkpoints / old.name).exists():
            old.rename(checkpoints / old.name)
    shutil.rmtree(aside, ignore_errors=True)


def _rebuilt_text(rebuilt: RebuildOutput, took: str) -> Text:
    text = Text.assemble(
        ("✓ ", "green"),
        f"{counted(rebuilt.events, 'event')} replayed: {counted(rebuilt.entries, 'entry', 'entries')} in "
        f"{counted(rebuilt.instances, 'instance')} ({took})",
    )
    if not rebuilt.differed:
        return text.append("; all of them as before")
    first = ", ".join(rebuilt.differed[:3]) + (", …" if len(rebuilt.differed) > 3 else "")
    return text.append(f"; {counted(len(rebuilt.differed), 'instance')} differed before: {first}", "yellow")


def _verify_shared(config: Config, as_json: bool) -> None:
    installation_of(config)  # raises where drivers are missing
    from rankd.node.open_operations import verify_shared  # noqa: PLC0415 - its drivers are an extra
    from rankd.node.shared_stores import SharedStores  # noqa: PLC0415

    began = time.monotonic()
    with progress("verifying") as report_progress:
        report = verify_shared(SharedStores.of(config), config.ranks.url, report_progress)
    took = duration_text(time.monotonic() - began)
    answer(
        report,
        as_json,
        lambda: Text.assemble(
            ("✓ ", "green"),
            f"{counted(report.events, 'event')} make the {counted(report.entries, 'entry', 'entries')} of "
            f"{counted(report.instances, 'instance')} in Redis ({took})",
        ),
        lambda: [(report.events, report.instances, report.entries)],
    )


def _rebuild_shared(config: Config, as_json: bool) -> None:
    installation_of(config)
    from rankd.node.open_operations import rebuild_shared  # noqa: PLC0415 - its drivers are an extra
    from rankd.node.shared_stores import SharedStores  # noqa: PLC0415

    began = time.monotonic()
    with progress("replaying") as report_progress:
        rebuilt = rebuild_shared(SharedStores.of(config), config.ranks.url, report_progress)
    took = duration_text(time.monotonic() - began)
    answer(
        rebuilt,
        as_json,
        lambda: Text.assemble(
            ("✓ ", "green"),
            f"{counted(rebuilt.events, 'event')} replayed: {counted(rebuilt.entries, 'entry', 'entries')} of "
            f"{counted(rebuilt.boards, 'board')} are new in Redis ({took})",
        ),
        lambda: [(rebuilt.events, rebuilt.boards, rebuilt.entries)],
    )
