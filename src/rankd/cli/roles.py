"""`rankd migrate` and `rankd project`: the commands of a scaled-out installation."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.text import Text

from rankd.api import logs
from rankd.background import rare_collections
from rankd.cli.options import UPKEEP_PANEL, ConfigFile, Data, Json, examples
from rankd.cli.output import answer, progress
from rankd.cli.target import Target, check_folder
from rankd.cli.texts import counted
from rankd.config.checks import is_in_kafka, is_in_postgres, is_in_redis, is_shared, listen_address
from rankd.config.loading import data_folder, open_settings
from rankd.config.masking import masked_url, masking, secrets_of
from rankd.config.model import Config
from rankd.errors import LedgerUnavailable, Refused
from rankd.ledger.sqlite.database import FILE_NAME, migrations
from rankd.node.installation import installation_of
from rankd.settings import read_settings

_VERSION_AT = 60  # of SQLite's `user_version` in the file, four bytes
START_RETRY_S = 1.0
T = TypeVar("T")
_log = logging.getLogger("rankd")
app = typer.Typer()


class Migrated(msgspec.Struct, frozen=True):
    """What `rankd migrate --json` prints."""

    folder: str  # or the address of the database
    version_before: int
    version: int
    events: int


@app.command(rich_help_panel=UPKEEP_PANEL, epilog=examples("rankd migrate", "rankd migrate --data scores"))
def migrate(*, data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Migrate a data folder, or a PostgreSQL database, to the newest version; creates tables, and topics in Kafka.

    Every start migrates a folder too. For servers the command may run twice, and from several places.
    """
    target = Target.folder_of(data, config)
    loaded = target.config()
    done = _migrate_shared(loaded) if is_shared(loaded) else _migrate_folder(target, data_folder(loaded))
    what = f"{done.folder}, with {counted(done.events, 'event')}, "
    if done.version_before == done.version:
        what += f"is at version {done.version}, the newest there is"
    elif done.version_before == 0:
        what += f"was made, at version {done.version}"
    else:
        what += f"was brought from version {done.version_before} to {done.version}"
    answer(
        done,
        as_json,
        lambda: Text.assemble(("✓ ", "green"), what),
        lambda: [(done.folder, done.version_before, done.version, done.events)],
    )


@app.command(
    "migrate-from", rich_help_panel=UPKEEP_PANEL, epilog=examples("rankd migrate-from rankd-data --config shared.toml")
)
def migrate_from(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="The data folder of an embedded installation, or postgresql://…"),
    ],
    *,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Move an embedded installation into the shared ledger of the configuration: events, profiles and keys.

    Stop its server first. The ledger must be migrated and empty; the folder stays as it is. Run again, it resumes
    after an interruption. Start servers and projectors afterwards: the ranks are the same.

    From a ledger in PostgreSQL the events move, for a ledger in Kafka; registry.url names the database where profiles
    and keys are and stay.
    """
    loaded = Target.folder_of(None, config).config()
    if not is_shared(loaded):
        raise Refused(
            f"ledger.url: {loaded.ledger.url} is a folder; name what to move into: postgresql://… or kafka://…"
        )
    installation_of(loaded)
    from rankd.node.open_operations import move_from, move_ledger  # noqa: PLC0415 - its drivers are an extra
    from rankd.node.shared_stores import SharedStores  # noqa: PLC0415

    stores = SharedStores.of(loaded)
    is_ledger = is_in_postgres(source)
    if is_ledger and not is_in_kafka(stores.ledger_url):
        raise Refused("ledger.url: a ledger in PostgreSQL moves into one in Kafka; copy databases by pg_dump")
    if not is_ledger:
        check_folder(Path(source))
    with progress("moving") as report_progress:
        if is_ledger:
            moved = move_ledger(source, stores, report_progress)
        else:
            moved = move_from(Path(source), stores, report_progress)
    answer(
        moved,
        as_json,
        lambda: Text.assemble(
            ("✓ ", "green"),
            f"{counted(moved.events, 'event')}, {counted(moved.players, 'profile')} (lists of friends among them) and "
            f"{counted(moved.keys, 'key')} are in {masked_url(loaded.ledger.url)}",
        ),
        lambda: [(moved.events, moved.players, moved.keys)],
    )


def _migrate_folder(target: Target, folder: Path) -> Migrated:
    check_folder(folder)
    before = _version_of(folder / FILE_NAME)
    with progress("opening") as report_progress, target.opened_folder(progress=report_progress) as boards:
        events = boards.started.position
    return Migrated(str(folder), before, len(migrations()), events)


def _migrate_shared(config: Config) -> Migrated:
    installation_of(config)  # raises where drivers are missing
    from rankd.node.shared_stores import SharedStores  # noqa: PLC0415 - its drivers are an extra

    stores = SharedStores.of(config)
    before = stores.migrate(config.ledger.partitions)
    with closing(stores.open_ledger()) as ledger:
        events = sum(ledger.heads().sequences)
    version = max(before, stores.ledger_version)  # a newer rankd may have been here
    return Migrated(masked_url(config.ledger.url), before, version, events)


def _version_of(file: Path) -> int:
    with file.open("rb") as opened:
        opened.seek(_VERSION_AT)
        return int.from_bytes(opened.read(4), "big")


@app.command(rich_help_panel=UPKEEP_PANEL, epilog=examples("rankd project", "rankd project --config production.toml"))
def project(*, config: ConfigFile = None) -> None:
    """Rank a shared ledger into Redis, until it is stopped; an embedded server ranks for itself.

    Run two or more: one ranks, the others follow and take over when it dies. It waits for servers that are unavailable.
    """
    loaded = Target.folder_of(None, config).config()
    if not is_shared(loaded):
        raise Refused(
            f"there is nothing to project: this installation is embedded ({loaded.ledger.url}), "
            "where `rankd serve` ranks every score"
        )
    if not is_in_redis(loaded):
        raise Refused(
            f"there is nothing to project: ranks.url is {loaded.ranks.url}, so every `rankd serve` ranks for itself; "
            "name the Redis to rank into: redis://…"
        )
    installation_of(loaded)
    from rankd.node.archives import open_archive  # noqa: PLC0415
    from rankd.node.open_projector import make_projector, prepare_projector_folder  # noqa: PLC0415 - an extra
    from rankd.node.probe_server import ProbeServer  # noqa: PLC0415
    from rankd.node.projector import ProjectorSettings  # noqa: PLC0415
    from rankd.node.projector_figures import ProjectorFigures  # noqa: PLC0415
    from rankd.node.shared_stores import SharedStores  # noqa: PLC0415

    logs.set_up_logs(loaded.server.log_format, loaded.server.log_level, masking(secrets_of(loaded)))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    figures = ProjectorFigures()
    with ExitStack() as opened:
        opened.enter_context(rare_collections())
        if loaded.projector.listen:
            host, port = listen_address("projector.listen", loaded.projector.listen)
            opened.callback(ProbeServer("projector.listen", host, port, figures).close)
        settings = ProjectorSettings(
            checkpoint_events=loaded.projector.checkpoint_events,
            checkpoints_kept=loaded.projector.checkpoints_kept,
            redis_call_updates_max=loaded.ranks.redis_call_updates_max,
        )
        folder = Path(loaded.projector.folder).expanduser()
        prepare_projector_folder(folder)
        stores = SharedStores.of(loaded)
        archive = open_archive(read_settings(open_settings(loaded)), folder)
        projector = _retry_until_ledger(
            lambda: make_projector(
                stores, loaded.ranks.url, folder, settings=settings, figures=figures, archive=archive
            ),
            stop,
        )
        if projector is not None:
            projector.run(stop)
    _log.info("stopped")


def _retry_until_ledger(make: Callable[[], T], stop: threading.Event) -> T | None:
    """Make a projector as soon as the ledger is available; None when `stop` is set before."""
    logged: str | None = None
    while not stop.is_set():
        try:
            return make()
        except LedgerUnavailable as problem:
            if str(problem) != logged:
                logged = str(problem)
                _log.warning("the projector waits for the ledger before it starts: %s", problem)
            stop.wait(START_RETRY_S)
    return None
