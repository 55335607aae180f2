"""`rankd archive`: list, verify, fetch and prune what is kept of windows that are over.

These commands read the archive itself, also while a server uses it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from rankd.archive.manifest import Manifest
from rankd.archive.windows import WindowArchive, archived_until
from rankd.cli.options import BoardOption, ConfigFile, Data, Json, examples
from rankd.cli.output import answer, duration_text, progress, table
from rankd.cli.target import Target
from rankd.cli.texts import counted
from rankd.config.checks import is_in_redis, is_shared
from rankd.config.loading import data_folder, open_settings
from rankd.config.model import Config
from rankd.domain.duration import parse_duration
from rankd.errors import ArchiveDamaged, ArchiveUnavailable, Refused
from rankd.folder import private_opener
from rankd.node.archives import open_archive
from rankd.settings import read_settings

app = typer.Typer(no_args_is_help=True, epilog=examples("rankd archive list", "rankd archive verify"))


class ListedWindow(msgspec.Struct, frozen=True):
    """One line of `rankd archive list --json`."""

    board: str
    window: str
    closed_at: int | None
    entries: int  # of all scopes
    rows: int  # of them in the file
    size: int  # bytes
    path: str


@app.command(name="list", epilog=examples("rankd archive list", "rankd archive list --board arcade --json"))
def list_windows(
    *, board: BoardOption = None, data: Data = None, config: ConfigFile = None, as_json: Json = False
) -> None:
    """List the windows that are archived."""
    listed = [_listed(each.manifest) for each in _archive(data, config).manifests(board)]

    def drawn() -> RenderableType:
        made = table("board", "window", "entries", "in the file", "bytes", right=("entries", "in the file", "bytes"))
        for each in listed:
            made.add_row(each.board, each.window, f"{each.entries:,}", f"{each.rows:,}", f"{each.size:,}")
        return made if listed else Text("Nothing is archived.", "dim")

    answer(listed, as_json, drawn, lambda: [msgspec.structs.astuple(each) for each in listed])


class VerifiedArchive(msgspec.Struct, frozen=True):
    """What `rankd archive verify --json` prints."""

    windows: int
    entries: int
    size: int  # bytes
    damaged: dict[str, str]  # what is wrong, by path


@app.command(epilog=examples("rankd archive verify", "rankd archive verify --board arcade"))
def verify(*, board: BoardOption = None, data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Read every archived window whole, and compare its bytes and standings with their digests.

    Exit code 5 when something differs.
    """
    began, archive = time.monotonic(), _archive(data, config)
    listed, damaged = list(archive.manifests(board)), {}
    with progress("verifying") as report_progress:
        for index, each in enumerate(listed):
            problem = archive.check(each.manifest)
            if problem is not None:
                damaged[each.manifest.file_path] = problem
            report_progress(index + 1, len(listed))
    verified = VerifiedArchive(
        len(listed),
        sum(each.manifest.file.rows for each in listed),
        sum(each.manifest.file.size for each in listed),
        damaged,
    )
    took = duration_text(time.monotonic() - began)
    if not damaged or as_json:
        answer(
            verified,
            as_json,
            lambda: Text.assemble(
                ("✓ ", "green"),
                f"{counted(verified.windows, 'window')} with {counted(verified.entries, 'entry', 'entries')} read as "
                f"they were archived ({took})",
            ),
            lambda: [(verified.windows, verified.entries, verified.size)],
        )
    if damaged:
        path, problem = next(iter(damaged.items()))
        raise ArchiveDamaged(
            f"{path}: {problem}; {counted(len(damaged), 'window')} of {len(listed)} differ: restore copies of them, or "
            "let a window that is still in the ranks be archived again by deleting its manifest"
        )


class FetchedWindow(msgspec.Struct, frozen=True):
    """What `rankd archive fetch --json` prints."""

    file: str
    rows: int
    size: int  # bytes


@app.command(epilog=examples("rankd archive fetch arcade weekly:2026-W18 --output w18.parquet"))
def fetch(
    board: Annotated[str, typer.Argument(metavar="BOARD", help="The board's id.")],
    window: Annotated[str, typer.Argument(metavar="WINDOW", help="The instance, such as weekly:2026-W18.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The Parquet file to write.")],
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Copy the Parquet file of a window, and check its digest.

    Of boards that were deleted and defined again, it is the newest with this window.
    """
    archive = _archive(data, config)
    candidates = [each.manifest for each in archive.manifests(board) if each.manifest.window == window]
    if not candidates:
        raise Refused(f"window: {window} of board {board} is not archived; `rankd archive list` names what is")
    manifest = max(candidates, key=lambda each: each.born)
    with _new_file(output) as draft:
        archive.copy(manifest, draft)
    fetched = FetchedWindow(str(output), manifest.file.rows, manifest.file.size)
    answer(
        fetched,
        as_json,
        lambda: Text.assemble(("✓ ", "green"), f"{counted(fetched.rows, 'row')} in {fetched.file}"),
        lambda: [msgspec.structs.astuple(fetched)],
    )


class PrunedArchive(msgspec.Struct, frozen=True):
    """What `rankd archive prune --json` prints."""

    windows: int
    objects: int
    size: int  # bytes


@app.command(epilog=examples("rankd archive prune", "rankd archive prune --older-than 730d"))
def prune(
    *,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="DURATION", help="Windows final for longer, such as 730d, too."),
    ] = None,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Delete archived windows that are kept no longer, by `archive_keep` when they were archived.

    Servers do so by themselves, by the board's definition of today. Windows that are still in the ranks would be
    archived again: give `--older-than` more than the board's `retention`.
    """
    keep_ms = None if older_than is None else parse_duration("--older-than", older_than)
    now = time.time_ns() // 1_000_000

    def until(manifest: Manifest) -> int | None:
        if keep_ms is not None and manifest.closed_at is not None and manifest.closed_at + keep_ms <= now:
            return now
        return archived_until(manifest)

    pruned = _archive(data, config).prune(until, now)
    answer(
        PrunedArchive(*pruned),
        as_json,
        lambda: Text(f"{counted(pruned.windows, 'window')} deleted, {pruned.size:,} bytes"),
        lambda: [tuple(pruned)],
    )


def _listed(manifest: Manifest) -> ListedWindow:
    return ListedWindow(
        manifest.board,
        manifest.window,
        manifest.closed_at,
        manifest.entries,
        manifest.file.rows,
        manifest.file.size,
        manifest.file_path,
    )


def _archive(data: Path | None, config: Path | None) -> WindowArchive:
    """Return the archive that the configuration names, or that of a folder."""
    loaded = Target.folder_of(data, config).config()
    return open_archive(read_settings(open_settings(loaded)), _folder(loaded))


def _folder(loaded: Config) -> Path:
    if not is_shared(loaded):
        return data_folder(loaded)
    return Path(loaded.projector.folder if is_in_redis(loaded) else loaded.ranks.folder).expanduser()


@contextmanager
def _new_file(output: Path) -> Iterator[Path]:
    """Yield a draft beside a file, which it becomes at the end."""
    draft = output.with_name(f".{output.name}.draft")
    try:
        with open(draft, "wb", opener=private_opener):
            pass
        yield draft
        draft.replace(output)
    except OSError as problem:
        raise ArchiveUnavailable(f"{output} cannot be written: {problem.strerror}; name another file") from problem
    finally:
        draft.unlink(missing_ok=True)
