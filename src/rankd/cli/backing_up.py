"""`rankd backup` and `rankd restore`: a data folder to its archive, and back."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from rankd.archive.objects import ObjectStore
from rankd.archive.open_objects import open_objects
from rankd.backup.restoring import Restored, restore
from rankd.backup.sending import Backup, send_beside
from rankd.cli import upkeep
from rankd.cli.exits import UsageError
from rankd.cli.options import UPKEEP_PANEL, ConfigFile, Data, Json, examples
from rankd.cli.output import answer, duration_text, note, progress
from rankd.cli.target import Target, check_folder
from rankd.cli.texts import counted, utc_text
from rankd.clock import SystemClock
from rankd.config.checks import is_shared
from rankd.config.loading import data_folder, open_settings
from rankd.config.model import Config
from rankd.errors import FolderLocked
from rankd.node.open_embedded import open_boards

POSTGRES_WAYS = (
    "a ledger in PostgreSQL is copied by PostgreSQL: pg_dump --format=custom of the whole database, or point-in-time "
    "recovery (a base backup and archived WAL); take profiles and keys with it where registry.url is another database. "
    "After restoring it, run `rankd verify`; it is run now"
)
ArchiveUrl = Annotated[
    str | None,
    typer.Argument(
        metavar="[URL]", help="A folder, or s3://…, gs://…, az://…; by default archive.url.", show_default=False
    ),
]
app = typer.Typer()


class ProvenBackup(msgspec.Struct, frozen=True):
    """What `rankd backup --verify --json` prints."""

    position: str
    at: int
    segments: int
    events: int
    instances: int
    entries: int


@app.command(
    rich_help_panel=UPKEEP_PANEL,
    epilog=examples("rankd backup s3://scores/arcade", "rankd backup --verify", "rankd backup --data scores /mnt/copy"),
)
def backup(
    url: ArchiveUrl = None,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Send nothing: restore into a temporary folder, and verify that.")
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Send everything to the archive now, also while a server uses the folder; it is there when this returns.

    Of a ledger in PostgreSQL it names what to use instead, and runs `rankd verify`.
    """
    target = Target.folder_of(data, config)
    loaded = target.config()
    if is_shared(loaded):
        note(POSTGRES_WAYS)
        upkeep.verify(data=data, config=config, as_json=as_json)
        return
    objects = _objects(url, loaded)
    began = time.monotonic()
    if verify:
        verified = _verify(objects)
        took = duration_text(time.monotonic() - began)
        answer(verified, as_json, lambda: _verified_text(verified, took), lambda: [msgspec.structs.astuple(verified)])
        return
    sent = _send(loaded, url or loaded.archive.url, objects)
    took = duration_text(time.monotonic() - began)
    answer(
        sent,
        as_json,
        lambda: Text.assemble(
            ("✓ ", "green"),
            f"{sent.url} has everything up to position {sent.position} of {utc_text(sent.at)}: "
            f"{counted(sent.segments, 'segment')}, {sent.sent:,} of them new ({took})",
        ),
        lambda: [(sent.position, sent.at, sent.segments, sent.sent)],
    )


@app.command(
    "restore",
    rich_help_panel=UPKEEP_PANEL,
    epilog=examples("rankd restore s3://scores/arcade rankd-data", "rankd restore /mnt/copy scores --upto 120000"),
)
def restore_folder(
    url: Annotated[str, typer.Argument(metavar="URL", help="The archive: a folder, or s3://…, gs://…, az://….")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to: a folder that is empty or missing.")],
    *,
    upto: Annotated[
        int | None,
        typer.Option(metavar="EVENT", min=1, help="Leave out what came after this event.", show_default=False),
    ] = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Restore a data folder from its archive, on a machine that has nothing of it.

    Repeat it after an interruption. Then serve the folder: with the same archive.url it goes on where it ended.
    """
    objects = _objects(url, Target.folder_of(None, config).config())
    with progress("restoring") as report_progress:
        restored = restore(objects, folder.expanduser(), upto, report_progress)
    answer(restored, as_json, lambda: _restored_text(restored), lambda: [_restored_fields(restored)])


def _objects(url: str | None, config: Config) -> ObjectStore:
    archive = config.archive
    if not (url or archive.url):
        raise UsageError("name the archive, or set archive.url.")
    return open_objects(url or archive.url, Path(), endpoint=archive.endpoint, region=archive.region)


def _send(config: Config, url: str, objects: ObjectStore) -> Backup:
    folder = data_folder(config)
    check_folder(folder)
    every_ms = config.archive.segments_every_ms if url == config.archive.url else 0  # how a server goes on
    settings: dict[str, Any] = {**open_settings(config), "archive_url": ""}
    with ExitStack() as opened:
        with suppress(FolderLocked):  # by a server, beside which the folder is read
            opened.enter_context(open_boards(folder, **settings)).snapshot()
        return send_beside(objects, folder, SystemClock(), every_ms)


def _verify(objects: ObjectStore) -> ProvenBackup:
    with tempfile.TemporaryDirectory(prefix="rankd-verify-") as temporary:
        with progress("restoring") as report_progress:
            restored = restore(objects, Path(temporary), None, report_progress)
        with open_boards(temporary) as boards, progress("verifying") as report_progress:
            report = boards.verify(lambda done: report_progress(done, max(done, restored.events)))
    return ProvenBackup(
        restored.position, restored.at, restored.segments, report.events, report.instances, report.entries
    )


def _verified_text(verified: ProvenBackup, took: str) -> Text:
    return Text.assemble(
        ("✓ ", "green"),
        f"{counted(verified.segments, 'segment')} restore position {verified.position} of {utc_text(verified.at)}: "
        f"{counted(verified.events, 'event')} make the {counted(verified.entries, 'entry', 'entries')} of "
        f"{counted(verified.instances, 'instance')} ({took})",
    )


def _restored_text(restored: Restored) -> Text:
    text = Text.assemble(
        ("✓ ", "green"),
        f"{restored.folder} has everything up to position {restored.position} of {utc_text(restored.at)}: "
        f"{counted(restored.events, 'event')} of {counted(restored.players, 'player')}. ",
    )
    if not restored.is_whole:
        return text.append("The archive has more than that.", "yellow")
    lost = f"at most {restored.missing_ms_max / 1_000:g} s" if restored.missing_ms_max else "everything"
    return text.append(
        f"The server last sent what it had at {utc_text(restored.read_at)}: of what it acknowledged later, {lost} is "
        "missing, more if it was said to be behind.",
        "yellow",
    )


def _restored_fields(restored: Restored) -> tuple[object, ...]:
    return (
        restored.position,
        restored.at,
        restored.events,
        restored.players,
        restored.read_at,
        restored.missing_ms_max,
        restored.is_whole,
    )
